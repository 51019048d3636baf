"""The agent's end of the nursery: asks for workers, learns their pids, makes another nursery when one is gone.

Comes in: requests of the daemon. Goes out: a call with the worker's pid and start, or with 0 if that request was
lost with its nursery. Called by: main (the first fork, early), the daemon.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.agent import log, nursery
from orchestrator.agent.loop import READ, Loop

Started = Callable[[int, int], None]  # pid and start in ticks since boot; 0, 0: try again
FAREWELL_S = 2.0
MOST_AT_ONCE = 64  # requests that wait for their pid, so that neither end of the socket ever blocks for long


@dataclass(slots=True)
class _Asked:
    message: bytes
    fds: tuple[int, ...]
    started: Started


class Starter:
    """One nursery at a time."""

    def __init__(self) -> None:
        self._sock, self.pid = _fork_nursery()
        self.forked: Callable[[int], None] = lambda _pid: None  # called with each further nursery
        self._loop: Loop | None = None
        self._next_id = 1
        self._queue: deque[tuple[int, _Asked]] = deque()
        self._asked: dict[int, _Asked] = {}

    def attach(self, loop: Loop) -> None:
        """Hear answers through this loop from now on."""
        self._loop = loop
        loop.watch(self._sock.fileno(), READ, self._ready)

    def ask(
        self, do: str, directory: str, started: Started, *, fds: tuple[int, ...] = (), **more: Any
    ) -> int:
        """A worker that does `do` in the attempt's folder; the request's number. Descriptors are passed on and
        closed here."""
        number = self._next_id
        self._next_id += 1
        message = json.dumps({"id": number, "do": do, "dir": directory, **more}).encode()
        self._queue.append((number, _Asked(message, fds, started)))
        self._push()
        return number

    def reap(self) -> None:
        """Take note of nurseries of an earlier life of this process, which nobody else waits for."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    def close(self) -> None:
        """Let the nursery go; its workers live on."""
        if self._loop is not None:
            self._loop.forget(self._sock.fileno())
        self._sock.close()

    def wait(self) -> None:
        """After `close`: until it and its idle shepherds are gone, or a moment has passed."""
        end = time.monotonic() + FAREWELL_S
        try:
            while time.monotonic() < end and not os.waitpid(self.pid, os.WNOHANG)[0]:
                time.sleep(0.002)
        except ChildProcessError:
            pass

    def _push(self) -> None:
        while self._queue and len(self._asked) < MOST_AT_ONCE:
            number, asked = self._queue.popleft()
            self._asked[number] = asked
            try:
                socket.send_fds(self._sock, [asked.message], list(asked.fds))
            except OSError:
                pass  # the nursery is gone: that is heard from the loop, with all that it had not answered
            for fd in asked.fds:
                os.close(fd)

    def _ready(self, _: int) -> None:
        try:
            data = self._sock.recv(4096)
        except OSError:
            data = b""
        if not data:
            self._again()
            return
        reply = json.loads(data)
        asked = self._asked.pop(reply["id"], None)
        self._push()
        if asked is not None:
            asked.started(reply["pid"], reply["start"])

    def _again(self) -> None:
        """Another nursery; requests that were not answered may or may not have made a worker."""
        log.error("the nursery process is gone; another one is made")
        assert self._loop is not None
        self.close()
        _reap(self.pid)
        self._sock, self.pid = _fork_nursery()
        self.forked(self.pid)
        self._loop.watch(self._sock.fileno(), READ, self._ready)
        lost, self._asked = self._asked, {}
        for asked in lost.values():
            asked.started(0, 0)
        self._push()


def _fork_nursery() -> tuple[socket.socket, int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            nursery.serve(theirs)
        finally:
            os._exit(1)
    theirs.close()
    return ours, pid


def _reap(pid: int) -> None:
    """It may have closed its socket without ending: then it is ended."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
