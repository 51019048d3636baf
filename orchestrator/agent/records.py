"""PURE: the fold of the journal's entries: what the agent knows about attempts and what it still has to say.

Comes in: entries (plain dicts, key `k`: head, epoch, intent, event, acked, record). Goes out: `Memory`. Called by:
journal (folds), daemon (reads).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.agent.idset import IdSet
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import EventKind

Entry = dict[str, Any]
Plain = dict[str, Any]

FINAL = (EventKind.ENDED.value, EventKind.PREPARE_FAILED.value)


@dataclass(slots=True)
class Record:
    """One attempt. `launch` is plain, as the controller sent it, so that a newer one's fields survive too.

    `run`: its start was intended, not only its preparation. `offset`: how much of the status file has become events.
    `final`: its last event, with number `final_n`; `refused` if that says that it could not be set up.
    """

    attempt: AttemptId
    launch: Plain | None = None
    boot: str = ""
    run: bool = False
    prepared: bool = False
    started: bool = False
    started_us: int = 0
    offset: int = 0
    final: Plain | None = None
    final_n: int = 0

    @property
    def refused(self) -> bool:
        """Whether it ended with a failed preparation, and no ENDED was asked for."""
        return self.final is not None and self.final["kind"] == EventKind.PREPARE_FAILED.value

    def holding(self) -> Plain:
        """The plain form of `protocol.Holding`."""
        plain: Plain = {"attempt": list(self.attempt), "launch": self.launch}
        for name in ("prepared", "started", "started_us"):
            if getattr(self, name):
                plain[name] = getattr(self, name)
        if self.final is not None:
            plain["ended"] = self.final
        return plain


class Memory:
    """The state that the journal's entries add up to."""

    def __init__(self, ids: IdSet) -> None:
        self.ids = ids
        self.outbox = ""
        self.epoch = 0
        self.next_n = 1
        self.acked = 0
        self.events: dict[int, Plain] = {}  # not acknowledged, by number
        self.records: dict[AttemptId, Record] = {}

    def number(self, entries: Sequence[Entry]) -> None:
        """Give the events among `entries` their numbers, gapless after those already known."""
        n = self.next_n
        for entry in entries:
            if entry["k"] == "event":
                entry["e"] = {**entry["e"], "n": n}
                n += 1

    def fold(self, entry: Entry) -> None:
        """One entry onto the state."""
        _FOLDS[entry["k"]](self, entry)

    def settled(self) -> list[Record]:
        """Attempts that ended here, and the controller knows it."""
        return [
            each for each in self.records.values() if each.final is not None and each.final_n <= self.acked
        ]

    def drop(self, attempts: Iterable[AttemptId]) -> None:
        """Forget records that are kept elsewhere; their ids stay."""
        for attempt in attempts:
            del self.records[attempt]

    def entries(self, without: set[AttemptId]) -> list[Entry]:
        """The shortest journal that folds to this state, less some records."""
        head = {
            "k": "head",
            "outbox": self.outbox,
            "epoch": self.epoch,
            "next": self.next_n,
            "acked": self.acked,
        }
        kept = [entry_of_record(record) for attempt, record in self.records.items() if attempt not in without]
        return [head, *kept, *({"k": "unsent", "e": event} for event in self.events.values())]

    def of(self, attempt: AttemptId) -> Record:
        """The record of an attempt, made if there is none."""
        record = self.records.get(attempt)
        if record is None:
            record = self.records[attempt] = Record(attempt)
            self.ids.add(attempt)
        return record


def entry_of_record(record: Record) -> Entry:
    """The entry that makes this record again."""
    entry: Entry = {"k": "record", "a": list(record.attempt)}
    for name in ("launch", "boot", "run", "prepared", "started", "started_us", "offset", "final", "final_n"):
        if getattr(record, name):
            entry[name] = getattr(record, name)
    return entry


def intent(attempt: AttemptId, launch: Plain, boot: str, *, run: bool) -> Entry:
    """The entry that goes before any deed for an attempt."""
    return {"k": "intent", "a": list(attempt), "launch": launch, "boot": boot, "run": run}


def event(plain: Plain, offset: int) -> Entry:
    """The entry for something to report; its number is given at the commit."""
    return {"k": "event", "e": plain, "offset": offset}


def _fold_head(memory: Memory, entry: Entry) -> None:
    memory.outbox, memory.epoch = entry["outbox"], entry["epoch"]
    memory.next_n, memory.acked = entry["next"], entry["acked"]


def _fold_epoch(memory: Memory, entry: Entry) -> None:
    memory.epoch = entry["epoch"]


def _fold_intent(memory: Memory, entry: Entry) -> None:
    record = memory.of(AttemptId(*entry["a"]))
    record.launch, record.boot, record.run = entry["launch"], entry["boot"], entry["run"]


def _fold_record(memory: Memory, entry: Entry) -> None:
    record = memory.of(AttemptId(*entry["a"]))
    for name, value in entry.items():
        if name not in ("k", "a"):
            setattr(record, name, value)


def _fold_unsent(memory: Memory, entry: Entry) -> None:
    memory.events[entry["e"]["n"]] = entry["e"]


def _fold_event(memory: Memory, entry: Entry) -> None:
    plain = entry["e"]
    memory.events[plain["n"]] = plain
    memory.next_n = plain["n"] + 1
    record = memory.of(AttemptId(*plain["attempt"]))
    record.offset = max(record.offset, entry["offset"])
    kind = plain["kind"]
    if kind == EventKind.PREPARED.value:
        record.prepared = True
    elif kind == EventKind.STARTED.value:
        record.started, record.started_us = True, plain["t_us"]
    elif kind in FINAL:
        record.final, record.final_n = plain, plain["n"]


def _fold_acked(memory: Memory, entry: Entry) -> None:
    memory.acked = max(memory.acked, entry["n"])
    for n in [n for n in memory.events if n <= memory.acked]:
        del memory.events[n]


_FOLDS = {
    "head": _fold_head,
    "epoch": _fold_epoch,
    "intent": _fold_intent,
    "record": _fold_record,
    "unsent": _fold_unsent,
    "event": _fold_event,
    "acked": _fold_acked,
}
