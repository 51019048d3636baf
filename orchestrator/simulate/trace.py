"""A trace: the jobs that arrive, as columns, since there may be a million of them.

Comes in: jobs one by one, from a reader of one format. Goes out: `Trace`, sorted by arrival. Called by: traces (builds
it), world (plays it), metrics (reads it).

Times are microseconds since the trace's own zero. Jobs that ask for the same share one `JobSpec`, their `shape`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.model.job import JobSpec, Owner

FIRST_UID = 10_000  # people of a trace get numbers from here on, in the order in which they appear


@dataclass(frozen=True, slots=True)
class Special:
    """What only some jobs have. `run_on`: run times in microseconds by GPU model, in place of the plain one. A rank
    fails `fail_after_us` after each start (0: none does), in the first `fail_attempts` attempts only (0: in all).
    `launch_us` is from the decision to the first process (None: as for all jobs). `sooner_us`: how much sooner than its
    last node each node of the gang is free, in the order of its placements (empty: all are free at once). `decide_us`:
    what a pass takes that starts it before all others (None: as the trace says)."""

    run_on: tuple[tuple[str, int], ...] = ()
    fail_after_us: int = 0
    fail_attempts: int = 0
    launch_us: int | None = None
    sooner_us: tuple[int, ...] = ()
    decide_us: int | None = None

    def fails(self, attempt: int) -> bool:
        """Whether that attempt is one that fails."""
        return not self.fail_attempts or attempt <= self.fail_attempts


PLAIN = Special()


@dataclass(slots=True)
class Trace:
    """Jobs by index, in order of arrival. `names` has those that the trace itself gives its jobs, or nothing.
    `decide_us` is what a controller takes from a fact to the decisions that follow, where the job does not say it."""

    shapes: list[JobSpec] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)
    submit_us: array[int] = field(default_factory=lambda: array("q"))
    run_us: array[int] = field(default_factory=lambda: array("q"))
    shape: array[int] = field(default_factory=lambda: array("l"))
    owner: array[int] = field(default_factory=lambda: array("l"))
    special: dict[int, Special] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    decide_us: int = 0

    def __len__(self) -> int:
        return len(self.submit_us)

    def spec(self, index: int) -> JobSpec:
        """What that job asks for."""
        return self.shapes[self.shape[index]]

    def name(self, index: int) -> str:
        """The job's name in the trace, else its number from 1."""
        return self.names[index] if self.names else str(index + 1)

    def run_on_us(self, index: int, model: str) -> int:
        """How long the job runs on GPUs of that model (empty: on none), if nothing stops it."""
        special = self.special.get(index)
        if special is not None:
            for name, run_us in special.run_on:
                if name == model:
                    return run_us
        return self.run_us[index]


class TraceBuilder:
    """Takes jobs in any order."""

    def __init__(self) -> None:
        self._trace = Trace()
        self._shapes: dict[JobSpec, int] = {}
        self._owners: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def add(
        self,
        spec: JobSpec | int,
        *,
        submit_us: int,
        run_us: int,
        user: str = "user",
        name: str = "",
        special: Special = PLAIN,
    ) -> None:
        """One more job. What only tells jobs apart (a name) does not belong into `spec`; `shape` has given its
        number."""
        trace, index = self._trace, len(self._trace)
        trace.submit_us.append(submit_us)
        trace.run_us.append(run_us)
        trace.shape.append(spec if isinstance(spec, int) else self.shape(spec))
        trace.owner.append(self._owner(user))
        if name:
            self._names[index] = name
        if special != PLAIN:
            trace.special[index] = special

    def shape(self, spec: JobSpec) -> int:
        """The number of a shape."""
        found = self._shapes.get(spec)
        if found is None:
            found = self._shapes[spec] = len(self._trace.shapes)
            self._trace.shapes.append(spec)
        return found

    def _owner(self, user: str) -> int:
        found = self._owners.get(user)
        if found is None:
            found = self._owners[user] = len(self._trace.owners)
            self._trace.owners.append(Owner(user, FIRST_UID + found, FIRST_UID + found))
        return found

    def build(self) -> Trace:
        """All jobs by arrival; of those that arrive together, as they were added. The builder is spent by it."""
        trace = self._trace
        if self._names:
            trace.names = [self._names.get(index, str(index + 1)) for index in range(len(trace))]
        order = sorted(range(len(trace)), key=trace.submit_us.__getitem__)
        return trace if order == list(range(len(trace))) else _reordered(trace, order)


def _reordered(trace: Trace, order: Sequence[int]) -> Trace:
    now_at = {old: new for new, old in enumerate(order)} if trace.special else {}
    return Trace(
        shapes=trace.shapes,
        owners=trace.owners,
        submit_us=_picked(trace.submit_us, order),
        run_us=_picked(trace.run_us, order),
        shape=_picked(trace.shape, order),
        owner=_picked(trace.owner, order),
        special={now_at[old]: special for old, special in trace.special.items()},
        names=[trace.names[old] for old in order] if trace.names else [],
    )


def _picked(column: array[int], order: Sequence[int]) -> array[int]:
    return array(column.typecode, map(column.__getitem__, order))
