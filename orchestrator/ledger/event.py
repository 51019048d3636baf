"""What an event is: its envelope, its stored form, and the register of types that bodies enter themselves in.

Comes in: bodies. Goes out: `Event`, its stored form and back, through upcasters for bodies that an older version wrote.
Called by: events and events_capacity (register their bodies), store, writer (by way of events).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from orchestrator.model.codec import CodecError, decode, encode

B = TypeVar("B")


class Event(NamedTuple):
    """One entry of the ledger. `seq` is gapless, `t_us` (UTC microseconds) never decreases, `batch` is the seq of
    the first event that was committed with it, `by` says who caused it (user:alice, node:n1, scheduler)."""

    seq: int
    t_us: int
    epoch: int
    batch: int
    subject: str
    by: str
    body: Any

    @property
    def type(self) -> str:
        """The stable name of its kind, as in `job.submitted`."""
        return TYPE_OF[type(self.body)][0]


class StoredEvent(NamedTuple):
    """An event as the store keeps it: the body as a plain JSON value with its type and version."""

    seq: int
    t_us: int
    epoch: int
    type: str
    v: int
    subject: str
    batch: int
    by: str
    body: dict[str, Any]


TYPE_OF: dict[type, tuple[str, int]] = {}
CLASS_OF: dict[str, type] = {}
UPCASTERS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}


def event_type(name: str, v: int = 1) -> Callable[[type[B]], type[B]]:
    """Register a body class under the type's stable name and its current version."""

    def register(cls: type[B]) -> type[B]:
        TYPE_OF[cls] = (name, v)
        CLASS_OF[name] = cls
        return cls

    return register


def to_stored(event: Event) -> StoredEvent:
    """The plain form of an event."""
    name, v = TYPE_OF[type(event.body)]
    return StoredEvent(
        event.seq, event.t_us, event.epoch, name, v, event.subject, event.batch, event.by, encode(event.body)
    )


def from_stored(stored: StoredEvent) -> Event:
    """The event of a plain form; ValueError if this version can't read it."""
    cls = CLASS_OF.get(stored.type)
    if cls is None or stored.v > TYPE_OF[cls][1]:
        raise ValueError(
            f"event {stored.seq}: {stored.type} version {stored.v} was written by a newer Gangline"
        )
    body = stored.body
    for v in range(stored.v, TYPE_OF[cls][1]):
        body = UPCASTERS[(stored.type, v)](body)
    try:
        decoded: Any = decode(cls, body)
    except CodecError as error:
        raise ValueError(f"event {stored.seq} ({stored.type}): {error}") from error
    return Event(stored.seq, stored.t_us, stored.epoch, stored.batch, stored.subject, stored.by, decoded)


def job_subject(job: int) -> str:
    """The subject of events about a job."""
    return f"job/{job}"


def node_subject(node: str) -> str:
    """The subject of events about a node."""
    return f"node/{node}"
