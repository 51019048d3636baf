"""The ledger on disk: events by day, snapshots, history tables.

Comes in: events in their stored form. Goes out: the same, after any crash, and pages of ended jobs. Called by:
controller (writes), api (reads history), cli (`server backup`, `server restore`).
"""
