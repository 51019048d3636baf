"""What was applied to the cluster and the keys of submits get tables, with what the ledger still has of both.

Comes in: revision 0001. Goes out: revision 0002. Called by: Alembic.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables and fill them."""
    _applied()
    _keys()


def _applied() -> None:
    table = op.create_table(
        "applied",
        sa.Column("seq", _KEY, primary_key=True, autoincrement=False),
        sa.Column("t_us", sa.BigInteger, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("commit_name", sa.Text, nullable=False),
        sa.Column("v", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    for row in op.get_bind().execute(_events_of("cluster.applied")).mappings().all():
        op.get_bind().execute(sa.insert(table).values(**_record(row)))


def _keys() -> None:
    """All that the ledger has: the next prune drops those that are too old."""
    table = op.create_table(
        "submit_keys",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("job", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("t_us", sa.BigInteger, nullable=False),
    )
    op.create_index("submit_keys_t", "submit_keys", ["t_us"])
    found: dict[str, dict[str, object]] = {}
    for row in op.get_bind().execute(_events_of("job.submitted")).mappings():
        body = json.loads(row["body"])
        if key := body.get("key", ""):
            found[key] = {"key": key, "job": body["job"], "digest": body["digest"], "t_us": row["t_us"]}
    if found:
        op.get_bind().execute(sa.insert(table), list(found.values()))


def _events_of(kind: str) -> sa.Select[tuple[object, ...]]:
    events = sa.table("events", *map(sa.column, ("seq", "t_us", "by", "v", "body", "type")))
    return sa.select(events).where(events.c.type == kind).order_by(events.c.seq)


def downgrade() -> None:
    """A ledger never goes back: the copy made before an upgrade does."""
    raise NotImplementedError("restore the copy that was made before the upgrade")


def _record(row: sa.RowMapping) -> dict[str, object]:
    body = json.loads(row["body"])
    kept = {name: row[name] for name in ("seq", "t_us", "by", "v", "body")}
    return kept | {"digest": body.get("digest", ""), "commit_name": body.get("commit", "")}
