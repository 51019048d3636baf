"""AWS without AWS, for tests: the real Pulumi engine over a moto server that is mended where it differs from EC2.

Comes in: nothing but this machine. Goes out: an engine (`engine`), an account (`moto_server`, `server`), a provider of
aws types for tests (`provider`), a stand-in for Pulumi's Python language host (`language`), and the fixtures of
`fixture`. Called by: tests. docs/testing-aws.md says how.
"""
