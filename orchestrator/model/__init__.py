"""The words that every room shares: frozen, slotted dataclasses and enums, and nothing else.

Comes in: nothing. Goes out: the types of jobs, clusters, nodes, attempts, decisions, reasons and the agent
protocol. Called by: every other room. Standard library only, no files, Python 3.10 (the agent carries this
room to the nodes).
"""
