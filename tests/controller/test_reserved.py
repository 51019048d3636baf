"""Reserved capacity: used where it is, as far as it goes, and left in time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.model.attempt import JobState
from orchestrator.model.capacity import (
    BLOCK_LEAD_S,
    BLOCK_TAKEN_S,
    Reserved,
)
from orchestrator.model.cluster import Market, Offering
from orchestrator.model.node import MarkKind
from tests.autoscale.scene import elastic
from tests.builders import job
from tests.controller.clouds import SPOT_THEN_ON_DEMAND, CloudWorld, world_of
from tests.controller.scenes import ledger

BLOCK = Offering(("p5.48xlarge",), Market.CAPACITY_BLOCK, reservation="cr-1")


def reserved_world(path: Path, slots: int, hours: int, **rest: Any) -> CloudWorld:
    """A pool `burst` of one capacity block, and on demand after it."""
    world = world_of(path)
    world.sky.reservations["cr-1"] = Reserved("cr-1", slots, world.clock.now_us() + hours * 3600 * 10**6)
    pool = replace(elastic(**rest), offerings=(BLOCK, SPOT_THEN_ON_DEMAND[1]))
    world.do(commands.ApplyCluster(replace(world.spec, pools=(pool,)), "test"))
    world.pass_s(70)  # its stack is brought to this file, and the controller reads that
    return world


@pytest.mark.parametrize(
    ("slots", "hours", "market"),
    [(4, 6, "capacity_block"), (3, 6, "on_demand"), (0, 6, "on_demand"), (4, 2, "on_demand")],
    ids=["holds it", "too small", "not begun, or unknown", "ends before the job"],
)
def test_a_block_is_used_as_far_as_it_goes(tmp_path: Path, slots: int, hours: int, market: str) -> None:
    world = reserved_world(tmp_path, slots, hours)
    world.submit(job(nodes=4, gpus=8, time_limit_s=2 * 3600))
    world.calm()
    assert {one.market for one in world.sky.machines.values()} == {market}
    assert len(world.sky.machines) == 4


def test_what_is_reserved_is_asked_for_where_it_is(tmp_path: Path) -> None:
    world = reserved_world(tmp_path, 4, 6)
    ends_us = world.sky.reservations["cr-1"].ends_us
    world.sky.reservations["cr-1"] = Reserved("cr-1", 4, ends_us, "us-east-1z")
    world.pass_s(70)
    world.submit(job(nodes=4, gpus=8, time_limit_s=2 * 3600))
    world.calm()
    assert {(one.market, one.zone) for one in world.sky.machines.values()} == {
        ("capacity_block", "us-east-1z")
    }


def test_work_leaves_a_block_before_the_cloud_takes_it(tmp_path: Path) -> None:
    world = reserved_world(tmp_path, 1, 6, least=1, most=1)
    world.calm()
    world.ready()
    late = world.submit(job(nodes=1, gpus=8, time_limit_s=24 * 3600))
    world.settle()
    ends_us = world.sky.reservations["cr-1"].ends_us
    before_s = (ends_us - world.clock.now_us()) // 10**6 - BLOCK_LEAD_S
    world.wait(before_s - 60)
    world.settle()
    assert world.state.jobs[late].state is JobState.RUNNING
    world.wait(120)
    world.settle()
    (mark,) = [one for one in world.state.nodes["burst-1"].marks if one.kind is MarkKind.DRAINING]
    assert mark.deadline_us == ends_us - BLOCK_TAKEN_S * 10**6
    assert mark.why == "its capacity block ends"
    assert world.state.jobs[late].state is JobState.WAITING, "it waits again, and did not fail"
    assert world.state.jobs[late].failures == {}
    told = [one.body.mark.kind for one in ledger(world) if one.type == "node.marked"]
    assert told.count(MarkKind.DRAINING) == 1, "it is told once"


def test_what_exists_is_seen_also_by_whoever_may_not_look_at_reservations(tmp_path: Path) -> None:
    world = reserved_world(tmp_path, 4, 6)
    world.sky.secretive = True
    world.submit(job(nodes=4, gpus=8, time_limit_s=2 * 3600))
    assert len(world.ready()) == 4
    stray = world.sky._start(next(iter(world.state.fleets.values())).intent, f"{world.state.uid}-stray")
    world.pass_s(200)
    assert stray.id not in world.sky.alive()
