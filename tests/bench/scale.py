"""How long decisions take: KAI's published scenarios and the project's own, decision-only, with reasons made.

Comes in: CASES, NODES, PASSES, WAITING, SHAPES, SEED, KERNEL as make variables. Goes out: JSON lines, seconds or
milliseconds. Called by: `make bench-scale`. One process, garbage collected by hand between passes, as the controller
does.

The published figures are of whole systems, API writes included: the same work, not the same measurement. Ties go to the
lower row; the seed is in the line.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from dataclasses import replace

from orchestrator.model.decisions import Reasons, Start
from orchestrator.model.job import PerNode, Topology
from orchestrator.scheduler import Policy, decide
from tests.bench.common import ROOT, Figures, Options, median, percentile, say
from tests.bench.scale_scene import GIB, Ledger, Own, flat, job, kai_fabric

CASES = ("kai-fill", "kai-gang", "kai-cannot-fit", "own")
BUDGET = 1 << 40
TRIES = 5  # of the KAI cases, each on a state of its own


class Told:
    """Keeps the reasons of the last pass."""

    waits: Reasons | None = None

    def waiting(self, reasons: Reasons) -> None:
        self.waits = reasons


class Bench:
    """The cases, one method each."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._out = Figures("scale", ROOT)
        self._policy = Policy(compiled=options.text("KERNEL") != "numpy")
        warm = Ledger(flat(300))  # compiled code is loaded, which is no part of any pass
        warm.submit(job(PerNode(1)))
        warm.submit(job(PerNode(0, 1, GIB, gpu_milli=500)))
        timed(warm, self._policy)

    def kai_fill(self) -> None:
        """500 nodes of 8 GPUs, 4,000 one-GPU jobs: equal, of 40 shapes in turn, and each of a shape and priority of its
        own."""
        kinds = {"": (1, False), " of 40 shapes": (40, False), " of 4,000 shapes": (4000, True)}
        for words, (shapes, priorities) in kinds.items():
            times = [self._fill(shapes, priorities) for _ in range(TRIES)]
            self._out.emit(f"kai-fill{words}", median(times), "s", 397.8)

    def _fill(self, shapes: int, priorities: bool) -> float:
        ledger = Ledger(flat(500))
        for number in range(4000):
            kind = number % shapes
            share = PerNode(1, 1 + kind % 8, (1 + kind // 8) * GIB // 8)
            ledger.submit(job(share, priority=kind if priorities else 0))
        decisions, seconds, _ = timed(ledger, self._policy)
        assert len(decisions) == 4000, len(decisions)
        return seconds

    def kai_gang(self) -> None:
        """One gang of 512 ranks that prefers a rack, on 512 nodes in 4 zones, 8 blocks, 8 racks of 2."""
        for words, gpus in (("8 GPUs a rank", 8), ("1 GPU a rank", 1)):
            times = []
            for _ in range(TRIES):
                ledger = Ledger(flat(512, kai_fabric()))
                ledger.submit(job(PerNode(gpus), 512, topology=Topology("", "unit")))
                decisions, seconds, _ = timed(ledger, self._policy)
                assert len(decisions) == 1
                times.append(seconds * 1e3)
            self._out.emit(f"kai-gang, {words}", median(times), "ms", 48_700)

    def kai_cannot_fit(self) -> None:
        """The verdict with its numbers: 10 ranks of 8 GPUs where all nodes are full of one-GPU jobs; and a gang for
        which three times its need is free in all, and no domain of the level that it requires holds it."""
        times = []
        for _ in range(TRIES):
            ledger = Ledger(flat(500))
            for _ in range(4000):
                ledger.submit(job(PerNode(1)))
            ledger.enact(timed(ledger, self._policy)[0])
            ledger.submit(job(PerNode(8), 10))
            times.append(self._verdict(ledger, "wait.gpus"))
        self._out.emit("kai-cannot-fit", median(times), "ms", 249_500)
        times = []
        for _ in range(TRIES):
            ledger = Ledger(flat(512, kai_fabric()))
            for _ in range(512):
                ledger.submit(job(PerNode(8), 1))
            busy = timed(ledger, self._policy)[0]
            ledger.enact(busy)
            for start in busy:  # half of every rack, and so 8 nodes of each block, and 256 in all
                if int(start.placements[0].node[1:]) % 2:
                    ledger.end(start.attempt.job)
            ledger.submit(job(PerNode(8), 12, topology=Topology("block")))
            times.append(self._verdict(ledger, "wait.domain"))
        self._out.emit("cannot-fit in one domain", median(times), "ms")

    def _verdict(self, ledger: Ledger, code: str) -> float:
        """Milliseconds from the pass to the sentence of the last job's class."""
        last = list(ledger.state.classes.values())[-1]
        begun = time.perf_counter()
        told = Told()
        decide(ledger.state, self._policy, ledger.now_us, BUDGET, told)
        reason = told.waits.get(last.key) if told.waits else None
        taken = (time.perf_counter() - begun) * 1e3
        assert reason is not None
        assert reason.code == code, reason
        say(f"  {reason.sentence()}")
        return taken

    def own(self) -> None:
        """First pass, steady passes, a quiet pass and memory, for each number of nodes in NODES."""
        for word in self._options.text("NODES").split(","):
            self._own(int(word))

    def _own(self, nodes: int) -> None:
        options = self._options
        seed, waiting = options.count("SEED"), options.count("WAITING") * nodes // 10_000
        own = Own(nodes, waiting, options.count("SHAPES"), 30, seed)
        case = f"own, {nodes} nodes, seed {seed}"
        gc.collect()
        gc.freeze()
        gc.disable()
        decisions, seconds, _ = timed(own.ledger, self._policy)
        self._out.emit(f"{case}: first pass", len(decisions) / seconds, "starts/s")
        self._out.emit(f"{case}: started of {waiting}", len(decisions), "jobs")
        own.ledger.enact(decisions)
        self._steady(own, case, [start.attempt.job for start in decisions])
        gc.enable()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        self._out.emit(f"{case}: peak memory of the process", peak, "GB")

    def _steady(self, own: Own, case: str, running: list[int]) -> None:
        """100 random ends and 100 arrivals before each pass; every waiting class is told its reason's code."""
        times: list[float] = []
        decisions: tuple[Start, ...] = ()
        ledger, started = own.ledger, 0
        passes = self._options.count("PASSES")
        for number in range(
            passes + 1
        ):  # the first one takes in what the first pass has left, and is not counted
            for _ in range(min(100, len(running))):
                at = own.dice.randrange(len(running))
                running[at], running[-1] = running[-1], running[at]
                ledger.end(running.pop())
            for _ in range(100):
                own.arrive()
            ledger.now_us += 10_000_000
            gc.collect(0 if number % 100 else 2)
            decisions, seconds, _ = timed(ledger, self._policy)
            if number:
                times.append(seconds * 1e3)
            ledger.enact(decisions)
            started += len(decisions)
            running += [start.attempt.job for start in decisions]
        say(f"  {started / passes:.1f} starts a pass, {len(ledger.state.classes)} classes wait")
        self._out.emit(f"{case}: steady pass, p50 of {passes}", percentile(times, 50), "ms")
        self._out.emit(f"{case}: steady pass, p99 of {passes}", percentile(times, 99), "ms")
        while decisions:
            decisions = timed(ledger, self._policy)[0]
            ledger.enact(decisions)
        quiet = timed(ledger, replace(self._policy))[1]
        self._out.emit(f"{case}: quiet pass", quiet * 1e3, "ms")


def timed(ledger: Ledger, policy: Policy) -> tuple[tuple[Start, ...], float, Told]:
    """A pass and its seconds."""
    told = Told()
    begun = time.perf_counter()
    decisions = decide(ledger.state, policy, ledger.now_us, BUDGET, told)
    return decisions, time.perf_counter() - begun, told


def main() -> int:
    """Run the cases that CASES names."""
    options = Options(
        CASES=",".join(CASES), NODES="10000", PASSES=1000, WAITING=100_000, SHAPES=1000, SEED=1, KERNEL="best"
    )
    bench = Bench(options)
    for case in options.text("CASES").split(","):
        if case not in CASES:
            say(f"error: CASES={case}: known are {', '.join(CASES)}")
            return 2
        getattr(bench, case.replace("-", "_"))()
    return 0


if __name__ == "__main__":
    sys.exit(main())
