"""One module a revision, named r0001 and so on.

Comes in: the tables of the revision before. Goes out: its own. Called by: Alembic.
"""
