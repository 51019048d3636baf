"""Two phases: a gang runs only when all its nodes are ready and the ledger says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller import commands
from orchestrator.ledger import events
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import EventKind, Phase, SyncAnswer, SyncRequest
from tests.builders import job
from tests.controller.invariants import check_world
from tests.controller.scenes import kinds, ledger, running, small, wanted
from tests.controller.world import World


def watch(world: World, monkeypatch: pytest.MonkeyPatch) -> list[AttemptId]:
    """Each time an answer is made, every RUN in it must be committed on the disk by then."""
    seen: list[AttemptId] = []
    made = world.beats.answer

    def answer(request: SyncRequest, *rest: Any) -> SyncAnswer:
        said = made(request, *rest)
        committed = {
            event.body.attempt for event in ledger(world) if isinstance(event.body, events.AttemptCommitted)
        }
        for desired in said.desired:
            if desired.phase is Phase.RUN:
                assert desired.attempt in committed, f"{desired.attempt} may run, and the disk does not know"
                seen.append(desired.attempt)
        return said

    monkeypatch.setattr(world.beats, "answer", answer)
    return seen


def test_no_agent_hears_run_before_the_disk_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = small(tmp_path)
    seen = watch(world, monkeypatch)
    for _ in range(3):
        running(world, job(nodes=2))
    running(world, job())
    assert set(seen) == {AttemptId(number, 1) for number in range(1, 5)}


def test_the_phases_in_order(tmp_path: Path) -> None:
    world = small(tmp_path)
    seq = world.state.seq
    job_id = world.submit(job(nodes=3))
    attempt = AttemptId(job_id, 1)
    assert kinds(world, seq) == ["job.submitted", "attempt.allocated"]
    assert [wanted(world, name) for name in world.agents] == [{attempt: Phase.PREPARE}] * 3

    world.beat("p-1")  # it hears, and prepares
    world.beat("p-1")  # it tells
    view = world.view.jobs[job_id].attempt
    assert view is not None
    assert str(view.state) == "preparing"
    assert wanted(world, "p-1") == {attempt: Phase.PREPARE}, "two are not ready yet"
    world.beat("p-2", "p-3")
    world.beat("p-2")
    assert kinds(world, seq)[2:] == ["attempt.prepared", "attempt.prepared"]
    world.beat("p-3")
    assert kinds(world, seq)[4:] == ["attempt.prepared", "attempt.committed"]
    batch = [event.batch for event in ledger(world, seq)[4:]]
    assert batch == [seq + 5, seq + 5], "committed in the transaction of the last report"
    assert wanted(world, "p-1") == {attempt: Phase.RUN}
    assert [agent.starts for agent in world.agents.values()] == [[], [], [attempt]]
    world.settle(2)
    assert [agent.starts for agent in world.agents.values()] == [[attempt]] * 3


def test_one_node_needs_no_second_phase(tmp_path: Path) -> None:
    world = small(tmp_path)
    seq = world.state.seq
    job_id = world.submit(job(gpus=2))
    assert kinds(world, seq) == ["job.submitted", "attempt.allocated", "attempt.committed"]
    assert wanted(world, "p-1") == {AttemptId(job_id, 1): Phase.RUN}
    world.settle(2)
    assert EventKind.PREPARED not in {event.kind for event in world.agents["p-1"].events}
    assert kinds(world, seq)[3:] == ["attempt.started"]


def test_a_prepared_report_of_a_committed_attempt_takes_it_not_back(tmp_path: Path) -> None:
    """An agent may say so although it was told to run at once."""
    world = small(tmp_path, nodes=1)
    job_id = world.submit(job())
    agent = world.agents["p-1"]
    agent._say(agent._event(EventKind.PREPARED, AttemptId(job_id, 1)))
    world.beat()
    attempt = world.state.jobs[job_id].attempt
    assert attempt is not None
    assert (str(attempt.state), str(attempt.parts[0].state)) == ("committed", "prepared")


def test_all_know_the_whole_gang_and_one_rendezvous(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(nodes=3, gpus=2))
    launches = [world.beats.desired(name)[AttemptId(job_id, 1)].launch for name in world.agents]
    assert [launch.index for launch in launches if launch] == [0, 1, 2]
    assert (
        len({(launch.parts, launch.master_address, launch.master_port) for launch in launches if launch}) == 1
    )
    first = launches[0]
    assert first is not None
    assert [(part.node, part.first_rank, part.tasks) for part in first.parts] == [
        ("p-1", 0, 1),
        ("p-2", 1, 1),
        ("p-3", 2, 1),
    ]
    assert (first.slots, 20000 <= first.master_port <= 29999, first.cluster) == ((0, 1), True, "test")


def test_a_gang_that_loses_a_node_before_its_commit_never_starts(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    world.submit(job(nodes=2))
    world.beat("p-1")
    world.beat("p-1")
    world.wait(3600)
    world.beat("p-1")
    assert world.agents["p-1"].starts == []
    world.settle()
    assert world.agents["p-1"].starts == [AttemptId(1, 2)], "what never started was given up, and tried anew"
    assert world.agents["p-2"].starts == [AttemptId(1, 2)]
    check_world(world)


def test_cancel_between_prepare_and_commit_starts_nothing(tmp_path: Path) -> None:
    world = small(tmp_path, nodes=2)
    job_id = world.submit(job(nodes=2))
    world.beat()
    late = [world.agents[name].request() for name in ("p-1", "p-2")]
    world.do(commands.CancelJob(job_id, "user:alice"))
    for request in late:  # both are prepared by now, and nothing may come of it
        assert isinstance(world.do(commands.Sync(request)), commands.SyncReply)
    assert {phase for name in ("p-1", "p-2") for phase in wanted(world, name).values()} == {Phase.END}
    world.settle()
    assert [agent.starts for agent in world.agents.values()] == [[], []]
    assert "attempt.committed" not in kinds(world)
    assert job_id not in world.state.jobs


def test_repeated_and_late_reports_make_no_facts(tmp_path: Path) -> None:
    world = small(tmp_path)
    job_id = running(world, job(nodes=2))
    first = world.agents["p-1"]
    told = [
        first._event(kind, AttemptId(job_id, 1), pids=(9,)).__class__(n, 0, kind, AttemptId(job_id, 1))
        for n, kind in enumerate((EventKind.PREPARED, EventKind.STARTED, EventKind.PREPARED), 1)
    ]
    seq = world.state.seq
    for events_ in ((told[0],), (told[1], told[0]), tuple(told)):
        request = SyncRequest("p-1", first.outbox, "boot-1", events=events_, held=(AttemptId(job_id, 1),))
        world.do(commands.Sync(request))
    assert kinds(world, seq) == []
    check_world(world)


def test_an_acknowledged_event_is_on_the_disk_or_needs_no_fact(tmp_path: Path) -> None:
    world = small(tmp_path)
    running(world, job())
    agent = world.agents["p-1"]
    agent._say(agent._event(EventKind.STARTED, AttemptId(77, 1)))  # of an attempt that nobody knows
    before = agent.last_n
    world.beat("p-1")
    assert agent.events == []
    assert world.state.nodes["p-1"].acked < before, "no fact, no number in the ledger"
    answer = world.ask("p-1")
    assert answer is not None
    assert answer.acked in (0, before)
