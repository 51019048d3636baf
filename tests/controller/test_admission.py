"""Who of the bought instances is let in: those that a recorded launch waits for, each once; and what an end brings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.controller.commands import AdmitInstance, Admitted
from orchestrator.model.attempt import JobState
from orchestrator.model.clock import SECOND
from orchestrator.model.errors import Refused
from orchestrator.model.instance import Ending, EndingKind
from orchestrator.model.node import Hardware, MarkKind
from tests.builders import cluster, facts, job, pool
from tests.controller.clouds import GANG_OF_4, CloudWorld, world_of
from tests.controller.scenes import finish, ledger
from tests.controller.world import World

KEY, OTHER_KEY = "aa" * 32, "bb" * 32


def admit(world: World, instance: str, key: str = KEY, fixed: str = "") -> Any:
    """As the HTTP side asks, once the papers are proved; the node's name, or a refusal's code."""
    number = sum(1 for event in ledger(world) if event.type == "token.created")
    found = world.do(AdmitInstance(instance, fixed, f"tok-{number}", f"{number:064x}", key))
    return found.node if isinstance(found, Admitted) else found.code if isinstance(found, Refused) else found


def launched(tmp_path: Path) -> CloudWorld:
    """Four instances exist, and none of their nodes has said anything."""
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.cycle()
    return world


def instance_of(world: CloudWorld, node: str) -> str:
    (found,) = [
        one.id for fleet in world.state.fleets.values() for one in fleet.instances if one.node == node
    ]
    return found


def tokens_of(world: World, node: str) -> list[tuple[str, str]]:
    found = [token for token in world.state.tokens.values() if token.name == node and token.role == "node"]
    return [(token.instance, token.key) for token in found]


def test_nobody_is_waited_for_before_the_clouds_answer_is_recorded(tmp_path: Path) -> None:
    world = launched(tmp_path)
    assert admit(world, "i-anything") == "join.not-expected"
    world.turn()
    world.cycle()
    instance = instance_of(world, "burst-2")
    assert admit(world, instance) == "burst-2"
    assert tokens_of(world, "burst-2") == [(instance, KEY)]


def test_each_comes_once_and_again_with_the_same_key_alone(tmp_path: Path) -> None:
    world = launched(tmp_path)
    world.turn()
    world.cycle()
    instance = instance_of(world, "burst-1")
    for _ in range(3):
        assert admit(world, instance) == "burst-1"
        assert admit(world, instance, OTHER_KEY) == "join.other-key"
    assert tokens_of(world, "burst-1") == [(instance, KEY)]


def test_a_restart_of_the_controller_forgets_nobody(tmp_path: Path) -> None:
    world = launched(tmp_path)
    world.turn()
    world.cycle()
    instance = instance_of(world, "burst-1")
    assert admit(world, instance) == "burst-1"
    world.kill_controller()
    world.start_controller()
    assert admit(world, instance, OTHER_KEY) == "join.other-key"
    assert admit(world, instance) == "burst-1"


def test_one_that_is_given_back_is_not_waited_for(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    gang = world.submit(GANG_OF_4)
    world.ready()
    world.settle()
    instance = instance_of(world, "burst-1")
    assert admit(world, instance) == "burst-1"
    finish(world, gang)
    world.pass_s(700)
    assert world.state.fleets == {}
    assert admit(world, instance) == "join.not-expected"


def test_a_fixed_node_is_the_instance_that_the_facts_say(tmp_path: Path) -> None:
    world = World(tmp_path / "s", cluster(pool("p", nodes=2)))
    assert admit(world, "i-1") == "join.not-expected"
    assert admit(world, "i-1", fixed="nowhere-1") == "join.not-expected"
    assert admit(world, "i-1", fixed="p-1") == "p-1"
    assert admit(world, "i-2", OTHER_KEY, fixed="p-1") == "p-1", "another instance in its place"
    assert tokens_of(world, "p-1") == [("i-2", OTHER_KEY)]


def test_another_instance_in_a_fixed_nodes_place_is_no_changed_machine(tmp_path: Path) -> None:
    """It was replaced by intent; where it stands is known from its stack, also after the file is applied again."""
    spec = cluster(pool("p", nodes=2))
    world = World(tmp_path / "s", spec)
    node = world.state.nodes["p-1"]
    for instance, address, key in (("i-1", "10.64.0.5", KEY), ("i-2", "10.64.0.9", OTHER_KEY)):
        command = AdmitInstance(instance, "p-1", f"tok-{instance}", instance * 8, key, address)
        world.do(command)
        assert (node.admitted, node.address, node.hardware) == (instance, address, Hardware())
        node.hardware = Hardware(f"machine of {instance}")
        world.do(commands.ApplyCluster(replace(spec, timezone=f"Etc/GMT-{len(instance)}"), "root"))
        assert node.address == address
    world.do(AdmitInstance("i-2", "p-1", "tok-again", "ab" * 32, OTHER_KEY, "10.64.0.9"))
    assert node.hardware == Hardware("machine of i-2"), "the same instance is the same machine"


def test_an_instance_that_is_let_in_ends_what_let_its_node_in_before(tmp_path: Path) -> None:
    """Its own token, and a join token that it has spent; one that an admin has made since still lets somebody in."""
    world = World(tmp_path / "s", cluster(pool("p", nodes=2)))
    for name in ("spent", "fresh"):
        world.do(commands.CreateToken(name, name * 8, "join", "p-1", "user:root"))
    world.do(commands.JoinNode("p-1", facts(pool("p")), "own", "ab" * 32, "spent", KEY))
    assert set(world.state.tokens) == {"spent", "fresh", "own"}
    assert admit(world, "i-1", fixed="p-1") == "p-1"
    assert [token.id for token in world.state.tokens.values() if token.role != "node"] == ["fresh"]
    assert tokens_of(world, "p-1") == [("i-1", KEY)]


def test_where_an_instance_was_let_in_is_seen_at_once(tmp_path: Path) -> None:
    world = World(tmp_path / "s", cluster(pool("p", nodes=2)))
    world.do(AdmitInstance("i-1", "p-1", "tok-1", "ab" * 32, KEY, "10.64.0.5"))
    assert world.view.nodes["p-1"].address == "10.64.0.5"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_node_that_comes_back_into_the_file_is_where_its_token_says(
    tmp_path: Path, restarted: bool
) -> None:
    """It may ask on with the token that it has, so it must not be half in: known as nobody, under a name as address."""
    spec = cluster(pool("p", nodes=2))
    world = World(tmp_path / "s", spec)
    world.do(AdmitInstance("i-1", "p-1", "tok-1", "ab" * 32, KEY, "10.64.0.5"))
    one = replace(pool("p"), nodes=("p-2",))
    world.do(commands.ApplyCluster(replace(spec, pools=(one,)), "root"))
    assert list(world.state.nodes) == ["p-2"]
    if restarted:
        world.core._snapshot()
        world.kill_controller()
        world.start_controller()
    world.do(commands.ApplyCluster(spec, "root"))
    node = world.state.nodes["p-1"]
    assert (node.admitted, node.address) == ("i-1", "10.64.0.5")
    assert world.state.nodes["p-2"].admitted == ""


def test_a_node_whose_token_was_revoked_meanwhile_comes_back_as_nobody(tmp_path: Path) -> None:
    spec = cluster(pool("p", nodes=2))
    world = World(tmp_path / "s", spec)
    world.do(AdmitInstance("i-1", "p-1", "tok-1", "ab" * 32, KEY, "10.64.0.5"))
    world.do(commands.ApplyCluster(replace(spec, pools=(replace(pool("p"), nodes=("p-2",)),)), "root"))
    world.do(commands.RevokeToken("tok-1", "user:root"))
    world.do(commands.ApplyCluster(spec, "root"))
    node = world.state.nodes["p-1"]
    assert (node.admitted, node.address) == ("", "127.0.0.1")
    assert admit(world, "i-1", OTHER_KEY, fixed="p-1") == "p-1"


def test_a_revoked_token_lets_an_instance_come_anew(tmp_path: Path) -> None:
    world = World(tmp_path / "s", cluster(pool("p", nodes=2)))
    assert admit(world, "i-1", fixed="p-1") == "p-1"
    (token,) = world.state.tokens
    world.do(commands.RevokeToken(token, "user:root"))
    assert admit(world, "i-1", OTHER_KEY, fixed="p-1") == "p-1"


# --- what its cloud says of its end ----------------------------------------------------------------------------------


def busy(tmp_path: Path) -> tuple[CloudWorld, int]:
    world = world_of(tmp_path)
    found = world.submit(job(nodes=1, gpus=8))
    world.ready()
    world.settle()
    assert world.state.jobs[found].attempt is not None
    return world, found


def tell(world: CloudWorld, kind: EndingKind, in_s: int) -> None:
    """The node's beats say so from now on."""
    ends_us = world.clock.now_us() + in_s * SECOND if in_s else 0
    world.agents["burst-1"].ending = Ending(kind, ends_us, world.clock.now_us(), "terminate")


def drains(world: CloudWorld) -> list[str]:
    return [mark.why for mark in world.state.nodes["burst-1"].marks if mark.kind is MarkKind.DRAINING]


def test_an_end_that_the_node_tells_makes_its_work_leave_once(tmp_path: Path) -> None:
    world, found = busy(tmp_path)
    tell(world, EndingKind.INTERRUPTION, 120)
    world.settle()
    assert drains(world) == ["its cloud takes it back (terminate)"]
    assert world.state.jobs[found].state is JobState.WAITING
    marked = [event for event in ledger(world) if event.type == "node.marked"]
    world.settle()
    assert [event for event in ledger(world) if event.type == "node.marked"] == marked


def test_a_risk_alone_ends_nothing(tmp_path: Path) -> None:
    world, found = busy(tmp_path)
    tell(world, EndingKind.REBALANCE, 0)
    world.settle()
    assert drains(world) == []
    assert world.state.jobs[found].state is not JobState.WAITING


def test_a_node_that_was_not_bought_can_not_say_so(tmp_path: Path) -> None:
    world = World(tmp_path / "s", cluster(pool("p", nodes=1)))
    world.settle()
    world.agents["p-1"].ending = Ending(EndingKind.INTERRUPTION, world.clock.now_us() + SECOND, 1, "stop")
    world.settle()
    assert world.state.nodes["p-1"].open


@pytest.mark.parametrize("held", [1, 3])
def test_an_end_is_news_even_if_nothing_else_is(tmp_path: Path, held: int) -> None:
    world, _ = busy(tmp_path)
    for _ in range(held):
        world.settle()
    tell(world, EndingKind.INTERRUPTION, 120)
    assert world.beats.has_news(world.agents["burst-1"].request())
