"""The journal of applies, and nodes that are drained for one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.ledger.apply_changes import APPLIES_KEPT
from orchestrator.model.apply import HostResult, Outcome, StepState
from orchestrator.model.change import PlanStep, StepKind
from orchestrator.model.cluster import DrainThen
from orchestrator.model.errors import Conflict, NotFound
from orchestrator.model.host import Desired, HostFacts, Item, ItemKind, PoolDesired, RoleState
from orchestrator.model.node import MarkKind
from orchestrator.planning.digest import digest_of
from tests.autoscale.scene import elastic, hybrid
from tests.builders import job
from tests.controller.clouds import CloudWorld
from tests.controller.invariants import check_world
from tests.controller.scenes import ending_of, finish, kinds, on, running, small
from tests.controller.world import World

STEPS = (
    PlanStep("record", StepKind.RECORD, "queues"),
    PlanStep("p.1.configure", StepKind.CONFIGURE, "sysctl", "p", ("p-1",), ("base",), 1),
)
LEASE_S = 60


def start(world: World, holder: str = "alice@ctl", steps: tuple[PlanStep, ...] = STEPS) -> Any:
    return world.do(commands.StartApply(holder, "digest", steps, LEASE_S, "user:alice", "0123abc"))


def desired(value: str = "1") -> PoolDesired:
    item = Item(ItemKind.SYSCTL, "net.core.somaxconn", (("value", value),))
    made = Desired((RoleState("base", (item,)),))
    return PoolDesired("p", digest_of(made), made)


def record(world: World, *wanted: PoolDesired) -> Any:
    return world.do(commands.ApplyCluster(world.spec, "user:alice", wanted, "0123abc"))


# --- one at a time ----------------------------------------------------------------------------------------------


def test_an_apply_is_journalled_step_by_step(tmp_path: Path) -> None:
    world = small(tmp_path)
    seq = world.state.seq
    name = start(world)
    assert name == f"apply-{seq + 1}"
    for step in STEPS:
        world.do(commands.StartStep(name, step.id, "user:alice"))
        world.do(commands.EndStep(name, step.id, True, (HostResult("p-1", True, "", 2),), "user:alice"))
    world.do(commands.EndApply(name, Outcome.DONE, "user:alice"))
    assert kinds(world, seq) == [
        "apply.started",
        *("apply.step_started", "apply.step_ended") * 2,
        "apply.ended",
    ]
    (seen,) = world.view.applies
    assert (seen.outcome, seen.commit, seen.by) == (Outcome.DONE, "0123abc", "user:alice")
    assert [step.state for step in seen.steps] == [StepState.DONE] * 2
    assert seen.steps[1].hosts == (HostResult("p-1", True, "", 2),)


def test_another_holder_waits_for_the_lease(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = start(world)
    error = start(world, "bob@laptop")
    assert isinstance(error, Conflict)
    assert (error.code, "alice@ctl" in error.message, "60 s" in error.hint) == ("apply.leased", True, False)
    world.wait(LEASE_S - 1)
    assert isinstance(start(world, "bob@laptop"), Conflict)
    world.do(commands.RenewApply(first, LEASE_S, "user:alice"))
    world.wait(LEASE_S - 1)
    assert isinstance(start(world, "bob@laptop"), Conflict)
    world.wait(2)
    second = start(world, "bob@laptop")
    assert second != first
    assert [(each.id, each.outcome) for each in world.view.applies] == [
        (first, Outcome.GIVEN_UP),
        (second, None),
    ]
    assert "bob@laptop" in world.view.applies[0].detail


def test_the_same_holder_begins_anew_at_once(tmp_path: Path) -> None:
    world = small(tmp_path)
    first = start(world)
    world.do(commands.StartStep(first, "record", "user:alice"))
    second = start(world)
    assert isinstance(second, str)
    assert [each.outcome for each in world.view.applies] == [Outcome.GIVEN_UP, None]


@pytest.mark.parametrize(
    "late",
    [
        lambda name: commands.RenewApply(name, 60, "user:alice"),
        lambda name: commands.StartStep(name, "record", "user:alice"),
        lambda name: commands.EndStep(name, "record", True, (), "user:alice"),
        lambda name: commands.EndApply(name, Outcome.DONE, "user:alice"),
    ],
)
def test_who_lost_the_lease_hears_so_and_writes_nothing(tmp_path: Path, late: Any) -> None:
    world = small(tmp_path)
    first = start(world)
    world.wait(LEASE_S + 1)
    start(world, "bob@laptop")
    seq = world.state.seq
    error = world.do(late(first))
    assert isinstance(error, Conflict)
    assert (error.code, "bob@laptop" in error.message) == ("apply.not-open", True)
    assert world.state.seq == seq


def test_steps_say_the_same_twice_and_nothing_out_of_turn(tmp_path: Path) -> None:
    world = small(tmp_path)
    name = start(world)
    end = commands.EndStep(name, "record", False, (HostResult("p-1", False, "no space"),), "user:alice")
    assert isinstance(world.do(end), Conflict)
    world.do(commands.StartStep(name, "record", "user:alice"))
    world.do(end)
    seq = world.state.seq
    assert world.do(end) is None
    assert world.state.seq == seq
    assert isinstance(world.do(commands.StartStep(name, "nothing", "user:alice")), NotFound)
    world.do(commands.StartStep(name, "record", "user:alice"))  # a failed step may be tried again
    world.do(commands.EndStep(name, "record", True, (), "user:alice"))
    assert isinstance(world.do(commands.StartStep(name, "record", "user:alice")), Conflict)


def test_an_open_apply_outlives_the_controller(tmp_path: Path) -> None:
    world = small(tmp_path)
    name = start(world)
    world.do(commands.StartStep(name, "record", "user:alice"))
    world.kill_controller()
    world.start_controller()
    (seen,) = world.view.applies
    assert (seen.id, seen.outcome, seen.steps[0].state) == (name, None, StepState.STARTED)
    assert isinstance(start(world, "bob@laptop"), Conflict)
    assert world.do(commands.EndStep(name, "record", True, (), "user:alice")) is None


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    world = small(tmp_path)
    names = [start(world) for _ in range(APPLIES_KEPT + 3)]
    assert [each.id for each in world.view.applies] == names[3:]


# --- what hosts have --------------------------------------------------------------------------------------------


def test_what_hosts_have_is_recorded_by_digest_and_kept_while_one_has_it(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    old, new = desired("1"), desired("2")
    record(world, old)
    for name in ("p-1", "p-2"):
        world.do(commands.Configured(name, old.digest, "user:alice", HostFacts("machine", "boot")))
    record(world, new)
    assert (set(world.view.desired), world.view.recorded) == ({old.digest, new.digest}, {"p": new.digest})
    world.do(commands.Configured("p-1", new.digest, "user:alice"))
    assert [world.view.nodes[name].configured for name in ("p-1", "p-2")] == [new.digest, old.digest]
    assert world.view.nodes["p-1"].host == HostFacts("machine", "boot")
    world.do(commands.Configured("p-2", new.digest, "user:alice"))
    record(world, desired("3"))
    assert old.digest not in world.view.desired
    world.kill_controller()
    world.start_controller()
    assert world.view.commit == "0123abc"
    assert set(world.view.desired) == {new.digest, desired("3").digest}
    check_world(world)


def test_what_nobody_recorded_is_refused(tmp_path: Path) -> None:
    world = small(tmp_path)
    error = world.do(commands.Configured("p-1", "ab" * 32, "user:alice"))
    assert isinstance(error, Conflict)
    assert error.code == "apply.unknown-desired"
    assert isinstance(world.do(commands.Configured("x", "ab" * 32, "user:alice")), NotFound)


def test_the_same_cluster_with_the_same_wishes_is_nothing(tmp_path: Path) -> None:
    world = small(tmp_path)
    record(world, desired())
    seq = world.state.seq
    record(world, desired())
    assert world.state.seq == seq


# --- draining ---------------------------------------------------------------------------------------------------


def drain(world: World, then: DrainThen, deadline_s: int = 100) -> None:
    world.do(
        commands.CordonNode(
            "p-1", "user:alice", "apply-9", MarkKind.UPDATING, deadline_s=deadline_s, then=then
        )
    )


def test_what_ends_before_the_deadline_is_left_alone(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, job(gpus=1))
    drain(world, DrainThen.CANCEL)
    other = world.submit(job(gpus=1))
    world.wait(50)
    assert str(world.view.jobs[other].state) == "waiting"
    finish(world, job_id)
    world.wait(100)
    assert ending_of(world, job_id)[:2] == ("succeeded", 0)
    world.do(commands.UncordonNode("p-1", "user:alice", MarkKind.UPDATING))
    world.settle(3)
    assert str(world.view.jobs[other].state) == "running"


@pytest.mark.parametrize("then", [DrainThen.REQUEUE, DrainThen.CHECKPOINT])
def test_what_outlives_the_deadline_waits_again(tmp_path: Path, then: DrainThen) -> None:
    world = small(tmp_path, nodes=2)
    job_id = running(world, job(nodes=2, gpus=4))
    drain(world, then)
    world.wait(99)
    assert str(world.view.jobs[job_id].state) == "running"
    world.wait(4)
    world.settle(4)
    assert str(world.view.jobs[job_id].state) == "waiting"
    assert "p-1 was to be free" in world.view.jobs[job_id].past[-1].detail
    check_world(world)


def test_what_may_be_cancelled_is(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, job(gpus=1))
    drain(world, DrainThen.CANCEL)
    world.wait(102)
    world.settle(4)
    assert ending_of(world, job_id)[0] == "cancelled"


def test_a_drain_that_waits_ends_nothing(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, job(gpus=1))
    drain(world, DrainThen.WAIT)
    world.wait(300)
    assert str(world.view.jobs[job_id].state) == "running"
    assert [agent.name for agent in on(world, job_id)] == ["p-1"]


def test_an_apply_takes_its_own_mark_alone(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    world.do(commands.CordonNode("p-1", "user:bob", "a fan"))
    drain(world, DrainThen.WAIT)
    world.do(commands.UncordonNode("p-1", "user:alice", MarkKind.UPDATING))
    assert [mark.kind for mark in world.view.nodes["p-1"].marks] == [MarkKind.CORDONED]
    drain(world, DrainThen.WAIT)
    world.do(commands.UncordonNode("p-1", "user:bob"))
    assert world.view.nodes["p-1"].open


def test_a_drain_asked_for_again_keeps_its_deadline(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, job(gpus=1))
    drain(world, DrainThen.REQUEUE)
    world.wait(60)
    drain(world, DrainThen.REQUEUE)
    world.wait(44)
    world.settle(4)
    assert str(world.view.jobs[job_id].state) == "waiting"


def test_what_waits_for_a_stack_is_bought_when_its_step_has_ended(tmp_path: Path) -> None:
    """Not when the controller would have read the stack's facts anyway, up to a minute later."""
    spec = hybrid(elastic())
    world = CloudWorld(tmp_path / "state", spec)
    world.facts_spec = None
    world.do(commands.ApplyCluster(replace(spec, timezone="Europe/Berlin"), "test"))
    world.submit(job(nodes=2, gpus=8))
    world.pass_s(70)  # the facts have just been looked for
    steps = (PlanStep("use1.stack", StepKind.STACK, "site use1"),)
    name = world.do(commands.StartApply("alice@ctl", "digest", steps, LEASE_S, "user:alice"))
    world.do(commands.StartStep(name, "use1.stack", "user:alice"))
    world.facts_spec = ""
    world.calm()
    assert world.sky.alive() == []
    world.do(commands.EndStep(name, "use1.stack", True, (), "user:alice"))
    world.calm()
    assert len(world.sky.alive()) == 2
