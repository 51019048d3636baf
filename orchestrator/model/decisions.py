"""What a pass decides: one type each. Waiting is no decision; it is a reason, and leaves through the Reporter.

Comes in: nothing. Goes out: `Start` and `Decision`, and those about capacity. Called by: scheduler and autoscale (make
them), controller (turns them into events). Book, unbook, plan_start, preempt, resize, reject join later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.model.attempt import Placement
from orchestrator.model.capacity import Offer
from orchestrator.model.cluster_words import DrainThen
from orchestrator.model.ids import AttemptId
from orchestrator.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Start:
    """Give the gang these devices now. `time_limit_s` 0 means none; the port is for rank 0's rendezvous."""

    attempt: AttemptId
    placements: tuple[Placement, ...]
    master_address: str
    master_port: int
    time_limit_s: int


Decision = Start  # a union once there is a second kind


@dataclass(frozen=True, slots=True)
class Buy:
    """Launch these nodes of that offering, all or none, for a job (0: for the pool's floor), for which they are kept
    until `until_us`."""

    offer: Offer
    nodes: tuple[str, ...]
    job: int = 0
    queue: str = ""
    until_us: int = 0


@dataclass(frozen=True, slots=True)
class Cordon:
    """No new work on a bought node: it is given back by a later pass, unless work for it comes first. `deadline_us`:
    what runs there is dealt with then as `then` says (0: it may run on)."""

    node: str
    why: str
    deadline_us: int = 0
    then: DrainThen = DrainThen.WAIT


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Work for the node came before it was given back."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """End these instances of an intent. `failed`, `retry_us`: as in the event `capacity.releasing`."""

    intent: str
    instances: tuple[str, ...]
    why: str
    failed: bool = False
    retry_us: int = 0


CapacityDecision = Buy | Cordon | Uncordon | Release


class Reasons(Protocol):
    """Why classes of jobs wait, made when somebody asks, as a pass has left things."""

    @property
    def left_over(self) -> bool:
        """Whether the pass ran out of its work budget and came further than the one before: the next one goes on."""

    @property
    def wake_us(self) -> int:
        """When time alone lets somebody start who waits, in UTC microseconds; `NEVER_US`: it does not."""

    def get(self, key: Any) -> Reason | None:
        """The reason of a class; None if the pass knows none."""


class Reporter(Protocol):
    """Where a pass of the scheduler tells what it did, so that the core logs nothing itself."""

    def waiting(self, reasons: Reasons) -> None:
        """Once in a pass that looked at anything: why those wait that wait now."""


class CapacityReporter(Protocol):
    """Where a pass over capacity tells what it did."""

    def class_blocked(self, key: Any, reason: Reason) -> None:
        """Capacity for this class is not bought now, or comes."""
