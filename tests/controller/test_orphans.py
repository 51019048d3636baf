"""What a node runs and the ledger does not know: listed, left alone, taken back by a person, never started twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.ledger import events
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, OnLost, Owner
from orchestrator.model.mig import MigInstance
from orchestrator.model.node import MarkKind
from orchestrator.model.protocol import GangPart, Holding, Launch
from tests.builders import ALICE, cluster, job, pool
from tests.controller.invariants import check_state, check_world
from tests.controller.scenes import (
    LEASE_S,
    ending_of,
    finish,
    kinds,
    mark_of,
    marks,
    on,
    running,
    silence,
    small,
    wanted,
)
from tests.controller.world import Held, World


def plant(
    world: World, node: str, attempt: AttemptId, spec: JobSpec | None = None, slots: tuple[int, ...] = (0,)
) -> None:
    """The node runs what the ledger does not know."""
    agent = world.agents[node]
    owner: Owner = ALICE
    launch = Launch(spec or job(), owner, (GangPart(node, "127.0.0.1", 0, 1),), 0, slots, 1, submitted_us=5)
    agent.journal[attempt] = Held(launch, prepared=True, started=True)
    agent.running[attempt] = True


def orphans(world: World) -> list[tuple[str, str]]:
    return [(str(orphan.attempt), orphan.node) for orphan in world.state.orphans.values()]


def test_what_the_ledger_does_not_know_is_listed_and_left_alone(tmp_path: Path) -> None:
    world = small(tmp_path)
    stranger = AttemptId(50, 1)
    plant(world, "p-2", stranger)
    world.settle(3)
    assert orphans(world) == [("50/1", "p-2")]
    assert world.view.orphans == (("50/1", "p-2"),)
    seq = world.state.seq
    world.settle(5)
    assert kinds(world, seq) == [], "listed once"
    assert stranger in world.agents["p-2"].running
    assert wanted(world, "p-2") == {}
    assert not world.agents["p-2"].tell_inventory, "asked once"


def test_no_new_work_beside_a_stranger(tmp_path: Path) -> None:
    """Its devices are in use, and the ledger can't say which."""
    world = small(tmp_path, nodes=1)
    plant(world, "p-1", AttemptId(50, 1))
    world.settle(3)
    assert (
        mark_of(world, "p-1", MarkKind.DRAINING) == "attempt 50/1 runs here, and the ledger does not know it"
    )
    other = world.submit(job())
    world.settle(3)
    assert str(world.view.jobs[other].state) == "waiting"
    world.agents["p-1"].finish(AttemptId(50, 1))
    world.settle(3)
    assert marks(world) == {}
    assert str(world.view.jobs[other].state) == "running"


def test_recover_takes_an_orphan_back(tmp_path: Path) -> None:
    world = small(tmp_path)
    plant(world, "p-2", AttemptId(50, 3), job("mine", time_limit_s=500), (1, 2))
    world.settle(3)
    result = world.do(commands.Recover("user:root"))
    assert (result.recovered, result.left) == (("50/3",), ())
    view = world.view.jobs[50]
    assert (view.spec.name, str(view.state), view.attempts, view.submitted_us) == ("mine", "running", 3, 5)
    assert view.attempt is not None
    assert view.attempt.deadline_us - view.attempt.started_us == 500_000_000
    assert world.state.nodes["p-2"].holders == {1: AttemptId(50, 3), 2: AttemptId(50, 3)}
    assert (orphans(world), marks(world)) == ([], {})
    assert world.submit(job()) == 51, "its id is not given again"
    world.settle()
    check_world(world)
    finish(world, 50)
    assert ending_of(world, 50)[0] == "succeeded"
    assert world.agents["p-2"].starts.count(AttemptId(50, 3)) == 0


def test_a_recovered_job_without_a_limit_of_its_own_gets_its_workload_s(tmp_path: Path) -> None:
    world = small(tmp_path)
    plant(world, "p-2", AttemptId(50, 1))
    world.settle(3)
    world.do(commands.Recover("user:root"))
    attempt = world.state.jobs[50].attempt
    assert attempt is not None
    assert attempt.time_limit_s == 4 * 3600


def test_an_orphan_that_ends_before_it_is_taken_back_ends_its_job_as_it_did(tmp_path: Path) -> None:
    world = small(tmp_path)
    plant(world, "p-2", AttemptId(50, 1))
    world.settle(3)
    world.agents["p-2"].finish(AttemptId(50, 1), 4)
    world.settle(3)
    assert orphans(world) == [("50/1", "p-2")]
    world.agents["p-2"].journal.clear()  # it forgets what it was acknowledged
    result = world.do(commands.Recover("user:root"))
    assert result.recovered == ("50/1",)
    assert ending_of(world, 50)[:2] == ("failed", 4)
    assert orphans(world) == []


def plant_gang(world: World, nodes: dict[str, JobSpec]) -> None:
    """Nodes that say that they run a gang of p-1 and p-2."""
    gang = (GangPart("p-1", "127.0.0.1", 0, 1), GangPart("p-2", "127.0.0.1", 1, 1))
    for name, spec in nodes.items():
        launch = Launch(spec, ALICE, gang, int(name == "p-2"), (0,), 1, submitted_us=5)
        world.agents[name].journal[AttemptId(50, 1)] = Held(launch, prepared=True, started=True)
        world.agents[name].running[AttemptId(50, 1)] = True


def test_no_node_starts_what_only_another_one_tells_of(tmp_path: Path) -> None:
    """A node speaks for itself alone: else one could make the others run what it likes, as whom it likes."""
    world = small(tmp_path, nodes=2)
    plant_gang(world, {"p-2": job("forged", nodes=2)})
    world.settle(3)
    assert "p-1 of its gang has not told" in world.do(commands.Recover("user:root")).left[0][1]
    world.settle(3)
    assert world.do(commands.Recover("user:root")).recovered == ("50/1",)
    world.settle(5)
    assert AttemptId(50, 1) not in world.agents["p-1"].starts


def test_nodes_that_contradict_each_other_are_not_believed(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    plant_gang(world, {"p-1": job("true", nodes=2), "p-2": job("forged", nodes=2)})
    world.settle(3)
    result = world.do(commands.Recover("user:root"))
    assert result.left == (("50/1", "p-1 and p-2 tell different things of it"),)


def test_a_node_outside_the_gang_is_not_believed(tmp_path: Path) -> None:
    world = small(tmp_path)
    plant_gang(world, {"p-3": job("forged", nodes=2)})
    world.settle(3)
    result = world.do(commands.Recover("user:root"))
    assert result.left == (("50/1", "p-3 holds it and is no part of its gang"),)


def test_a_job_that_only_nodes_know_starts_anew_when_a_person_says_so(tmp_path: Path) -> None:
    world = small(tmp_path)
    plant(world, "p-2", AttemptId(50, 1), job("forged", job_failures=5))
    world.settle(3)
    world.do(commands.Recover("user:root"))
    finish(world, 50, code=1)
    world.settle(3)
    view = world.view.jobs[50]
    assert (str(view.state), view.hold_code, view.attempts) == ("held", "from-nodes", 1)
    assert world.do(commands.ReleaseJob(50, "user:alice")) is None
    world.settle(3)
    assert (str(world.view.jobs[50].state), world.view.jobs[50].attempts) == ("running", 2)


def test_a_job_that_is_over_is_never_taken_back(tmp_path: Path) -> None:
    """The history has its end: it can't end twice."""
    world = small(tmp_path)
    job_id = running(world, job())
    finish(world, job_id)
    agent = world.agents["p-1"]
    plant(world, "p-1", AttemptId(job_id, 1))
    world.settle(3)
    result = world.do(commands.Recover("user:root"))
    assert result.recovered == ()
    assert result.left == ((f"{job_id}/1", "the ledger has ended it, and it still runs on p-1"),)
    assert job_id not in world.state.jobs
    assert AttemptId(job_id, 1) in agent.running, "never told to end"
    agent.finish(AttemptId(job_id, 1))
    world.settle(3)
    assert (orphans(world), marks(world)) == ([], {})
    assert ending_of(world, job_id)[0] == "succeeded"


LEFT = [
    # what the node has, why it is left
    (
        lambda world: plant(world, "p-2", AttemptId(50, 1), slots=(0, 1)),
        "device 0 of p-2 is held by attempt 1/1",
    ),
    (
        lambda world: world.agents["p-2"].journal.update({AttemptId(50, 1): Held(None)}),
        "its records on the node are lost",
    ),
]


@pytest.mark.parametrize(("has", "problem"), LEFT)
def test_what_can_not_be_taken_back_says_why(tmp_path: Path, has: object, problem: str) -> None:
    world = small(tmp_path)
    for name in ("p-1", "p-3"):
        world.do(commands.CordonNode(name, "user:root"))
    running(world, job())
    has(world)  # type: ignore[operator]
    agent = world.agents["p-2"]
    agent._inventory = lambda: tuple(  # type: ignore[method-assign]
        _holding(attempt, held) for attempt, held in agent.journal.items()
    )
    world.settle(3)
    result = world.do(commands.Recover("user:root"))
    assert result.recovered == ()
    assert [(attempt, problem in words) for attempt, words in result.left] == [("50/1", True)], result.left
    assert orphans(world) == [("50/1", "p-2")]


def _holding(attempt: AttemptId, held: Held) -> Holding:
    return Holding(attempt, held.launch, held.prepared, held.started, 0, held.ended)


def test_an_orphan_on_a_node_that_has_left_the_cluster(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    plant(world, "p-2", AttemptId(50, 1))
    world.settle(3)
    world.do(commands.ApplyCluster(cluster(pool(nodes=1, gpus=4, cores=16)), "user:root"))
    result = world.do(commands.Recover("user:root"))
    assert not isinstance(result, Exception), result
    assert result.left == (("50/1", "node p-2 of its gang is not in the cluster"),)


def test_a_fenced_part_that_still_runs_is_a_stranger(tmp_path: Path) -> None:
    """Its agent did not end it in time: its devices are not given again, and it is not asked for over and over."""
    world = small(tmp_path, nodes=2)
    job_id = running(world, job(nodes=2, on_lost=OnLost.SELF_FENCE))
    world.agents["p-2"].unkillable = True
    slow = world.agents["p-1"]
    slow.fence = lambda now_us, lease_us: None  # type: ignore[method-assign]
    slow.unkillable = True
    silence(world, "p-1", 2 * LEASE_S)
    assert world.state.nodes["p-1"].holders == {}
    world.settle(3)
    assert orphans(world) == [(f"{job_id}/1", "p-1")]
    assert "draining" in marks(world)["p-1"]
    seq = world.state.seq
    world.settle(3)
    assert kinds(world, seq) == []
    assert not slow.tell_inventory
    slow.finish(AttemptId(job_id, 1))
    world.settle(3)
    assert (orphans(world), "p-1" in marks(world)) == ([], False)


def test_what_is_left_of_a_fenced_attempt_is_told_to_end(tmp_path: Path) -> None:
    """Its agent was to end it and could not tell; another attempt runs by the time it is back."""
    world = small(tmp_path, nodes=2)
    job_id = running(world, job(on_lost=OnLost.SELF_FENCE))
    (name,) = [name for name, agent in world.agents.items() if agent.running]
    other = next(other for other in world.agents if other != name)
    agent, attempt = world.agents[name], AttemptId(job_id, 1)
    agent.heard_us = 1 << 60  # a broken clock: it never fences
    for _ in range(3):
        world.clock.advance(world.settings.lease_s)
        world.beat(other)
        world.cycle()
    world.beat(other)
    assert list(world.agents[other].running) == [AttemptId(job_id, 2)]
    world.settle()
    assert attempt not in agent.running, "the old attempt was left beside the new one"
    assert not world.state.orphans
    assert world.view.nodes[name].open


def hold_gang(world: World, attempt: AttemptId, *names: str) -> None:
    """One task with device 0 on each of these nodes, and the ledger knows nothing of it."""
    parts = tuple(GangPart(name, "127.0.0.1", at, 1) for at, name in enumerate(names))
    spec = job(nodes=len(names), gpus=1)
    for at, name in enumerate(names):
        launch = Launch(spec, ALICE, parts, at, (0,), 0, submitted_us=5)
        world.agents[name].journal[attempt] = Held(launch, prepared=True, started=True)
        world.agents[name].running[attempt] = True


def test_half_a_gang_is_not_taken_back_while_the_other_half_is_silent(tmp_path: Path) -> None:
    """Nobody knows which devices it uses there: they would be given to the next job."""
    world = small(tmp_path)
    attempt = AttemptId(50, 1)
    hold_gang(world, attempt, "p-1", "p-2")
    for _ in range(3):
        world.beat("p-1", "p-3")
    result = world.do(commands.Recover("user:root"))
    assert result.recovered == ()
    assert result.left == (
        ("50/1", "node p-2 of its gang has not told what it holds; recover again when it has"),
    )
    world.settle()
    assert orphans(world) == [("50/1", "p-1"), ("50/1", "p-2")]
    assert world.do(commands.Recover("user:root")).recovered == ("50/1",)
    assert world.state.nodes["p-2"].holders == {0: attempt}
    other = world.submit(job(nodes=2, gpus=4))
    world.settle()
    assert str(world.view.jobs[other].state) == "waiting"
    check_world(world)


def test_a_node_of_the_gang_that_holds_nothing_of_it_is_asked_and_its_part_ends(tmp_path: Path) -> None:
    world = small(tmp_path)
    attempt = AttemptId(50, 1)
    hold_gang(world, attempt, "p-1", "p-2")
    world.agents["p-2"].journal.clear()
    world.agents["p-2"].running.clear()
    world.settle()
    assert world.do(commands.Recover("user:root")).recovered == ()
    world.settle()
    assert world.do(commands.Recover("user:root")).recovered == ("50/1",)
    world.settle()
    past = world.view.jobs[50].past
    assert [str(each.cause) for each in past] == ["node_failed"], "half a gang is no gang"
    check_world(world)


def test_a_gang_is_not_taken_back_while_one_node_can_not_say_which_devices_it_uses(tmp_path: Path) -> None:
    world = small(tmp_path)
    attempt = AttemptId(50, 1)
    hold_gang(world, attempt, "p-1", "p-2")
    world.settle()
    for orphan in world.state.orphans.values():  # as an agent lists what it found without records
        if orphan.node == "p-2":
            orphan.holding = replace(orphan.holding, launch=None)
    result = world.do(commands.Recover("user:root"))
    assert result.recovered == ()
    assert "records on the node are lost" in result.left[0][1]
    assert marks(world) == {"p-1": ["draining"], "p-2": ["draining"]}


def test_a_gang_is_taken_back_beside_who_has_the_devices_of_its_ended_half(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2, gpus=1)
    attempt = AttemptId(50, 1)
    hold_gang(world, attempt, "p-1", "p-2")
    world.settle(3)
    world.agents["p-1"].finish(attempt)
    world.settle(3)
    other = running(world, job())
    assert [agent.name for agent in on(world, other)] == ["p-1"]
    assert world.do(commands.Recover("user:root")).recovered == ("50/1",)
    assert world.state.nodes["p-1"].holders == {0: AttemptId(other, 1)}
    assert world.state.nodes["p-2"].holders == {0: attempt}


def test_a_restored_ledger_takes_no_uncommitted_gang_for_unstarted(tmp_path: Path) -> None:
    """It may have been committed after the backup, and run: silence proves nothing of it."""
    world = small(tmp_path, nodes=2)
    job_id = world.submit(job(nodes=2))
    world.beat("p-1")
    attempt = world.state.jobs[job_id].attempt
    assert attempt is not None
    assert not attempt.committed_us
    writer = world.core._desk.writer
    writer.record(events.LedgerRestored(world.state.next_job + 1000, 5), "ledger")
    writer.commit()
    silence(world, "p-2", 3 * LEASE_S)
    assert str(world.view.nodes["p-2"].contact) == "unreachable"
    attempt = world.state.jobs[job_id].attempt
    assert attempt is not None, "the gang was given up although it may run"
    assert [str(part.state) for part in attempt.parts].count("ended") == 0


def test_an_orphan_without_devices_does_not_come_onto_a_node_that_is_another_attempts_alone(
    tmp_path: Path,
) -> None:
    world = small(tmp_path)
    whole = job(nodes=1)
    plant(world, "p-2", AttemptId(50, 1), replace(whole, request=replace(whole.request, exclusive=True)))
    plant(world, "p-2", AttemptId(51, 1), job(gpus=0, cores=1), slots=())
    world.settle(3)
    result = world.do(commands.Recover("user:root"))
    assert not isinstance(result, Exception), result
    assert result.recovered == ("50/1",)
    assert result.left == (("51/1", "node p-2 is attempt 50/1's alone"),)
    assert orphans(world) == [("51/1", "p-2")]
    world.agents["p-2"].finish(AttemptId(50, 1))
    world.settle(3)
    assert world.do(commands.Recover("user:root")).recovered == ("51/1",)
    check_world(world)


TINY, BIG = MigInstance(0, "1g.10gb", 0, 1), MigInstance(0, "4g.40gb", 0, 4)


@pytest.mark.parametrize(
    ("mine", "others", "problem"),
    [
        ({"milli": (700,)}, {"milli": (700,)}, "device 0 is held already"),
        (
            {"milli": (142,), "instances": (TINY,)},
            {"milli": (571,), "instances": (BIG,)},
            "the slices of instance",
        ),
    ],
)
def test_of_two_orphans_that_stand_on_the_same_part_of_a_device_one_is_left(
    tmp_path: Path, mine: dict[str, Any], others: dict[str, Any], problem: str
) -> None:
    world = small(tmp_path)
    for number, share in ((50, mine), (51, others)):
        attempt = AttemptId(number, 1)
        plant(world, "p-2", attempt)
        held = world.agents["p-2"].journal[attempt]
        assert held.launch is not None
        world.agents["p-2"].journal[attempt] = replace(held, launch=replace(held.launch, **share))
    world.settle(3)
    result = world.do(commands.Recover("user:root"))
    assert result.recovered == ("50/1",)
    ((left, why),) = result.left
    assert left == "51/1"
    assert problem in why
    world.settle(3)
    check_state(world.state)
    assert 51 not in world.state.jobs
