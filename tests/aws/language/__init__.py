"""A stand-in for Pulumi's Python language host, for tests: `pulumi up` runs a `runtime: python` project through it.

Comes in: gRPC of the engine. Goes out: a Python process that runs the project's program. Called by: the engine, which
finds the program `pulumi-language-python` of tests.aws.fixture on PATH. The real host's module has no tagged version,
so it can't be built like the engine; tests that use this one say so in their names.

    __main__.py  the host: prints its port, serves
    program.py   the process of one run: connects to the engine, runs __main__.py of the project
"""
