"""The month in which GPU-hours count: a fact once a month, whatever happens to the controller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.controller import commands
from orchestrator.ledger import events
from orchestrator.ledger.events import from_stored
from orchestrator.ledger.hours import HOUR, HOURS, Month
from orchestrator.model.calendar import month_of
from orchestrator.model.clock import SECOND
from orchestrator.model.job import Workload
from tests.builders import cluster, job, pool, queue
from tests.controller.invariants import check_world
from tests.controller.scenes import finish, running, small, why, world_of
from tests.controller.world import World

HOURS_A_MONTH = 100
SPEC = replace(
    cluster(pool("p", nodes=2, gpus=8), queues=(queue("default", max_gpu_hours_per_month=HOURS_A_MONTH),)),
    timezone="Europe/Berlin",
)


def months(world: World) -> list[tuple[int, int]]:
    """Those that the ledger has."""
    found = [from_stored(one).body for one in world.store.tail(0)]
    return [(one.begin_us, one.ends_us) for one in found if isinstance(one, events.MonthBegan)]


def test_the_month_is_that_of_the_cluster_s_zone_and_comes_with_the_file(tmp_path: Path) -> None:
    world = world_of(tmp_path, SPEC)
    assert months(world) == [month_of("Europe/Berlin", world.clock.now_us())]
    assert world.state.month == Month(*months(world)[0])
    assert world.view.month_ends_us == months(world)[0][1]
    check_world(world)


def test_a_cluster_without_such_limits_has_none(tmp_path: Path) -> None:
    world = small(tmp_path)
    world.wait(40 * 86400)
    assert months(world) == []


def test_a_month_comes_once_and_the_next_one_when_it_is_over(tmp_path: Path) -> None:
    world = world_of(tmp_path, SPEC)
    for _ in range(3):
        world.wait(3600)
    assert len(months(world)) == 1
    (first,) = months(world)
    world.wait((first[1] - world.clock.now_us()) // SECOND + 1)
    assert months(world) == [first, month_of("Europe/Berlin", first[1])]
    world.kill_controller()
    world.start_controller()
    world.wait(10)
    assert len(months(world)) == 2
    check_world(world)


def test_a_job_that_the_time_lets_start_is_started_though_nothing_happens(tmp_path: Path) -> None:
    world = world_of(tmp_path, SPEC)
    late = world.submit(job(gpus=8, workload=Workload.SERVING))
    world.settle(3)
    assert world.state.jobs[late].attempt is None
    ((_, ends_us),) = months(world)
    seconds = HOURS_A_MONTH * 3600 // 8
    world.wait((ends_us - world.clock.now_us()) // SECOND - seconds - 10)
    world.beat()
    seq = world.state.seq
    world.cycle()
    assert (world.state.jobs[late].attempt, world.state.seq) == (None, seq)
    world.clock.advance(11)
    world.cycle()
    assert world.state.jobs[late].attempt is not None


def test_what_a_month_has_used_keeps_others_waiting_and_is_forgotten_with_it(tmp_path: Path) -> None:
    world = world_of(tmp_path, SPEC)
    first = running(world, job(gpus=8, time_limit_s=12 * 3600))
    world.wait(3600)
    finish(world, first)
    spent = world.state.limits.scopes["queue=default"].used[HOURS] / HOUR
    assert 8 <= spent < 8.1
    late = world.submit(job(nodes=2, gpus=8, time_limit_s=6 * 3600))
    world.settle(3)
    found = why(world, late)
    assert found.reason is not None
    assert found.reason.code == "wait.gpu-hours"
    assert (found.reason.fact("ceiling"), found.reason.fact("need")) == ("100", "96")
    world.kill_controller()
    world.start_controller()
    world.beat()
    world.settle(3)
    assert world.state.limits.scopes["queue=default"].used[HOURS] / HOUR == spent
    assert world.state.jobs[late].attempt is None

    ((_, ends_us),) = months(world)
    world.wait((ends_us - world.clock.now_us()) // SECOND + 1)
    world.beat()
    world.settle(5)
    assert world.state.jobs[late].attempt is not None
    assert world.state.spent == {}
    check_world(world)


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Pacific/Kiritimati"])
def test_another_zone_moves_the_month_at_once_and_what_it_has_used_stays(tmp_path: Path, zone: str) -> None:
    world = world_of(tmp_path, SPEC)
    first = running(world, job(gpus=8, time_limit_s=3600))
    world.wait(1800)
    finish(world, first)
    spent, (before,) = world.state.spent, months(world)
    assert spent
    world.do(commands.ApplyCluster(replace(SPEC, timezone=zone), "test"))
    after = month_of(zone, world.clock.now_us())
    assert months(world) == [before, after]
    assert world.state.spent == spent

    world.wait((after[1] - world.clock.now_us()) // SECOND + 1)
    assert months(world) == [before, after, month_of(zone, after[1])]
    assert world.state.spent == {}
    check_world(world)


def test_a_zone_further_west_does_not_bring_the_month_before_back(tmp_path: Path) -> None:
    """An hour into a month, another zone has the last day of the one before: it is left out there."""
    world = world_of(tmp_path, SPEC)
    ((_, ends_us),) = months(world)
    world.wait((ends_us - world.clock.now_us()) // SECOND + 3600)
    assert len(months(world)) == 2
    west = "America/Los_Angeles"
    world.do(commands.ApplyCluster(replace(SPEC, timezone=west), "test"))
    world.wait(3600)
    assert len(months(world)) == 2
    world.wait(9 * 3600)
    assert months(world)[2:] == [month_of(west, world.clock.now_us())]
    check_world(world)


def test_what_ends_first_in_a_new_month_counts_there_from_its_begin(tmp_path: Path) -> None:
    """The month comes before what nodes tell in the same cycle, as after the controller was away."""
    world = world_of(tmp_path, SPEC)
    ((_, ends_us),) = months(world)
    world.wait((ends_us - world.clock.now_us()) // SECOND - 1800)
    job_id = running(world, job(gpus=8, time_limit_s=10 * 3600))
    world.clock.advance(2 * 3600)
    finish(world, job_id)
    hours = world.state.spent["queue=default"] / HOUR
    assert 8 * 1.5 <= hours < 8 * 1.6
    check_world(world)
