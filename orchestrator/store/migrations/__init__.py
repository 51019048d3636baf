"""Revisions of the ledger's tables, run by Alembic.

Comes in: a connection inside a transaction. Goes out: the tables of the newest revision. Called by: store.schema.
A released revision is never changed; a new one is added under versions/, and tables.REVISION names it.
"""
