"""How attempts end: who failed first, with what code, and whether another attempt follows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from orchestrator.controller import commands
from orchestrator.controller.timers import GONE_US
from orchestrator.model.attempt import EndCause, RankResult
from orchestrator.model.clock import SECOND
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, Stop
from orchestrator.model.node import MarkKind
from orchestrator.model.protocol import EventKind, Phase
from tests.builders import cluster, job, pool, queue
from tests.controller.invariants import check_world
from tests.controller.scenes import (
    ending_of,
    finish,
    kinds,
    mark_of,
    marks,
    on,
    over,
    running,
    small,
    wanted,
    world_of,
)
from tests.controller.world import ModelAgent, World

# --- codes ------------------------------------------------------------------------------------------------------


class Leaving(NamedTuple):
    """How the ranks of a two-node gang leave, and what the job is then."""

    name: str
    results: tuple[RankResult, RankResult]
    state: str
    code: int
    why: str


LEAVINGS = [
    Leaving("both well", (RankResult(0), RankResult(1)), "succeeded", 0, ""),
    Leaving(
        "a code", (RankResult(0, 3, 0, 5), RankResult(1)), "failed", 3, "rank 0 on p-1 failed first, with 3"
    ),
    Leaving(
        "a signal",
        (RankResult(0), RankResult(1, 0, 11, 5)),
        "failed",
        139,
        "rank 1 on p-2 failed first, by signal 11",
    ),
    Leaving(
        "the first by time",
        (RankResult(0, 4, 0, 9), RankResult(1, 5, 0, 8)),
        "failed",
        5,
        "rank 1 on p-2 failed first, with 5",
    ),
    Leaving(
        "a tie",
        (RankResult(0, 4, 0, 8), RankResult(1, 5, 0, 8)),
        "failed",
        4,
        "rank 0 on p-1 failed first, with 4",
    ),
]


def leave(agent: ModelAgent, attempt: AttemptId, result: RankResult) -> None:
    """One rank ends, with a report of its failure if it is one."""
    if not result.ok:
        agent._say(
            agent._event(
                EventKind.RANK_FAILED, attempt, started=True, results=(result,), tail=f"tail of {agent.name}"
            )
        )
    agent._end(attempt, agent.journal[attempt], results=(result,))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["p-1 tells first", "p-2 tells first"])
@pytest.mark.parametrize("case", LEAVINGS, ids=[case.name for case in LEAVINGS])
def test_the_first_failure_by_time_is_the_record(
    tmp_path: Path, case: Leaving, order: tuple[int, int]
) -> None:
    """Whoever tells first: the time on the nodes counts."""
    world = small(tmp_path)
    job_id = running(world, job(nodes=2))
    agents = on(world, job_id)
    for at in (0, 1):
        leave(agents[at], AttemptId(job_id, 1), case.results[at])
    for at in order:
        world.beat(agents[at].name)
    world.settle(3)
    assert ending_of(world, job_id) == (case.state, case.code, case.why)
    failed = over(world, job_id).past[0].first_failed
    if case.code:
        assert failed is not None
        assert failed.tail == f"tail of {failed.node}"
    else:
        assert failed is None
    check_world(world)


def test_the_other_ranks_end_within_a_second_and_do_not_change_the_record(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(nodes=2, stop=Stop("SIGUSR1", "launcher", 600)))
    first, second = on(world, job_id)
    attempt = AttemptId(job_id, 1)
    first._say(first._event(EventKind.RANK_FAILED, attempt, started=True, results=(RankResult(0, 9, 0, 5),)))
    world.beat(first.name)
    (desired,) = world.beats.desired(second.name).values()
    assert desired.phase is Phase.END
    assert desired.end is not None
    assert (desired.end.why, desired.end.grace_s) == ("rank_failed", 1)
    world.settle(3)
    assert ending_of(world, job_id) == ("failed", 9, "rank 0 on p-1 failed first, with 9")


def test_a_grace_shorter_than_a_second_stays_shorter(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(nodes=2, stop=Stop(grace_s=0)))
    first, second = on(world, job_id)
    first._say(
        first._event(
            EventKind.RANK_FAILED, AttemptId(job_id, 1), started=True, results=(RankResult(0, 9, 0, 5),)
        )
    )
    world.beat(first.name)
    (desired,) = world.beats.desired(second.name).values()
    assert desired.end is not None
    assert desired.end.grace_s == 0


def test_a_part_that_ends_well_ends_nothing_else(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(nodes=2))
    first, second = on(world, job_id)
    first.finish(AttemptId(job_id, 1))
    world.settle(3)
    assert wanted(world, second.name) == {AttemptId(job_id, 1): Phase.RUN}
    assert second.running
    assert str(world.view.jobs[job_id].state) == "running"
    assert world.state.nodes["p-1"].holders == {}, "what is proved gone is free"
    second.finish(AttemptId(job_id, 1))
    world.settle(3)
    assert ending_of(world, job_id) == ("succeeded", 0, "")


def test_a_failure_that_only_the_end_tells_counts_too(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(nodes=2))
    first, second = on(world, job_id)
    first.finish(AttemptId(job_id, 1), 7, tell_failure=False)
    world.beat(first.name)
    assert wanted(world, second.name) == {AttemptId(job_id, 1): Phase.END}
    world.settle(3)
    assert ending_of(world, job_id)[:2] == ("failed", 7)


def test_time_limit_code_and_words(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(time_limit_s=100))
    world.wait(99)
    assert str(world.view.jobs[job_id].state) == "running"
    world.wait(1)
    assert str(world.view.jobs[job_id].state) == "ending"
    world.agents["p-1"].finish(AttemptId(job_id, 1), 0)
    world.settle()
    assert ending_of(world, job_id) == ("failed", 124, "its time limit of 100 s was reached")
    assert str(over(world, job_id).past[0].cause) == "time_limit"


LIMITS = [
    # the job's own, its queue's default, its workload's: batch 4 h
    (50, 0, 50),
    (0, 70, 70),
    (0, 0, 4 * 3600),
    (50, 70, 50),
]


@pytest.mark.parametrize(("own_s", "queue_s", "limit_s"), LIMITS)
def test_whose_time_limit_counts(tmp_path: Path, own_s: int, queue_s: int, limit_s: int) -> None:
    world = world_of(
        tmp_path, cluster(pool(nodes=1), queues=(queue("default", default_time_limit_s=queue_s),))
    )
    job_id = running(world, job(time_limit_s=own_s))
    view = world.view.jobs[job_id]
    assert view.attempt is not None
    assert view.attempt.deadline_us - view.attempt.started_us == limit_s * 1_000_000


def test_a_time_limit_outlives_the_controller_and_counts_its_absence(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(time_limit_s=100))
    world.clock.advance(40)
    world.kill_controller()
    world.clock.advance(59)
    world.start_controller()
    world.cycle()
    assert str(world.view.jobs[job_id].state) == "running"
    world.clock.advance(1)
    world.cycle()
    assert str(world.view.jobs[job_id].state) == "ending"


def test_a_time_limit_of_an_old_attempt_does_not_end_the_next(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, job(time_limit_s=100))
    world.wait(90)
    world.do(commands.RequeueJob(job_id, "user:alice"))
    world.settle()
    assert world.view.jobs[job_id].attempts == 2
    world.wait(50)
    assert str(world.view.jobs[job_id].state) == "running"
    world.wait(50)
    assert str(world.view.jobs[job_id].state) == "ending"


# --- retries ----------------------------------------------------------------------------------------------------


def fails(world: World, job_id: int) -> None:
    finish(world, job_id, 3)


def reboots(world: World, job_id: int) -> None:
    on(world, job_id)[0].reboot()
    world.settle(4)


RETRIES = [
    # the job's retries, how each attempt ends, is another attempt running
    (job(job_failures=0), [fails], False),
    (job(job_failures=1), [fails], True),
    (job(job_failures=1), [fails, fails], False),
    (job(job_failures=2), [fails, fails], True),
    (job(node_failures=0), [reboots], False),
    (job(node_failures=1), [reboots], True),
    (job(node_failures=1), [reboots, reboots], False),
    (job(job_failures=1, node_failures=1), [fails, reboots], True),
    (job(job_failures=1, node_failures=1), [fails, reboots, fails], False),
]


@pytest.mark.parametrize(("spec", "ends", "again"), RETRIES, ids=range(len(RETRIES)))
def test_each_class_of_failure_has_its_own_count(
    tmp_path: Path, spec: JobSpec, ends: list[object], again: bool
) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, spec)
    for end in ends:
        end(world, job_id)  # type: ignore[operator]
    assert (job_id in world.state.jobs) == again
    if again:
        assert str(world.view.jobs[job_id].state) == "running"
        assert world.view.jobs[job_id].attempts == len(ends) + 1
    else:
        last = "rank 0 on p-1 failed first, with 3" if ends[-1] is fails else "node_failed"
        assert ending_of(world, job_id) == ("failed", 3 if ends[-1] is fails else 1, last)
        assert len(over(world, job_id).past) == len(ends)
    check_world(world)


def test_a_time_limit_is_never_retried(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(time_limit_s=10, job_failures=5, node_failures=5))
    world.wait(10)
    world.settle()
    assert ending_of(world, job_id) == ("failed", 124, "its time limit of 10 s was reached")


def test_only_the_last_attempts_are_kept(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, job(job_failures=20))
    for _ in range(12):
        finish(world, job_id, 3)
    assert [past.number for past in world.view.jobs[job_id].past] == list(range(3, 13))


# --- stuck ------------------------------------------------------------------------------------------------------


def freeze(world: World, job_id: int) -> ModelAgent:
    """Its processes on p-1 can't be ended."""
    agent = world.agents["p-1"]
    agent.unkillable = True
    world.do(commands.CancelJob(job_id, "user:alice"))
    world.settle(3)
    return agent


def test_what_can_not_be_ended_keeps_its_devices_and_drains_its_node(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2, gpus=2)
    job_id = running(world, job(nodes=2, gpus=1))
    agent = freeze(world, job_id)
    assert world.state.nodes["p-1"].holders == {0: AttemptId(job_id, 1)}
    assert world.state.nodes["p-2"].holders == {}, "the part that is gone is free"
    assert (
        mark_of(world, "p-1", MarkKind.DRAINING) == f"attempt {job_id}/1 can't be ended: process 1 is frozen"
    )
    other = world.submit(job(gpus=1, nodes=2))
    world.wait(3600)
    world.settle()
    assert str(world.view.jobs[other].state) == "waiting"
    assert str(world.view.jobs[job_id].state) == "ending", "it is never given up"
    check_world(world)

    seq = world.state.seq
    world.settle(3)
    assert "node.marked" not in kinds(world, seq), "the same mark again and again fills the ledger"

    agent.unkillable = False
    world.settle()
    assert ending_of(world, job_id)[0] == "cancelled"
    assert marks(world) == {}
    assert str(world.view.jobs[other].state) == "running"


def test_a_drain_that_a_person_lifts_comes_back_while_it_is_stuck(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    freeze(world, running(world, job()))
    world.do(commands.UncordonNode("p-1", "user:root"))
    world.settle(2)
    assert marks(world) == {"p-1": ["draining"]}


def test_a_worker_that_was_stuck_before_the_start_may_start_after_all(tmp_path: Path) -> None:
    """A file server that hung answers again: the agent reports a start of what it had called stuck."""
    world = small(tmp_path, nodes=1)
    job_id = world.submit(job())
    attempt = AttemptId(job_id, 1)
    agent = world.agents["p-1"]
    agent._say(agent._event(EventKind.STUCK, attempt, error="its worker hangs"))
    world.do(commands.Sync(agent.request()))
    assert marks(world) == {"p-1": ["draining"]}
    world.settle()
    assert attempt in agent.running
    agent.finish(attempt)
    world.settle()
    assert ending_of(world, job_id)[0] == "succeeded"
    assert marks(world) == {}
    check_world(world)


def test_a_cause_that_only_a_newer_agent_knows_is_a_failure_of_its_node(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    job_id = running(world, job(node_failures=0))
    agent = on(world, job_id)[0]
    agent._end(AttemptId(job_id, 1), agent.journal[AttemptId(job_id, 1)], cause="meteorite")
    world.settle()
    assert ending_of(world, job_id)[0] == "failed"
    assert over(world, job_id).past[-1].cause is EndCause.NODE_FAILED


def test_a_reboot_frees_what_was_stuck(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1)
    job_id = running(world, job())
    agent = freeze(world, job_id)
    agent.reboot()
    world.settle()
    assert ending_of(world, job_id)[0] == "cancelled"
    assert world.state.nodes["p-1"].holders == {}
    assert marks(world) == {}


def test_a_stuck_part_of_a_retried_job_lets_nothing_follow(tmp_path: Path) -> None:
    """At most one attempt of a job lives: the retry waits for the proof."""
    world = small(tmp_path, nodes=3)
    job_id = running(world, job(nodes=2, job_failures=3))
    world.agents["p-1"].unkillable = True
    world.agents["p-2"].finish(AttemptId(job_id, 1), 3)
    world.settle()
    assert world.view.jobs[job_id].attempts == 1
    world.agents["p-1"].unkillable = False
    world.settle()
    assert world.view.jobs[job_id].attempts == 2
    check_world(world)


# --- devices that come and go -----------------------------------------------------------------------------------


def lose_device(world: World, node: str, slot: int) -> None:
    """A GPU falls off the bus, and the agent tells so."""
    agent = world.agents[node]
    left = tuple(device for device in agent.facts.devices if device.slot != slot)
    agent.facts, agent.tell_facts = replace(agent.facts, devices=left), True


def test_a_device_that_falls_off_the_bus_stays_its_job_s_own(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    whole = world.agents["p-1"].facts
    job_id = running(world, job(gpus=1))
    lose_device(world, "p-1", 0)
    world.settle()
    check_world(world)
    assert (
        mark_of(world, "p-1", MarkKind.UNPROVED)
        == "1 of 2 GPUs of model H100-SXM5-80GB found (models here: H100-SXM5-80GB)"
    )

    world.core._snapshot()
    world.kill_controller()
    world.start_controller()
    world.settle()
    check_world(world)

    world.agents["p-1"].facts, world.agents["p-1"].tell_facts = whole, True
    other = world.submit(job(gpus=2))
    world.settle()
    assert str(world.view.jobs[other].state) == "waiting", "a held device was given again"
    check_world(world)
    finish(world, job_id)
    world.settle()
    assert str(world.view.jobs[other].state) == "running"


def passes(world: World, seconds: int) -> None:
    """Time in which every node is heard, as one is that has nothing to say."""
    for _ in range(seconds // 10):
        world.wait(10)
        world.beat()
    world.settle()


def running_on(world: World) -> set[str]:
    return {name for name, agent in world.agents.items() if agent.running}


def test_work_on_a_device_that_stays_away_goes_on_elsewhere(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2, gpus=2)
    job_id = running(world, job(gpus=2))
    (node,) = running_on(world)
    lose_device(world, node, 1)
    world.settle()
    assert world.view.jobs[job_id].attempts == 1, "one look proves nothing"
    passes(world, GONE_US // SECOND + 20)
    check_world(world)
    (past,) = world.view.jobs[job_id].past
    assert (str(past.cause), past.detail) == ("node_failed", f"GPU 1 of {node} is gone")
    assert world.view.jobs[job_id].attempts == 2
    assert running_on(world) == {"p-1", "p-2"} - {node}
    assert mark_of(world, node, MarkKind.UNPROVED)


def test_a_device_that_is_back_in_time_ends_nothing(tmp_path: Path) -> None:
    """Nor one that nobody uses, nor several short absences with its return between them."""
    world = small(tmp_path, nodes=1, gpus=2)
    whole = world.agents["p-1"].facts
    job_id = running(world, job(gpus=1))
    lose_device(world, "p-1", 1)
    passes(world, 3 * GONE_US // SECOND)
    assert world.view.jobs[job_id].attempts == 1
    for _ in range(3):
        world.agents["p-1"].facts, world.agents["p-1"].tell_facts = whole, True
        passes(world, 10)
        lose_device(world, "p-1", 0)
        passes(world, GONE_US // SECOND - 20)
    assert world.view.jobs[job_id].attempts == 1
    check_world(world)


def test_a_controller_that_has_just_started_gives_a_device_its_time(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=1, gpus=2)
    job_id = running(world, job(gpus=1))
    lose_device(world, "p-1", 0)
    for _ in range(3):
        passes(world, GONE_US // SECOND - 20)
        world.kill_controller()
        world.start_controller()
        world.settle()
    assert world.view.jobs[job_id].attempts == 1
    passes(world, 2 * GONE_US // SECOND)
    assert str(world.view.jobs[job_id].past[0].cause) == "node_failed"
    check_world(world)
