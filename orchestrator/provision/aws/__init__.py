"""Aws sites: what lasts is declared to Pulumi, what comes and goes is launched by the controller.

Comes in: a spec, the name of its site, the facts of an earlier run. Goes out: resources in the account, and the facts
that others go by. Called by: the command (`plan`, `apply`, `drift`, `destroy`), `stacks/aws`, and the controller.
"""
