"""What the system tests run as jobs: ranks that leave a trace of every start, print numbered lines, wait at gates.

Comes in: numbers of ranks and lines, a folder for traces. Goes out: job documents, and what their traces and outputs
must be. Called by: harness, tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.processes import TESTER, tester

# One write with O_APPEND at the start and one at the end; between them numbered lines, perhaps with pauses, perhaps a
# wait at the gate: a pipe from which each rank takes one byte.
RANK = """
echo "start $GANGLINE_JOB_ID/$GANGLINE_ATTEMPT $GANGLINE_RANK $$" >> "$TRACE"
i=0
while [ $i -lt $LINES ]; do
  i=$((i + 1))
  echo "$GANGLINE_JOB_ID/$GANGLINE_ATTEMPT rank $GANGLINE_RANK line $i of $LINES"
  [ -z "$PAUSE" ] || [ $((i % 10)) -ne 0 ] || sleep $PAUSE
done
[ -z "$GATE" ] || read go < "$GATE"
echo "end $GANGLINE_JOB_ID/$GANGLINE_ATTEMPT $GANGLINE_RANK $$" >> "$TRACE"
exit $CODE
"""


class Gate:
    """A named pipe at which ranks wait; `open` lets everyone through, now and later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path, 0o666)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def open(self) -> None:
        """Let all pass."""
        with suppress(BlockingIOError):
            os.write(self._fd, b"\n" * 1000)

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._fd)


@dataclass(frozen=True, slots=True)
class Work:
    """What each rank of a job does. `pause` (seconds, as sleep(1) takes it) comes after every tenth line."""

    lines: int = 3
    pause: str = ""
    gate: Gate | None = None
    code: int = 0

    def env(self, trace: Path) -> dict[str, str]:
        """Its variables."""
        gate = str(self.gate.path) if self.gate is not None else ""
        return {
            "TRACE": str(trace),
            "LINES": str(self.lines),
            "PAUSE": self.pause,
            "GATE": gate,
            "CODE": str(self.code),
        }

    def output(self, job: int, attempt: int, rank: int) -> str:
        """All that a rank prints."""
        return "".join(
            f"{job}/{attempt} rank {rank} line {number} of {self.lines}\n"
            for number in range(1, self.lines + 1)
        )


def job_document(name: str, **spec: Any) -> dict[str, Any]:
    """A job document. Its ranks carry the mark by which a later run finds what a killed one has left."""
    env = {TESTER: tester(), **spec.pop("env", {})}
    return {
        "apiVersion": "gangline/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": spec | {"env": env},
    }


def single(tasks: int = 1, gpus: int = 1) -> dict[str, Any]:
    """Tasks wherever they fit."""
    return {"tasks": tasks, "per_task": {"gpus": gpus}}


def gang(nodes: int = 2, tasks: int = 2, gpus: int = 2) -> dict[str, Any]:
    """So many tasks on each of so many nodes."""
    return {"nodes": nodes, "tasks_per_node": tasks, "per_node": {"gpus": gpus}}


# --- traces -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trace:
    """One line that a rank has left: `what` is `start` or `end`."""

    what: str
    job: int
    attempt: int
    rank: int
    pid: int


def read_traces(path: Path) -> list[Trace]:
    """All traces in the order in which they were written."""
    if not path.exists():
        return []
    found: list[Trace] = []
    for line in path.read_text().splitlines():
        what, attempt, rank, pid = line.split()
        job, _, number = attempt.partition("/")
        found.append(Trace(what, int(job), int(number), int(rank), int(pid)))
    return found


def check_traces(traces: Iterable[Trace]) -> None:
    """No rank of an attempt started twice, and nothing of an attempt lived on when the next one had started."""
    started: set[tuple[int, int, int]] = set()
    newest: dict[int, int] = {}
    for trace in traces:
        key = (trace.job, trace.attempt, trace.rank)
        if trace.what == "start":
            assert key not in started, f"rank {trace.rank} of {trace.job}/{trace.attempt} was started twice"
            started.add(key)
            newest[trace.job] = max(newest.get(trace.job, 0), trace.attempt)
        assert trace.attempt == newest[trace.job], f"promise 4: {trace} beside attempt {newest[trace.job]}"
