"""What people may ask of a job, in each of its states, and what they get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.model.errors import Conflict, NotFound
from orchestrator.model.job import Stop
from orchestrator.model.protocol import Phase
from tests.builders import job
from tests.controller.invariants import check_world
from tests.controller.scenes import ending_of, finish, kinds, on, over, running, small, wanted
from tests.controller.world import World

BY = "user:alice"

# --- states, each of job 1 --------------------------------------------------------------------------------------


def nothing(world: World) -> None:
    """No job was ever submitted."""


def is_held(world: World) -> None:
    world.submit(job(hold=True))


def is_waiting(world: World) -> None:
    for name in world.agents:
        world.do(commands.CordonNode(name, "user:root"))
    world.submit(job())


def is_allocated(world: World) -> None:
    """A gang of two that no agent has heard of."""
    world.submit(job(nodes=2))


def is_running(world: World) -> None:
    running(world, job(nodes=2))


def is_ending(world: World) -> None:
    running(world, job(nodes=2))
    for agent in world.agents.values():
        agent.unkillable = True
    world.do(commands.CancelJob(1, BY))


def has_ended(world: World) -> None:
    running(world, job())
    finish(world, 1)


STATES: dict[str, Callable[[World], None]] = {
    "nothing": nothing,
    "held": is_held,
    "waiting": is_waiting,
    "allocated": is_allocated,
    "running": is_running,
    "ending": is_ending,
    "ended": has_ended,
}
ASKED: dict[str, commands.Command] = {
    "cancel": commands.CancelJob(1, BY),
    "hold": commands.HoldJob(1, BY),
    "release": commands.ReleaseJob(1, BY),
    "requeue": commands.RequeueJob(1, BY),
    "prioritize": commands.PrioritizeJob(1, 5, BY),
}
# Per state what cancel, hold, release, requeue, prioritize answer; "" is done.
ANSWERS = {
    "nothing": ("job.not-found",) * 5,
    "held": ("", "", "", "job.no-attempt", ""),
    "waiting": ("", "", "job.not-held", "job.no-attempt", ""),
    "allocated": ("", "job.has-attempt", "job.not-held", "", "job.has-attempt"),
    "running": ("", "job.has-attempt", "job.not-held", "", "job.has-attempt"),
    "ending": ("", "job.has-attempt", "job.not-held", "job.ending", "job.has-attempt"),
    "ended": ("job.ended",) * 5,
}
CASES = [
    (state, asked, code) for state, row in ANSWERS.items() for asked, code in zip(ASKED, row, strict=True)
]


@pytest.mark.parametrize(("state", "asked", "code"), CASES)
def test_what_is_asked_of_a_job_in_each_state(tmp_path: Path, state: str, asked: str, code: str) -> None:
    world = small(tmp_path)
    STATES[state](world)
    seq = world.state.seq
    answer = world.do(ASKED[asked])
    if code:
        assert isinstance(answer, NotFound if code == "job.not-found" else Conflict)
        assert answer.code == code
        assert "job 1" in answer.message
        asked_of = {"job.held", "job.released", "job.cancel_requested", "job.prioritized"}
        asked_of |= {"attempt.ending", "job.ended"}
        assert not asked_of & set(kinds(world, seq)), "refused, and yet recorded"
    else:
        assert answer is None
    check_world(world)


# --- cancel -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["held", "waiting"])
def test_cancel_without_an_attempt_ends_the_job_at_once(tmp_path: Path, state: str) -> None:
    world = small(tmp_path)
    STATES[state](world)
    world.do(commands.CancelJob(1, BY, "a typing error"))
    assert ending_of(world, 1) == ("cancelled", 0, "cancelled by user:alice: a typing error")


def test_cancel_before_any_agent_has_heard_starts_nothing(tmp_path: Path) -> None:
    world = small(tmp_path)
    is_allocated(world)
    world.do(commands.CancelJob(1, BY))
    assert {phase for name in ("p-1", "p-2") for phase in wanted(world, name).values()} == {Phase.END}
    world.settle()
    assert [agent.starts for agent in world.agents.values()] == [[], [], []]
    assert ending_of(world, 1) == ("cancelled", 0, "cancelled")


def test_cancel_of_a_running_job_gives_it_its_grace(tmp_path: Path) -> None:
    world = small(tmp_path)
    running(world, job(nodes=2, stop=Stop("SIGUSR1", "launcher", 600)))
    world.do(commands.CancelJob(1, BY, "enough"))
    for agent in on(world, 1):
        (desired,) = world.beats.desired(agent.name).values()
        assert desired.end is not None
        assert (desired.end.why, desired.end.signal, desired.end.to, desired.end.grace_s) == (
            "cancelled",
            "SIGUSR1",
            "launcher",
            600,
        )
    world.settle()
    assert ending_of(world, 1) == ("cancelled", 143, "cancelled: enough")


def grace_of(world: World) -> int:
    attempt = world.state.jobs[1].attempt
    assert attempt is not None
    assert attempt.ending is not None
    return attempt.ending.order.grace_s


def test_a_second_cancel_can_only_shorten_the_grace(tmp_path: Path) -> None:
    world = small(tmp_path)
    running(world, job(stop=Stop(grace_s=600)))
    world.agents["p-1"].unkillable = True
    world.do(commands.CancelJob(1, BY, "first"))
    assert grace_of(world) == 600
    seq = world.state.seq
    world.do(commands.CancelJob(1, BY, "second"))
    assert (grace_of(world), kinds(world, seq)) == (600, [])
    world.do(commands.CancelJob(1, BY, "third", now=True))
    assert grace_of(world) == 0
    assert world.beats.desired("p-1").popitem()[1].end.grace_s == 0  # type: ignore[union-attr]
    world.do(commands.CancelJob(1, BY, "fourth"))
    assert grace_of(world) == 0


def test_now_leaves_no_grace(tmp_path: Path) -> None:
    world = small(tmp_path)
    running(world, job(stop=Stop(grace_s=600)))
    world.do(commands.CancelJob(1, BY, now=True))
    assert grace_of(world) == 0


def test_a_job_that_ends_well_after_its_cancel_is_cancelled(tmp_path: Path) -> None:
    """It was asked to end, and did: whoever waits must not take it for a result."""
    world = small(tmp_path)
    running(world, job())
    world.do(commands.CancelJob(1, BY))
    world.agents["p-1"].finish(world.state.jobs[1].attempt.id, 0)  # type: ignore[union-attr]
    world.settle()
    assert ending_of(world, 1) == ("cancelled", 143, "cancelled")


def test_a_cancelled_job_is_never_retried_whatever_ends_it(tmp_path: Path) -> None:
    world = small(tmp_path)
    running(world, job(job_failures=5, node_failures=5))
    world.agents["p-1"].unkillable = True
    world.do(commands.CancelJob(1, BY))
    world.beat()
    world.agents["p-1"].reboot()
    world.settle()
    assert ending_of(world, 1)[0] == "cancelled"
    assert len(over(world, 1).past) == 1


# --- hold, release, requeue -------------------------------------------------------------------------------------


def test_hold_keeps_a_job_from_starting_and_release_lets_it(tmp_path: Path) -> None:
    world = small(tmp_path)
    is_waiting(world)
    world.do(commands.HoldJob(1, BY, "until monday"))
    for name in world.agents:
        world.do(commands.UncordonNode(name, "user:root"))
    world.settle()
    view = world.view.jobs[1]
    assert (str(view.state), view.hold, view.hold_code) == ("held", "until monday", "held")
    seq = world.state.seq
    world.do(commands.HoldJob(1, "user:bob", "again"))
    assert (world.view.jobs[1].hold, kinds(world, seq)) == ("until monday", [])
    world.do(commands.ReleaseJob(1, BY))
    assert world.view.jobs[1].hold == ""
    world.settle()
    assert str(world.view.jobs[1].state) == "running"


def test_release_begins_counting_failures_anew(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, job(job_failures=1))
    finish(world, job_id, 3)
    assert world.state.jobs[job_id].failures == {"job_failure": 1}
    world.do(commands.RequeueJob(job_id, BY))
    world.do(commands.CordonNode("p-1", "user:root"))
    world.settle()
    world.do(commands.HoldJob(job_id, BY))
    world.do(commands.ReleaseJob(job_id, BY))
    world.do(commands.UncordonNode("p-1", "user:root"))
    world.settle()
    finish(world, job_id, 3)
    assert str(world.view.jobs[job_id].state) == "running", "the failure of before the hold counted"


def test_requeue_ends_the_attempt_and_starts_another_at_the_old_place(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    first = running(world, job(gpus=4, stop=Stop(grace_s=7)))
    second = world.submit(job(gpus=4))
    world.do(commands.RequeueJob(first, BY, "new code"))
    assert grace_of(world) == 7
    world.settle()
    view = world.view.jobs[first]
    assert (view.attempts, str(view.state), view.why) == (2, "running", "new code")
    assert str(world.view.jobs[second].state) == "waiting", "the requeued job was submitted first"
    assert [str(past.cause) for past in view.past] == ["requeued"]
    check_world(world)


def test_a_requeued_job_counts_no_failure(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job())
    for _ in range(3):
        world.do(commands.RequeueJob(job_id, BY))
        world.settle()
    assert world.state.jobs[job_id].failures == {}
    finish(world, job_id)
    assert ending_of(world, job_id)[:2] == ("succeeded", 0)


def test_a_requeue_asked_for_twice_is_one(tmp_path: Path) -> None:
    """Nobody who was killed while asking knows whether it arrived."""
    world = small(tmp_path)
    job_id = running(world, job(stop=Stop(grace_s=60)))
    for agent in world.agents.values():
        agent.unkillable = True
    world.do(commands.RequeueJob(job_id, BY))
    seq = world.state.seq
    assert world.do(commands.RequeueJob(job_id, BY, "again")) is None
    assert "attempt.ending" not in kinds(world, seq)
    for agent in world.agents.values():
        agent.unkillable = False
    world.settle()
    assert world.view.jobs[job_id].attempts == 2
    check_world(world)


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_requeued_many_times_is_counted_once(tmp_path: Path, restart: bool) -> None:
    """Devices and limits are taken once and given back once each time, also by a controller that has just read it."""
    world = small(tmp_path, nodes=1, gpus=4)
    job_id = running(world, job(gpus=4))
    for _ in range(5):
        world.do(commands.RequeueJob(job_id, BY))
        if restart:
            world.kill_controller()
            world.start_controller()
        world.settle()
        check_world(world)
    assert world.view.jobs[job_id].attempts == 6
    finish(world, job_id)
    world.settle()
    check_world(world)
    other = running(world, job(gpus=4))
    assert str(world.view.jobs[other].state) == "running", "all of it is free again, and no more than that"


# --- nodes ------------------------------------------------------------------------------------------------------


def test_cordon_keeps_work_and_takes_no_more(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    first = running(world, job())
    world.do(commands.CordonNode("p-1", BY, "a fan"))
    second = world.submit(job())
    world.settle()
    assert str(world.view.jobs[first].state) == "running"
    assert str(world.view.jobs[second].state) == "waiting"
    mark = world.view.nodes["p-1"].marks[0]
    assert (str(mark.kind), mark.why, mark.by) == ("cordoned", "a fan", BY)
    world.do(commands.UncordonNode("p-1", BY))
    world.settle()
    assert str(world.view.jobs[second].state) == "running"


@pytest.mark.parametrize("command", [commands.CordonNode("x", BY), commands.UncordonNode("x", BY)])
def test_an_unknown_node_is_named(tmp_path: Path, command: Any) -> None:
    error = small(tmp_path).do(command)
    assert isinstance(error, NotFound)
    assert (error.code, error.message) == ("node.not-found", "there is no node x")
