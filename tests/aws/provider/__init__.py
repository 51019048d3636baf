"""A stand-in for Pulumi's AWS provider, for tests: the real engine talks to it, and it talks boto3 to the moto server.

Comes in: gRPC of the engine. Goes out: what the types of `kinds` say. Called by: the engine, which finds the program
`pulumi-resource-aws` of tests.aws.fixture on PATH before any plugin of its own. It has the types that Gangline's stack
uses and no others; it knows no schema, which Python programs don't need.

    __main__.py  the process: prints its port, serves, ends with the engine
    server.py    the gRPC service: check, diff, create, read, update, delete, invoke
    values.py    values on the wire, unknown ones, and what differs
    kinds.py     what a type is: how it is made, read, changed, ended
    shapes.py    Pulumi's words to AWS's and back, led by botocore's models
    network.py groups.py machines.py identity.py storage.py invokes.py     the types and functions themselves
"""
