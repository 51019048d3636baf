"""Traces in the Standard Workload Format: 18 numbers a line, comments after a semicolon.

Comes in: lines. Goes out: a `Trace`, or TraceError with every fault. Called by: traces. The format is that of the
Parallel Workloads Archive (Feitelson and others, version 2.2); -1 stands for what is not known.

Processors are cores of one task each, or GPUs if the caller says so. Memory (kilobytes a processor) is that asked for.
Jobs that never ran (run time -1, or no processors) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model.job import JobSpec, LaunchKind, PerNode, Request
from orchestrator.simulate.cells import SECOND
from orchestrator.simulate.faults import SHOWN, Faults, TraceFault
from orchestrator.simulate.trace import Trace, TraceBuilder

FIELDS = (
    "job", "submit", "wait", "run", "processors", "cpu", "memory", "requested processors", "requested time",
    "requested memory", "status", "user", "group", "executable", "queue", "partition", "preceding job", "think time",
)  # fmt: skip
KIB = 1024
JOB, SUBMIT, RUN, USED, ASKED, LIMIT, MEMORY, USER, QUEUE = 0, 1, 3, 4, 7, 8, 9, 11, 14


def read_swf(
    lines: Iterator[str], file: str, queue: str, queues: tuple[str, ...], *, gpus: bool = False
) -> Trace:
    """The trace of these lines. A job's queue number N is the queue named `N` or `queueN` if the cluster has it, else
    `queue`."""
    faults, builder = Faults(), TraceBuilder()
    for number, raw in enumerate(lines, start=1):
        text = raw.split(";", 1)[0].strip()
        if not text:
            continue
        row = _numbers(number, raw.rstrip("\r\n"), text.split(), faults)
        if row is not None:
            _take(builder, row, queue, queues, gpus)
    faults.raise_any(file)
    return builder.build()


def _numbers(number: int, raw: str, words: list[str], faults: Faults) -> list[float] | None:
    if len(words) != len(FIELDS):
        message = f"{len(words)} numbers, and a line of this format has {len(FIELDS)}"
        faults.add(TraceFault(number, 1, "", "trace.bad-line", message, "", raw[:SHOWN], max(len(raw), 1)))
        return None
    found: list[float] = []
    at = 0
    for name, word in zip(FIELDS, words, strict=True):
        at = raw.index(word, at)
        try:
            found.append(float(word))
        except ValueError:
            message = f"{name}: '{word[:40]}' is no number"
            faults.add(
                TraceFault(number, at + 1, name, "trace.bad-value", message, "", raw[:SHOWN], len(word))
            )
            found.append(-1)
        at += len(word)
    if not all(abs(value) < 1e12 for value in found):
        faults.add(
            TraceFault(number, 1, "", "trace.bad-value", "a number is too large", "", raw[:SHOWN], len(raw))
        )
        return None
    return found


def _take(builder: TraceBuilder, row: list[float], queue: str, queues: tuple[str, ...], gpus: bool) -> None:
    processors = int(row[ASKED]) if row[ASKED] > 0 else int(row[USED])
    if row[RUN] < 0 or processors <= 0 or row[SUBMIT] < 0:
        return
    memory = int(row[MEMORY]) * KIB if row[MEMORY] > 0 else 0
    share = PerNode(gpus=1, memory=memory) if gpus else PerNode(cores=1, memory=memory)
    numbered = f"{int(row[QUEUE])}"
    names = [name for name in (numbered, f"queue{numbered}") if name in queues]
    spec = JobSpec(
        "simulated",
        Request(tasks=processors, per_task=share),
        ("simulated",),
        queue=names[0] if names else queue,
        launch=LaunchKind.RANKS,
        time_limit_s=int(row[LIMIT]) if row[LIMIT] > 0 else 0,
    )
    builder.add(
        spec,
        submit_us=int(row[SUBMIT] * SECOND),
        run_us=int(row[RUN] * SECOND),
        user=f"user{int(row[USER])}" if row[USER] >= 0 else "user",
        name=str(int(row[JOB])),
    )
