"""Lists of ended jobs and of what was applied, read beside the writer.

Comes in: a HistoryQuery, a job's id, an event's seq. Goes out: rows, newest first. Called by: api, through
`Store.reader`. Ordinary SQLAlchemy Core: this is not the write path, and serves every engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Row, Select, func, select

from orchestrator.store.base import AppliedRow, HistoryQuery, HistoryRow
from orchestrator.store.faults import reported
from orchestrator.store.rows import read_applied, read_history
from orchestrator.store.tables import APPLIED, HISTORY, RECORDS

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

    def outcomes(self, first: int, last: int) -> list[tuple[int, str, int]]:
        """Id, state and exit code of the ended jobs with ids from `first` to `last`, rising."""
        columns = select(HISTORY.c.job, HISTORY.c.state, HISTORY.c.exit_code)
        chosen = columns.where(HISTORY.c.job.between(first, last)).order_by(HISTORY.c.job)
        rows: list[Any] = list(self._fetch(chosen))
        return [(job, state, code) for job, state, code in rows]

    def applied(self) -> list[AppliedRow]:
        """What was applied, newest first, without bodies."""
        heads = [column for column in APPLIED.c if column.name != "body"]
        return self._applied(select(*heads).order_by(APPLIED.c.seq.desc()))

    def applied_at(self, seq: int) -> AppliedRow | None:
        """What the event of that seq has applied, or None. Damaged if it can't be read."""
        return next(iter(self._applied(select(APPLIED).where(APPLIED.c.seq == seq))), None)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _rows(self, statement: Select[Any]) -> list[HistoryRow]:
        return [read_history(row) for row in self._fetch(statement)]

    def _applied(self, statement: Select[Any]) -> list[AppliedRow]:
        return [read_applied(row, self._path) for row in self._fetch(statement)]

    def _fetch(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        with reported(self._path, "read"):
            try:
                return self._connection.execute(statement).all()
            finally:
                self._connection.rollback()  # ends SQLAlchemy's own transaction; SQLite has none open
