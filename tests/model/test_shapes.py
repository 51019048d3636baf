"""The arithmetic that jobs, results and specs do themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.attempt import ENDED_STATES, JobState, RankResult
from orchestrator.model.base import Word
from orchestrator.model.cluster import PoolSize, PowerDomain
from orchestrator.model.job import Gang, Group, OnLost, PerNode, Request
from orchestrator.model.need import gangs_of, need_of
from tests.builders import cluster, grouped, job, pool, queue

REQUESTS = [
    # request, GPUs of the gang, ranks of the gang
    (Request(nodes=1), 0, 1),
    (Request(nodes=4, per_node=PerNode(8)), 32, 4),
    (Request(nodes=4, tasks_per_node=8, per_node=PerNode(8)), 32, 32),
    (Request(tasks=5, per_task=PerNode(2)), 10, 5),
    (Request(tasks=5), 0, 5),
    (Request(tasks=5, tasks_per_node=8, per_task=PerNode(1)), 5, 5),
    (
        Request(
            groups=(
                Group("workers", Gang(nodes=4, tasks_per_node=8, per_node=PerNode(8))),
                Group("loaders", Gang(tasks=3, per_task=PerNode(cores=2))),
                Group("judge", Gang(tasks=2, per_task=PerNode(2))),
            )
        ),
        36,
        37,
    ),
]


@pytest.mark.parametrize(("request_", "gpus", "tasks"), REQUESTS)
def test_a_gang_counts_its_gpus_and_ranks(request_: Request, gpus: int, tasks: int) -> None:
    assert (request_.total_gpus(), request_.total_tasks()) == (gpus, tasks)


def test_nodes_of_a_gang_of_groups_are_known_where_all_groups_are_made_of_nodes() -> None:
    two, three = Group("a", Gang(nodes=2)), Group("b", Gang(nodes=3))
    assert Request(groups=(two, three)).total_nodes() == 5
    assert Request(groups=(two, Group("c", Gang(tasks=1)))).total_nodes() == 0
    assert Request(nodes=4).total_nodes() == 4


def test_a_gang_of_groups_is_seen_as_one_equal_gang_for_each() -> None:
    spec = grouped(parts={"workers": job(nodes=2, gpus=8), "loaders": job(tasks=3, gpus=0, cores=4)})
    workers, loaders = gangs_of(spec)
    assert (need_of(workers).units, need_of(workers).gpus, need_of(workers).spread) == (2, 8, True)
    assert (need_of(loaders).units, need_of(loaders).cores, need_of(loaders).spread) == (3, 4, False)
    equal = job(nodes=2)
    assert gangs_of(equal) == (equal,)


def test_each_group_has_its_command_and_a_gang_without_groups_has_one() -> None:
    spec = grouped(parts={"a": replace(job(), command=("one",)), "b": replace(job(), command=("two",))})
    assert (spec.command, spec.command_of(0), spec.command_of(1), spec.command_of(2)) == (
        (),
        ("one",),
        ("two",),
        (),
    )
    assert job().command_of(0) == ("true",)


RESULTS = [
    # code, signal, well?, as shells count
    (0, 0, True, 0),
    (3, 0, False, 3),
    (255, 0, False, 255),
    (0, 9, False, 137),
    (0, 15, False, 143),
    (1, 11, False, 139),
]


@pytest.mark.parametrize(("code", "signal", "well", "shown"), RESULTS)
def test_a_result_is_well_or_has_a_code_as_shells_count(
    code: int, signal: int, well: bool, shown: int
) -> None:
    result = RankResult(0, code, signal)
    assert (result.ok, result.exit_code) == (well, shown)


@given(code=st.integers(0, 255), signal=st.integers(0, 64))
def test_only_what_went_well_counts_as_zero(code: int, signal: int) -> None:
    result = RankResult(0, code, signal)
    assert result.ok == (result.exit_code == 0)


def test_a_derated_limit_is_what_may_be_used() -> None:
    assert PowerDomain("a", limit_watts=200_000, derate_milli=800).usable_watts() == 160_000
    assert PowerDomain("a", limit_watts=999, derate_milli=333).usable_watts() == 332
    assert PowerDomain("a").usable_watts() == 0


def test_the_most_nodes_of_a_pool() -> None:
    assert pool("p", nodes=3).most_nodes() == 3
    assert pool("p", nodes=0, size=PoolSize(min=1, max=16)).most_nodes() == 16


def test_things_are_found_by_name() -> None:
    spec = cluster(pool("a"), pool("b"), queues=(queue("x"), queue("y")))
    assert (spec.pool("b").name, spec.queue("y").name, spec.site("here").name) == ("b", "y", "here")
    assert spec.site_of(spec.pool("a")) is spec.site("here")
    for find in (spec.pool, spec.queue, spec.site):
        with pytest.raises(KeyError, match="nothing"):
            find("nothing")


def test_a_word_is_its_text() -> None:
    assert f"{OnLost.SELF_FENCE} {OnLost.SELF_FENCE:>12}|" == "self_fence   self_fence|"
    assert str(OnLost.SELF_FENCE) == "self_fence"
    assert {"self_fence": 1}[OnLost.SELF_FENCE] == 1
    assert isinstance(OnLost.SELF_FENCE, Word)
    assert OnLost("self_fence") is OnLost.SELF_FENCE


def test_ended_states_are_those_after_which_nothing_follows() -> None:
    alive = {JobState.HELD, JobState.WAITING, JobState.STARTING, JobState.RUNNING, JobState.ENDING}
    assert alive | set(ENDED_STATES) == set(JobState)
