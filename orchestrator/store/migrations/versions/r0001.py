"""The first tables: meta, events by day, snapshots, history of ended jobs.

Comes in: an empty database. Goes out: revision 0001. Called by: Alembic.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create everything."""
    _events()
    _history()
    op.create_table(
        "meta",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("restored_us", sa.BigInteger, nullable=False),
        sa.Column("backup_us", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
    )
    op.execute(
        "INSERT INTO meta (id, format, cluster, epoch, restored_us, backup_us) VALUES (1, 1, '', 0, 0, 0)"
    )


def downgrade() -> None:
    """A ledger never goes back: the copy made before an upgrade does."""
    raise NotImplementedError("restore the copy that was made before the upgrade")


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("seq", _KEY, primary_key=True, autoincrement=False),
        sa.Column("t_us", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("v", sa.Integer, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "segments",
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("seq", _KEY, primary_key=True, autoincrement=False),
        sa.Column("t_us", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def _history() -> None:
    op.create_table(
        "history",
        sa.Column("job", _KEY, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("exit_code", sa.Integer, nullable=False),
        sa.Column("submitted_us", sa.BigInteger, nullable=False),
        sa.Column("ended_us", sa.BigInteger, nullable=False),
    )
    for column in ("name", "owner", "queue", "state"):
        op.create_index(f"history_{column}", "history", [column, "job"])
    op.create_index("history_ended", "history", ["ended_us", "job"])
    op.create_table(
        "history_records",
        sa.Column(
            "job",
            _KEY,
            sa.ForeignKey("history.job", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("record", sa.Text, nullable=False),
    )
