"""`make bench-cli`: how long the command takes to answer, and how large an idle controller is.

Comes in: BENCH_CASE (help, validate, idle; all), BENCH_RUNS, BENCH_NODES (of the spec), BENCH_AGENTS, BENCH_SECONDS
(that the controller idles). Goes out: figures as JSON lines. Called by: the Makefile. docs/benchmarks.md says what each
figure is and how it is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench import common
from tests.bench.common import ROOT, Failed, Figures, Options, median, pss_mb, say, workplace
from tests.bench.helper import Helper
from tests.bench.server import Server, cluster_text

CASES = ("help", "validate", "idle")
COMMAND = Path(sys.executable).with_name("gangline")
GPUS = 8


def main() -> None:
    """Measure what CASE names."""
    options = Options(CASE="", RUNS=20, NODES=1000, AGENTS=100, SECONDS=5.0)
    cases = options.cases(CASES)
    with workplace() as folder:
        figures = Figures("cli", folder)
        if "help" in cases:
            help_(options, figures)
        if "validate" in cases:
            validate(options, figures, folder)
        if "idle" in cases:
            idle(options, figures, folder)


def help_(options: Options, figures: Figures) -> None:
    """Commands that only print, and the interpreter alone for comparison."""
    runs = options.count("RUNS")
    _emit(figures, "help", timed([str(COMMAND), "--help"], runs))
    _emit(figures, "help/submit", timed([str(COMMAND), "submit", "--help"], runs))
    _emit(figures, "help/python-alone", timed([sys.executable, "-c", ""], runs))


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of each run: by the clock, and of processor time."""

    wall: list[float]
    cpu: list[float]


def timed(command: list[str], runs: int) -> Times:
    """From before the start to after the end, after one run that warms the caches."""
    times = Times([], [])
    for number in range(runs + 1):
        begun = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        took = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise Failed(f"{' '.join(command)} ended with {process.returncode}")
        if number:
            times.wall.append(took * 1e3)
            times.cpu.append((used.ru_utime + used.ru_stime) * 1e3)
    return times


def _emit(figures: Figures, case: str, times: Times) -> None:
    figures.emit(case, median(times.wall), "ms")
    figures.emit(f"{case}/min", min(times.wall), "ms")
    figures.emit(f"{case}/cpu", median(times.cpu), "ms")
    say(
        f"{case}: median {median(times.wall):.0f} ms, min {min(times.wall):.0f} ms, processor time "
        f"{median(times.cpu):.0f} ms; {len(times.wall)} runs"
    )


def validate(options: Options, figures: Figures, folder: Path) -> None:
    """A local cluster of NODES nodes, and a metal one whose inventory names each of them."""
    nodes, runs = options.count("NODES"), max(1, options.count("RUNS") // 4)
    local = folder / "local.yaml"
    local.write_text(cluster_text(nodes, GPUS))
    _emit(figures, f"validate/local/nodes={nodes}", timed([str(COMMAND), "validate", str(local)], runs))
    metal = folder / "metal.yaml"
    metal.write_text(metal_text(nodes))
    (folder / "hosts.yml").write_text(hosts_text(nodes))
    _emit(figures, f"validate/metal/nodes={nodes}", timed([str(COMMAND), "validate", str(metal)], runs))


def metal_text(nodes: int) -> str:
    """A metal cluster in racks of four nodes, each a power domain."""
    width = len(str(nodes))
    racks = "\n".join(
        f"        - {{name: rack-{first}, parent: hall, limit_kw: 44, "
        f'nodes: "n[{first:0{width}d}-{min(first + 3, nodes):0{width}d}]"}}'
        for first in range(1, nodes + 1, 4)
    )
    return f"""apiVersion: gangline/v1
kind: Cluster
metadata: {{name: bench}}
sites:
  - name: hall
    kind: metal
    inventory: hosts.yml
    ssh: {{user: ubuntu, key: "file:/etc/gangline/ssh/key"}}
    network: {{jobs: 10.0.0.0/8, ports: 20000-29999}}
    power:
      price_usd_per_kwh: 0.18
      domains:
        - {{name: hall, limit_kw: {nodes * 11}}}
{racks}
pools:
  - name: h100
    site: hall
    nodes: "n[{1:0{width}d}-{nodes}]"
    gpu: {{model: H100-SXM5-80GB, count: 8}}
queues:
  - {{name: research, guarantee: [{{pool: h100, gpus: {nodes * 4}}}]}}
  - {{name: production, guarantee: [{{pool: h100, gpus: {nodes * 4}}}]}}
"""


def hosts_text(nodes: int) -> str:
    """The inventory: one line a host."""
    width = len(str(nodes))
    lines = "\n".join(
        f"    n{number:0{width}d}: {{ansible_host: 10.1.{number // 250}.{number % 250 + 1}}}"
        for number in range(1, nodes + 1)
    )
    return f"all:\n  hosts:\n{lines}\n"


def idle(options: Options, figures: Figures, folder: Path) -> None:
    """Memory and processor time of a controller whose agents hold their polls."""
    agents, seconds = options.count("AGENTS"), options.number("SECONDS")
    with Server(folder) as server, Helper("emulated") as fleet:
        server.populate(fleet, agents, GPUS)
        before = server.cpu_s(), time.monotonic()
        time.sleep(seconds)
        cores = (server.cpu_s() - before[0]) / (time.monotonic() - before[1])
        figures.emit(f"idle/agents={agents}/memory", pss_mb(server.pid), "MB")
        figures.emit(f"idle/agents={agents}/server-cpu", cores, "cores")


if __name__ == "__main__":
    common.run(main)
