"""`make bench-openb`: how much of a cluster Gangline's placement fills on the openb traces, beside FGD and BestFit.

Comes in: BENCH_TRACES, BENCH_SEEDS, BENCH_CHURN, BENCH_COMPILED; GANGLINE_DATA. Goes out: figures as JSON lines.
Called by: the Makefile. docs/benchmarks.md says what each figure is and how it is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from orchestrator.ledger.ask import Ask
from orchestrator.scheduler import kernel
from orchestrator.scheduler.mix import typical
from orchestrator.scheduler.presets import FILLING, STANDARD
from orchestrator.scheduler.waste import Costs
from tests.bench import common, openb_data, openb_run
from tests.bench.common import Figures, Options, refuse, say, workplace
from tests.bench.openb_data import Pod, Trace
from tests.bench.openb_policies import BestFit, Fgd, Waste
from tests.bench.openb_run import XS, Policy

CHURN_TRACES = ["default", "cpu250", "gpushare40", "gpushare100", "gpuspec33", "multigpu20"]
CHURN_SEEDS = (62, 63)  # the study's own, kept so that figures can be compared
CHURN_LOADS = (0.95, 1.1)
CHURN_ARRIVALS = 60_000
TIES = (
    "ties: every policy takes the node of the lowest rank (a permutation drawn from the seed, the same for all); "
    "filling and standard have integer costs, FGD and BestFit integer scores 0..100; within a node the fuller device, "
    "then the lower slot (FGD: the lowest slot of the best score)"
)


class Seen(NamedTuple):
    """Of one trace and x: ours, and what the others reached here and in the authors' runs."""

    filling: float
    standard: float
    fgd: float
    best_fit: float
    published: float


def main() -> None:
    """Fill (or churn) each trace once a seed under each policy."""
    options = Options(TRACES="", SEEDS="", CHURN=0, COMPILED=1)
    data = Path(os.environ.get("GANGLINE_DATA") or "/")
    if not (data / "fgd-openb").is_dir():
        refuse("GANGLINE_DATA must name the folder that holds fgd-openb and fgd-results")
    score = kernel.best(compiled=bool(options.count("COMPILED")))
    churning = bool(options.count("CHURN"))
    traces = _words(
        options.text("TRACES"), CHURN_TRACES if churning else openb_data.TRACES, openb_data.TRACES
    )
    seeds = _seeds(options.text("SEEDS"), CHURN_SEEDS if churning else tuple(range(42, 52)))
    with workplace() as folder:
        figures = Figures("openb", folder)
        say(f"scores by {kernel.name(score)}; {TIES}")
        (_churn if churning else _fill)(figures, data, traces, seeds, score)


def _words(text: str, default: list[str], known: list[str]) -> list[str]:
    asked = [word for word in text.split(",") if word] or default
    for word in asked:
        if word not in known:
            refuse(f"TRACES={word}: known are {', '.join(known)}")
    return asked


def _seeds(text: str, default: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word) or default
    except ValueError:
        refuse(f"SEEDS={text}: expected whole numbers with commas")


def _policies(trace: Trace, mix: Mapping[Ask, int], score: Costs) -> dict[str, Callable[[], Policy]]:
    return {
        "filling": lambda: Waste(mix, trace.nodes, FILLING, score),
        "standard": lambda: Waste(mix, trace.nodes, STANDARD, score),
        "fgd": lambda: Fgd(mix, trace.nodes),
        "best_fit": BestFit,
    }


# --- filling ----------------------------------------------------------------------------------------------------------


def _fill(figures: Figures, data: Path, traces: list[str], seeds: tuple[int, ...], score: Costs) -> None:
    theirs = openb_data.published(data, openb_data.FGD)
    for name in traces:
        trace = openb_data.load(data, name)
        mean = {
            x: _mean([value for (of, _, at), value in theirs.items() if (of, at) == (name, x)]) for x in XS
        }
        rows: dict[int, list[Seen]] = {x: [] for x in XS}
        for seed in seeds:
            reached, seconds = _fill_once(trace, seed, score)
            for x in XS:
                found = {policy: values[x] for policy, values in reached.items()}
                seen = Seen(**found, published=theirs.get((name, seed, x), mean[x]))
                _emit(figures, f"{name}/seed={seed}/x={x}", seen, seconds=seconds)
                rows[x].append(seen)
        for x in XS:
            ours = Seen(*(_mean([row[at] for row in rows[x]]) for at in range(len(Seen._fields))))
            _emit(figures, f"{name}/mean/x={x}", ours._replace(published=mean[x]), seeds=len(seeds))


def _fill_once(trace: Trace, seed: int, score: Costs) -> tuple[dict[str, dict[int, float]], float]:
    """What each policy reached at each of XS, and the seconds of the filling one, its tables included."""
    pods = openb_run.arrivals(trace, seed)
    mix = typical(openb_data.shapes(trace))
    reached, seconds = {}, 0.0
    for name, make in _policies(trace, mix, score).items():
        begun = time.perf_counter()
        reached[name] = openb_run.fill(trace, pods, make(), seed)
        seconds = seconds or time.perf_counter() - begun
    return reached, seconds


def _emit(figures: Figures, case: str, seen: Seen, **more: float) -> None:
    figures.emit(
        f"openb/{case}",
        seen.filling,
        "%",
        seen.published,
        standard=seen.standard,
        fgd_here=seen.fgd,
        bestfit_here=seen.best_fit,
        **more,
    )
    say(
        f"{case}: filling {seen.filling:.2f}, standard {seen.standard:.2f}, "
        f"FGD {seen.fgd:.2f} (published {seen.published:.2f}), BestFit {seen.best_fit:.2f}"
    )


def _mean(values: list[float] | tuple[float, ...]) -> float:
    return sum(values) / len(values) if values else 0.0


# --- churn ------------------------------------------------------------------------------------------------------------


def _churn(figures: Figures, data: Path, traces: list[str], seeds: tuple[int, ...], score: Costs) -> None:
    for name in traces:
        trace = openb_data.load(data, name)
        mix = typical(openb_data.shapes(trace))
        each = {seed: openb_run.arrivals(trace, seed) for seed in seeds}
        for load in CHURN_LOADS:
            reached = {
                policy: _mean([_churn_once(trace, each[seed], make(), seed, load) for seed in seeds])
                for policy, make in _policies(trace, mix, score).items()
            }
            case = f"openb-churn/{name}/load={load}"
            figures.emit(
                case,
                reached["standard"],
                "%",
                fgd_here=reached["fgd"],
                bestfit_here=reached["best_fit"],
                filling=reached["filling"],
                seeds=len(seeds),
            )
            say(f"{case}: " + ", ".join(f"{policy} {value:.2f}" for policy, value in reached.items()))


def _churn_once(trace: Trace, pods: list[Pod], policy: Policy, seed: int, load: float) -> float:
    return openb_run.churn(trace, pods, policy, seed, load, CHURN_ARRIVALS)


if __name__ == "__main__":
    common.run(main)
