"""The record of a simulation: what became of every job, and the sums.

Comes in: starts and ends of attempts, as the world makes them. Goes out: columns by job, GPU time by queue and by
what came of it. Called by: world and lives (write it), metrics and report (read it).

Times are microseconds since the trace's zero; GPU time is in milli-GPU-microseconds, as devices may be shared.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from orchestrator.model.attempt import JobState, Placement

NEVER = -1  # a start or an end that did not happen
REFUSED = "refused"

Placed = tuple[tuple[str, tuple[int, ...]], ...]  # nodes with their slots, in gang order


def milli_of(placement: Placement) -> int:
    """The thousandths of GPUs that a share takes."""
    return sum(placement.milli) if placement.milli else 1000 * len(placement.slots)


def gang_milli(placements: tuple[Placement, ...]) -> int:
    """The same of a gang."""
    return sum(milli_of(part) for part in placements)


@dataclass(slots=True)
class Usage:
    """GPU time of one queue. `held` is from allocation to the proof of the end; of the time that processes ran,
    `lost` had to be done again or led to nothing."""

    held: int = 0
    ran: int = 0
    lost: int = 0


@dataclass(slots=True)
class Book:
    """One row a job of the trace."""

    jobs: int
    first_start_us: array[int] = field(init=False)
    start_us: array[int] = field(init=False)  # of its last attempt
    end_us: array[int] = field(init=False)
    attempts: array[int] = field(init=False)
    state: list[str] = field(init=False)
    reason: list[str] = field(init=False)  # the last one for which it waited or was refused
    placed: list[Placed] = field(init=False)  # of its last attempt
    usage: dict[str, Usage] = field(default_factory=dict)
    passes: int = 0
    pass_ns: array[int] = field(default_factory=lambda: array("q"))
    moved_us: int = 0  # when a job last came, started or ended
    last_us: int = 0
    _shared: dict[Placed, Placed] = field(default_factory=dict)  # a million jobs stand in few places

    def __post_init__(self) -> None:
        self.first_start_us = array("q", [NEVER]) * self.jobs
        self.start_us = array("q", [NEVER]) * self.jobs
        self.end_us = array("q", [NEVER]) * self.jobs
        self.attempts = array("l", [0]) * self.jobs
        self.state = [str(JobState.WAITING)] * self.jobs
        self.reason = [""] * self.jobs
        self.placed = [()] * self.jobs

    def started(self, index: int, at_us: int, placements: tuple[Placement, ...]) -> None:
        """An attempt has its first process."""
        self.moved_us = at_us
        if self.first_start_us[index] == NEVER:
            self.first_start_us[index] = at_us
        self.start_us[index] = at_us
        self.attempts[index] += 1
        self.state[index] = "running"
        placed = tuple((part.node, part.slots) for part in placements)
        self.placed[index] = self._shared.setdefault(placed, placed)

    def attempt_over(self, queue: str, held: int, ran: int, lost: int) -> None:
        """An attempt is over everywhere."""
        usage = self.usage.get(queue)
        if usage is None:
            usage = self.usage[queue] = Usage()
        usage.held += held
        usage.ran += ran
        usage.lost += lost

    def ended(self, index: int, at_us: int, state: str) -> None:
        """A job is over."""
        self.moved_us = self.end_us[index] = at_us
        self.state[index] = state
