"""The nursery's bookkeeping over a real socket: which process gets which attempt, and whom a kill may reach."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import layout, nursery, procfs, status
from orchestrator.agent.loop import Loop
from orchestrator.agent.plan import NodeContext, build
from orchestrator.agent.starter import Starter
from orchestrator.agent.unit import Unit
from orchestrator.model.clock import SECOND, SystemClock
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import OnLost
from tests.agent.running import alive, shell, until

pytestmark = pytest.mark.system


class Scene:
    """A starter with its nursery; the loop is turned by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "attempts").mkdir()
        self.loop = Loop(SystemClock())
        self.starter = Starter()
        self.starter.attach(self.loop)
        self.context = NodeContext("n", "n.t", str(folder), "", "process-tree", run_as_self=True)

    def turn(self) -> bool:
        """One round; False, so that it can stand before what is waited for."""
        self.loop.turn(0.01)
        return False

    def ask(
        self, do: str, job: int, line: str = "", on_lost: OnLost = OnLost.WAIT_FOR_PROOF, **more: Any
    ) -> tuple[int, int]:
        """The worker's pid and the request's number."""
        unit = Unit(AttemptId(job, 1), str(self.folder))
        if line:
            unit.write_plan(build(unit.attempt, shell(line, on_lost=on_lost), self.context))
        told: list[tuple[int, int]] = []
        number = self.starter.ask(do, unit.directory, lambda pid, start: told.append((pid, start)), **more)
        until(lambda: self.turn() or told, "an answer of the nursery")
        return told[0][0], number

    def ended(self, job: int) -> bool:
        path = Path(self.status(job))
        return path.exists() and '"k":"ended"' in path.read_text()

    def status(self, job: int) -> str:
        return str(self.folder / "attempts" / f"gangline-{job}-1" / layout.STATUS)

    def idle(self, pid: int) -> bool:
        return "(gl-idle)" in procfs.describe([pid])


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    for pid in procfs.descendants(made.starter.pid):
        os.kill(pid, signal.SIGKILL)
    made.starter.close()
    made.starter.wait()


def test_one_process_prepares_runs_and_runs_again(scene: Scene) -> None:
    first, _ = scene.ask("prepare", 1, "exit 0")
    until(lambda: scene.idle(first), "it is idle")
    second, _ = scene.ask("run", 1)
    assert second == first
    until(lambda: scene.ended(1) and scene.idle(first), "its attempt has ended")
    third, _ = scene.ask("run", 2, "sleep 300")
    fourth, _ = scene.ask("run", 3, "sleep 300")
    assert third == first
    assert fourth != first, "a busy one gets nothing"


@pytest.mark.parametrize("left_s", [None, -1, 60])
def test_nothing_starts_under_a_lease_that_ran_out_meanwhile(
    scene: Scene, left_s: int | None, tmp_path: Path
) -> None:
    """Setting it up may have taken long: by then another attempt may run elsewhere."""
    lease, mark = tmp_path / "lease", tmp_path / "mark"
    if left_s is not None:
        end_us = SystemClock().monotonic_us() + left_s * SECOND
        lease.write_text(f"{end_us} {60 * SECOND}\n")
    scene.context = replace(scene.context, lease=str(lease))
    scene.ask("run", 1, f"echo ran > {mark}", on_lost=OnLost.SELF_FENCE)
    until(lambda: scene.ended(1), "its end is recorded")
    kinds = [record["k"] for _, record in status.read_records(scene.status(1))[0]]
    if left_s == 60:
        assert (kinds, mark.exists()) == (["worker", "ranks", "exit", "ended"], True)
    else:
        assert (kinds, mark.exists()) == (["worker", "fenced", "ended"], False)


def test_process_that_has_served_enough_takes_no_more(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends instead of saying that it is idle: nothing is given to it and lost."""
    monkeypatch.setattr(nursery, "MOST_ATTEMPTS", 3)
    scene.starter.close()
    scene.starter.wait()
    scene.starter = Starter()
    scene.starter.attach(scene.loop)
    pids = []
    for job in range(1, 8):
        pids.append(scene.ask("run", job, "exit 0")[0])
        until(lambda: scene.ended(job) and (scene.idle(pids[-1]) or not alive(pids[-1])), "it is done")  # noqa: B023
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]


def test_kill_reaches_only_who_still_works_for_the_request(scene: Scene) -> None:
    pid, old = scene.ask("run", 1, "exit 0")
    until(lambda: scene.ended(1) and scene.idle(pid), "its attempt has ended")
    again, new = scene.ask("run", 2, "sleep 300")
    assert again == pid
    scene.ask("kill", 0, target=old, pid=pid)
    assert alive(pid), "it serves another attempt by now"
    scene.ask("kill", 0, target=new, pid=pid)
    until(lambda: not alive(pid), "it is killed")


def test_kill_of_a_stranger_is_left_to_who_asked(scene: Scene) -> None:
    assert scene.ask("kill", 0, target=1, pid=os.getpid())[0] == 0


def test_nursery_that_is_gone_is_replaced_and_says_what_it_did_not_answer(scene: Scene) -> None:
    told: list[tuple[int, int]] = []
    os.kill(scene.starter.pid, signal.SIGSTOP)
    scene.starter.ask("prepare", str(scene.folder), lambda pid, start: told.append((pid, start)))
    old = scene.starter.pid
    os.kill(old, signal.SIGKILL)
    until(lambda: scene.turn() or told, "the loss is told")
    assert told == [(0, 0)]
    assert scene.starter.pid != old
    assert scene.ask("run", 1, "exit 0")[0]
    until(lambda: scene.ended(1), "the new one works")
