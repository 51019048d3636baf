"""Cores and memory that a pool keeps for each GPU: work without GPUs can't strand them (cases/scheduling 38)."""

from __future__ import annotations

import pytest

from orchestrator.ledger import events
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.job import JobSpec
from orchestrator.scheduler import refuse
from tests.builders import cluster, job, pool
from tests.controller.invariants import check_state
from tests.scheduler.scenes import GIB, STARTS, Stage


def keeping(nodes: int = 1, cores: int = 4, memory: int = 0, plain: int = 0) -> ClusterSpec:
    """Nodes with 4 GPUs, 32 cores and 64 GiB that keep so much of it per GPU, and `plain` ones without GPUs."""
    kept = pool("gpu", nodes, 4, 32, keep_cores_per_gpu=cores, keep_memory_per_gpu=memory)
    return cluster(kept, *([pool("cpu", plain, 0, 32)] if plain else []))


def cpu(cores: int = 1, memory: int = 0, tasks: int = 0, nodes: int = 0) -> JobSpec:
    return job(gpus=0, cores=cores, memory=memory, tasks=tasks, nodes=nodes)


def started(stage: Stage, jobs: list[int]) -> int:
    stage.look()
    return sum(stage.outcome(one) == STARTS for one in jobs)


@pytest.mark.parametrize(
    ("spec", "each", "want"),
    [
        (keeping(), cpu(4), 4),  # 16 of 32 cores
        (keeping(cores=8), cpu(4), 0),
        (keeping(cores=0), cpu(4), 8),
        (keeping(cores=0, memory=8 * GIB), cpu(1, 8 * GIB), 4),  # 32 of 64 GiB
        (keeping(cores=4, plain=1), cpu(4), 12),
        (keeping(cores=100), cpu(1), 0),  # more than there is: all of it
    ],
)
def test_work_without_gpus_leaves_what_is_kept(spec: ClusterSpec, each: JobSpec, want: int) -> None:
    stage = Stage(spec)
    assert started(stage, [stage.submit(each) for _ in range(20)]) == want
    check_state(stage.state)


def test_gpus_find_their_cores_however_much_other_work_waits() -> None:
    stage = Stage(keeping(nodes=2))
    small = [stage.submit(cpu(2)) for _ in range(100)]
    assert started(stage, small) == 16
    assert started(stage, [stage.submit(job(gpus=1, cores=4)) for _ in range(8)]) == 8


def test_it_is_for_work_with_gpus_alone_that_nothing_is_kept_back() -> None:
    stage = Stage(keeping())
    assert started(stage, [stage.submit(job(gpus=1, cores=32))]) == 1


def test_why_it_waits_is_the_rule_and_its_numbers() -> None:
    stage = Stage(keeping(memory=GIB))
    first = stage.submit(cpu(12))
    stage.look()
    mine = stage.submit(cpu(6, tasks=2))
    stage.look()
    assert stage.why(mine).sentence() == (
        "work without GPUs leaves 4 core(s) and 1GiB of memory for each GPU of pool gpu; of its 2 tasks 0 fit(s) on "
        "what is left beside that"
    )
    stage.end(first)
    assert started(stage, [mine]) == 1


def test_cores_that_nobody_has_free_are_the_reason_where_the_rule_is_not() -> None:
    stage = Stage(keeping())
    stage.submit(job(gpus=4, cores=30))
    stage.look()
    mine = stage.submit(cpu(4, nodes=1))
    stage.look()
    assert stage.outcome(mine) == "wait.cores"


@pytest.mark.parametrize(
    ("spec", "asked", "code"),
    [
        (keeping(), cpu(17), "never.tasks"),
        (keeping(), cpu(16), ""),
        (keeping(), cpu(17, nodes=1), "never.nodes"),
        (keeping(plain=1), cpu(17), ""),
        (keeping(cores=0, memory=GIB), cpu(1, 61 * GIB), "never.tasks"),
        (keeping(cores=8), cpu(1), "never.tasks"),
        (keeping(), job(gpus=1, cores=32), ""),
    ],
)
def test_what_could_never_fit_beside_it_is_refused_at_submit(
    spec: ClusterSpec, asked: JobSpec, code: str
) -> None:
    found = refuse.never(Stage(spec).state, asked, "alice")
    assert (found.code if found else "") == code


def test_another_rule_in_the_file_counts_from_then_on() -> None:
    """What runs keeps what it has."""
    stage = Stage(keeping(cores=0))
    small = [stage.submit(cpu(4)) for _ in range(8)]
    assert started(stage, small) == 8
    stage(events.ClusterApplied(keeping(cores=4), "other"), "cluster")
    late = stage.submit(cpu(4))
    for one in small[:4]:
        stage.end(one)
    assert started(stage, [late]) == 0
    stage.end(small[4])
    assert started(stage, [late]) == 1
    check_state(stage.state)


def test_what_such_work_gives_back_is_seen_though_others_take_as_many_cores_in_the_same_pass() -> None:
    """The node has no more cores free than before, and yet there is more that work without GPUs may have."""
    gpu = pool("gpu", 1, 4, 32, keep_cores_per_gpu=4)
    stage = Stage(cluster(gpu, pool("big", 1, 8, 32, keep_cores_per_gpu=4)), kept=1)
    first, large, mine = stage.submit(cpu(16)), stage.submit(job(gpus=8, cores=1)), stage.submit(cpu(16))
    assert started(stage, [first, large, mine]) == 2
    stage.end(first)
    stage.submit(job(gpus=1, cores=16, priority=10))
    # Nodes are kept for this one, and nobody behind it is tried for nothing.
    stage.submit(job(gpus=8, cores=1, priority=5))
    assert started(stage, [mine]) == 1
    check_state(stage.state)
