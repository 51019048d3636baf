"""GPU-hours of a month: who starts within them, who waits with which numbers, and what opens the way again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator.ledger import events
from orchestrator.ledger.hours import HOUR, HOURS
from orchestrator.ledger.snapshot import from_plain, to_plain
from orchestrator.model.capacity import NEVER_US
from orchestrator.model.cluster import ClusterSpec, Queue, QueueLimits
from orchestrator.model.job import JobSpec, Workload
from orchestrator.scheduler import refuse
from tests.builders import T0, cluster, grouped, job, pool, queue
from tests.scheduler.scenes import STARTS, Stage, share

H, US = 3600, 1_000_000
ENDS_US = T0 + 100 * H * US  # of the month, which began an hour before


def few(hours: int = 100, **rest: int) -> ClusterSpec:
    """Two nodes of eight GPUs, and a queue with so many GPU-hours a month."""
    return cluster(pool(nodes=2, gpus=8), queues=(queue("default", max_gpu_hours_per_month=hours, **rest),))


class Metered(Stage):
    """In a month that is a fact."""

    def __init__(self, spec: ClusterSpec, kept: int = 8) -> None:
        super().__init__(spec, kept=kept)
        if self.state.hours is not None:
            self(events.MonthBegan(T0 - H * US, ENDS_US))

    def spent(self, scope: str = "queue=default") -> float:
        """GPU-hours that are used or committed."""
        return self.state.limits.scopes[scope].used.get(HOURS, 0) / HOUR

    def wait(self, hours: float) -> None:
        """Time passes."""
        self.now_us += int(hours * H) * US


@dataclass
class Case:
    """Jobs in submit order, what becomes of them in one pass, and what is committed then."""

    jobs: list[JobSpec]
    want: list[str]
    spent: float
    spec: ClusterSpec = field(default_factory=few)


PARENT = cluster(
    pool(nodes=2, gpus=8),
    queues=(
        Queue("all", limits=QueueLimits(max_gpu_hours_per_month=30)),
        Queue("default", parent="all", limits=QueueLimits(max_gpu_hours_per_month=40)),
        Queue("other", parent="all"),
        Queue("free"),
    ),
)
LONG: dict[str, Any] = {"time_limit_s": 10 * H}
WAITS = "wait.gpu-hours"
CASES = {
    "a job is committed for its time limit": Case([job(gpus=8, **LONG)], [STARTS], 80),
    "the next one waits, and one that is short enough starts": Case(
        [job(gpus=8, **LONG), job(gpus=4, **LONG), job(gpus=2, **LONG)], [STARTS, WAITS, STARTS], 100
    ),
    "two of one pass are counted together": Case(
        [job(gpus=6, **LONG), job(gpus=5, **LONG)], [STARTS, WAITS], 60
    ),
    "without a time limit it is the rest of the month": Case(
        [job(gpus=1, workload=Workload.SERVING), job(gpus=1, time_limit_s=H)], [STARTS, WAITS], 100
    ),
    "a time limit beyond the month counts to its end": Case(
        [job(gpus=1, time_limit_s=1000 * H)], [STARTS], 100
    ),
    "what is shared counts by its share": Case([share(500, time_limit_s=100 * H)], [STARTS], 50),
    "work without GPUs is not counted": Case(
        [job(gpus=8, time_limit_s=12 * H), job(gpus=0, cores=1, time_limit_s=90 * H)], [STARTS, STARTS], 96
    ),
    "gangs of groups count all their groups": Case(
        [grouped(parts={"a": job(nodes=1, gpus=8), "b": job(tasks=2, gpus=1)}, **LONG)], [STARTS], 100
    ),
    "the queue above binds": Case([job(gpus=4, **LONG)], ["wait.gpu-hours"], 0, PARENT),
    "a sibling's work counts above": Case(
        [job(gpus=2, queue="other", **LONG), job(gpus=2, **LONG)], [STARTS, "wait.gpu-hours"], 0, PARENT
    ),
    "a queue with no limit around it pays no heed": Case(
        [job(gpus=8, queue="free", time_limit_s=1000 * H)], [STARTS], 0, PARENT
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("kept", [0, 8])
def test_a_pass(case: Case, kept: int) -> None:
    stage = Metered(case.spec, kept)
    jobs = [stage.submit(one) for one in case.jobs]
    stage.look()
    assert [stage.outcome(one) for one in jobs] == case.want
    assert stage.spent() == case.spent


def test_the_reason_has_the_numbers() -> None:
    stage = Metered(few())
    stage.submit(job(gpus=8, **LONG))
    late = stage.submit(job(gpus=4, **LONG))
    stage.look()
    assert stage.why(late).sentence() == (
        "queue default may use 100 GPU-hours a month, and 80 are used or may still be by what runs: this job may "
        "need 40"
    )


def test_what_ends_early_gives_the_rest_back() -> None:
    stage = Metered(few())
    first, late = stage.submit(job(gpus=8, **LONG)), stage.submit(job(gpus=8, time_limit_s=11 * H))
    stage.look()
    assert stage.outcome(late) == WAITS
    stage.wait(1)
    stage.end(first)
    assert stage.spent() == 8
    stage.look()
    assert stage.outcome(late) == STARTS
    assert stage.spent() == 96


def test_a_new_month_begins_with_what_runs() -> None:
    stage = Metered(few())
    first = stage.submit(job(gpus=1, time_limit_s=103 * H))
    done, late = stage.submit(job(gpus=2, time_limit_s=0, workload=Workload.SERVING)), 0
    stage.look()
    assert [stage.outcome(first), stage.outcome(done)] == [STARTS, WAITS]
    stage.wait(101)
    stage(events.MonthBegan(ENDS_US, ENDS_US + 720 * H * US), "cluster", stage.now_us)
    assert stage.spent() == 3, "from the month's begin to its time limit"
    late = stage.submit(job(gpus=8, time_limit_s=12 * H))
    stage.look()
    assert stage.outcome(late) == STARTS
    assert stage.outcome(done) == WAITS, "719 hours of two GPUs are more than a month has"
    stage.end(first)
    assert stage.spent() == 1 + 96, "an hour of it was in this month"


@pytest.mark.parametrize("spec", [job(gpus=8, time_limit_s=12 * H), job(gpus=8, workload=Workload.SERVING)])
def test_nothing_starts_for_nothing_before_the_next_month_is_a_fact(spec: JobSpec) -> None:
    """A pass may come a moment after the end: it has the old month's hours, and nothing is cut off at its end."""
    stage = Metered(few())
    stage.submit(job(gpus=8, **LONG))
    stage.look()
    late = stage.submit(spec)
    stage.now_us = ENDS_US + 1
    stage.look()
    assert stage.outcome(late) == WAITS


def test_a_month_of_another_zone_keeps_what_was_used_in_it() -> None:
    stage = Metered(few())
    first = stage.submit(job(gpus=8, **LONG))
    stage.look()
    stage.wait(2)
    stage.end(first)
    stage(events.MonthBegan(T0 - 3 * H * US, ENDS_US - 2 * H * US), "cluster", stage.now_us)
    assert stage.spent() == 16
    stage(events.MonthBegan(ENDS_US - 2 * H * US, ENDS_US + 700 * H * US), "cluster", stage.now_us)
    assert stage.spent() == 0


@pytest.mark.parametrize(
    ("gpus", "limit_s", "hours"), [(1, 0, 50), (2, 0, 75), (1, 90 * H, 50), (8, 0, 93.75)]
)
def test_a_job_starts_when_the_month_has_so_little_left_that_it_asks_for_little(
    gpus: int, limit_s: int, hours: float
) -> None:
    """The pass says when to look again, though nothing happens until then."""
    stage = Metered(few(50))
    late = stage.submit(job(gpus=gpus, time_limit_s=limit_s, workload=Workload.SERVING))
    stage.look()
    assert stage.outcome(late) == WAITS
    assert stage.waits is not None
    assert stage.waits.wake_us == T0 + int(hours * H) * US
    stage.now_us = stage.waits.wake_us - 1
    stage.look()
    assert stage.outcome(late) == WAITS
    stage.now_us += 1
    stage.look()
    assert stage.outcome(late) == STARTS
    assert stage.spent() == 50


def test_nobody_is_woken_for_whom_the_time_does_nothing() -> None:
    stage = Metered(few(50))
    stage.submit(job(gpus=8, time_limit_s=H))
    stage.look()
    stage.submit(job(nodes=2, gpus=8, time_limit_s=H))  # it waits for nodes
    stage.look()
    assert stage.waits is not None
    assert stage.waits.wake_us == NEVER_US


def test_a_start_that_comes_late_moves_what_is_committed() -> None:
    """The time limit counts from the first process, the GPUs are taken before."""
    stage = Metered(few())
    first = stage.submit(job(gpus=8, **LONG))
    start = stage.look()[first]
    stage.wait(0.5)
    stage(events.AttemptCommitted(start.attempt), "job/1", stage.now_us)
    stage(events.AttemptStarted(start.attempt, start.placements[0].node, (1,), 1), "job/1", stage.now_us)
    assert stage.spent() == 84


def test_hours_are_kept_for_whom_nodes_are_kept_for() -> None:
    """Else those behind it would use up its month while it waits for nodes."""
    stage = Metered(few(200))
    stage.submit(job(gpus=8, time_limit_s=H))
    stage.look()
    large = stage.submit(job(nodes=2, gpus=8, **LONG))
    small = stage.submit(job(gpus=0, cores=1, time_limit_s=H))
    behind = stage.submit(job(gpus=1, time_limit_s=40 * H))
    stage.look()
    assert stage.outcome(large) == "wait.gpus"
    assert stage.outcome(behind) == "wait.order"
    assert stage.outcome(small) == STARTS


def test_lower_limits_let_nothing_new_start_and_end_nothing() -> None:
    stage = Metered(few())
    first = stage.submit(job(gpus=8, **LONG))
    stage.look()
    stage(events.ClusterApplied(few(40), "lower"))
    late = stage.submit(job(gpus=1, time_limit_s=H))
    stage.look()
    assert [stage.outcome(first), stage.outcome(late)] == [STARTS, WAITS]
    assert stage.spent() == 80


def test_a_file_without_limits_forgets_the_month() -> None:
    stage = Metered(few())
    stage.submit(job(gpus=8, **LONG))
    stage.look()
    stage(events.ClusterApplied(cluster(pool(nodes=2, gpus=8)), "none"))
    assert stage.state.hours is None
    assert (stage.state.month, stage.state.spent, stage.spent()) == (None, {}, 0)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (job(gpus=8, time_limit_s=13 * H), "never.gpu-hours"),
        (job(gpus=8, time_limit_s=12 * H), ""),
        (job(gpus=8, workload=Workload.SERVING), ""),
        (job(gpus=1, time_limit_s=5000 * H), "never.gpu-hours"),
        (job(gpus=0, cores=1, time_limit_s=5000 * H), ""),
    ],
)
def test_what_alone_is_more_than_a_month_has_is_refused(spec: JobSpec, code: str) -> None:
    state = Metered(few()).state
    never = refuse.never(state, spec, "alice")
    assert (never.code if never is not None else "") == code
    if never is not None:
        assert not refuse.may_wait(never)


def test_a_limit_of_the_queue_s_own_time_counts_for_the_refusal() -> None:
    spec = few(default_time_limit_s=20 * H)
    found = refuse.never(Metered(spec).state, job(gpus=8), "alice")
    assert found is not None
    assert found.sentence() == ("queue default may use 100 GPU-hours a month, and the job alone may need 160")


def test_the_month_and_what_was_spent_are_in_snapshots() -> None:
    stage = Metered(few())
    first = stage.submit(job(gpus=8, **LONG))
    stage.look()
    stage.wait(2)
    stage.end(first)
    again = from_plain(to_plain(stage.state))
    assert again.month == stage.state.month
    assert again.limits.scopes["queue=default"].used == stage.state.limits.scopes["queue=default"].used
    assert stage.spent() == 16
