"""Alembic's entry: runs the revisions on the connection that the store hands over, inside the store's transaction.

Comes in: `config.attributes["connection"]`, on which a transaction has begun. Goes out: executed revisions, not
committed. Called by: Alembic, on behalf of store.schema.
"""

from __future__ import annotations

from alembic import context

from orchestrator.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,  # SQLite's DDL is transactional; a kill in the middle leaves the old revision whole
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
