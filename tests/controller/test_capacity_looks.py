"""Looks at clouds: what nobody knows, what is not told of, what can not be ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.controller import commands
from orchestrator.model.capacity import (
    CloudInstance,
    CloudState,
)
from orchestrator.model.cluster import Site, SiteKind
from orchestrator.provision.cloud import End
from tests.autoscale.scene import elastic, hybrid
from tests.builders import job
from tests.controller.clouds import GANG_OF_4, CloudWorld, world_of


def two_sites(path: Path) -> CloudWorld:
    """Pools `burst` on `use1` and `west` on `usw2`, in two regions; nothing is turned."""
    spec = hybrid(elastic(), elastic("west", site="usw2"))
    west = Site("usw2", SiteKind.AWS, region="us-west-2", zones=("us-west-2a",))
    return CloudWorld(path / "state", replace(spec, sites=(*spec.sites, west)))


def look_at(world: CloudWorld, site: str, *ids: str) -> None:
    """The site's cloud says that these run."""
    found = tuple(CloudInstance(name, "intent-0", CloudState.RUNNING, "", 1, "") for name in ids)
    world.do(commands.Looked(site, world.clock.monotonic_us(), found))


def test_instances_that_nobody_knows_are_ended_after_a_grace(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.ready()
    stray = world.sky._start(next(iter(world.state.fleets.values())).intent, f"{world.state.uid}-stray")
    other = world.sky._start(next(iter(world.state.fleets.values())).intent, "another-cluster")
    world.pass_s(80)
    assert stray.id in world.sky.alive()
    world.pass_s(120)
    assert stray.id not in world.sky.alive()
    assert other.id in world.sky.alive()
    assert world.known() == [one for one in world.sky.alive() if one != other.id]


def ends_after(world: CloudWorld, state: CloudState, seconds: int = 100) -> list[tuple[str, ...]]:
    """What is told to end by two looks that find a stranger in that state, so far apart."""
    found = (CloudInstance("i-stranger", "intent-0", state, "", 1, ""),)
    world.hands.tasks = []
    for wait_s in (0, seconds):
        world.wait(wait_s)
        world.do(commands.Looked("use1", world.clock.monotonic_us(), found))
    return [task.ids for task in world.hands.tasks if isinstance(task, End)]


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        (CloudState.RUNNING, True),
        (CloudState.PENDING, True),
        (CloudState.ENDING, False),
        (CloudState.GONE, False),
    ],
)
def test_only_a_stranger_that_lives_is_ended(tmp_path: Path, state: CloudState, ended: bool) -> None:
    assert ends_after(world_of(tmp_path), state) == ([("i-stranger",)] if ended else [])


def test_what_a_backup_does_not_know_is_left_alone_until_it_is_recovered(tmp_path: Path) -> None:
    """It may be what was bought after the backup was made, with work on it."""
    world = world_of(tmp_path)
    world.core._desk.state.recovering = True
    assert ends_after(world, CloudState.RUNNING) == []
    world.core._desk.state.recovering = False
    assert ends_after(world, CloudState.RUNNING) == [("i-stranger",)]


def test_looks_at_other_sites_neither_stop_nor_speed_the_clock_of_a_stranger(tmp_path: Path) -> None:
    world = two_sites(tmp_path)
    ended = []
    for second in range(0, 100, 10):
        look_at(world, "use1", "i-stray")
        look_at(world, "usw2", *(["i-late"] if second > 60 else []))
        ended += [(second, one.site.name, one.ids) for one in world.hands.tasks if isinstance(one, End)]
        world.clock.advance(10)
    assert ended == [(90, "use1", ("i-stray",))]


def test_each_site_of_a_region_ends_its_own_strangers(tmp_path: Path) -> None:
    """Two sites in one region: what the other one is looked at for makes nobody forget what was seen here, and what it
    launched before its records were lost is not ended from here."""
    spec = hybrid(elastic(), elastic("more", site="use2"))
    (here, use1) = spec.sites
    world = CloudWorld(tmp_path / "state", replace(spec, sites=(here, use1, replace(use1, name="use2"))))
    world.submit(GANG_OF_4)
    world.ready()
    mine = next(iter(world.state.fleets.values())).intent
    stray = world.sky._start(mine, f"{world.state.uid}-stray")
    theirs = world.sky._start(replace(mine, site="use3"), f"{world.state.uid}-theirs")
    world.pass_s(200)
    assert stray.id not in world.sky.alive()
    assert theirs.id in world.sky.alive()


def test_an_instance_that_is_not_told_of_is_gone_only_after_several_looks(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.ready()
    world.pass_s(100)
    world.sky.machines["i-0001"].shown_us = world.clock.now_us() + 100 * 10**6
    world.pass_s(120)
    assert "i-0001" in world.known(), "it came back before it had been away for long"
    world.sky.machines["i-0001"].shown_us = 1 << 62
    world.pass_s(400)
    assert "i-0001" not in world.known()
    assert world.core._elastic.missed == {}, "looks without it are not counted for ever"


def test_looks_that_follow_each_other_fast_prove_no_end(tmp_path: Path) -> None:
    """Three looks and a minute and a half; one that finds it begins all anew."""
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    known = world.ready() and world.known()
    world.wait(600)
    there = world.sky.describe(world.state.uid, "use1")

    def after(seconds: int, found: tuple[CloudInstance, ...] = ()) -> int:
        world.wait(seconds)
        world.do(commands.Looked("use1", world.clock.monotonic_us(), found))
        return len(world.known())

    assert [after(0), after(5), after(5), after(5)] == [4] * 4
    assert [after(60, there), after(60), after(100)] == [4] * 3
    assert after(15) == 0
    assert len(known) == 4


def test_what_cannot_be_ended_is_told_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, most=1, idle_s=60)
    gone = world.submit(job(nodes=1, gpus=8))
    world.ready()
    world.settle()
    world.do(commands.CancelJob(gone, "user:alice"))
    world.settle()
    world.sky.stubborn = True
    world.pass_s(300)
    elastic_ = world.core._elastic
    assert [known.error for known in elastic_.ending.values()] == ["not allowed to end instances"]
    assert world.known() == world.sky.alive() == ["i-0001"]
    world.sky.stubborn = False
    world.pass_s(1200)
    assert world.sky.alive() == world.known() == []


def test_a_cloud_that_tells_nothing_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And again when it says something else; neither is what can't be ended told over and over."""
    world = world_of(tmp_path, most=1)
    world.submit(job(nodes=1, gpus=8))
    world.ready()
    world.sky.blind = True
    world.pass_s(300)
    for words in ("timeout", "refused", "refused", ""):
        world.do(commands.Looked("use1", world.clock.monotonic_us(), error=words))
    told = [
        record.getMessage().rpartition(": ")[2] for record in caplog.records if "can't be seen" in record.msg
    ]
    assert told == ["read timeout", "timeout", "refused"]


def test_what_can_not_be_ended_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(tmp_path, most=1, boot_s=60)
    world.submit(job(nodes=1, gpus=8))
    world.calm()
    stray = world.sky._start(next(iter(world.state.fleets.values())).intent, f"{world.state.uid}-stray")
    world.sky.stubborn = True
    world.pass_s(1800)
    told = [record.getMessage() for record in caplog.records if "end" in record.msg]
    assert sorted(told) == [
        "instances i-0001 were not ended: not allowed to end instances",
        "instances i-0002 were not ended: not allowed to end instances",
        "instances that no intent knows are ended: i-0002",
    ]
    world.sky.stubborn = False
    world.pass_s(900)
    assert stray.id not in world.sky.alive()
