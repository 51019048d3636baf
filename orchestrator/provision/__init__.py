"""Side effects on sites: nodes brought up and taken down, each kind of site in a module of its own.

Comes in: what a cluster wants. Goes out: processes and hosts that are as wanted. Called by: controller, and for a local
site the command itself (`gangline up`). Nothing here decides; it makes true, can be repeated, and says what it did.
"""
