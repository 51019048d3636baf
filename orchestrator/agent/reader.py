"""Reads a range of an output file that the job named, with the user's rights, in a process of its own.

Comes in: an attempt's folder, a path, offset, limit and the seconds to wait, the writing end of a pipe. Goes out:
through the pipe one line `SIZE\\n` (-1: no such file), then the bytes. Called by: the nursery, for the daemon: a
user's path may lie on a file server that hangs, or be a link to what is not theirs.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass

from orchestrator.agent.identity import Problem, acting_as, resolve
from orchestrator.agent.worker import read_plan

LOOK_S = 0.1  # between two looks while waiting for bytes


@dataclass(frozen=True, slots=True)
class Span:
    """What is asked for: at most `limit` bytes of the file at `path` from `offset`, waiting `wait_s` for some."""

    path: str
    offset: int
    limit: int
    wait_s: int


def run(directory: str, span: Span, pipe: int) -> None:
    """Write the answer and return; a reader that went away ends it silently."""
    plan = read_plan(directory)
    try:
        identity = resolve(plan.owner, run_as_self=plan.run_as_self, min_uid=plan.min_uid)
        with acting_as(identity):
            fd = os.open(span.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Problem("no-file", f"{span.path} is no plain file")
    except (Problem, OSError):
        _write_all(pipe, b"-1\n")
        return
    size = _wait_for(fd, span)
    data = os.pread(fd, span.limit, span.offset) if size > span.offset else b""
    _write_all(pipe, b"%d\n" % size + data)


def _wait_for(fd: int, span: Span) -> int:
    end = time.monotonic() + span.wait_s
    while True:
        size = os.fstat(fd).st_size
        if size > span.offset or time.monotonic() >= end:
            return size
        time.sleep(LOOK_S)


def _write_all(pipe: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(pipe, data) :]
    except BrokenPipeError:
        pass
