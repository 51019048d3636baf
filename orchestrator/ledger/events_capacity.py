"""The bodies of events about elastic capacity, and about the name that all marks carry.

Comes in: decisions of autoscale, answers of clouds. Goes out: event bodies. Called by: events, through which everybody
else has them. Prices and shapes are in them, so that folding asks no catalog.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.ledger.event import event_type
from orchestrator.model.capacity import ErrorClass, Instance, Intent


def intent_subject(intent: str) -> str:
    """The subject of events about a launch."""
    return f"intent/{intent}"


@event_type("cluster.named")
@dataclass(frozen=True, slots=True)
class ClusterNamed:
    """The cluster's uid: 12 letters and digits, once and for ever. Everything that is bought carries it."""

    uid: str


@event_type("capacity.intended")
@dataclass(frozen=True, slots=True)
class CapacityIntended:
    """Before the call: what is to be launched. The intent's id is `intent-` and this event's seq."""

    intent: Intent


@event_type("capacity.launched")
@dataclass(frozen=True, slots=True)
class CapacityLaunched:
    """What the cloud says exists for the intent: all of its nodes. Again when their addresses are known."""

    intent: str
    instances: tuple[Instance, ...]


@event_type("capacity.refused")
@dataclass(frozen=True, slots=True)
class CapacityRefused:
    """Nothing exists for the intent, and nothing will. `fault` None: it was withdrawn, nobody refused it; else its
    offering (its site, for throttling and auth) is not tried before `retry_us`."""

    intent: str
    fault: ErrorClass | None = None
    words: str = ""
    retry_us: int = 0


@event_type("capacity.proved")
@dataclass(frozen=True, slots=True)
class CapacityProved:
    """The instance's node joined, and is what was asked for."""

    intent: str
    instance: str


@event_type("capacity.releasing")
@dataclass(frozen=True, slots=True)
class CapacityReleasing:
    """Before the call that ends instances. `failed`: they never became ready in time, which counts against their
    offering (not tried before `retry_us`) and towards the pool's breaker."""

    intent: str
    instances: tuple[str, ...]
    why: str
    failed: bool = False
    retry_us: int = 0


@event_type("capacity.gone")
@dataclass(frozen=True, slots=True)
class CapacityGone:
    """The cloud confirmed that the instance is gone: only now are its budget and its name free. `billed_s` is what it
    is billed for, up to `ended_us`."""

    intent: str
    instance: str
    ended_us: int
    billed_s: int
    why: str = ""


@event_type("capacity.reset")
@dataclass(frozen=True, slots=True)
class CapacityReset:
    """A person says that buying for the pool may be tried again: its breaker, its offerings and its site's halt."""

    pool: str
    why: str = ""
