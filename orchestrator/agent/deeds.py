"""What a worker can be asked to do once, besides running an attempt: the one list of such deeds.

Comes in: a request of the agent, in a process of its own. Goes out: what the deed does. Called by: the nursery.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from typing import Any

from orchestrator.agent import housekeeping, layout, mop, reader
from orchestrator.model.clock import SystemClock

Request = dict[str, Any]


def do_deed(request: Request, fds: list[int], siblings: frozenset[int]) -> None:
    """`fds`: descriptors that came with the request; `siblings`: the nursery's living workers."""
    _DEEDS[request["do"]](request, fds, siblings)


def _mop(request: Request, _fds: list[int], siblings: frozenset[int]) -> None:
    mop.run(request["dir"], SystemClock(), siblings)


def _read(request: Request, fds: list[int], _siblings: frozenset[int]) -> None:
    span = reader.Span(request["path"], request["offset"], request["limit"], request["wait_s"])
    reader.run(request["dir"], span, fds[0])


def _purge(request: Request, _fds: list[int], _siblings: frozenset[int]) -> None:
    """The plan goes first: a shepherd that claims what is being taken away finds no plan, and starts nothing."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(request["dir"], layout.PLAN))
    shutil.rmtree(request["dir"])


def _sweep(request: Request, _fds: list[int], _siblings: frozenset[int]) -> None:
    os.nice(19)
    housekeeping.run(request["dir"], housekeeping.Bounds(**request["bounds"]), request["spare"])


_DEEDS: dict[str, Callable[[Request, list[int], frozenset[int]], None]] = {
    "mop": _mop,
    "read": _read,
    "purge": _purge,
    "sweep": _sweep,
}
