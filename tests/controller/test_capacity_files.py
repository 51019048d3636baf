"""Files against what is bought: what is renewed for one, given back for one, and which are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.controller.offers import outdated
from orchestrator.model.capacity import (
    CloudInstance,
    CloudState,
)
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Market, Offering, SiteKind, Update
from orchestrator.model.errors import Conflict, InputError, Refused
from orchestrator.model.job import JobSpec
from orchestrator.model.node import MarkKind
from tests.autoscale.scene import elastic
from tests.builders import ALICE, cluster, job, pool
from tests.controller.clouds import GANG_OF_4, world_of
from tests.controller.invariants import check_state
from tests.controller.scenes import finish, kinds
from tests.controller.world import World


@pytest.mark.parametrize("done", ["nothing", "launched"])
def test_a_removed_pool_gives_back_what_was_under_way(tmp_path: Path, done: str) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.cycle()
    if done == "launched":
        world.turn()
    without = replace(world.spec, pools=(elastic("other", most=1),))
    world.do(commands.ApplyCluster(without, "test"))
    world.pass_s(60)
    assert world.sky.alive() == []
    assert world.state.fleets == {}


def test_a_site_stays_in_the_file_while_its_instances_exist(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.ready()
    local = replace(world.spec, sites=world.spec.sites[:1], pools=(pool("p"),))
    refused = world.do(commands.ApplyCluster(local, "test"))
    assert isinstance(refused, Conflict)
    assert "use1" in refused.message


@pytest.mark.parametrize("change", [{"region": "eu-west-1"}, {"kind": SiteKind.LOCAL}])
def test_a_site_stays_where_it_is_while_its_instances_exist(tmp_path: Path, change: dict[str, Any]) -> None:
    world = world_of(tmp_path, idle_s=60)
    gang = world.submit(GANG_OF_4)
    world.cycle()
    here, use1 = world.spec.sites
    moved = replace(world.spec, sites=(here, replace(use1, **change)), pools=(pool("p"),))
    refused = world.do(commands.ApplyCluster(moved, "test"))
    assert isinstance(refused, Conflict)
    assert "site use1 still has instances of pool burst in us-east-1" in refused.message
    zones = (here, replace(use1, zones=("us-east-1b",)))
    assert world.do(commands.ApplyCluster(replace(world.spec, sites=zones), "test")) is None
    world.do(commands.CancelJob(gang, "user:alice"))
    world.pass_s(300)
    assert world.do(commands.ApplyCluster(moved, "test")) is None


@pytest.mark.parametrize("stage", ["asked", "there", "ending", "gone with work left"])
def test_a_listed_node_has_no_bought_nodes_name(tmp_path: Path, stage: str) -> None:
    """Whatever the pool is called: one that is bought becomes one that is listed only when its nodes are gone."""
    world = world_of(tmp_path, idle_s=60)
    gang = world.submit(GANG_OF_4)
    if stage == "asked":
        world.cycle()
    else:
        world.ready()
        world.settle()
    if stage == "ending":
        world.do(commands.CancelJob(gang, "user:alice"))
        world.settle()
        world.sky.stubborn = True
        world.pass_s(200)
    elif stage == "gone with work left":
        gone = CloudInstance("i-0002", "", CloudState.GONE)
        world.do(commands.Looked("use1", world.clock.monotonic_us(), (gone,)))
        assert not world.state.nodes["burst-2"].instance
    listed = replace(world.spec, pools=(replace(pool("burst"), nodes=("burst-2",)),))
    refused = world.do(commands.ApplyCluster(listed, "test"))
    assert isinstance(refused, Conflict), stage
    assert refused.code == "capacity.name-in-use"
    others = replace(world.spec, pools=(pool("p"),))
    assert world.do(commands.ApplyCluster(others, "test")) is None
    world.sky.stubborn = False
    world.do(commands.CancelJob(gang, "user:alice", now=True))
    world.pass_s(1500)
    assert world.do(commands.ApplyCluster(listed, "test")) is None
    node = world.state.nodes["burst-2"]
    assert node.wanted
    assert not node.releasing


def test_the_uid_is_minted_once(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    uid = world.do(commands.NameCluster("user:root"))
    assert len(uid) == 12
    assert world.do(commands.NameCluster("user:root", uid)) == uid
    assert isinstance(world.do(commands.NameCluster("user:root", "another00000")), Conflict)
    assert kinds(world).count("cluster.named") == 1


@pytest.mark.parametrize(
    ("uid", "code"),
    [
        ("another00000", "cluster.other-uid"),
        ("SHOUTING0000", "cluster.bad-uid"),
        ("short", "cluster.bad-uid"),
    ],
)
def test_a_file_with_a_wrong_uid_records_nothing(tmp_path: Path, uid: str, code: str) -> None:
    world = world_of(tmp_path)
    before = kinds(world)
    refused = world.do(commands.ApplyCluster(replace(world.spec, timezone="Europe/Berlin"), "test", uid=uid))
    assert refused.code == code
    assert kinds(world) == before
    assert world.state.cluster == world.spec


def test_a_wrong_uid_names_no_cluster(tmp_path: Path) -> None:
    world = World(tmp_path / "state", cluster())
    assert isinstance(world.do(commands.NameCluster("user:root", "no uid at all")), InputError)
    assert world.state.uid == ""


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (job(nodes=5, gpus=8), "never.nodes"),
        (job(nodes=1, gpus=8, cores=400), "never.nodes"),
        (job(tasks=33, gpus=1), "never.tasks"),
    ],
)
def test_a_job_that_no_pool_could_hold_is_refused_at_submit(tmp_path: Path, spec: JobSpec, code: str) -> None:
    """By the pool's largest size, and by what the types of its offerings have."""
    world = world_of(tmp_path)
    refused = world.do(commands.Submit(spec, ALICE, "user:alice"))
    assert isinstance(refused, Refused)
    assert refused.code == code


def test_another_image_reaches_nodes_that_run(tmp_path: Path) -> None:
    """The gang on them ends as it would have; then they are given back, and the floor is bought anew."""
    world = world_of(tmp_path, least=1, update=Update(max_unavailable=4))
    gang = world.submit(GANG_OF_4)
    world.ready()
    world.settle()
    before = world.sky.alive()
    assert len(before) == 4
    world.do(commands.ApplyCluster(replace(world.spec, timezone="Europe/Berlin"), "test"))
    world.pass_s(200)
    assert world.sky.alive() == before

    pools = tuple(replace(each, image="ami-0fedcba9876543210") for each in world.spec.pools)
    world.do(commands.ApplyCluster(replace(world.spec, pools=pools), "test"))
    world.pass_s(200)
    assert world.sky.alive() == before
    drain = world.spec.pools[0].update.drain
    for node in world.state.nodes.values():
        (mark,) = node.marks
        assert (mark.kind, mark.then) == (MarkKind.RELEASING, drain.then)
        assert mark.deadline_us == mark.since_us + drain.deadline_s * SECOND
    finish(world, gang)
    world.pass_s(200)
    world.ready()
    assert not set(before) & set(world.sky.alive())
    assert len(world.sky.alive()) == 1, "the floor"
    check_state(world.state)


def test_no_node_is_closed_before_the_stack_is_as_the_file_says(tmp_path: Path) -> None:
    """Else all would be closed for what can't be bought yet."""
    world = world_of(tmp_path, least=1)
    world.ready()
    before = world.sky.alive()
    world.facts_spec = world.core._elastic.digest(world.state, "use1")
    pools = tuple(replace(each, image="ami-0fedcba9876543210") for each in world.spec.pools)
    world.do(commands.ApplyCluster(replace(world.spec, pools=pools), "test"))
    world.pass_s(200)
    assert [node.open for node in world.state.nodes.values()] == [True]
    world.facts_spec = ""
    world.pass_s(200)
    world.ready()
    assert len(world.sky.alive()) == 1
    assert world.sky.alive() != before


@pytest.mark.parametrize(
    "change",
    [
        {"offerings": (Offering(("p5.48xlarge",), Market.ON_DEMAND),)},
        {"offerings": (Offering(("p5en.48xlarge",), Market.SPOT, 30_000_000),)},
        {"image": "ami-0fedcba9876543210"},
    ],
    ids=["market", "type", "image"],
)
def test_what_makes_a_bought_node_outdated(tmp_path: Path, change: dict[str, Any]) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.ready()
    site = world.spec.sites[1]

    def found() -> frozenset[str]:
        facts = world.facts("test", world.state.uid, site)
        assert facts is not None
        return outdated(world.state, {site.name: facts})

    assert found() == frozenset()
    pools = tuple(replace(each, **change) for each in world.spec.pools)
    world.do(commands.ApplyCluster(replace(world.spec, pools=pools), "test"))
    assert found() == frozenset(world.state.fleets)
    assert outdated(world.state, {}) == frozenset(), "of a stack of another file nothing is known"
