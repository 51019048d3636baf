"""Kills at random under load: agents, nurseries and shepherds die while attempts come and go."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.agent import procfs
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import Desired, EndOrder, EventKind, Phase
from tests.agent.fake_controller import FakeController
from tests.agent.running import SUPERVISORS, RunningAgent, alive, kill, shell, until

pytestmark = pytest.mark.system
ATTEMPTS = 60


@pytest.mark.parametrize("supervisor", SUPERVISORS)
def test_every_attempt_starts_at_most_once_and_ends_exactly_once(tmp_path: Path, supervisor: str) -> None:
    dice = random.Random(7)
    controller = FakeController()
    agent = RunningAgent(tmp_path / "a", controller, supervisor=supervisor).start()
    marks = tmp_path / "marks"
    line = 'echo "$GANGLINE_JOB_ID" >> "$MARK"; sleep 0.$((2 + GANGLINE_JOB_ID % 7)); exit $((GANGLINE_JOB_ID % 3))'
    launch = shell(line, env=(("MARK", str(marks)),))
    try:
        kills: Counter[str] = Counter()
        for job in range(1, ATTEMPTS + 1):
            phase = Phase.PREPARE if job % 5 == 0 else Phase.RUN
            controller.want("n1", Desired(AttemptId(job, 1), phase, launch=launch))
            if job % 2:
                kills[_kill_something(agent, controller, dice)] += 1
        if agent.process is not None and agent.process.poll() is not None:
            agent.start()
        for job in range(5, ATTEMPTS + 1, 5):
            controller.end("n1", AttemptId(job, 1), EndOrder("given up", grace_s=0))
        controller.wait(lambda: len(_ended(controller)) == ATTEMPTS, "all have ended", 60)
        assert min(kills["agent"], kills["nursery"], kills["shepherd"]) > 0, kills
        _check(controller, marks)
        until(lambda: not _leftovers(agent, marks), "no process of any attempt is left")
    finally:
        agent.close()
        controller.close()


def _kill_something(agent: RunningAgent, controller: FakeController, dice: random.Random) -> str:
    """One process of the agent's, at a moment that the dice choose; a dead agent is started again by the next."""
    assert agent.process is not None
    if agent.process.poll() is not None:
        heard = len(controller.requests)
        agent.start()
        controller.wait(lambda: len(controller.requests) > heard, "the agent is back")
        return "start"
    time.sleep(dice.uniform(0.01, 0.15))
    if dice.random() < 0.25:
        agent.kill()
        return "agent"
    nurseries = [each for each in procfs.descendants(agent.pid) if _named(each, "gl-nursery")]
    shepherds = [each["pid"] for each in agent.workers() if _named(each["pid"], "gl-shepherd")]
    name, chosen = ("nursery", nurseries) if dice.random() < 0.3 else ("shepherd", shepherds)
    if not chosen:
        return "nothing"
    kill(dice.choice(chosen))
    return name


def _named(pid: int, name: str) -> bool:
    return f"({name})" in procfs.describe([pid])


def _ended(controller: FakeController) -> set[AttemptId]:
    return {event.attempt for event in controller.events if event.kind is EventKind.ENDED}


def _check(controller: FakeController, marks: Path) -> None:
    starts = Counter(marks.read_text().split())
    assert max(starts.values()) == 1, "nothing starts twice"
    kinds = Counter((event.attempt, event.kind) for event in controller.events)
    assert not [key for key, count in kinds.items() if count > 1], "everything is reported once"
    assert not [event for event in controller.events if event.cause and "died before" in event.error]
    for event in controller.events:
        if event.kind is EventKind.ENDED and not event.cause and event.started:
            wanted = event.attempt.job % 3
            assert [result.exit_code for result in event.results] == [wanted], event
    numbers = [event.n for event in controller.events]
    assert numbers == list(range(1, len(numbers) + 1))


def _leftovers(agent: RunningAgent, marks: Path) -> list[int]:
    mark = f"MARK={marks}".encode()
    return [
        each.pid for each in procfs.all_stats() if mark in procfs.environment(each.pid) and alive(each.pid)
    ]
