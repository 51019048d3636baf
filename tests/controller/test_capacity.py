"""Elastic capacity carried out: what the controller asks of a cloud, and what it makes of the answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands, intake
from orchestrator.controller.hands import perform
from orchestrator.controller.inbox import Item
from orchestrator.controller.loop import MOST_AGAIN
from orchestrator.model.attempt import AttemptState, JobState
from orchestrator.model.capacity import (
    ErrorClass,
)
from orchestrator.model.clock import SECOND
from orchestrator.model.errors import NotFound
from orchestrator.model.job import Stop
from orchestrator.model.node import MarkKind, NodeFacts
from orchestrator.provision.cloud import Launch
from orchestrator.store.restore import restore
from tests.autoscale.scene import elastic, hybrid
from tests.builders import job
from tests.controller.clouds import GANG_OF_4, CloudWorld, world_of
from tests.controller.invariants import check_state
from tests.controller.scenes import finish, kinds, ledger
from tests.controller.world import Answered


def test_a_gang_is_bought_runs_and_is_given_back(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    gang = world.submit(GANG_OF_4)
    assert world.ready() == ["burst-1", "burst-2", "burst-3", "burst-4"]
    world.settle()
    view = world.job(gang)
    assert view is not None
    assert view.attempt is not None
    assert view.attempt.state is AttemptState.RUNNING
    finish(world, gang)
    world.pass_s(700)
    assert world.sky.alive() == []
    assert world.state.nodes == {}
    assert world.billed_s() >= world.sky.billed_s() > 0
    check_state(world.state)


def test_the_intent_is_in_the_ledger_before_anybody_is_asked(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.cycle()
    assert kinds(world)[-1] == "capacity.intended"
    assert world.sky.calls == []
    intent = ledger(world)[-1].body.intent
    assert (intent.max_price, intent.job, intent.nodes[-1]) == (30_000_000, 1, "burst-4"), (
        "what it may cost at most"
    )
    world.turn()
    assert world.sky.calls == [
        event.body.intent.id for event in ledger(world) if event.type == "capacity.intended"
    ]


def test_a_gang_of_four_with_capacity_for_three_leaves_nothing(tmp_path: Path) -> None:
    """The next offering is tried in the same minute; where none has four, none is left running or billed."""
    world = world_of(tmp_path)
    world.sky.stock = {"spot": 3}
    world.submit(GANG_OF_4)
    world.calm()
    assert [one.market for one in world.sky.machines.values()] == ["on_demand"] * 4

    poor = world_of(tmp_path / "poor")
    poor.sky.stock = {"spot": 3, "on_demand": 3}
    first, second = poor.submit(GANG_OF_4), poor.submit(job(nodes=1, gpus=8))
    poor.pass_s(3600)
    assert poor.sky.machines == {}, "seconds billed: 0"
    assert poor.state.nodes == {}
    for job_id, code in ((first, "wait.capacity"), (second, "wait.order")):
        view = poor.job(job_id)
        assert view is not None
        assert poor.view.reason_of(view).code == code


@pytest.mark.parametrize(
    "fault", [ErrorClass.CAPACITY, ErrorClass.QUOTA, ErrorClass.PRICE, ErrorClass.PERMANENT]
)
def test_a_refusal_leads_to_the_next_offering(tmp_path: Path, fault: ErrorClass) -> None:
    world = world_of(tmp_path)
    world.sky.script = [fault]
    world.submit(GANG_OF_4)
    world.calm()
    assert {one.market for one in world.sky.machines.values()} == {"on_demand"}
    (circuit,) = [one for one in world.state.circuits.values() if one.fault]
    assert (circuit.key.market, circuit.fault) == ("spot", fault)


def test_what_ec2_does_not_know_yet_is_tried_again_under_the_same_file(tmp_path: Path) -> None:
    """A role is known everywhere some seconds after it was made, and a template that somebody deleted by hand is made
    anew by an apply of the same file: nothing tells the controller of either."""
    world = CloudWorld(tmp_path / "state", hybrid(elastic()))
    world.sky.script = [ErrorClass.PERMANENT] * 2  # in both zones
    world.submit(GANG_OF_4)
    world.calm()
    assert len(world.sky.calls) == 2
    world.pass_s(120)
    assert len(world.known()) == 4


def test_refused_credentials_stop_everything_and_say_so(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.sky.script = [ErrorClass.AUTH]
    gang = world.submit(GANG_OF_4)
    world.pass_s(120)
    assert len(world.sky.calls) == 1
    view = world.job(gang)
    assert view is not None
    assert "auth says the cloud" in world.view.reason_of(view).sentence()
    world.do(commands.ResetCapacity("burst", "user:root", "the role is mended"))
    world.calm()
    assert len(world.sky.alive()) == 4


def test_a_site_that_slows_the_controller_down_is_asked_less_and_less(tmp_path: Path) -> None:
    """After 5, 10, 20 seconds and up to a quarter more; an answer of its own kind ends that."""
    world = world_of(tmp_path)
    world.sky.script = [ErrorClass.THROTTLING] * 4
    world.submit(GANG_OF_4)
    world.pass_s(60, step=1)
    assert len(world.sky.calls) == 4
    world.pass_s(40, step=1)
    assert len(world.sky.alive()) == 4
    assert world.state.halts == {}


def test_an_answer_that_is_lost_is_found_by_its_mark(tmp_path: Path) -> None:
    """CreateFleet timed out after it had launched, and the new instances are not told of for a while."""
    world = world_of(tmp_path)
    world.sky.script, world.sky.hide_s = ["silent"], 45
    world.submit(GANG_OF_4)
    world.pass_s(120)
    assert len(world.sky.machines) == 4
    assert world.known() == world.sky.alive()


def test_instances_of_a_lost_answer_that_are_told_of_one_by_one_are_waited_for(tmp_path: Path) -> None:
    """Two of them are seen at once: no part of a gang is taken or ended, and nothing is called again."""
    world = world_of(tmp_path)
    world.sky.script = ["silent"]
    world.submit(GANG_OF_4)
    world.cycle()
    world.turn()
    for late in ("i-0002", "i-0004"):
        world.sky.machines[late].shown_us += 25 * SECOND
    world.pass_s(20)
    assert (world.known(), len(world.sky.alive()), len(world.sky.calls)) == ([], 4, 1)
    world.pass_s(40)
    assert (world.known(), len(world.sky.calls)) == (world.sky.alive(), 1)
    assert len(world.sky.machines) == 4


def test_part_of_a_gang_of_a_lost_answer_is_ended_and_so_is_what_is_told_of_late(tmp_path: Path) -> None:
    """Three of four are all that several looks find; the fourth turns up when the gang has been bought elsewhere."""
    world = world_of(tmp_path)
    world.sky.script = ["silent"]
    world.submit(GANG_OF_4)
    world.cycle()
    world.turn()
    world.sky.machines["i-0004"].shown_us += 300 * SECOND
    world.pass_s(120)
    assert {one.market for one in world.sky.machines.values() if one.id in world.known()} == {"on_demand"}
    assert [world.sky.machines[f"i-000{number}"].ended_us > 0 for number in (1, 2, 3, 4)] == [True] * 3 + [
        False
    ]
    world.pass_s(500)
    assert world.known() == world.sky.alive()
    assert len(world.known()) == 4


def test_a_look_from_before_the_call_says_nothing_of_it(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.sky.script = ["lost"]
    world.submit(GANG_OF_4)
    world.cycle()
    world.turn()
    asked_us = world.clock.monotonic_us()
    world.cycle()

    def calls_after(look_us: int) -> int:
        world.do(commands.Looked("use1", look_us, ()))
        return len([task for task in world.hands.tasks if isinstance(task, Launch)])

    assert [calls_after(asked_us - 1), calls_after(asked_us - 1), calls_after(asked_us)] == [0, 0, 1]


def test_a_call_that_was_lost_is_repeated_under_its_token(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.sky.script = ["lost", "lost"]
    world.submit(GANG_OF_4)
    world.pass_s(120)
    assert len(set(world.sky.calls)) == 1
    assert len(world.sky.alive()) == 4


def test_a_call_that_was_lost_is_not_repeated_for_another_file(tmp_path: Path) -> None:
    """What the stack launches by is of another file by then: the same token with another request would be refused."""
    world = world_of(tmp_path)
    world.sky.script = ["lost"]
    world.submit(GANG_OF_4)
    world.cycle()
    world.turn()
    (old,) = world.sky.calls
    pools = tuple(replace(each, image="ami-0fedcba9876543210") for each in world.spec.pools)
    world.do(commands.ApplyCluster(replace(world.spec, pools=pools), "test"))
    world.pass_s(300)
    assert world.sky.calls.count(old) == 1
    assert len(world.sky.alive()) == 4
    assert world.known() == world.sky.alive()


def test_a_cloud_that_never_answers_is_given_up(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.sky.script = ["lost"] * 3
    world.submit(GANG_OF_4)
    world.pass_s(40)
    assert len(world.sky.calls) == 3
    world.pass_s(200)
    assert "capacity.refused" in kinds(world)
    assert world.known() == world.sky.alive()


@pytest.mark.parametrize("done", ["nothing", "called"])
def test_a_controller_that_dies_doubles_nothing(tmp_path: Path, done: str) -> None:
    """Killed after the intent, or after the call and before its record."""
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.cycle()
    if done == "called":
        (launch,) = [task for task in world.hands.tasks if isinstance(task, Launch)]
        perform(launch, lambda site: world.sky, world.facts)
    world.kill_controller()
    world.start_controller()
    world.pass_s(60)
    assert len(world.sky.machines) == 4
    assert world.known() == world.sky.alive()


def drop_answers(world: CloudWorld, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All tasks are performed, in a cycle in which too much fails for their answers to be looked at; their kinds."""

    def broken(desk: Any, command: commands.ResetCapacity) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(intake.HANDLERS, commands.ResetCapacity, broken)
    tasks, world.hands.tasks = world.hands.tasks, []
    answers = [perform(task, lambda site: world.sky, world.facts) for task in tasks]
    for command in [*[commands.ResetCapacity("burst", "root")] * MOST_AGAIN, *answers]:
        world.inbox.put(Item(command, Answered()))  # type: ignore[arg-type]
    world.cycle()
    return [type(task).__name__ for task in tasks]


def test_facts_and_looks_that_a_failed_cycle_drops_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    world.kill_controller()
    world.start_controller()
    world.cycle()
    assert drop_answers(world, monkeypatch) == ["Ask", "Look"]
    assert [type(task).__name__ for task in world.hands.tasks] == ["Ask", "Look"]
    world.submit(GANG_OF_4)
    world.calm()
    assert len(world.sky.alive()) == 4


def test_a_launch_whose_answer_a_failed_cycle_drops_is_found_by_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    world.submit(GANG_OF_4)
    world.cycle()
    assert "Launch" in drop_answers(world, monkeypatch)
    assert world.known() == []
    world.pass_s(20)
    assert world.known() == world.sky.alive()
    assert len(world.sky.calls) == 1


def test_an_intent_of_a_restored_ledger_is_not_the_one_of_the_same_number(tmp_path: Path) -> None:
    """A restored ledger counts on from its backup, and the cloud knows by their tokens launches that it has lost."""
    world = world_of(tmp_path)
    backup = tmp_path / "old.backup"
    world.store.backup(str(backup))
    for number in range(3):  # as many events as a restore and its end take
        world.do(commands.CreateToken(f"t{number}", "0" * 64, "submit", "somebody", "test"))
    world.submit(job(nodes=2, gpus=8))
    world.ready()
    (lost,) = world.state.fleets
    before = world.sky.alive()

    world.wait(60)
    world.kill_controller()
    restore(backup, world.path, world.clock.now_us())
    world.start_controller()
    world.cycle()
    world.do(commands.Recover("test"))
    world.submit(job(nodes=2, gpus=8))
    world.calm()
    assert list(world.state.fleets) == [lost], "the number is given again"
    assert not set(before) & set(world.known())
    world.pass_s(200)
    assert world.sky.alive() == world.known(), "what the ledger does not know is ended as a stranger"


def test_a_member_that_dies_ends_the_gang(tmp_path: Path) -> None:
    """The cloud's word is proof: the others are told to end, and the job waits again and is bought a node."""
    world = world_of(tmp_path)
    gang = world.submit(GANG_OF_4)
    world.ready()
    world.settle()
    world.sky.end("i-0002")
    world.pass_s(120)
    assert "i-0002" not in world.known()
    world.ready()
    world.settle()
    assert world.state.jobs[gang].state is JobState.RUNNING
    assert len(world.sky.machines) == 5


def test_the_next_instance_of_a_name_is_another_machine(tmp_path: Path) -> None:
    """Its token and journal are its own: the dead one's open nothing."""
    world = world_of(tmp_path, most=1)
    world.submit(job(nodes=1, gpus=8))
    world.ready()
    world.do(commands.CreateToken("t-old", "ab" * 32, "node", "burst-1", "user:root"))
    world.settle()
    world.sky.end("i-0001")
    world.pass_s(120)
    assert "t-old" not in world.state.tokens
    world.ready()
    assert world.state.nodes["burst-1"].instance == "i-0002"
    world.settle()
    assert world.agents["burst-1"].outbox == "outbox-i-0002"


def test_no_facts_no_launch(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.facts_spec = None
    world.do(commands.ApplyCluster(replace(world.spec, timezone="Europe/Berlin"), "test"))
    gang = world.submit(GANG_OF_4)
    world.pass_s(120)
    view = world.job(gang)
    assert view is not None
    assert "facts" in world.view.reason_of(view).sentence()
    world.facts_spec = "another"
    world.pass_s(120)
    assert "another file" in world.view.reason_of(view).sentence()
    assert world.sky.calls == []
    world.facts_spec = ""
    world.pass_s(120)
    assert len(world.sky.alive()) == 4


def test_a_node_that_is_less_than_was_asked_for_is_not_proved(tmp_path: Path) -> None:
    world = world_of(tmp_path, most=1, boot_s=200)
    world.submit(job(nodes=1, gpus=8))
    world.calm()
    world.boot(facts=NodeFacts("boot-1", 4, 16 << 30))
    (mark,) = world.state.nodes["burst-1"].marks
    assert mark.kind is MarkKind.UNPROVED
    world.pass_s(300)
    assert world.sky.machines["i-0001"].ended_us
    assert world.state.boot_failures == {"burst": 1}


def test_a_node_that_joins_after_its_time_was_up_is_no_proof(tmp_path: Path) -> None:
    """It is being ended already; what the pool's boots are like, it says nothing of."""
    world = world_of(tmp_path, boot_s=100)
    world.submit(job(nodes=1, gpus=8))
    world.calm()
    world.sky.stubborn = True
    world.pass_s(120)
    (fleet,) = [
        each for each in world.state.fleets.values() if each.instances and each.instances[0].releasing_us
    ]
    (late,) = fleet.instances
    world.boot(late.node)
    world.calm()
    assert world.state.nodes[late.node].facts is not None
    assert (late.proved_us, world.state.boot_failures) == (0, {"burst": 1})


def test_a_spot_notice_ends_work_in_its_own_way_and_it_waits_again(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.submit(job(nodes=2, gpus=8, stop=Stop("SIGUSR1", "all", 600)))
    world.ready()
    gang = next(iter(world.state.jobs))
    world.settle()
    assert world.interrupt("burst-1", 120) is None
    attempt = world.state.jobs[gang].attempt
    assert attempt is not None
    assert attempt.ending is not None
    assert (attempt.ending.order.signal, attempt.ending.order.grace_s) == ("SIGUSR1", 110)
    world.interrupt("burst-2", 60)
    assert attempt.ending.order.grace_s == 110, "it was told, and is not told anew by each of its nodes"
    world.settle()
    assert world.state.jobs[gang].state is JobState.WAITING
    assert world.state.jobs[gang].failures == {}
    assert not world.state.nodes["burst-1"].open
    assert isinstance(world.interrupt("nobody", 120), NotFound)
