"""`make bench-up`: bare hosts to ready, and the `up` that changes nothing against a plain ping by Ansible.

Comes in: BENCH_HOSTS, BENCH_RUNS. Goes out: figures as JSON lines. Called by: the Makefile, as root, since it boots
hosts of its own on the testbed. docs/benchmarks.md says what each figure is and how it is measured.
"""

from __future__ import annotations

import os
import time

from tests.bench import common
from tests.bench.common import Failed, Figures, Options, median, say, workplace
from tests.testbed import record
from tests.testbed.bed import Bed
from tests.testbed.lab import Lab

NOTHING = "nothing to change"


def main() -> None:
    """Bring hosts up and look at them again and again."""
    options = Options(HOSTS=3, RUNS=5)
    hosts, runs = options.count("HOSTS"), options.count("RUNS")
    pid = os.getpid()
    with workplace() as folder, Bed.make(f"b{pid}", owner=record.process_mark(pid)) as bed:
        figures = Figures("up", folder)
        begun = time.monotonic()
        lab = Lab(bed, bed.fresh(hosts, "12", "13"), folder / "lab")
        say(f"{hosts} hosts booted after {time.monotonic() - begun:.1f} s")
        try:
            _measure(lab, figures, f"hosts={hosts}", runs)
        finally:
            lab.stop()


def _measure(lab: Lab, figures: Figures, case: str, runs: int) -> None:
    done = lab.up()
    if done.code or len(lab.open_nodes()) != len(lab.hosts):
        raise Failed(f"the hosts did not come up: {done.err[-800:]}")
    figures.emit(f"first/{case}", done.seconds, "s")
    ours, theirs, drift = [], [], []
    for _ in range(runs):
        again = lab.up()
        if NOTHING not in again.err:
            raise Failed(f"a second `up` found something to do: {again.err[-800:]}")
        ours.append(again.seconds)
        theirs.append(lab.ansible_ping())
        begun = time.monotonic()
        lab.drift()
        drift.append(time.monotonic() - begun)
    figures.emit(f"again/{case}", median(ours), "s")
    figures.emit(f"ansible-ping/{case}", median(theirs), "s")
    figures.emit(f"again/{case}/times-ping", median(ours) / median(theirs), "x")
    figures.emit(f"drift/{case}", median(drift), "s")


if __name__ == "__main__":
    common.run(main)
