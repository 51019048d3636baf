"""Gangs of unlike groups: they start together on nodes of their own within one domain, or not at all, and say why.

Scenes tell what is meant; the properties compare passes over random stories with everything tried (exhaustive.py).
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger.records import Job
from orchestrator.model.cluster import Queue, QueueLimits, Share
from orchestrator.model.cluster_sites import SiteFabric, Unit
from orchestrator.model.decisions import Start
from orchestrator.model.job import JobSpec, Topology
from orchestrator.model.need import gangs_of
from tests.builders import BOB, GPU, cluster, grouped, job, pool
from tests.controller.invariants import check_state
from tests.scheduler.exhaustive import Paper
from tests.scheduler.exhaustive_nodes import ask_of
from tests.scheduler.fuzz import Story, a_cluster, a_job_or_groups, small
from tests.scheduler.scenes import Stage
from tests.scheduler.test_counterfactual import reasons_are_true
from tests.scheduler.test_exhaustive import waiting
from tests.scheduler.test_properties import (
    memory_changes_nothing,
    nobody_is_passed_over,
    what_is_left_does_not_fit,
)

SEEDS = st.integers(0, 10**9)
TWO_POOLS = cluster(pool("gpu", nodes=3, gpus=4), pool("cpu", nodes=2, gpus=0, cores=16))


def rl(workers: int = 2, loaders: int = 3, **rest: Any) -> JobSpec:
    """Workers with all GPUs of a node each, and tasks without GPUs that load for them."""
    parts = {"workers": job(nodes=workers, gpus=4), "loaders": job(tasks=loaders, gpus=0, cores=8)}
    return grouped(parts=parts, **rest)


def where(start: Start) -> list[tuple[str, int, int]]:
    """Node, group and tasks of each part."""
    return [(part.node, part.group, part.tasks) for part in start.placements]


def test_each_group_goes_to_the_pool_that_suits_it_in_the_order_of_ranks() -> None:
    stage = Stage(TWO_POOLS)
    one = stage.submit(rl())
    start = stage.look()[one]
    assert where(start) == [("gpu-1", 0, 1), ("gpu-2", 0, 1), ("cpu-1", 1, 2), ("cpu-2", 1, 1)]
    assert [len(part.slots) for part in start.placements] == [4, 4, 0, 0]
    assert start.master_address == stage.state.nodes["gpu-1"].address


def test_groups_of_one_pool_have_nodes_of_their_own() -> None:
    stage = Stage(cluster(pool("p", nodes=3, gpus=4)))
    one = stage.submit(grouped(parts={"a": job(nodes=2, gpus=4), "b": job(tasks=2, gpus=1)}))
    assert where(stage.look()[one]) == [("p-1", 0, 1), ("p-2", 0, 1), ("p-3", 1, 2)]


def test_all_of_it_starts_or_nothing() -> None:
    stage = Stage(TWO_POOLS)
    before = stage.submit(job(tasks=3, gpus=0, cores=8))
    stage.look()
    one = stage.submit(rl(workers=3))
    assert stage.look() == {}
    assert stage.why(one).sentence() == (
        "its groups start together, each on nodes of its own, and fit now is: "
        "group loaders: 1 of 3 task(s) in pool cpu"
    )
    stage.end(before)
    assert list(stage.look()) == [one]


def test_the_harder_group_leaves_no_node_to_the_easier_one_that_others_could_give() -> None:
    """One after the other in their order, the tasks would take the only node that the big group can have."""
    stage = Stage(cluster(pool("p", nodes=2, gpus=4)))
    busy = stage.submit(job(tasks=1, gpus=1))
    stage.look()
    one = stage.submit(grouped(parts={"small": job(tasks=1, gpus=3), "big": job(nodes=1, gpus=4)}))
    start = stage.look()[one]
    assert where(start) == [("p-1", 0, 1), ("p-2", 1, 1)]
    assert stage.state.jobs[busy].attempt is not None


UNITS = SiteFabric(("unit",), (Unit("u0", ("gpu-1", "gpu-2", "cpu-1")), Unit("u1", ("gpu-3", "cpu-2"))))


def test_a_required_level_holds_all_groups_together() -> None:
    stage = Stage(cluster(*TWO_POOLS.pools, fabric=UNITS))
    one = stage.submit(rl(workers=1, loaders=2, topology=Topology(required="unit")))
    assert where(stage.look()[one]) == [("gpu-3", 0, 1), ("cpu-2", 1, 2)], "the domain with the least room"
    two = stage.submit(rl(workers=2, loaders=3, topology=Topology(required="unit")))
    stage.look()
    assert stage.why(two).code == "wait.never"


def test_a_reason_names_the_domain_that_comes_closest() -> None:
    stage = Stage(cluster(*TWO_POOLS.pools, fabric=UNITS))
    stage.submit(job(tasks=1, gpus=0, cores=9, models=()))
    stage.look()
    one = stage.submit(rl(workers=2, loaders=2, topology=Topology(required="unit")))
    stage.look()
    assert stage.why(one).sentence() == (
        "its groups start together, each on nodes of its own within unit u0, and fit now is: "
        "group loaders: 0 of 2 task(s) in pool cpu"
    )


def test_limits_count_all_groups_in_their_pools() -> None:
    queue = Queue(
        "default", guarantee=(), borrow_limit=(Share(8, "gpu"),), limits=QueueLimits(max_gpus_per_user=9)
    )
    pools = (pool("gpu", nodes=3, gpus=4), pool("old", nodes=2, gpus=4, model="A10"))
    stage = Stage(cluster(*pools, queues=(queue,)))
    twelve = grouped(
        parts={
            "trainers": job(nodes=2, gpus=4, models=(GPU,)),
            "samplers": job(tasks=2, gpus=1, models=("A10",)),
        }
    )
    one = stage.submit(twelve)
    stage.look()
    assert stage.why(one).sentence().startswith("alice in queue default may have 9 GPU(s) and has 0")
    two = stage.submit(
        grouped(
            parts={
                "trainers": job(nodes=1, gpus=4, models=(GPU,)),
                "samplers": job(tasks=2, gpus=1, models=("A10",)),
            }
        ),
        BOB,
    )
    assert list(stage.look()) == [two]
    used = stage.state.limits.scopes["queue=default"].used
    assert used == {"jobs": 1, "gpus": 6000, "gpus@gpu": 4000, "gpus@old": 2000}
    stage.end(two)
    assert stage.state.limits.scopes["queue=default"].used == {}


def test_nodes_are_kept_for_a_blocked_gang_of_groups() -> None:
    """A stream of small jobs behind it does not starve it."""
    stage = Stage(cluster(pool("p", nodes=3, gpus=4)))
    first = [stage.submit(job(gpus=2, time_limit_s=3600)) for _ in range(3)]
    stage.look()
    one = stage.submit(grouped(parts={"a": job(nodes=2, gpus=4), "b": job(tasks=1, gpus=4)}, priority=5))
    later = stage.submit(job(gpus=1, time_limit_s=600))
    assert stage.look() == {}
    assert stage.why(one).code == "wait.groups"
    assert stage.why(later).sentence().startswith(f"job {one}, before it in order")
    for each in first:
        stage.end(each)
    assert next(iter(stage.look())) == one


def test_a_smaller_gang_is_not_closed_with_one_of_groups_nor_that_with_it() -> None:
    stage = Stage(cluster(pool("p", nodes=2, gpus=4)), kept=0)
    whole = stage.submit(job(nodes=2, gpus=4, priority=9))
    stage.look()
    stage.end(whole)
    stage.submit(job(tasks=1, gpus=2))
    stage.look()
    groups = stage.submit(grouped(parts={"a": job(nodes=1, gpus=4), "b": job(tasks=1, gpus=4)}, priority=8))
    small_one = stage.submit(job(tasks=1, gpus=4))
    assert list(stage.look()) == [small_one]
    assert stage.why(groups).code == "wait.groups"


# --- against everything tried -----------------------------------------------------------------------------------


def starts_are_whole(story: Story, decisions: tuple[Start, ...]) -> Paper:
    """Every group has all of its units, on nodes that no other group has, within one domain, and limits hold."""
    paper = Paper(story.state, seconds=story.seconds)
    for start in decisions:
        one = story.state.jobs[start.attempt.job]
        nodes = [part.node for part in start.placements]
        assert len(set(nodes)) == len(nodes)
        pools: list[str] = []
        for number, gang in enumerate(gangs_of(one.spec)):
            parts = [part for part in start.placements if part.group == number]
            mine = {story.state.nodes[part.node].pool for part in parts}
            assert len(mine) == 1
            pools += mine
            ask = ask_of(gang)
            each = gang.request.tasks_per_node if ask.spread else 1
            assert sum(part.tasks for part in parts) == ask.units * each
            assert sum(part.usable.cores for part in parts) == ask.units * ask.cores
            held = [part.usable.instances if ask.mig else part.usable.slots for part in parts]
            assert ask.shares or sum(len(one) for one in held) == ask.units * ask.gpus
            assert not ask.spread or len(parts) == ask.units
        assert [part.group for part in start.placements] == sorted(part.group for part in start.placements)
        assert "+".join(pools) in paper.pools(one.spec)
        assert paper.over(one, "+".join(pools)) == [] or by_memory(one)
        assert paper.metered(one, "+".join(pools)) == [] or by_memory(one)
        _together(story, one, nodes)
        paper.start(one, start)
    return paper


def by_memory(one: Job) -> bool:
    """What it counts for depends on the device."""
    return any(ask_of(gang).shares and not ask_of(gang).milli for gang in gangs_of(one.spec))


def _together(story: Story, one: Job, nodes: list[str]) -> None:
    required = one.spec.topology.required
    if required:
        domains = story.spec.domains_of(story.spec.sites[0])[required]
        assert any(set(nodes) <= set(members) for members in domains.values())


def whoever_waits_can_not_start(story: Story, decisions: tuple[Start, ...]) -> None:
    paper = starts_are_whole(story, decisions)
    for _, one, reason in waiting(story, decisions):
        assert not paper.starts(one) or by_memory(one), f"job {one.id} could start: {reason}"


@pytest.mark.property
@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_whoever_waits_truly_can_not_start(seed: int) -> None:
    Story(random.Random(seed), whoever_waits_can_not_start, small, kept=0, asks=a_job_or_groups).play(8)


@pytest.mark.property
@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_without_what_a_reason_names_a_gang_of_groups_starts(seed: int) -> None:
    Story(random.Random(seed), reasons_are_true, small, asks=a_job_or_groups).play(8)


def all_that_holds_for_equal_gangs(story: Story, decisions: tuple[Start, ...]) -> None:
    starts_are_whole(story, decisions)
    memory_changes_nothing(story, decisions)
    nobody_is_passed_over(story, decisions)
    what_is_left_does_not_fit(story, decisions)
    check_state(story.state)


@pytest.mark.property
@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_what_holds_for_equal_gangs_holds_for_groups(seed: int) -> None:
    Story(random.Random(seed), all_that_holds_for_equal_gangs, a_cluster, asks=a_job_or_groups).play(10)
