"""What the controller needs of a store; each engine passes the same contract suite (tests/store/contract.py).

Comes in: events in their stored form, rows of ended jobs, snapshots. Goes out: the same again, in order, after any
crash. Called by: controller (the one writer), api (history, through readers of its own), cli `server` verbs.

Durability: when `append` returns, its events survive a power cut; when it raises, none of them is in the ledger.
Every write checks the epoch in its own transaction: a store claimed by a newer controller raises Fenced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.ledger.events import StoredEvent

KEYS_KEPT_US = 24 * 3600 * 1_000_000  # an Idempotency-Key is good for a day


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after event `seq`, as plain JSON, written by snapshot format `version`."""

    seq: int
    t_us: int
    version: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PackedSnapshot:
    """The same with its body packed already, by `rows.Packer`."""

    seq: int
    t_us: int
    version: int
    packed: bytes


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """An ended job: the columns that lists filter by, and its whole record as plain JSON. Times UTC microseconds."""

    job: int
    name: str
    owner: str
    queue: str
    state: str
    exit_code: int
    submitted_us: int
    ended_us: int
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AppliedRow:
    """What was applied to the cluster: the seq, time (UTC microseconds) and author of its event, the digest of the
    cluster, the commit of its file (empty: not known), and the event's body with its version; {} in lists."""

    seq: int
    t_us: int
    by: str
    digest: str
    commit: str
    v: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeyRow:
    """The job that an Idempotency-Key has made, the digest of the document that came with it, and when (UTC
    microseconds)."""

    key: str
    job: int
    digest: str
    t_us: int


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A page of ended jobs, newest id first: ids below `before` (0: from the newest), at most `limit`.

    Empty strings and tuples don't filter. Times UTC microseconds.
    """

    before: int = 0
    limit: int = 100
    owner: str = ""
    queue: str = ""
    name: str = ""
    states: tuple[str, ...] = ()
    since_us: int = 0


class Store(Protocol):
    """The ledger's engine. Methods are called by the controller's core thread alone, except `reader`."""

    def claim(self, unix_s: int) -> int:
        """Take the ledger: epoch = max(stored + 1, unix seconds). Older holders are Fenced from now on."""

    def append(
        self,
        events: Sequence[StoredEvent],
        ended: Sequence[HistoryRow] = (),
        applied: Sequence[AppliedRow] = (),
        keys: Sequence[KeyRow] = (),
        *,
        restore_noted: bool = False,
    ) -> None:
        """One durable transaction. Of `applied` the last 100 are kept, however old their events are. `restore_noted`
        clears `restored_us`. Fenced, Unavailable (disk full, I/O)."""

    def key(self, key: str) -> KeyRow | None:
        """What a key of the last day has made, or None; maybe also of an older one."""

    def keys(self, keys: Sequence[str]) -> dict[str, KeyRow]:
        """The same for many keys: those that have made something."""

    def tail(self, after: int) -> Iterator[StoredEvent]:
        """Events with seq > after, in order. ValueError with the place if the ledger has a gap or can't be read."""

    def last(self) -> tuple[int, int]:
        """(seq, t_us) of the newest event; (0, 0) for an empty ledger."""

    def save_snapshot(self, snapshot: Snapshot | PackedSnapshot) -> None:
        """Keep a snapshot (the last few are kept). Same errors as append."""

    def load_snapshot(self) -> Snapshot | None:
        """The newest readable snapshot; a damaged one is passed over for the one before."""

    def restored_us(self) -> int:
        """If this ledger was put back from a backup and no controller has noted that: the backup's time, else 0."""

    def prune(self, keep_days: int, now_us: int, *, at_most: int = 0) -> int:
        """Drop days that are older and that a snapshot covers, at most so many events (0: all); how many went."""

    def forget_keys(self, now_us: int, *, at_most: int = 0) -> int:
        """Drop keys that are older than a day, at most so many (0: all); how many went."""

    def backup(self, target: str) -> None:
        """A consistent copy of the ledger into one new file while work goes on. Conflict if the file exists."""

    def reader(self) -> HistoryReader:
        """A read-only view of its own for another thread."""

    def close(self) -> None:
        """Let go of files and connections; nothing is lost without it."""


class HistoryReader(Protocol):
    """Ended jobs and what was applied, for another thread than the writer's."""

    def page(self, query: HistoryQuery) -> list[HistoryRow]:
        """Rows newest first."""

    def job(self, job: int) -> HistoryRow | None:
        """One ended job, or None."""

    def outcomes(self, first: int, last: int) -> list[tuple[int, str, int]]:
        """Id, state and exit code of the ended jobs with ids from `first` to `last`, rising."""

    def applied(self) -> list[AppliedRow]:
        """What was applied, newest first, without bodies."""

    def applied_at(self, seq: int) -> AppliedRow | None:
        """What the event of that seq has applied, or None."""

    def close(self) -> None:
        """Let go of the connection."""
