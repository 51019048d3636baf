"""AWS: what lasts, by Pulumi, and what comes and goes, by EC2's own API; and who of it may join.

Comes in: the wanted cluster, the record, what instances say of themselves. Goes out: resources, nodes. Called by: the
command (plan, apply, destroy), stacks/aws, the controller, api. docs/decisions/0003-aws.md says how the parts meet.
"""
