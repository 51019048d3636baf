"""One agent and `true`: attempts a second, processor time of an attempt, start time and sizes. Prints; gates nothing.

`pytest tests/agent/test_bench_agent.py -m bench -s`. The whole path beside a real controller is `make bench-rate`.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent import procfs
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import Owner
from orchestrator.model.protocol import EventKind
from tests.agent.fake_controller import FakeController
from tests.agent.running import RunningAgent, launch_of, me

pytestmark = pytest.mark.bench
say = print
ATTEMPTS = 1000
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def controller() -> Iterator[FakeController]:
    made = FakeController()
    made.keep_requests = False
    yield made
    made.close()


@pytest.mark.parametrize(
    "supervisor", ["process-tree", pytest.param("cgroup2", marks=pytest.mark.needs("root"))]
)
@pytest.mark.parametrize("depth", [1, 4])
def test_rate(tmp_path: Path, controller: FakeController, supervisor: str, depth: int) -> None:
    agent = RunningAgent(tmp_path / "a", controller, supervisor=supervisor)
    began = time.perf_counter()
    agent.start()
    try:
        controller.wait(lambda: controller._told, "contact")
        contact_ms = (time.perf_counter() - began) * 1e3
        flow(controller, "n1", range(1, 51), depth)  # everything is warm after these
        before, began = _processor_ms(agent), time.perf_counter()
        flow(controller, "n1", range(51, 51 + ATTEMPTS), depth)
        seconds = time.perf_counter() - began
        used = {
            name: (value - before.get(name, 0)) / ATTEMPTS for name, value in _processor_ms(agent).items()
        }
        say(f"\n{supervisor}, {depth} in flight: {ATTEMPTS / seconds:.0f} attempts/s")
        say(f"  contact with the controller {contact_ms:.0f} ms after its start")
        say(
            "  CPU of an attempt, ms: "
            + ", ".join(f"{name} {value:.2f}" for name, value in sorted(used.items()))
        )
        say("  PSS, MB: " + ", ".join(f"{name} {size:.1f}" for name, size in sorted(_sizes(agent).items())))
    finally:
        agent.close()


def flow(controller: FakeController, node: str, jobs: range, depth: int, owner: Owner | None = None) -> None:
    """Keep `depth` attempts of `true` in flight until all have ended."""
    launch, todo, seen, left = (
        launch_of("/bin/true", node=node, owner=owner or me()),
        iter(jobs),
        len(controller.events),
        len(jobs),
    )
    for job in itertools.islice(todo, depth):
        controller.run(node, AttemptId(job, 1), launch)
    while left:
        known = seen
        controller.wait(lambda: len(controller.events) > known, "events")  # noqa: B023
        new = controller.events[seen:]
        seen += len(new)
        for _ in [event for event in new if event.kind is EventKind.ENDED]:
            left -= 1
            for another in itertools.islice(todo, 1):
                controller.run(node, AttemptId(another, 1), launch)


def _workers(agent: RunningAgent) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"agent": [agent.pid]}
    for pid in procfs.descendants(agent.pid):
        stat = procfs.stat(pid)
        if stat is not None:
            name = {"gl-idle": "shepherd", "gl-shepherd": "shepherd"}.get(
                stat.name, stat.name.removeprefix("gl-")
            )
            found.setdefault(name, []).append(pid)
    return found


def _processor_ms(agent: RunningAgent) -> dict[str, float]:
    """By process; ranks are the children that shepherds have waited for."""
    used: dict[str, float] = {"ranks": 0.0}
    for name, pids in _workers(agent).items():
        for pid in pids:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used[name] = used.get(name, 0.0) + (int(words[11]) + int(words[12])) * TICK_MS
            if name == "shepherd":
                used["ranks"] += (int(words[13]) + int(words[14])) * TICK_MS
    return used


def _sizes(agent: RunningAgent) -> dict[str, float]:
    """Proportional set size of one of each kind."""
    sizes = {}
    for name, pids in _workers(agent).items():
        text = Path(f"/proc/{pids[0]}/smaps_rollup").read_text()
        sizes[name] = int(text.split("\nPss:")[1].split()[0]) / 1024
    return sizes
