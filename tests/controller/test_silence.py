"""Nodes that fall silent, reboot, lose their journal, or hold what nobody knows: nothing is killed for it, and nothing
runs twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.controller import commands
from orchestrator.model.clock import SECOND
from orchestrator.model.errors import NotFound
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import OnLost
from orchestrator.model.protocol import Phase
from tests.builders import cluster, job, pool
from tests.controller.invariants import check_world
from tests.controller.scenes import (
    LEASE_S,
    contact,
    ending_of,
    finish,
    marks,
    on,
    running,
    silence,
    small,
    wanted,
    why,
)
from tests.controller.world import World


def test_one_lease_makes_suspect_and_two_unreachable_and_it_comes_back_by_itself(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(nodes=2))
    assert contact(world, "p-1") == "ok"
    silence(world, "p-1", LEASE_S - 10)
    assert contact(world, "p-1") == "ok"
    silence(world, "p-1", 10)
    assert contact(world, "p-1") == "suspect"
    assert not world.view.nodes["p-1"].open
    silence(world, "p-1", LEASE_S)
    assert contact(world, "p-1") == "unreachable"
    view = world.view.jobs[job_id]
    assert view.attempt is not None
    assert (view.attempt.lost, str(view.state), view.attempts) == (True, "running", 1), "lost is not ended"
    assert wanted(world, "p-2") == {AttemptId(job_id, 1): Phase.RUN}
    silence(world, "p-1", 100 * LEASE_S)
    assert world.state.jobs[job_id].attempts == 1, "however long"
    world.beat("p-1")
    view = world.view.jobs[job_id]
    assert view.attempt is not None
    assert (contact(world, "p-1"), view.attempt.lost) == ("ok", False)
    finish(world, job_id)
    assert ending_of(world, job_id)[0] == "succeeded"


def test_a_controller_s_absence_is_no_silence(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(on_lost=OnLost.SELF_FENCE))
    world.kill_controller()
    world.clock.advance(100 * LEASE_S)
    world.start_controller()
    world.cycle()
    assert contact(world, "p-1") == "ok"
    world.wait(LEASE_S - 1)
    assert contact(world, "p-1") == "ok"
    assert str(world.view.jobs[job_id].state) == "running"


@pytest.mark.parametrize("asked", [True, False])
def test_a_longer_lease_of_an_earlier_controller_is_waited_out(tmp_path: Path, asked: bool) -> None:
    """The node may have no word of the shorter one: its agent ends what it runs by the one that it was given."""
    world = small(tmp_path)
    job_id = running(world, job(on_lost=OnLost.SELF_FENCE))
    for _ in range(2):  # and the one in between did not live long
        shorten(world)
    if asked:
        assert world.ask("p-1") is not None  # and the answer is lost
    world.wait(2 * LEASE_S - 10)
    assert (contact(world, "p-1"), world.view.jobs[job_id].attempts) == ("suspect", 1)
    world.wait(12)
    assert contact(world, "p-1") == "unreachable"
    assert str(world.view.jobs[job_id].past[0].cause) == "fenced"


def test_a_node_that_has_had_an_answer_goes_by_the_shorter_lease(tmp_path: Path) -> None:
    world = small(tmp_path)
    shorten(world)
    world.beat()
    world.beat("p-1")
    world.wait(LEASE_S // 3 + 2)
    assert (contact(world, "p-1"), contact(world, "p-2")) == ("unreachable", "suspect")


def shorten(world: World) -> None:
    """Another controller, with a sixth of the lease."""
    world.kill_controller()
    world.settings = replace(world.settings, lease_s=LEASE_S // 6)
    world.start_controller()


def test_a_longer_lease_that_has_run_out_is_forgotten(tmp_path: Path) -> None:
    world = small(tmp_path)
    shorten(world)
    world.wait(2 * LEASE_S + 2)
    world.kill_controller()
    world.start_controller()
    assert world.state.lease_before_s == LEASE_S // 6


def test_a_cycle_that_lasted_an_hour_was_stopped_and_heard_nobody(tmp_path: Path) -> None:
    """SIGSTOP, or a laptop's lid: what the clock says to have passed is nobody's silence."""
    world = small(tmp_path)
    begun_us = world.clock.monotonic_us()
    world.clock.advance(3)
    world.beats.begun(begun_us)
    assert world.beats.silent_us("p-1") == 3 * SECOND, "a cycle takes moments"
    world.clock.advance(3600)
    world.beats.begun(begun_us)
    assert world.beats.silent_us("p-1") == 0
    world.clock.advance(7)
    assert world.beats.silent_us("p-1") == 7 * SECOND


def test_self_fence_ends_after_two_leases_and_goes_on_elsewhere(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(on_lost=OnLost.SELF_FENCE))
    silence(world, "p-1", 2 * LEASE_S - 10)
    assert world.view.jobs[job_id].attempts == 1
    silence(world, "p-1", 10)
    world.beat("p-2", "p-3")
    view = world.view.jobs[job_id]
    assert view.attempts == 2
    assert str(view.past[0].cause) == "fenced"
    assert world.agents["p-1"].running == {}, "the agent ended it one lease before"
    assert [agent.name for agent in on(world, job_id)] == ["p-2"]
    world.settle()
    check_world(world)
    finish(world, job_id)
    assert ending_of(world, job_id)[0] == "succeeded"


@pytest.mark.parametrize("heard_again", [False, True])
def test_an_answer_that_comes_after_two_leases_starts_no_second_attempt(
    tmp_path: Path, heard_again: bool
) -> None:
    """It tells the node to run what the controller has taken for fenced since, and nobody tells the node to end what it
    does not hold."""
    world = small(tmp_path, nodes=2)
    job_id = world.submit(job(on_lost=OnLost.SELF_FENCE))
    ((name, _),) = [(name, each) for name in world.agents if (each := wanted(world, name))]
    other = next(other for other in world.agents if other != name)
    asked_us, late = world.clock.monotonic_us(), world.ask(name)
    assert late is not None
    silence(world, name, 2 * LEASE_S + 10)
    assert list(world.agents[other].running) == [AttemptId(job_id, 2)]
    if heard_again:
        world.beat(name)
    world.take(name, late, asked_us)
    check_world(world)
    assert world.agents[name].starts == []
    world.settle()
    check_world(world)
    finish(world, job_id)
    assert ending_of(world, job_id)[0] == "succeeded"


def test_a_fenced_gang_ends_whole(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=4)
    job_id = running(world, job(nodes=2, on_lost=OnLost.SELF_FENCE))
    silence(world, "p-1", 2 * LEASE_S + 40)
    assert world.agents["p-2"].journal[AttemptId(job_id, 1)].ended is not None
    assert world.view.jobs[job_id].attempts == 2
    assert {agent.name for agent in on(world, job_id)} <= {"p-2", "p-3", "p-4"}
    check_world(world)


def test_what_could_not_be_killed_is_not_taken_for_fenced(tmp_path: Path) -> None:
    """Its agent has said that SIGKILL does not end it: a lease that runs out ends it no better."""
    world = small(tmp_path, nodes=2, gpus=1)
    job_id = running(world, job(on_lost=OnLost.SELF_FENCE))
    world.agents["p-1"].unkillable = True
    world.do(commands.RequeueJob(job_id, "user:alice"))
    world.settle(3)
    assert marks(world) == {"p-1": ["draining"]}
    world.agents["p-1"].running.clear()  # the model's agent can't fence what it can't end; nor does it say so
    silence(world, "p-1", 10 * LEASE_S)
    assert world.state.nodes["p-1"].holders == {0: AttemptId(job_id, 1)}
    assert world.view.jobs[job_id].attempts == 1


def test_self_fence_uses_up_node_failures(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(on_lost=OnLost.SELF_FENCE, node_failures=0))
    silence(world, "p-1", 2 * LEASE_S)
    state, code, words = ending_of(world, job_id)
    assert (state, code) == ("failed", 1)
    assert words == f"p-1: no contact for {2 * LEASE_S} s; its agent ends it after {LEASE_S} s"


def test_a_fenced_part_is_not_called_lost_any_more(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(nodes=2, on_lost=OnLost.SELF_FENCE))
    world.agents["p-2"].unkillable = True
    silence(world, "p-1", 2 * LEASE_S + 20)
    found = why(world, job_id).reason
    assert found is not None
    assert found.code == "end.stuck", "p-1 is proved gone by its lease; what is left is on p-2"


def test_a_node_never_heard_of_is_not_silent(tmp_path: Path) -> None:
    world = World(tmp_path / "state", cluster(pool(nodes=1)))
    world.wait(10_000)
    assert contact(world, "p-1") == "never"


def test_a_reboot_proves_the_end_and_the_job_goes_on(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, job())
    world.agents["p-1"].reboot()
    world.settle()
    view = world.view.jobs[job_id]
    assert (view.attempts, str(view.state), str(view.past[0].cause)) == (2, "running", "node_failed")
    check_world(world)


def test_a_wiped_journal_starts_nothing_twice(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, job())
    world.agents["p-1"].lose_journal()
    world.settle()
    view = world.view.jobs[job_id]
    assert (view.attempts, str(view.state), str(view.past[0].cause)) == (2, "running", "node_failed")
    assert world.agents["p-1"].starts == [AttemptId(job_id, 1), AttemptId(job_id, 2)]
    check_world(world)


def test_a_wiped_journal_counts_its_events_anew_and_is_believed(tmp_path: Path) -> None:
    """The first number of the new outbox is lower than the last one of the old that was acknowledged."""
    world = small(tmp_path, nodes=1)
    for _ in range(4):
        finish(world, running(world, job()))
    job_id = running(world, job())
    assert world.core._desk.acked["p-1"] > 8
    world.agents["p-1"].lose_journal()
    world.beat()  # it comes back with nothing, and hears that something may run here
    world.beat()  # it looked, and says with its first event that nothing does
    assert [str(past.cause) for past in world.view.jobs[job_id].past] == ["node_failed"]


def test_a_wiped_journal_before_the_start_was_told(tmp_path: Path) -> None:
    """Nobody knows whether it ran: it is not started there again under the same number."""
    world = small(tmp_path, nodes=1)
    job_id = world.submit(job())
    world.beat("p-1")  # it starts, and does not tell
    world.agents["p-1"].lose_journal()
    world.settle()
    assert world.agents["p-1"].starts == [AttemptId(job_id, 1), AttemptId(job_id, 2)]
    check_world(world)


def test_beats_of_a_node_that_is_not_in_the_cluster(tmp_path: Path) -> None:
    world = small(tmp_path)
    agent = replace(world.agents["p-1"], name="x")
    error = world.do(commands.Sync(agent.request()))
    assert isinstance(error, NotFound)
    assert error.code == "node.not-found"
