"""The wanted cluster and its nodes: applied, changed under work, joined with tokens, accepted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.controller.applied import from_applied
from orchestrator.controller.intake import SPENT_S
from orchestrator.model.clock import SECOND
from orchestrator.model.errors import Conflict, InputError, NotFound
from orchestrator.model.node import Device, MarkKind, NodeFacts
from tests.builders import GPU, cluster, facts, job, pool, queue
from tests.controller.invariants import check_world
from tests.controller.scenes import finish, kinds, mark_of, marks, running, small, world_of
from tests.controller.world import ModelAgent, World


def apply(world: World, *pools: Any, **rest: Any) -> Any:
    return world.do(commands.ApplyCluster(cluster(*pools, **rest), "user:root"))


def join(world: World, each: Any, name: str) -> None:
    """A model node for a name of the pool."""
    world.agents[name] = ModelAgent(name, f"outbox-{name}", facts(each))


def test_the_same_cluster_again_is_nothing(tmp_path: Path) -> None:
    world = small(tmp_path)
    seq = world.state.seq
    assert world.do(commands.ApplyCluster(world.spec, "user:root")) is None
    assert kinds(world, seq) == []


def test_another_name_is_another_cluster(tmp_path: Path) -> None:
    world = small(tmp_path)
    error = world.do(commands.ApplyCluster(replace(world.spec, name="other"), "user:root"))
    assert isinstance(error, Conflict)
    assert (error.code, "cluster test" in error.message) == ("cluster.other-name", True)
    assert world.state.cluster == world.spec


def test_a_node_taken_out_keeps_its_work_gets_no_more_and_goes_when_it_is_over(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    job_id = running(world, job(nodes=2))
    apply(world, pool(nodes=1, gpus=4, cores=16))
    assert set(world.view.nodes) == {"p-1", "p-2"}
    assert not world.view.nodes["p-2"].open
    assert str(world.view.jobs[job_id].state) == "running"
    other = world.submit(job(gpus=4))
    world.settle(3)
    assert str(world.view.jobs[other].state) == "waiting"
    check_world(world)
    finish(world, job_id)
    assert set(world.view.nodes) == set(world.state.nodes) == {"p-1"}
    assert str(world.view.jobs[other].state) == "running"
    assert isinstance(world.do(commands.Sync(world.agents["p-2"].request())), NotFound)
    check_world(world)


def test_an_idle_node_taken_out_goes_at_once_and_comes_back_new(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    world.do(commands.CordonNode("p-2", "user:root", "old age"))
    apply(world, pool(nodes=1, gpus=4, cores=16))
    assert set(world.view.nodes) == {"p-1"}
    apply(world, pool(nodes=2, gpus=4, cores=16))
    assert str(world.view.nodes["p-2"].contact) == "never"
    world.settle()
    assert world.view.nodes["p-2"].open
    assert marks(world) == {}


def test_a_node_added_takes_the_waiting_job(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    running(world, job(gpus=4))
    other = world.submit(job(gpus=4))
    more = pool(nodes=2, gpus=4, cores=16)
    apply(world, more)
    join(world, more, "p-2")
    world.settle()
    assert str(world.view.jobs[other].state) == "running"
    check_world(world)


def moved() -> tuple[Any, Any]:
    """Pool p without p-2, and pool q that has it."""
    return replace(pool(nodes=2, gpus=4, cores=16), nodes=("p-1",)), replace(
        pool("q", nodes=1, gpus=4, cores=16), nodes=("p-2",)
    )


def test_an_idle_node_moves_to_its_new_pool_at_once(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    apply(world, *moved())
    assert world.view.nodes["p-2"].pool == "q"
    job_id = running(world, job(gpus=4))
    assert job_id in world.state.jobs
    check_world(world)


def test_a_busy_node_moves_when_its_work_is_over(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    job_id = running(world, job(nodes=2))
    apply(world, *moved())
    assert (world.view.nodes["p-2"].pool, world.view.nodes["p-2"].open) == ("p", False)
    world.kill_controller()
    world.start_controller()
    world.settle(1)
    finish(world, job_id)
    assert (world.view.nodes["p-2"].pool, world.view.nodes["p-2"].open) == ("q", True)
    check_world(world)


def test_a_busy_node_that_moves_to_a_pool_it_does_not_fit_is_not_open_there(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    job_id = running(world, job(nodes=2))
    left, right = moved()
    apply(world, left, replace(right, gpu=replace(right.gpu, count=8)))
    finish(world, job_id)
    assert world.view.nodes["p-2"].pool == "q"
    assert (
        mark_of(world, "p-2", MarkKind.UNPROVED) == f"4 of 8 GPUs of model {GPU} found (models here: {GPU})"
    )


def test_a_pool_may_be_renamed_under_its_work(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    job_id = running(world, job(nodes=2, gpus=4))
    apply(world, replace(pool(nodes=2, gpus=4, cores=16), name="renamed"))
    check_world(world)
    world.kill_controller()
    world.start_controller()
    check_world(world)
    finish(world, job_id)
    assert {view.pool for view in world.view.nodes.values()} == {"renamed"}
    running(world, job(nodes=2, gpus=4))


def test_a_queue_taken_away_keeps_its_jobs(tmp_path: Path) -> None:
    queues = (queue("default"), queue("gone", max_running_jobs=1))
    world = world_of(tmp_path, cluster(pool(nodes=1, gpus=2), queues=queues))
    first = running(world, job(queue="gone"))
    second = world.submit(job(queue="gone"))
    world.settle()
    assert str(world.view.jobs[second].state) == "waiting"
    apply(world, pool(nodes=1, gpus=2))
    world.settle()
    assert str(world.view.jobs[second].state) == "running", "its limit is gone with it"
    check_world(world)
    finish(world, first)
    finish(world, second)


def test_a_lower_limit_ends_nothing(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool(nodes=1, gpus=4)))
    first, second = running(world, job()), running(world, job())
    apply(world, pool(nodes=1, gpus=4), queues=(queue("default", max_running_jobs=1),))
    third = world.submit(job())
    world.settle()
    assert [str(world.view.jobs[number].state) for number in (first, second, third)] == [
        "running",
        "running",
        "waiting",
    ]
    finish(world, first)
    assert str(world.view.jobs[third].state) == "waiting", "one runs, and one may"
    finish(world, second)
    assert str(world.view.jobs[third].state) == "running"


# --- acceptance -------------------------------------------------------------------------------------------------


def devices(*models: str) -> tuple[Device, ...]:
    return tuple(Device(slot, model) for slot, model in enumerate(models))


SHORT = [
    # what the agent found, the mark
    (devices(GPU, GPU), ""),
    (devices(GPU, GPU, GPU), ""),
    (devices(GPU), f"1 of 2 GPUs of model {GPU} found (models here: {GPU})"),
    ((), f"0 of 2 GPUs of model {GPU} found (models here: none)"),
    (devices("B200", GPU, "A100"), f"1 of 2 GPUs of model {GPU} found (models here: A100, B200, {GPU})"),
]


@pytest.mark.parametrize(("found", "words"), SHORT)
def test_a_node_is_what_its_pool_says_or_unproved(
    tmp_path: Path, found: tuple[Device, ...], words: str
) -> None:
    world = world_of(tmp_path, cluster(pool(nodes=1, gpus=2)))
    agent = world.agents["p-1"]
    agent.facts, agent.tell_facts = replace(agent.facts, devices=found), True
    world.settle(2)
    if words:
        assert mark_of(world, "p-1", MarkKind.UNPROVED) == words
        assert not world.view.nodes["p-1"].open
    else:
        assert world.view.nodes["p-1"].open
    seq = world.state.seq
    agent.tell_facts = True
    world.settle(2)
    assert kinds(world, seq) == [], "the same facts again are no news"


def test_uncordon_does_not_prove_a_node(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool(nodes=1, gpus=2)))
    agent = world.agents["p-1"]
    agent.facts, agent.tell_facts = replace(agent.facts, devices=()), True
    world.settle(2)
    world.do(commands.CordonNode("p-1", "user:root"))
    world.do(commands.UncordonNode("p-1", "user:root"))
    assert marks(world) == {"p-1": ["unproved"]}


def test_a_pool_that_asks_for_less_accepts_its_node(tmp_path: Path) -> None:
    world = world_of(tmp_path, cluster(pool(nodes=1, gpus=2)))
    agent = world.agents["p-1"]
    agent.facts, agent.tell_facts = replace(agent.facts, devices=devices(GPU)), True
    world.settle(2)
    apply(world, pool(nodes=1, gpus=1))
    assert world.view.nodes["p-1"].open


# --- tokens -----------------------------------------------------------------------------------------------------

FACTS = NodeFacts("b", 1, 1)


def test_a_node_joins_with_a_token_that_is_spent(tmp_path: Path) -> None:
    world = small(tmp_path)
    world.do(commands.CreateToken("join-1", "aa", "join", "p-1", "user:root"))
    world.do(commands.JoinNode("p-1", FACTS, "node-1", "bb", used="join-1"))
    assert {token.id: (token.role, token.name) for token in world.state.tokens.values()} == {
        "node-1": ("node", "p-1")
    }
    assert set(world.view.tokens) == {"bb"}
    world.do(commands.JoinNode("p-1", FACTS, "node-2", "cc"))
    world.do(commands.JoinNode("p-2", FACTS, "node-3", "dd"))
    assert set(world.view.tokens) == {"cc", "dd"}, "an earlier token of the same node is worth nothing"


def test_a_join_token_that_was_used_with_a_key_is_that_keys_for_a_while(tmp_path: Path) -> None:
    world = small(tmp_path)
    world.do(commands.CreateToken("join-1", "aa", "join", "p-1", "user:root"))
    world.do(commands.JoinNode("p-1", FACTS, "node-1", "bb", used="join-1", key="k1"))
    tokens = world.view.tokens
    assert (tokens["bb"].key, tokens["aa"].key, tokens["aa"].role) == ("k1", "k1", "join")
    assert tokens["aa"].expires_us == world.clock.now_us() + SPENT_S * SECOND
    error = world.do(commands.JoinNode("p-1", FACTS, "node-2", "cc", used="join-1", key="k2"))
    assert (error.code, set(world.view.tokens)) == ("access.join-spent", {"aa", "bb"})
    error = world.do(commands.JoinNode("p-1", FACTS, "node-2", "cc", used="join-1"))
    assert error.code == "access.join-spent", "nor may it be used without a key"
    ends_us = tokens["aa"].expires_us
    world.clock.advance(60)
    world.do(commands.JoinNode("p-1", FACTS, "node-2", "cc", used="join-1", key="k1"))
    assert set(world.view.tokens) == {"aa", "cc"}
    assert world.view.tokens["aa"].expires_us == ends_us, "asking again makes it last no longer"
    world.do(commands.CreateToken("join-2", "dd", "join", "p-1", "user:root"))
    world.do(commands.JoinNode("p-1", FACTS, "node-3", "ee", used="join-2", key="k3"))
    assert set(world.view.tokens) == {"dd", "ee"}, "a new join token ends all that was before"
    world.beat("p-1")
    assert set(world.view.tokens) == {"ee"}, "the node was heard: it needs no other"


@pytest.mark.parametrize("key", ["", "k9"])
def test_a_join_token_that_goes_while_a_join_is_under_way_lets_nobody_in(tmp_path: Path, key: str) -> None:
    """Whoever shows it sends the rest when they like: the node, or an admin who revokes it, comes first."""
    world = small(tmp_path)
    world.do(commands.CreateToken("join-1", "aa", "join", "p-1", "user:root"))
    world.do(commands.JoinNode("p-1", FACTS, "node-1", "bb", used="join-1"))
    error = world.do(commands.JoinNode("p-1", FACTS, "node-2", "cc", used="join-1", key=key))
    assert (error.code, set(world.view.tokens)) == ("access.join-spent", {"bb"})


def test_a_join_token_for_any_node_is_not_spent_by_a_key(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    world.do(commands.CreateToken("any", "aa", "join", "*", "user:root"))
    for node, key in (("p-1", "k1"), ("p-2", "k2")):
        world.do(commands.JoinNode(node, FACTS, f"t-{node}", node, key=key))
    assert {token.name: token.key for token in world.view.tokens.values()} == {
        "*": "",
        "p-1": "k1",
        "p-2": "k2",
    }


def test_only_nodes_of_the_cluster_join(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    error = world.do(commands.JoinNode("x", FACTS, "t", "bb"))
    assert isinstance(error, NotFound)
    running(world, job(nodes=2))
    apply(world, pool(nodes=1, gpus=4, cores=16))
    error = world.do(commands.JoinNode("p-2", FACTS, "t", "bb"))
    assert isinstance(error, InputError)
    assert error.code == "node.not-wanted"


def test_tokens_are_made_once_and_revoked_once(tmp_path: Path) -> None:
    world = small(tmp_path)
    make = commands.CreateToken("t", "aa", "submit", "alice", "user:root", 99)
    assert world.do(make) is None
    assert world.view.tokens["aa"].expires_us == 99
    assert world.do(make).code == "token.exists"
    assert world.do(commands.RevokeToken("t", "user:root")) is None
    assert world.view.tokens == {}
    assert world.do(commands.RevokeToken("t", "user:root")).code == "token.not-found"


def test_what_was_applied_is_kept_for_the_way_back(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    first, second = world.spec, cluster(pool(nodes=1, gpus=4, cores=16))
    world.do(commands.ApplyCluster(second, "user:carol", commit="0123abc"))
    reader = world.store.reader()
    rows = reader.applied()
    assert [(row.by, row.commit) for row in rows] == [("user:carol", "0123abc"), ("test", "")]
    kept = [reader.applied_at(row.seq) for row in rows]
    assert [from_applied(row).spec for row in kept if row is not None] == [second, first]
    assert rows[0].digest == world.state.digest
    reader.close()
