"""Readings of a node: its devices, its host, and the facts an agent reports.

Comes in: the machine (NVML where pynvml is installed, /proc, /sys). Goes out: `Device`, `NodeFacts`. Called by: the
agent. Standard library and Python 3.10 only; pynvml is optional and imported where it is used.
"""
