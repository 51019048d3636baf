"""A recorded ledger as a trace: the jobs that really came, and how long they really ran.

Comes in: the events of a ledger. Goes out: a `Trace`. Called by: cli/simulate_cmd, tests/bench/truth.

A job comes when it was submitted, or when it was last released from a hold, and asks for what it asked for, with the
priority that it had in the end. It runs as long as its last attempt did, from its first process to the proof of its
end, and its launch takes as long as it took. Each of its nodes is free when it was: a gang seldom ends everywhere at
once, and a pass in between gives away what is free. One whose rank failed fails after as long; one that its time limit
ended runs longer than that. Jobs that never ran, or run still, are left out. Tasks of an array come as jobs of their
own; that they were throttled, or that jobs waited for others, is not played again. A pass takes as long as the one did
that started its first job, from the last fact before it. What one commit tells counts as told at once: the controller
makes no pass in between. So a ledger played under its own policy goes as it went, to the microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from statistics import median_low

from orchestrator.ledger import events
from orchestrator.ledger.ends import CALM
from orchestrator.ledger.events import Event
from orchestrator.model.attempt import EndCause
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec
from orchestrator.simulate.trace import Special, Trace, TraceBuilder

LONGER_US = 1_000_000  # than its time limit, for a job that would have gone on


@dataclass(slots=True)
class _Run:
    """What is known of one job. Times UTC microseconds."""

    spec: JobSpec
    user: str
    submitted_us: int
    attempt: AttemptId | None = None
    allocated_us: int = 0
    started_us: int = 0
    nodes: tuple[str, ...] = ()
    free_us: dict[str, int] = field(default_factory=dict)  # by node
    cause: EndCause | None = None
    decide_us: int | None = None  # of the pass that started it


@dataclass(slots=True)
class _Reader:
    jobs: dict[int, _Run] = field(default_factory=dict)
    stirred_us: int = 0  # when the last fact came that a pass has not answered
    decide_us: list[int] = field(default_factory=list)  # of each pass that decided something

    def take(self, batch: list[Event]) -> None:
        """One commit more. What it tells counts as told with its last event, since the pass has seen all of it; what it
        decides, as decided with its first."""
        decided = isinstance(batch[0].body, events.AttemptAllocated)
        at_us, took_us = batch[0 if decided else -1].t_us, None
        if decided and self.stirred_us:
            took_us = at_us - self.stirred_us
            self.decide_us.append(took_us)
        if decided:
            self.stirred_us = 0
        elif not all(isinstance(event.body, CALM) for event in batch):
            self.stirred_us = at_us
        for event in batch:
            if isinstance(event.body, events.AttemptAllocated):
                self._allocated(at_us, took_us, event.body)
            else:
                self._told(at_us, event.body)

    def _told(self, t_us: int, body: object) -> None:
        """One event of a commit; what is of no job is passed over."""
        if isinstance(body, events.JobSubmitted):
            tasks = body.spec.array.count() if body.spec.array is not None else 1
            alone = replace(body.spec, array=None, depends_on=(), singleton=False)
            for job in range(body.job, body.job + tasks):
                self.jobs[job] = _Run(alone, body.owner.name, t_us)
        elif isinstance(body, events.JobReleased):
            if body.job in self.jobs and not self.jobs[body.job].started_us:
                self.jobs[body.job].submitted_us = t_us
        elif isinstance(body, events.JobPrioritized):
            if body.job in self.jobs:
                self.jobs[body.job].spec = replace(self.jobs[body.job].spec, priority=body.priority)
        elif isinstance(body, (events.AttemptStarted, events.AttemptPartEnded, events.AttemptEnded)):
            self._of_attempt(t_us, body)

    def _allocated(self, t_us: int, took_us: int | None, body: events.AttemptAllocated) -> None:
        run = self.jobs.get(body.attempt.job)
        if run is not None:
            run.attempt, run.nodes = body.attempt, tuple(part.node for part in body.placements)
            run.allocated_us, run.started_us, run.free_us, run.cause = t_us, 0, {}, None
            run.decide_us = took_us

    def _of_attempt(
        self, t_us: int, body: events.AttemptStarted | events.AttemptPartEnded | events.AttemptEnded
    ) -> None:
        run = self.jobs.get(body.attempt.job)
        if run is None or run.attempt != body.attempt:
            return
        if isinstance(body, events.AttemptStarted):
            run.started_us = run.started_us or t_us
        elif isinstance(body, events.AttemptPartEnded):
            run.free_us[body.node] = t_us
        else:
            run.cause = body.cause


@dataclass(frozen=True, slots=True)
class FromLedger:
    """The trace, and how many jobs were left out."""

    trace: Trace
    left_out: int


def read_ledger(recorded: Iterable[Event]) -> FromLedger:
    """The jobs of a ledger; times start with the first of them."""
    reader = _Reader()
    for _, batch in groupby(recorded, key=attrgetter("batch")):
        reader.take(list(batch))
    ran = {number: run for number, run in reader.jobs.items() if run.started_us and run.cause is not None}
    zero_us = min((run.submitted_us for run in ran.values()), default=0)
    builder = TraceBuilder()
    for number, run in ran.items():
        _add(builder, str(number), run, zero_us)
    trace = builder.build()
    trace.decide_us = median_low(reader.decide_us) if reader.decide_us else 0
    return FromLedger(trace, len(reader.jobs) - len(ran))


def _add(builder: TraceBuilder, name: str, run: _Run, zero_us: int) -> None:
    ended_us = max(run.free_us.values(), default=run.started_us)
    run_us, fail_after_us = ended_us - run.started_us, 0
    sooner_us = tuple(ended_us - run.free_us.get(node, ended_us) for node in run.nodes)
    if run.cause is EndCause.TIME_LIMIT:
        run_us += LONGER_US
    elif run.cause is EndCause.RANK_FAILED:
        run_us, fail_after_us = run_us + LONGER_US, max(run_us, 1)
    builder.add(
        replace(run.spec, name="recorded", env=(), workdir="", output="", hold=False),
        submit_us=run.submitted_us - zero_us,
        run_us=run_us,
        user=run.user,
        name=name,
        special=Special(
            fail_after_us=fail_after_us,
            launch_us=run.started_us - run.allocated_us,
            sooner_us=sooner_us if any(sooner_us) else (),
            decide_us=run.decide_us,
        ),
    )
