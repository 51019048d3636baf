"""PURE. The record of facts and decisions, and the state that is a fold over it.

Comes in: events, a snapshot. Goes out: `State`, `apply`, the `LimitTree` and the `Statement` that passes try
things on. Called by: scheduler (reads, tries), controller (appends and folds), simulate (the same with a virtual
clock). No clock, no dice, no file, no socket.
"""
