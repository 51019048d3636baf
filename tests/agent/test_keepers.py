"""Workers that hang: killed, and reported as stuck where even that does not help. The clock is the test's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent import keepers as keepers_module
from orchestrator.agent import procfs, status
from orchestrator.agent.attempts import Attempts, Wish
from orchestrator.agent.board import Board
from orchestrator.agent.history import History
from orchestrator.agent.journal import Journal
from orchestrator.agent.lease import Lease
from orchestrator.agent.loop import Loop
from orchestrator.agent.plan import NodeContext
from orchestrator.agent.reconcile import Local
from orchestrator.agent.sync import Sent
from orchestrator.agent.unit import Unit
from orchestrator.agent.worker import boot_id
from orchestrator.model.clock import ManualClock
from orchestrator.model.codec import encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import Desired, EndOrder, Phase
from tests.agent.running import alive, until
from tests.agent.test_attempts_machine import LAUNCH, PlayedStarter

FIRST = AttemptId(1, 1)


class Scene:
    """Attempts with a played nursery and one real process that stands for a worker."""

    def __init__(self, folder: Path) -> None:
        (folder / "attempts").mkdir()
        self.clock = ManualClock()
        self.clock.advance(1)
        self.loop = Loop(self.clock)
        self.starter = PlayedStarter()
        self.journal = Journal(str(folder), History(str(folder), 10**6, 10, self.clock))
        context = NodeContext("n", "n.x", str(folder), "", "process-tree", run_as_self=True, stuck_s=15)
        board = Board(self.journal, self.starter, self.loop, context, lambda: None)  # type: ignore[arg-type]
        self.attempts = Attempts(board, Lease(str(folder), self.clock))
        # It ignores SIGUSR1, as a worker that hangs does nothing about it.
        self.process = subprocess.Popen(["/bin/sh", "-c", "trap '' USR1; exec sleep 300"])
        until(lambda: "(sleep)" in procfs.describe([self.process.pid]), "it sleeps")

    def want(self, phase: Phase, grace_s: int = 30) -> None:
        end = EndOrder("why", grace_s=grace_s) if phase is Phase.END else None
        wish = Wish(Desired(FIRST, phase, end=end), encode(LAUNCH))
        self.attempts.want({FIRST: wish}, Sent(0, -1, 0))

    def worker_made(self) -> None:
        worker = self.starter.asked.pop(0)
        worker.started(self.process.pid, procfs.start_of(self.process.pid))

    @property
    def unit(self) -> Unit:
        return self.attempts.units[FIRST]

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.attempts.keepers.watch()

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.journal.memory.events.values()]

    def worker_died(self) -> None:
        self.process.wait(10)
        self.attempts.keepers.gone(self.unit)

    def mop_ends(self) -> None:
        """The next worker asked for is a mop, and it does its work."""
        worker = self.starter.asked.pop(0)
        assert worker.do == "mop"
        first = {"k": "worker", "do": "mop", "pid": 0, "start": 0, "boot": boot_id(), "t": 1}
        writer = status.claim(f"{worker.directory}/status.jsonl", first, "", "u")
        writer = writer or status.reopen(f"{worker.directory}/status.jsonl", "", "u")
        assert writer is not None
        writer.add({"k": "ended", "t": 2})
        writer.close()
        self.attempts.reports.look_at(self.unit)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.process.kill()
    made.process.wait()
    made.journal.close()


def test_worker_that_obeys_no_order_is_killed(scene: Scene) -> None:
    scene.want(Phase.RUN)
    scene.worker_made()
    scene.want(Phase.END, grace_s=5)
    scene.after(5 + 15 + keepers_module.SLOW_S - 1)
    assert alive(scene.process.pid)
    scene.after(2)
    until(lambda: not alive(scene.process.pid), "the worker is killed")
    scene.worker_died()
    scene.mop_ends()
    assert scene.kinds() == ["ended"]


def test_setting_up_that_takes_too_long_is_the_nodes_fault(scene: Scene) -> None:
    scene.want(Phase.RUN)
    scene.worker_made()
    scene.after(keepers_module.SETUP_S - 1)
    assert alive(scene.process.pid)
    scene.after(2)
    scene.worker_died()
    assert scene.starter.asked[0].do == "run", "nothing had claimed it: another worker tries"


def test_workers_that_die_before_they_take_it_end_the_attempt_with_the_node(scene: Scene) -> None:
    scene.want(Phase.RUN)
    scene.process.kill()
    scene.process.wait()
    for _ in range(keepers_module.MOST_TRIES + 1):
        assert scene.starter.asked[0].do == "run"
        scene.worker_made()
    scene.mop_ends()
    event = scene.journal.memory.events[1]
    assert (event["kind"], event["cause"], event.get("started", False)) == ("ended", "node_failed", False)
    assert "before they took it" in event["error"]


def test_preparation_may_be_told_before_its_worker_is(scene: Scene) -> None:
    """The process may end when it likes afterwards: it served this attempt no longer."""
    scene.want(Phase.PREPARE)
    prepared = Path(scene.starter.asked[0].directory) / "prepare.jsonl"
    prepared.write_text('{"k":"prepared","t":1}\n')
    scene.attempts.reports.look_at_all()
    assert scene.unit.local is Local.PREPARED
    scene.worker_made()
    assert scene.unit.pidfd < 0
    scene.attempts.keepers.gone(scene.unit)
    scene.after(3600)
    assert scene.unit.local is Local.PREPARED
    assert scene.kinds() == ["prepared"]
    assert alive(scene.process.pid)


def test_worker_that_lost_the_claim_is_let_go_for_the_one_that_has_it(scene: Scene) -> None:
    """Its answer was lost with the nursery, and another worker was asked for in vain: orders must reach the first."""
    scene.want(Phase.RUN)
    first = subprocess.Popen(["sleep", "300"])
    try:
        record = {
            "k": "worker",
            "do": "run",
            "pid": first.pid,
            "start": procfs.start_of(first.pid),
            "boot": boot_id(),
            "t": 1,
        }
        writer = status.claim(f"{scene.unit.directory}/status.jsonl", record, "", "u")
        assert writer is not None
        scene.worker_made()
        assert scene.unit.pid == scene.process.pid
        scene.attempts.reports.look_at_all()
        assert scene.unit.pid == first.pid
        scene.want(Phase.END)
        assert first.wait(10) == -10, "the order's signal"
        assert alive(scene.process.pid)
        writer.close()
    finally:
        first.kill()
        first.wait()


def test_preparation_that_takes_too_long_fails_with_the_reason(scene: Scene) -> None:
    scene.want(Phase.PREPARE)
    scene.worker_made()
    scene.after(keepers_module.SETUP_S + 1)
    scene.worker_died()
    event = scene.journal.memory.events[1]
    assert (event["kind"], event["code"]) == ("prepare_failed", "setup-timeout")
    assert "file server" in event["error"]


def test_worker_that_even_a_kill_does_not_end_is_stuck(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unit, "signal", lambda _unit, _number: None)
    scene.want(Phase.RUN)
    scene.worker_made()
    scene.want(Phase.END, grace_s=0)
    scene.after(15 + keepers_module.SLOW_S + 1)
    scene.after(14)
    assert scene.kinds() == []
    scene.after(2)
    assert scene.kinds() == ["stuck"]
    assert f"{scene.process.pid} (sleep)" in scene.journal.memory.events[1]["error"]
    scene.after(60)
    assert scene.kinds() == ["stuck"], "said once"
    scene.process.kill()
    scene.worker_died()
    scene.mop_ends()
    assert scene.kinds() == ["stuck", "ended"]


def test_worker_that_said_it_is_stuck_is_left_to_its_work(scene: Scene) -> None:
    scene.want(Phase.RUN)
    scene.worker_made()
    scene.want(Phase.END, grace_s=0)
    scene.unit.outcome.stuck = True
    scene.after(3600)
    assert alive(scene.process.pid)
    assert scene.unit.local is Local.ENDING
