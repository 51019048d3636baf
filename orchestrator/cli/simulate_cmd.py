"""`simulate` and `replay`: what a policy would do with a trace, and whether a recorded ledger decides the same again.

Comes in: files. Goes out: figures, a document, pictures; the first difference. Called by: the command's table.
Nothing here talks to a controller: the simulator runs in this process, imported when it is needed.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import options
from orchestrator.cli.arguments import COUNT, NUMBER, PATIENCE, SPAN, Whole
from orchestrator.cli.session import current, note
from orchestrator.cli.text import plural
from orchestrator.cli.verbs import Example, verb
from orchestrator.model.errors import GanglineError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.model.cluster import ClusterSpec, SchedulerSpec
    from orchestrator.model.decisions import Start
    from orchestrator.scheduler import Policy
    from orchestrator.simulate.replay import Difference, Replayed
    from orchestrator.simulate.report import Run
    from orchestrator.simulate.settings import Settings
    from orchestrator.simulate.trace import Trace
    from orchestrator.spec import SpecError

SECOND = 1_000_000
INVALID, DIFFERENT = 2, 1
DEFAULTS = "defaults"  # what the policy is called when no file is given
FORMATS = ("auto", "csv", "swf", "openb")


@verb(
    "simulate",
    examples=[
        Example("gangline simulate --cluster cluster.yaml --trace jobs.csv", "waits, use and fairness"),
        Example(
            "gangline simulate --cluster cluster.yaml --trace jobs.csv --against new.yaml --html new.html",
            "two policies side by side, with pictures",
        ),
        Example(
            "gangline simulate --cluster cluster.yaml --trace jobs.csv -o json | jq '.items[0].summary.wait_s'",
            "for a program",
        ),
        Example(
            "gangline simulate --cluster cluster.yaml --trace log.swf.gz --mtbf 30d --seed 7",
            "with nodes that fail",
        ),
    ],
)
@click.option("--cluster", "cluster_file", required=True, metavar="FILE", help="The cluster file.")
@click.option(
    "--trace",
    "trace_file",
    required=True,
    metavar="FILE",
    help="The jobs: CSV, SWF, an openb pod list (.gz too), or a recorded ledger.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="Format of the trace.",
)
@click.option("--policy", metavar="FILE", help="Settings of the scheduler, over those of the cluster file.")
@click.option("--against", metavar="FILE", help="Settings of a second simulation, to compare with.")
@click.option(
    "--time-scale",
    type=float,
    default=1.0,
    show_default=True,
    metavar="N",
    help="Divide all times of the trace by N.",
)
@click.option("--swf-gpus", is_flag=True, help="Processors of an SWF trace are GPUs, not cores.")
@click.option(
    "--grid",
    type=float,
    default=0.0,
    metavar="SECONDS",
    help="Make passes at multiples of this only (0: at once).",
)
@click.option("--until", type=SPAN, metavar="SPAN", help="Stop then, whatever still runs.")
@click.option(
    "--prepare",
    type=float,
    default=0.0,
    metavar="SECONDS",
    help="What a gang over several nodes takes to be ready.",
)
@click.option(
    "--launch",
    type=float,
    default=0.0,
    metavar="SECONDS",
    help="From then, or from the decision, to the first process.",
)
@click.option(
    "--release",
    type=float,
    default=0.0,
    metavar="SECONDS",
    help="From the last process to the proof that it is gone.",
)
@click.option(
    "--mtbf", type=SPAN, metavar="SPAN", help="A node is lost once in this time on average (default: never)."
)
@click.option(
    "--repair",
    type=PATIENCE,
    default="2h",
    show_default=True,
    metavar="SPAN",
    help="A lost node is away so long.",
)
@click.option(
    "--boot",
    type=PATIENCE,
    default="5m",
    show_default=True,
    metavar="SPAN",
    help="Then it boots for so long.",
)
@click.option(
    "--slow-boots",
    type=Whole(0, 1000),
    default=0,
    metavar="N",
    help="Of a thousand boots, so many take --slow-boot.",
)
@click.option(
    "--slow-boot",
    type=SPAN,
    default="45m",
    show_default=True,
    metavar="SPAN",
    help="How long a slow boot takes.",
)
@click.option("--boot-at-start", is_flag=True, help="Nodes boot when the simulation begins, too.")
@click.option(
    "--seed", type=NUMBER, default=0, show_default=True, metavar="N", help="Of when nodes are lost."
)
@click.option("--html", metavar="FILE", help="Write one page with pictures, which needs nothing else.")
@click.option("--png", metavar="FILE", help="Write the same pictures as one PNG (extra `plot`).")
@options.output("table", "json")
def simulate(cluster_file: str, trace_file: str, policy: str | None, against: str | None, **rest: Any) -> int:
    """Say what a policy would do with a trace of jobs.

    The controller's own ledger, limits and scheduler run on a virtual clock, with simulated nodes. The same inputs
    give the same output, to the last byte. Nothing is submitted anywhere.
    """
    cluster = _cluster(cluster_file)
    trace = _trace(trace_file, cluster, rest)
    if cluster is None or trace is None:
        return INVALID
    files = [policy or "", *([against] if against else [])]
    names = _names(files)
    wanted = [_wanted(file, cluster) for file in files]
    if any(one is None for one in wanted):
        return INVALID
    settings = _settings(rest)
    _tell_assumptions(cluster)
    if not len(trace):
        note("note: the trace has no jobs")
    runs = [
        _simulated(name, replace(cluster, scheduler=one[0]), trace, one[1], settings)
        for name, one in zip(names, wanted, strict=True)
        if one is not None
    ]
    _pictures(runs, rest["html"], rest["png"])
    _print(runs)
    return 0


# --- what comes in --------------------------------------------------------------------------------------------------


def _tell_errors(errors: tuple[SpecError, ...]) -> None:
    from orchestrator.spec import render

    if errors:
        note(render(errors))


def _cluster(file: str) -> ClusterSpec | None:
    from orchestrator.spec import load_cluster

    loaded = load_cluster(file)
    _tell_errors(loaded.errors)
    return loaded.cluster


def _trace(file: str, cluster: ClusterSpec | None, rest: dict[str, Any]) -> Trace | None:
    """The trace, or every fault of it as `validate` shows those of a file."""
    if cluster is None:
        return None
    try:
        from orchestrator.simulate.faults import TraceError
        from orchestrator.simulate.traces import is_ledger, load_trace, scaled
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    if not 0 < rest["time_scale"] < 1e9:
        raise InputError(
            "simulate.time-scale",
            "the time scale must be more than 0",
            "1 leaves times as they are",
            "--time-scale",
        )
    if rest["form"] == "auto" and is_ledger(file):
        return scaled(_recorded(file), rest["time_scale"])
    try:
        return load_trace(file, cluster, rest["form"], time_scale=rest["time_scale"], gpus=rest["swf_gpus"])
    except TraceError as error:
        _tell_errors(tuple(_spec_error(error.file, fault) for fault in error.faults))
        return None


def _recorded(file: str) -> Trace:
    """The jobs that a ledger has seen."""
    from orchestrator.ledger.events import from_stored
    from orchestrator.simulate.trace_ledger import read_ledger
    from orchestrator.store.recorded import Recorded

    try:
        found = read_ledger(map(from_stored, Recorded(Path(file)).events(0)))
    except ValueError as error:
        raise GanglineError("ledger.unreadable", f"the ledger can't be read: {error}", "", file) from error
    note(f"note: {len(found.trace)} jobs of the ledger, without {found.left_out} that did not run to an end")
    return found.trace


def _missing(error: ModuleNotFoundError) -> GanglineError:
    hint = "pip install 'gangline[server]', or 'gangline[plot]' for pictures as PNG too"
    return GanglineError("simulate.not-installed", f"the package {error.name} is not installed", hint)


def _spec_error(file: str, fault: Any) -> SpecError:
    from orchestrator.spec import SpecError

    return SpecError(
        file, fault.line, fault.column, "", fault.code, fault.message, fault.hint, fault.length, fault.source
    )


def _names(files: list[str]) -> list[str]:
    """What policies are called: by their files' names, or by the paths where those are the same."""
    short = [Path(file).name.removesuffix(".yaml") if file else DEFAULTS for file in files]
    return short if len(set(short)) == len(short) else [file or DEFAULTS for file in files]


def _wanted(file: str, cluster: ClusterSpec | None) -> tuple[SchedulerSpec, Policy] | None:
    """What the policy file says over the cluster's own settings; None if it has faults."""
    from orchestrator.model.cluster import SchedulerSpec
    from orchestrator.scheduler.policy import policy_by
    from orchestrator.spec.policy import load_policy

    scheduler = cluster.scheduler if cluster is not None else SchedulerSpec()
    if not file:
        return scheduler, policy_by(scheduler)
    loaded = load_policy(file, scheduler)
    _tell_errors(loaded.errors)
    said = loaded.policy
    if said is None:
        return None
    policy = policy_by(said.scheduler)
    limits = dict(policy.default_time_limit_s) | said.default_time_limit_s
    return said.scheduler, replace(
        policy,
        default_time_limit_s=tuple(limits.items()),
        models_ranked=policy.models_ranked if said.models_ranked is None else said.models_ranked,
        compiled=policy.compiled if said.compiled is None else said.compiled,
    )


def _settings(rest: dict[str, Any]) -> Settings:
    from orchestrator.simulate.settings import Faults, Settings

    for name in ("grid", "prepare", "launch", "release"):
        if not 0 <= rest[name] < 1e9:
            raise InputError("simulate.bad-span", f"--{name} must be 0 or more seconds", "", f"--{name}")
    faults = Faults(
        mtbf_us=(rest["mtbf"] or 0) * SECOND,
        repair_us=rest["repair"] * SECOND,
        boot_us=rest["boot"] * SECOND,
        slow_milli=rest["slow_boots"],
        slow_boot_us=rest["slow_boot"] * SECOND,
        at_start=rest["boot_at_start"],
        seed=rest["seed"],
    )
    return Settings(
        grid_us=round(rest["grid"] * SECOND),
        prepare_us=round(rest["prepare"] * SECOND),
        launch_us=round(rest["launch"] * SECOND),
        release_us=round(rest["release"] * SECOND),
        until_us=(rest["until"] or 0) * SECOND,
        faults=faults,
    )


def _tell_assumptions(cluster: ClusterSpec) -> None:
    from orchestrator.simulate.machines import unsaid

    for words in unsaid(cluster):
        note(f"note: {words}")


# --- the simulation -------------------------------------------------------------------------------------------------


def _simulated(name: str, cluster: ClusterSpec, trace: Trace, policy: Policy, settings: Settings) -> Run:
    from orchestrator.simulate import report
    from orchestrator.simulate.settings import Core
    from orchestrator.simulate.world import World

    world = World(cluster, trace, policy, settings, Core(clock_ns=time.perf_counter_ns))
    world.run()
    p50, p99 = report.pass_times(world)
    passes = plural(world.book.passes, "pass", "passes")
    note(f"{name}: {passes}, {p50:.3f} ms at p50, {p99:.3f} ms at p99")
    return report.finished(name, world)


def _pictures(runs: list[Run], html: str | None, png: str | None) -> None:
    if html:
        from orchestrator.simulate.page import page

        _write(html, page(runs).encode(), "--html")
    if png:
        try:
            from orchestrator.simulate.plot import plot
        except ModuleNotFoundError as error:
            raise _missing(error) from None
        _write(png, plot(runs), "--png")


def _write(file: str, data: bytes, option: str) -> None:
    try:
        Path(file).write_bytes(data)
    except OSError as error:
        raise InputError(
            "simulate.unwritable", f"{file} can't be written: {error.strerror}", "check the path", option
        ) from None


def _print(runs: list[Run]) -> None:
    from orchestrator.simulate import report

    if current().structured:
        import json

        body = {"apiVersion": "gangline/v1", "kind": "SimulationList", **report.document(runs)}
        json.dump(body, sys.stdout, ensure_ascii=True, separators=(",", ":"))
        sys.stdout.write("\n")
        return
    from orchestrator.cli.simulate_words import words

    sys.stdout.write(words(runs) + "\n")


# --- replay ---------------------------------------------------------------------------------------------------------


@verb(
    "replay",
    examples=[
        Example("gangline replay /var/lib/gangline/atlas", "what this machine's controller has decided"),
        Example("gangline replay /backup/atlas.ledger", "the same from a backup"),
    ],
)
@click.argument("path", metavar="STATE_DIR|BACKUP")
@click.option("--policy", metavar="FILE", help="Settings of the scheduler, over those of the cluster file.")
@click.option(
    "--work-budget",
    type=COUNT,
    default=100_000,
    show_default=True,
    help="Probes of a pass, as the controller has it.",
)
@options.output("text", "json")
def replay(path: str, policy: str | None, work_budget: int) -> int:
    """Decide again what a ledger has recorded, and compare.

    Exit code 0: every pass decides the same again; 1: one does not, and the first difference is shown. What people
    have used of late counts as the recorded cluster file had it, whatever --policy says of `half_life`.
    """
    if _wanted(policy or "", None) is None:
        return INVALID
    from orchestrator.cli.output import record

    found = _replayed(path, policy or "", work_budget)
    same = found.difference is None
    shown = {
        "events": found.events,
        "passes": found.passes,
        "starts": found.starts,
        "same": same,
        "difference": _plain(found.difference),
    }
    record("Replay", shown, lambda: _replay_words(found))
    return 0 if same else DIFFERENT


def _replayed(path: str, policy_file: str, work_budget: int) -> Replayed:
    """Fold the ledger from its oldest state on, and decide each pass again."""
    try:
        from orchestrator.ledger.events import from_stored
        from orchestrator.ledger.snapshot import VERSION, from_plain
        from orchestrator.ledger.state import State
        from orchestrator.simulate.replay import replay as play
        from orchestrator.store.recorded import Recorded
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    ledger = Recorded(Path(path))
    try:
        snapshot = ledger.snapshot()
        if snapshot is not None and snapshot.version > VERSION:
            raise ValueError(f"snapshot version {snapshot.version} was written by a newer Gangline")
        state = from_plain(snapshot.body) if snapshot is not None else State()
        return play(state, map(from_stored, ledger.events(state.seq)), _policy_for(policy_file), work_budget)
    except (ValueError, KeyError) as error:
        hint = "run the Gangline that wrote it; `gangline server backup --verify` proves a file"
        raise GanglineError("ledger.unreadable", f"the ledger can't be read: {error}", hint, path) from error


def _policy_for(file: str) -> Callable[[ClusterSpec | None], Policy]:
    """The policy for each cluster that was wanted in turn, made once for each."""
    made: list[tuple[ClusterSpec | None, Policy]] = []

    def policy(cluster: ClusterSpec | None) -> Policy:
        if not made or made[-1][0] is not cluster:
            found = _wanted(file, cluster)
            assert found is not None  # it was read before
            made.append((cluster, found[1]))
        return made[-1][1]

    return policy


def _plain(found: Difference | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "after_event": found.seq,
        "t_us": found.t_us,
        "decision": found.at,
        "recorded": _start(found.recorded),
        "decided": _start(found.decided),
    }


def _start(start: Start | None) -> dict[str, Any] | None:
    if start is None:
        return None
    return {
        "attempt": str(start.attempt),
        "devices": {part.node: list(part.slots) for part in start.placements},
        "master": f"{start.master_address}:{start.master_port}",
        "time_limit_s": start.time_limit_s,
    }


def _replay_words(found: Replayed) -> str:
    passes, starts = plural(found.passes, "pass", "passes"), plural(found.starts, "start")
    counted = f"{plural(found.events, 'event')}, {passes}, {starts}"
    difference = found.difference
    if difference is None:
        return f"{counted}: every pass decides the same again"
    lines = [
        f"{counted}, then a difference",
        f"  after event {difference.seq}, decision {difference.at} of the pass",
        f"  recorded: {_start_words(difference.recorded)}",
        f"  decided now: {_start_words(difference.decided)}",
    ]
    return "\n".join(lines)


def _start_words(start: Start | None) -> str:
    if start is None:
        return "nothing more"
    places = ", ".join(f"{part.node} {list(part.slots)}" for part in start.placements)
    limit = f"{start.time_limit_s} s" if start.time_limit_s else "none"
    master = f"{start.master_address}:{start.master_port}"
    return f"attempt {start.attempt} on {places}; rendezvous {master}, time limit {limit}"
