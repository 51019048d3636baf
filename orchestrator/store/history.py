"""Lists of ended jobs, read beside the writer.

Comes in: a HistoryQuery, or a job's id. Goes out: rows, newest id first. Called by: api, through `Store.reader`.
Ordinary SQLAlchemy Core: this is not the write path, and serves every engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Select, func, select

from orchestrator.store.base import HistoryQuery, HistoryRow
from orchestrator.store.faults import reported
from orchestrator.store.rows import read_history
from orchestrator.store.tables import HISTORY, RECORDS

_ROWS = select(*HISTORY.c, RECORDS.c.record).join(RECORDS, RECORDS.c.job == HISTORY.c.job)


def page_statement(query: HistoryQuery) -> Select[Any]:
    """The statement of a page. The job's own columns choose the rows; records are looked up for those alone."""
    statement = _ROWS.order_by(HISTORY.c.job.desc()).limit(query.limit)
    if query.before:
        statement = statement.where(HISTORY.c.job < query.before)
    for column in ("owner", "queue", "name"):
        if wanted := getattr(query, column):
            statement = statement.where(HISTORY.c[column] == wanted)
    if query.states:
        statement = statement.where(HISTORY.c.state.in_(query.states))
    if query.since_us:
        # The oldest id that can match bounds the walk down the ids, which else reads all jobs for the last few.
        # "+ 0" keeps SQLite from looking for the smallest id by walking up the ids.
        recent = HISTORY.alias("recent")
        oldest = (
            select(func.min(recent.c.job + 0)).where(recent.c.ended_us >= query.since_us).scalar_subquery()
        )
        statement = statement.where(HISTORY.c.ended_us >= query.since_us, HISTORY.c.job >= oldest)
    return statement


class SqlHistoryReader:
    """A HistoryReader with one connection of its own."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._path = path
        with reported(path, "read"):
            self._connection = engine.connect()

    def page(self, query: HistoryQuery) -> list[HistoryRow]:
        """Ended jobs that match, newest id first. Unavailable if the ledger can't be read."""
        return self._rows(page_statement(query))

    def job(self, job: int) -> HistoryRow | None:
        """One ended job, or None."""
        return next(iter(self._rows(_ROWS.where(HISTORY.c.job == job))), None)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _rows(self, statement: Select[Any]) -> list[HistoryRow]:
        with reported(self._path, "read"):
            try:
                return [read_history(row) for row in self._connection.execute(statement)]
            finally:
                self._connection.rollback()  # ends SQLAlchemy's own transaction; SQLite has none open
