"""What a unit of systemd costs: attempts of `true` a second on a real host, by supervisor, in turn. It gates nothing.

`pytest tests/agent/test_bench_systemd.py -m bench -s`, as root. The agent runs on the host, the fake controller here.
"""

from __future__ import annotations

import statistics
import time

import pytest

from orchestrator.model.job import Owner
from tests.agent.fake_controller import FakeController
from tests.agent.on_host import SERVICE, STATE, HostAgent
from tests.agent.test_bench_agent import TICK_MS, flow
from tests.testbed.bed import Bed

pytestmark = [pytest.mark.bench, pytest.mark.needs("testbed"), pytest.mark.xdist_group("testbed")]
say = print
ATTEMPTS = 200
WARM = 40
ROUNDS = 3
KINDS = ("process-tree", "systemd", "cgroup2")
OPS = Owner("ops", 1000, 1000)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("release", ["12", "13"])
def test_rate(testbed: Bed, release: str) -> None:
    for depth in (1, 4):
        figures: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for _ in range(ROUNDS):
            for kind in KINDS:
                figures[kind].append(_measure(testbed, release, kind, depth))
        base = statistics.median(rate for rate, _ in figures[KINDS[0]])
        for kind in KINDS:
            rate = statistics.median(rate for rate, _ in figures[kind])
            cpu = statistics.median(cpu for _, cpu in figures[kind])
            say(f"\nDebian {release}, {kind}, {depth} in flight: {rate:.0f} attempts/s ({rate / base:.0%}), "
                f"systemd's own CPU {cpu:.2f} ms an attempt")  # fmt: skip


def _measure(bed: Bed, release: str, kind: str, depth: int) -> tuple[float, float]:
    """Attempts a second, and milliseconds of process 1 for each."""
    controller = FakeController(host=bed.gateway)
    controller.keep_requests = False
    try:
        (host,) = bed.boot("bench-" + release, releases=(release,))
        agent = HostAgent(host, controller, supervisor=kind)
        host.inside(f"systemctl stop {SERVICE}; rm -rf {STATE}")
        agent.install()
        flow(controller, host.name, range(1, 1 + WARM), depth, OPS)
        before, began = _manager_ms(agent), time.perf_counter()
        flow(controller, host.name, range(1 + WARM, 1 + WARM + ATTEMPTS), depth, OPS)
        seconds = time.perf_counter() - began
        agent.wait_units()
        return ATTEMPTS / seconds, (_manager_ms(agent) - before) / ATTEMPTS
    finally:
        controller.close()


def _manager_ms(agent: HostAgent) -> float:
    words = agent.do("cat /proc/1/stat").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) * TICK_MS
