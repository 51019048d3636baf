"""PURE: from a worker's records to the events that the controller gets.

Comes in: records of a status file in order. Goes out: events in plain form (without numbers) and the state that the
records show. Called by: unit.
"""

from __future__ import annotations

import signal
from typing import Any

from orchestrator.agent.status import Record
from orchestrator.model.attempt import RankResult
from orchestrator.model.codec import encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import AgentEvent, EventKind

Plain = dict[str, Any]

LOST_RECORDS = "this node has no record of the attempt (the agent's state was lost or replaced)"
RESTARTED = "the node was restarted while the attempt ran"
# What a node that goes down does to its processes, one after the other: a shepherd may outlive its ranks and note it.
_GOING_DOWN = (signal.SIGTERM, signal.SIGKILL)


class Outcome:
    """The fold of one attempt's records. `assumed_started`: it may have run here, and nothing here knows of it.
    `known_loss`: why it counts as ended by a failure of the node, if that is known beforehand. `boot`: the kernel's
    name for the boot that this is read in; empty: the one of all records."""

    def __init__(
        self, attempt: AttemptId, *, assumed_started: bool = False, known_loss: str = "", boot: str = ""
    ) -> None:
        self.attempt = attempt
        self._boot = boot
        self.worker: Record | None = None  # the last process that wrote, in its own words
        self.started = assumed_started
        self.over = False  # nothing more will come
        self.stuck = False  # somebody has said that it can't be proved gone
        self._results: list[RankResult] = []
        self._known_loss = known_loss
        self._error = known_loss or (LOST_RECORDS if assumed_started else "")
        self._cause = "node_failed" if self._error else ""
        self._tail = ""

    def feed(self, record: Record) -> Plain | None:
        """Fold one record; the event that it is worth, if any."""
        handler = getattr(self, f"_on_{record['k']}", None)
        event: AgentEvent | None = handler(record) if handler is not None else None
        return None if event is None else encode(event)

    def _event(self, record: Record, kind: EventKind, **fields: Any) -> AgentEvent:
        return AgentEvent(0, record["t"], kind, self.attempt, started=self.started, **fields)

    def _on_worker(self, record: Record) -> None:
        self.worker = record

    def _on_ranks(self, record: Record) -> AgentEvent:
        self.started = True
        return self._event(record, EventKind.STARTED, pids=tuple(record["pids"]))

    def _on_exit(self, record: Record) -> None:
        self._results.append(_result(record))

    def _on_failed(self, record: Record) -> AgentEvent | None:
        result = _result(record)
        self._results.append(result)
        self._tail = record["tail"]
        if self._went_down(record):
            self._cause, self._error = "node_failed", self._known_loss or RESTARTED
            return None
        self._error = record.get("error", self._error)
        return self._event(
            record, EventKind.RANK_FAILED, results=(result,), tail=self._tail, error=self._error
        )

    def _went_down(self, record: Record) -> bool:
        """Whether the node's own end killed the rank: by such a signal, in an earlier boot, and nobody said why."""
        earlier = bool(self._boot) and self.worker is not None and self.worker["boot"] != self._boot
        return earlier and record["signal"] in _GOING_DOWN and "error" not in record

    def _on_fenced(self, _: Record) -> None:
        self._cause = "fenced"
        self._error = "out of contact with the controller until the lease ran out"

    def _on_stopped(self, record: Record) -> None:
        """By systemd: if its shepherd was killed in the end, this is still why."""
        self._cause, self._error = "node_failed", record["error"]
        self._known_loss = self._known_loss or record["error"]

    def _on_lost(self, record: Record) -> None:
        self._cause, self._error = "node_failed", self._known_loss or record["error"]

    def _on_stuck(self, record: Record) -> AgentEvent:
        self.stuck = True
        return self._event(record, EventKind.STUCK, error=record["error"])

    def _on_refused(self, record: Record) -> AgentEvent:
        self.over = True
        return self._event(record, EventKind.PREPARE_FAILED, code=record["code"], error=record["error"])

    def _on_ended(self, record: Record) -> AgentEvent:
        self.over = True
        if record.get("found") and not self.started:
            self.started, self._cause, self._error = True, "node_failed", LOST_RECORDS
        return self._event(
            record,
            EventKind.ENDED,
            results=tuple(sorted(self._results, key=lambda result: result.rank)),
            error=self._error,
            cause=self._cause,
            tail=self._tail or record.get("tail", ""),
        )


def _result(record: Record) -> RankResult:
    return RankResult(record["rank"], record["code"], record["signal"], record["t"])


def never_started(attempt: AttemptId, now_us: int) -> Plain:
    """The end of an attempt of which no process ever ran here."""
    plain: Plain = encode(AgentEvent(0, now_us, EventKind.ENDED, attempt))
    return plain


def stuck(attempt: AttemptId, now_us: int, error: str) -> Plain:
    """It can't be proved gone."""
    plain: Plain = encode(AgentEvent(0, now_us, EventKind.STUCK, attempt, error=error))
    return plain


def prepared(attempt: AttemptId, now_us: int) -> Plain:
    """It is set up."""
    plain: Plain = encode(AgentEvent(0, now_us, EventKind.PREPARED, attempt))
    return plain


def prepare_failed(attempt: AttemptId, now_us: int, code: str, error: str) -> Plain:
    """It could not be set up, and nothing of it is left."""
    plain: Plain = encode(AgentEvent(0, now_us, EventKind.PREPARE_FAILED, attempt, code=code, error=error))
    return plain
