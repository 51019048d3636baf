"""The door for traces: opens a file, packed or not, and finds its format.

Comes in: a path, the cluster that is to run it. Goes out: a `Trace`; TraceError with every fault; InputError for a
file that can't be opened. Called by: cli/simulate_cmd.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.errors import InputError
from orchestrator.simulate import trace_openb
from orchestrator.simulate.trace import Trace
from orchestrator.simulate.trace_csv import read_csv
from orchestrator.simulate.trace_swf import read_swf

SQLITE = b"SQLite format 3\0"  # how such a file begins


def load_trace(
    path: str, cluster: ClusterSpec, form: str = "auto", *, time_scale: float = 1.0, gpus: bool = False
) -> Trace:
    """The trace in a file. `time_scale` divides all its times, time limits too; `gpus`: processors of SWF are GPUs."""
    queues = tuple(queue.name for queue in cluster.queues)
    queue = queues[0] if queues else "default"
    try:
        lines = _lines(path)
        first = next(lines, "")
        lines = chain([first], lines)
        if form == "swf" or (form == "auto" and path.removesuffix(".gz").endswith(".swf")):
            trace = read_swf(lines, path, queue, queues, gpus=gpus)
        elif form == "openb" or (form == "auto" and trace_openb.looks_like(first)):
            trace = trace_openb.read_openb(lines, path, queue)
        else:
            trace = read_csv(lines, path, queue)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            "trace.unreadable", f"{path} can't be read: {why}", "check the path", "--trace"
        ) from None
    except UnicodeDecodeError:
        raise InputError(
            "trace.not-text", f"{path} is no UTF-8 text", "save the file as UTF-8", "--trace"
        ) from None
    return trace if time_scale == 1 else scaled(trace, time_scale)


def is_ledger(path: str) -> bool:
    """Whether it is the folder of a controller's state, or a ledger's own file."""
    try:
        if Path(path).is_dir():
            return True
        with Path(path).open("rb") as stream:
            return stream.read(len(SQLITE)) == SQLITE
    except OSError:
        return False


def _lines(path: str) -> Iterator[str]:
    if path.endswith(".gz"):
        with gzip.open(path, "rt", encoding="utf-8-sig") as stream:
            yield from stream
    else:
        with Path(path).open(encoding="utf-8-sig") as file:
            yield from file


def scaled(trace: Trace, scale: float) -> Trace:
    """The same jobs in a shorter time: all times divided by `scale`."""
    return replace(
        trace,
        shapes=[
            replace(spec, time_limit_s=max(round(spec.time_limit_s / scale), 1) if spec.time_limit_s else 0)
            for spec in trace.shapes
        ],
        submit_us=array("q", (round(at_us / scale) for at_us in trace.submit_us)),
        run_us=array("q", (round(run_us / scale) for run_us in trace.run_us)),
        special={
            index: replace(
                one,
                run_on=tuple((model, round(run_us / scale)) for model, run_us in one.run_on),
                fail_after_us=round(one.fail_after_us / scale),
                launch_us=None if one.launch_us is None else round(one.launch_us / scale),
                sooner_us=tuple(round(us / scale) for us in one.sooner_us),
                decide_us=None if one.decide_us is None else round(one.decide_us / scale),
            )
            for index, one in trace.special.items()
        },
        decide_us=round(trace.decide_us / scale),
    )
