"""GPU-hours of a calendar month: what queues have used, and what their running work may still use.

Comes in: the month (a fact), attempts as they begin and end. Goes out: use in the limit tree, dimension `gpu_hours`, in
milli-GPU-seconds, in queues and all scopes above them; what a start would add. Called by: state, apply_jobs, scheduler
(asks), autoscale.

A start commits its GPUs from now until its time limit ends it, to the month's end at most, so that a job that starts
within the limit can finish within it. When its attempt is over everywhere, what it really took stays, and the rest is
given back. A new month begins with what runs then. Work without a time limit is committed to the month's end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.ledger.limits import Amounts, LimitTree, Scope
from orchestrator.ledger.records import Attempt
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.ids import AttemptId

HOURS = "gpu_hours"
HOUR = 3_600_000  # milli-GPU-seconds of one GPU-hour
LONGEST_S = 31 * 86400 + 3600  # a month in which summer time ends


class Month(NamedTuple):
    """[begin_us, ends_us) in UTC microseconds."""

    begin_us: int
    ends_us: int

    def seconds(self, begin_us: int, ends_us: int) -> int:
        """How long the part of that time is which lies in the month, rounded up."""
        return max(-(-(min(ends_us, self.ends_us) - max(begin_us, self.begin_us)) // SECOND), 0)

    def may_follow(self, before: Month | None) -> bool:
        """Whether it is a later one, or the one before with other ends: never one that lies before it."""
        if before is None:
            return self.ends_us > self.begin_us
        return self != before and self.ends_us > max(self.begin_us, before.middle_us)

    def is_of(self, before: Month) -> bool:
        """Whether it is the same month, of another zone: what was used in it counts on."""
        return self.begin_us <= before.middle_us < self.ends_us

    @property
    def middle_us(self) -> int:
        """Zones are hours apart, and months weeks long: that is in the same month everywhere."""
        return (self.begin_us + self.ends_us) // 2


# Before the first month is a fact, for one commit of the controller at most.
UNKNOWN = Month(0, 1 << 62)


class Held(NamedTuple):
    """What an attempt is committed for in its queue."""

    queue: str  # its scope
    milli: int
    amount: int


@dataclass(slots=True)
class Hours:
    """What is committed in the present month. `spent`: by scope, of attempts that are over (the State's own record)."""

    limits: LimitTree
    month: Month
    spent: dict[str, int]
    held: dict[AttemptId, Held] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, amount in self.spent.items():
            if name in self.limits.scopes:
                _add(self.limits.scopes[name], amount)

    def seconds(self, now_us: int, limit_s: int) -> int:
        """For how long a start would be committed now. `limit_s`: its time limit; 0: none. Of a month that is not a
        fact yet nothing is known to be left: what starts after the end of this one asks for all that it may take."""
        if now_us >= self.month.ends_us:
            return limit_s or LONGEST_S
        ends_us = now_us + limit_s * SECOND if limit_s else self.month.ends_us
        return self.month.seconds(now_us, ends_us)

    def ask(self, scope: str, milli: int, now_us: int, limit_s: int) -> Amounts:
        """What a start would be committed for in a scope; nothing where none around it has a limit."""
        if not milli or not any(HOURS in one.ceilings for one in self.limits.path(scope)):
            return ()
        return ((HOURS, milli * self.seconds(now_us, limit_s)),)

    def take(self, attempt: Attempt, queue: str, milli: int, ends_us: int) -> None:
        """It holds so much from its start on, until then at the latest."""
        amount = milli * self.month.seconds(attempt.allocated_us, ends_us)
        self.held[attempt.id] = Held(queue, milli, amount)
        self._count(queue, amount)

    def move(self, attempt: Attempt, ends_us: int) -> None:
        """Its time limit ends it at another time than was thought."""
        held = self.held.pop(attempt.id)
        self._count(held.queue, -held.amount)
        self.take(attempt, held.queue, held.milli, ends_us)

    def end(self, attempt: Attempt, t_us: int) -> None:
        """It is over everywhere: what it took this month is spent."""
        held = self.held.pop(attempt.id)
        amount = held.milli * self.month.seconds(attempt.allocated_us, t_us)
        self._count(held.queue, amount - held.amount)
        for scope in self.limits.path(held.queue) if amount else ():
            self.spent[scope.name] = self.spent.get(scope.name, 0) + amount

    def used(self, scope: str) -> int:
        """What is used and committed there."""
        return self.limits.scopes[scope].used.get(HOURS, 0)

    def _count(self, queue: str, amount: int) -> None:
        for scope in self.limits.path(queue) if amount else ():
            _add(scope, amount)
        self.limits.version += amount < 0


def _add(scope: Scope, amount: int) -> None:
    scope.used[HOURS] = scope.used.get(HOURS, 0) + amount
    if not scope.used[HOURS]:
        del scope.used[HOURS]


def counts_hours(cluster: ClusterSpec | None) -> bool:
    """Whether some queue has a limit of GPU-hours."""
    queues = cluster.queues if cluster is not None else ()
    return any(queue.limits.max_gpu_hours_per_month for queue in queues)
