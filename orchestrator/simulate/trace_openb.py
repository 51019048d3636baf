"""The pod lists of the openb trace (USENIX ATC'23, cluster-trace-gpu-v2023): one pod is one job of one task.

Comes in: lines. Goes out: a `Trace`, or TraceError with every fault. Called by: traces.

A pod is submitted at its creation and runs as long as it did: from its scheduling, else its creation, to its deletion.
Cores are rounded up. Nobody has said a time limit, so that pods count as serving, which has none.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model.job import JobSpec, LaunchKind, PerNode, Request, Workload
from orchestrator.simulate.cells import Row, count, microseconds, table
from orchestrator.simulate.faults import SHOWN, Faults, TraceFault
from orchestrator.simulate.trace import Trace, TraceBuilder

NEEDED = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time")
MIB = 1 << 20


def looks_like(header: str) -> bool:
    """Whether a file with that first line is a pod list."""
    return {"cpu_milli", "num_gpu", "gpu_milli"} <= {name.strip() for name in header.split(",")}


def read_openb(lines: Iterator[str], file: str, queue: str) -> Trace:
    """The trace of these lines; times start at the first pod's creation."""
    faults, builder = Faults(), TraceBuilder()
    rows = table(lines, faults)
    number, text, names = next(rows, (0, "", []))
    columns = {name.strip(): at for at, name in enumerate(names)}
    for name in NEEDED:
        if name not in columns:
            message = f"the column '{name}' is missing"
            faults.add(
                TraceFault(
                    number, 1, name, "trace.missing-column", message, "", text[:SHOWN], max(len(text), 1)
                )
            )
    faults.raise_any(file)
    pods = [Row(number, text, values, columns, faults) for number, text, values in rows]
    created = [row.needed("creation_time", microseconds, "number of seconds", 0) for row in pods]
    zero = min(created, default=0)
    for row, at_us in zip(pods, created, strict=True):
        _take(builder, row, at_us, zero, queue)
    faults.raise_any(file)
    return builder.build()


def _take(builder: TraceBuilder, row: Row, created_us: int, zero_us: int, queue: str) -> None:
    begun_us = row.read("scheduled_time", microseconds, "number of seconds", created_us) or created_us
    ended_us = row.needed("deletion_time", microseconds, "number of seconds", 0)
    gpus = row.needed("num_gpu", count, "whole number", 0)
    milli = row.read("gpu_milli", count, "whole number", 0)
    cores = -(-row.needed("cpu_milli", count, "whole number", 0) // 1000)
    memory = row.needed("memory_mib", count, "whole number", 0) * MIB
    models = tuple(one for one in row.get("gpu_spec").split("|") if one)
    shared = gpus == 1 and milli < 1000
    share = PerNode(0 if shared else gpus, cores, memory, models, milli if shared else 0)
    spec = JobSpec(
        "simulated",
        Request(tasks=1, per_task=share),
        ("simulated",),
        queue=queue,
        workload=Workload.SERVING,
        launch=LaunchKind.RANKS,
    )
    builder.add(
        spec,
        submit_us=created_us - zero_us,
        run_us=max(ended_us - max(begun_us, created_us), 0),
        user=row.get("qos") or "user",
        name=row.get("name"),
    )
