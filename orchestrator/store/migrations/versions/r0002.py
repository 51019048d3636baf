"""What was applied to the cluster gets a table of its own, with what the ledger still has of it.

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
    """Create the table and fill it."""
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
    events = sa.table("events", *map(sa.column, ("seq", "t_us", "by", "v", "body", "type")))
    found = sa.select(events).where(events.c.type == "cluster.applied").order_by(events.c.seq)
    for row in op.get_bind().execute(found).mappings().all():
        op.get_bind().execute(sa.insert(table).values(**_record(row)))


def downgrade() -> None:
    """A ledger never goes back: the copy made before an upgrade does."""
    raise NotImplementedError("restore the copy that was made before the upgrade")


def _record(row: sa.RowMapping) -> dict[str, object]:
    body = json.loads(row["body"])
    kept = {name: row[name] for name in ("seq", "t_us", "by", "v", "body")}
    return kept | {"digest": body.get("digest", ""), "commit_name": body.get("commit", "")}
