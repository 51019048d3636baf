"""The month in which GPU-hours count: a fact once a month, whatever happens to the controller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
