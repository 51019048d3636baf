"""`make bench-plan`: how long it takes to read, check and plan a large metal cluster whose hosts were seen already.

Comes in: BENCH_NODES, BENCH_POOLS, BENCH_JOBS (running, eight nodes each), BENCH_RUNS. Goes out: figures as JSON lines.
Called by: the Makefile. docs/benchmarks.md says what each figure is and how it is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator import catalog, spec
from orchestrator.model.cluster import ClusterSpec, Software
from orchestrator.model.codec import decode, encode
from orchestrator.model.host import Drift, HostFacts, ItemKind, Sight, Step
from orchestrator.planning.desired import Resolved
from orchestrator.planning.plan import plan
from orchestrator.planning.world import NodeNow, Observed, Recorded, Running, Workload
from tests.bench import common
from tests.bench.common import Failed, Figures, Options, median, say, workplace

RESOLVED = Resolved("aa" * 32, "https://atlas.example.org:7443", "/etc/gangline/ca.pem", "0.0.0")
GANG = 8  # nodes of a job
DRIFTS_EVERY = 100  # one host in so many is not as recorded


def main() -> None:
    """Measure reading, and three plans: nothing to do but drift, a driver everywhere, everything for the first time."""
    options = Options(NODES=10_000, POOLS=40, JOBS=1_000, RUNS=5)
    with workplace() as folder:
        bench = _Bench(Figures("plan", folder), options.count("RUNS"))
        file = _write(folder, options.count("NODES"), options.count("POOLS"))
        wanted = bench.time("validate", lambda: _load(file))
        first = bench.time(
            "plan/first", lambda: _plan(wanted, Recorded(), Observed(looked=False), Workload())
        )
        world = _world(wanted, first.desired, options.count("JOBS"))
        drift = bench.time("plan/drift", lambda: _plan(wanted, *world))
        newer = _with_driver(wanted)
        driver = bench.time("plan/driver", lambda: _plan(newer, *world))
        if len(driver.work) != len(world[2].running) or not drift.changes:
            raise Failed("the plans are not those that were meant")
        bench.time("validate-and-plan/driver", lambda: _plan(_with_driver(_load(file)), *world))


@dataclass(frozen=True, slots=True)
class _Bench:
    figures: Figures
    runs: int

    def time(self, case: str, work: Callable[[], Any]) -> Any:
        """The median by the clock and of processor time; what the last run gave."""
        wall, cpu, result = [], [], None
        for _ in range(self.runs):
            begun, used = time.perf_counter(), time.process_time()
            result = work()
            cpu.append((time.process_time() - used) * 1e3)
            wall.append((time.perf_counter() - begun) * 1e3)
        self.figures.emit(case, median(wall), "ms")
        self.figures.emit(f"{case}/cpu", median(cpu), "ms")
        say(f"{case}: median {median(wall):.0f} ms, processor time {median(cpu):.0f} ms; {self.runs} runs")
        return result


def _write(folder: Path, nodes: int, pools: int) -> Path:
    """A metal site with an address, a BMC and a rack for each host, in pools of the same size."""
    each = nodes // pools
    hosts = ["all:", "  children:"]
    for pool in range(pools):
        hosts += [f"    p{pool:03}:", "      hosts:"]
        hosts += [
            f"        p{pool:03}-{number:04}: {{ansible_host: 10.{pool}.{number // 250}.{number % 250 + 1}, "
            f"bmc: 10.{pool + 100}.{number // 250}.{number % 250 + 1}, rack: r{number // 8}}}"
            for number in range(each)
        ]
    (folder / "hosts.yml").write_text("\n".join(hosts) + "\n")
    listed = "\n".join(
        f'  - {{name: p{pool:03}, site: hall, nodes: "p{pool:03}-[0000-{each - 1:04}]", '
        "gpu: {model: H100-SXM5-80GB, count: 8}, update: {max_unavailable: 10}}"
        for pool in range(pools)
    )
    power = f"{{price_usd_per_kwh: 0.18, domains: [{{name: hall, limit_kw: {nodes * 11}}}]}}"
    text = (
        "apiVersion: gangline/v1\nkind: Cluster\nmetadata: {name: bench}\n"
        f"sites: [{{name: hall, kind: metal, inventory: hosts.yml, power: {power}}}]\npools:\n{listed}\n"
    )
    file = folder / "cluster.yaml"
    file.write_text(text)
    return file


def _load(file: Path) -> ClusterSpec:
    loaded = spec.load_cluster(str(file))
    if loaded.cluster is None:
        raise Failed(spec.render(loaded.errors[:3]))
    return loaded.cluster


def _plan(wanted: ClusterSpec, recorded: Recorded, observed: Observed, workload: Workload) -> Any:
    return plan(wanted, recorded, observed, catalog.load(), workload, 0, RESOLVED)


def _with_driver(spec_: ClusterSpec) -> ClusterSpec:
    software = Software("580.126.20")
    return replace(spec_, pools=tuple(replace(pool, software=software) for pool in spec_.pools))


def _world(wanted: ClusterSpec, desired: Any, jobs: int) -> tuple[Recorded, Observed, Workload]:
    """As the ledger would give it, all hosts seen, one in a hundred with a value changed, gangs on many."""
    names = [name for pool in wanted.pools for name in pool.nodes]
    facts = {name: HostFacts(f"m-{name}", "b", name, gpus=("0000:1b:00.0 10de:2330",) * 8) for name in names}
    drift = (Drift("base", ItemKind.UNIT, "chrony.service", "active", "yes", "no"),)
    sights = tuple(
        Sight(name, Step.DONE, facts=facts[name], checked=True, drift=() if number % DRIFTS_EVERY else drift)
        for number, name in enumerate(names)
    )
    running = tuple(
        Running(number + 1, "alice", "default", tuple(names[GANG * number : GANG * number + GANG]), 8 * GANG)
        for number in range(min(jobs, len(names) // GANG))
    )
    recorded = Recorded(
        decode(ClusterSpec, encode(wanted)),  # not the same objects: as from the ledger
        desired,
        tuple(NodeNow(name, host=facts[name]) for name in names),
    )
    return recorded, Observed(sights), Workload(running)


if __name__ == "__main__":
    common.run(main)
