"""Gangline's own traces: comma-separated, with a first line that names the columns, in any order.

Comes in: lines. Goes out: a `Trace`, or TraceError with every fault. Called by: traces. docs/simulate.md lists the
columns; a test holds it to `COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model.job import (
    Checkpoint,
    JobSpec,
    LaunchKind,
    PerNode,
    Request,
    Retries,
    Topology,
    Workload,
)
from orchestrator.simulate.cells import LARGEST, Row, count, flag, microseconds, segment, size, table, whole
from orchestrator.simulate.faults import SHOWN, Faults, TraceFault, suggestion
from orchestrator.simulate.trace import Special, Trace, TraceBuilder

COLUMNS: dict[str, str] = {
    "job": "its name in the output; its number in the file otherwise",
    "submit_s": "when it is submitted, in seconds since the trace's zero (needed)",
    "run_s": "how long it runs, if nothing stops it (needed, unless a run_s@MODEL column says it)",
    "run_s@MODEL": "the same on GPUs of that model",
    "nodes": "nodes of the gang; without it and without tasks: one task",
    "tasks": "tasks of the gang; nodes or tasks, not both",
    "gpus": "GPUs of each node, or of each task",
    "gpu_milli": "thousandths of one GPU, in place of gpus",
    "gpu_memory": "bytes of GPU memory of each GPU, as in 40GiB",
    "gpu_model": "models that will do, with | between them; empty: any",
    "mig": "MIG profile, of which it takes gpus instances",
    "cores": "cores of each node, or of each task",
    "memory": "memory of the same, in bytes or as in 64GiB",
    "exclusive": "1: its nodes are nobody else's",
    "queue": "its queue; the first one of the cluster otherwise",
    "user": "whose it is",
    "workload": "serving, training, batch or interactive",
    "priority": "higher goes first",
    "time_limit_s": "its time limit; empty: the default of its queue, workload and policy",
    "required": "topology level within which it must stay",
    "preferred": "topology level within which it should stay",
    "segment": "NODES:LEVEL, as in 4:unit: each so many nodes of the gang stay within one domain of that level",
    "checkpoint_s": "what it keeps of its work when it is stopped: all but what came after the last multiple of this",
    "fail_after_s": "a rank fails so long after each start",
    "fail_attempts": "in the first so many attempts only",
    "job_retries": "further attempts after such a failure",
    "node_retries": "further attempts after the loss of a node",
}
PER_MODEL = "run_s@"
NOT_SHAPE = ("job", "submit_s", "run_s", "user", "fail_after_s", "fail_attempts")
DEFAULT_NODE_RETRIES = Retries().node_failure


def read_csv(lines: Iterator[str], file: str, queue: str) -> Trace:
    """The trace of these lines; `queue` is that of jobs that name none."""
    faults = Faults()
    rows = table(lines, faults)
    first = next(rows, (0, "", []))
    _must_be_header(first, faults, file)
    columns = _header(first, faults)
    absent = frozenset(_needed(columns)) - columns.keys()
    builder, shapes = TraceBuilder(), _Shapes(columns, queue)
    for number, text, values in rows:
        if len(values) != len(columns):
            message = f"{len(values)} cells, and the first line names {len(columns)} columns"
            faults.add(TraceFault(number, 1, "", "trace.bad-line", message, "", text[:SHOWN], len(text)))
            continue
        _take(builder, shapes, Row(number, text, values, columns, faults, absent))
    if not faults.found and not columns:
        faults.add(
            TraceFault(
                0, 0, "", "trace.empty", "there is no line in the file", "the first one names the columns"
            )
        )
    faults.raise_any(file)
    return builder.build()


def _must_be_header(first: tuple[int, str, list[str]], faults: Faults, file: str) -> None:
    """A first line without any column of a trace is that of another kind of file: nothing else is worth telling."""
    number, text, names = first
    if not names or any(name.strip() in COLUMNS or name.strip().startswith(PER_MODEL) for name in names):
        return
    message, hint = (
        "this line names no column of a trace",
        "the first line names them, as in job,submit_s,run_s,gpus",
    )
    faults.add(TraceFault(number, 1, "", "trace.no-header", message, hint, text[:SHOWN], len(text)))
    faults.raise_any(file)


def _needed(columns: dict[str, int]) -> tuple[str, ...]:
    per_model = any(name.startswith(PER_MODEL) for name in columns)
    return ("submit_s",) if per_model else ("submit_s", "run_s")


def _header(first: tuple[int, str, list[str]], faults: Faults) -> dict[str, int]:
    number, text, names = first
    columns: dict[str, int] = {}
    for at, raw in enumerate(names):
        name = raw.strip()
        place = sum(len(one) + 1 for one in names[:at]) + 1
        if name in columns:
            message = f"the column '{name}' is there twice"
            faults.add(
                TraceFault(number, place, name, "trace.duplicate-column", message, "", text[:SHOWN], len(raw))
            )
        elif name not in COLUMNS and not (name.startswith(PER_MODEL) and len(name) > len(PER_MODEL)):
            hint = suggestion(name, [known for known in COLUMNS if known != "run_s@MODEL"])
            faults.add(
                TraceFault(
                    number,
                    place,
                    name,
                    "trace.unknown-column",
                    f"unknown column '{name}'",
                    hint,
                    text[:SHOWN],
                    len(raw),
                )
            )
        columns[name] = at
    if not columns:
        return columns
    for needed in _needed(columns):
        if needed not in columns:
            message = f"the column '{needed}' is missing"
            faults.add(
                TraceFault(
                    number,
                    1,
                    needed,
                    "trace.missing-column",
                    message,
                    COLUMNS[needed],
                    text[:SHOWN],
                    len(text),
                )
            )
    return columns


def _take(builder: TraceBuilder, shapes: _Shapes, row: Row) -> None:
    found = len(row.faults.found)
    run_on = shapes.run_on(row)
    if run_on and not row.get("run_s"):
        run_us = max(run_us for _, run_us in run_on)
    else:
        run_us = row.needed("run_s", microseconds, "number of seconds", 0)
    special = Special(
        run_on,
        row.read("fail_after_s", microseconds, "number of seconds", 0),
        row.read("fail_attempts", count, "whole number", 0),
    )
    submit_us = row.needed("submit_s", microseconds, "number of seconds", 0)
    spec = shapes.shape(builder, row)
    if len(row.faults.found) == found:
        user = row.get("user") or "user"
        builder.add(spec, submit_us=submit_us, run_us=run_us, user=user, name=row.get("job"), special=special)


class _Shapes:
    """What jobs ask for, read once for all rows whose cells are the same."""

    def __init__(self, columns: dict[str, int], queue: str) -> None:
        self._queue = queue
        self._models = [
            (name.removeprefix(PER_MODEL), name) for name in columns if name.startswith(PER_MODEL)
        ]
        self._at = [
            at for name, at in columns.items() if name not in NOT_SHAPE and not name.startswith(PER_MODEL)
        ]
        self._known: dict[tuple[str, ...], int] = {}

    def run_on(self, row: Row) -> tuple[tuple[str, int], ...]:
        """Run times by model, where the row has them."""
        if not self._models:
            return ()
        return tuple(
            (model, row.read(name, microseconds, "number of seconds", 0))
            for model, name in self._models
            if row.get(name)
        )

    def shape(self, builder: TraceBuilder, row: Row) -> int:
        """The number of what the row asks for; 0 if it has faults."""
        key = tuple(row.values[at] for at in self._at)
        known = self._known.get(key)
        if known is not None:
            return known
        found = len(row.faults.found)
        spec = _spec(row, self._queue)
        if len(row.faults.found) > found:
            return 0
        known = self._known[key] = builder.shape(spec)
        return known


def _spec(row: Row, queue: str) -> JobSpec:
    limit_us = row.read("time_limit_s", microseconds, "number of seconds", 0)
    every_us = row.read("checkpoint_s", microseconds, "number of seconds", 0)
    return JobSpec(
        "simulated",
        _request(row),
        ("simulated",),
        queue=row.get("queue") or queue,
        workload=row.read("workload", _workload, "workload", Workload.BATCH),
        launch=LaunchKind.RANKS,
        priority=row.read("priority", whole, "whole number", 0),
        time_limit_s=-(-limit_us // 1_000_000),
        retries=Retries(
            row.read("node_retries", count, "whole number", DEFAULT_NODE_RETRIES),
            row.read("job_retries", count, "whole number", 0),
        ),
        topology=Topology(
            row.get("required"), row.get("preferred"), *row.read("segment", segment, "segment", (0, ""))
        ),
        checkpoint=Checkpoint("job", max(every_us // 1_000_000, 1)) if every_us else Checkpoint(),
    )


def _workload(text: str) -> Workload:
    try:
        return Workload(text)
    except ValueError:
        raise ValueError(suggestion(text, [str(one) for one in Workload])) from None


def _request(row: Row) -> Request:
    nodes = row.read("nodes", count, "whole number", 0)
    tasks = row.read("tasks", count, "whole number", 0)
    if nodes and tasks:
        row.wrong(
            "tasks",
            "trace.exclusive",
            "nodes and tasks can't be given together",
            "leave one of the two empty",
        )
    _segments_fit(row, nodes)
    share, alone = _share(row), row.read("exclusive", flag, "0 or 1", False)
    if nodes:
        return Request(nodes=nodes, per_node=share, exclusive=alone)
    return Request(tasks=tasks or 1, per_task=share, exclusive=alone)


def _segments_fit(row: Row, nodes: int) -> None:
    each, _ = row.read("segment", segment, "segment", (0, ""))
    if each and (not nodes or nodes % each):
        message = f"segment: {nodes} node(s) don't fall into segments of {each}"
        row.wrong("segment", "trace.bad-value", message, "give nodes, a multiple of those of a segment")


def _share(row: Row) -> PerNode:
    gpus = row.read("gpus", count, "whole number", 0)
    milli = row.read("gpu_milli", count, "whole number", 0)
    if milli and gpus:
        row.wrong(
            "gpu_milli",
            "trace.exclusive",
            "gpus and gpu_milli can't be given together",
            "leave one of the two empty",
        )
    if milli > 1000:
        row.wrong(
            "gpu_milli", "trace.bad-value", f"gpu_milli: {milli} is more than one GPU", "whole ones are gpus"
        )
    models = tuple(one.strip() for one in row.get("gpu_model").split("|") if one.strip())
    return PerNode(
        gpus=gpus + (1 if milli == 1000 and not gpus else 0),
        cores=row.read("cores", count, "whole number", 0),
        memory=min(row.read("memory", size, "size", 0), LARGEST),
        gpu_models=models,
        gpu_milli=0 if milli == 1000 else milli,
        gpu_memory=row.read("gpu_memory", size, "size", 0),
        mig=row.get("mig"),
    )
