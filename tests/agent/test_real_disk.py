"""A full disk under the agent: nothing starts unwritten, nothing is lost, and it goes on by itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import EventKind
from tests.agent.fake_controller import FakeController
from tests.agent.running import RunningAgent, launch_of, shell, until

pytestmark = [pytest.mark.system, pytest.mark.needs("root", "tmpfs")]
FIRST, SECOND = AttemptId(1, 1), AttemptId(2, 1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], check=True)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def controller() -> Iterator[FakeController]:
    made = FakeController()
    yield made
    made.close()


def fill(disk: Path) -> Path:
    """Take all room that is left."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast


def test_full_disk_under_the_outbox(tmp_path: Path, small_disk: Path, controller: FakeController) -> None:
    agent = RunningAgent(tmp_path / "a", controller, state_dir=small_disk / "state").start()
    try:
        go = tmp_path / "go"
        # Its tail makes the report of its end larger than what may be left of the journal's last page.
        line = f"printf %04096d 0; while ! test -e {go}; do sleep 0.02; done; exit 9"
        controller.run("n1", FIRST, shell(line))
        controller.wait_for(FIRST, EventKind.STARTED)
        until(lambda: (agent.directory(FIRST) / "rank-0.log").stat().st_size == 4096, "its output")
        ballast = fill(small_disk)
        go.touch()
        controller.run("n1", SECOND, launch_of("true"))
        until(lambda: "No space left on device" in agent.log_text(), "the error is in the log")
        assert not controller.of(FIRST, EventKind.ENDED)
        assert not controller.of(SECOND, EventKind.STARTED)
        ballast.unlink()
        assert controller.wait_for(FIRST, EventKind.ENDED).results[0].code == 9
        assert controller.wait_for(SECOND, EventKind.ENDED).results[0].ok
        numbers = [event.n for event in controller.events]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(controller.of(SECOND, EventKind.STARTED)) == 1
    finally:
        agent.close()


def test_agent_killed_on_a_full_disk(tmp_path: Path, small_disk: Path, controller: FakeController) -> None:
    """What it had promised is on the disk; a restart there says so and goes on when there is room."""
    agent = RunningAgent(tmp_path / "a", controller, state_dir=small_disk / "state").start()
    try:
        go = tmp_path / "go"
        controller.run("n1", FIRST, shell(f"while ! test -e {go}; do sleep 0.02; done; exit 9"))
        controller.wait_for(FIRST, EventKind.STARTED)
        ballast = fill(small_disk)
        go.touch()
        agent.kill()
        agent.start()
        controller.wait(lambda: controller.requests[-1]["held"] == [[1, 1]], "adopted on a full disk")
        ballast.unlink()
        assert controller.wait_for(FIRST, EventKind.ENDED).results[0].code == 9
        assert len(controller.of(FIRST, EventKind.STARTED)) == 1
    finally:
        agent.close()
