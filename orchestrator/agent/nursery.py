"""Makes workers: a small, single-threaded process that the agent forks early, so that an attempt costs no start of an
interpreter, and mostly not even a fork.

Comes in: datagrams from the agent, one request each. Goes out: the pid of each worker; the workers live on by
themselves. Called by: `starter.Starter`, which forks it from the agent. It ends when the agent's end of the socket
closes, and idle shepherds with it; busy workers go on.

A shepherd that has proved its unit gone may serve another attempt: it holds nothing of the last one, and the pages
that it has touched are its own already. It serves one attempt at a time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

from orchestrator.agent import procfs, shepherd, worker
from orchestrator.agent.deeds import do_deed
from orchestrator.model.clock import SystemClock

MAX_REQUEST = 65536  # bytes: requests name folders; what is large lies in them
MOST_IDLE = (
    8  # shepherds that wait for their next attempt: as many as a node full of one-GPU jobs ends at once
)
IDLE_S = 10.0  # after which they end
MOST_ATTEMPTS = 500  # of one shepherd, so that nothing can pile up in it


@dataclass(slots=True)
class _Shepherd:
    sock: socket.socket
    pid: int
    start: int
    idle_since: float = 0.0


class Nursery:
    """The process's state: its shepherds by descriptor, those that are idle in the order in which they became so."""

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._poll = select.poll()
        self._poll.register(agent.fileno(), select.POLLIN)
        self._shepherds: dict[int, _Shepherd] = {}
        self._idle: list[_Shepherd] = []

    def serve(self) -> None:
        """Until the agent is gone."""
        while True:
            for fd, _ in self._poll.poll(IDLE_S * 1000 if self._idle else None):
                if fd == self._agent.fileno():
                    self._request()
                elif fd in self._shepherds:
                    self._heard(self._shepherds[fd])
            self._let_go()

    def _request(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._agent, MAX_REQUEST, 1)
        if not data:
            self._farewell()
        request: dict[str, Any] = json.loads(data)
        if request["do"] == "run":
            made = self._reuse(data) or self._new_shepherd(request)
            pid, start = made.pid, made.start
        else:
            pid = self._fork(request, fds)
            start = procfs.start_of(pid)
        for fd in fds:
            os.close(fd)
        try:
            self._agent.send(json.dumps({"id": request["id"], "pid": pid, "start": start}).encode())
        except OSError:
            os._exit(0)

    def _farewell(self) -> None:
        """The agent is gone: idle shepherds end first, so that whoever waits for this process finds them gone."""
        for each in self._idle:
            each.sock.close()
        for each in self._idle:
            with contextlib.suppress(ChildProcessError):  # the kernel has reaped it
                os.waitpid(each.pid, 0)
        os._exit(0)

    # --- shepherds -------------------------------------------------------------------------------------------------

    def _reuse(self, data: bytes) -> _Shepherd | None:
        while self._idle:
            chosen = self._idle.pop()
            try:
                chosen.sock.send(data)
                return chosen
            except OSError:
                self._forget(chosen)
        return None

    def _new_shepherd(self, request: dict[str, Any]) -> _Shepherd:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._be_shepherd(request, theirs)
        theirs.close()
        made = _Shepherd(ours, pid, procfs.start_of(pid))
        self._shepherds[ours.fileno()] = made
        self._poll.register(ours.fileno(), select.POLLIN)
        return made

    def _heard(self, who: _Shepherd) -> None:
        """It is idle, or it has ended."""
        try:
            data = who.sock.recv(1)
        except OSError:
            data = b""
        if not data:
            self._forget(who)
            return
        who.idle_since = time.monotonic()
        self._idle.append(who)

    def _let_go(self) -> None:
        """Of those that are too many or have waited long: the closed socket ends them."""
        old = time.monotonic() - IDLE_S
        while self._idle and (len(self._idle) > MOST_IDLE or self._idle[0].idle_since < old):
            self._forget(self._idle[0])

    def _forget(self, who: _Shepherd) -> None:
        if who in self._idle:
            self._idle.remove(who)
        self._poll.unregister(who.sock.fileno())
        del self._shepherds[who.sock.fileno()]
        who.sock.close()

    # --- in the child ----------------------------------------------------------------------------------------------

    def _leave_nursery(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(0, 2)
        self._agent.close()
        for each in self._shepherds.values():
            each.sock.close()

    def _be_shepherd(self, request: dict[str, Any], sock: socket.socket) -> None:
        """The shepherd's process, from its first line to its end."""
        directory = request["dir"]
        code = 1
        try:
            self._leave_nursery()
            clock = SystemClock()
            for _ in range(MOST_ATTEMPTS):
                worker.name_process("gl-shepherd")
                shepherd.run(directory, clock)
                worker.name_process("gl-idle")
                directory = _next_attempt(sock)
                if not directory:
                    break
            code = 0
        except BaseException as error:  # noqa: BLE001 - its end must be told, whatever it was; it goes nowhere from here
            worker.note_crash(directory, error)
        finally:
            os._exit(code)

    def _fork(self, request: dict[str, Any], fds: list[int]) -> int:
        """A worker for one deed."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            strays = frozenset(each.pid for each in self._shepherds.values())
            self._leave_nursery()
            worker.name_process(f"gl-{request['do']}")
            do_deed(request, fds, strays)
            code = 0
        except BaseException as error:  # noqa: BLE001 - as above
            worker.note_crash(request["dir"], error)
        finally:
            os._exit(code)


def _next_attempt(sock: socket.socket) -> str:
    """Say that this shepherd is idle and wait for the folder of its next attempt; empty when the nursery is gone."""
    try:
        sock.send(b"i")
        data = sock.recv(MAX_REQUEST)
    except OSError:
        return ""
    return str(json.loads(data)["dir"]) if data else ""


def serve(sock: socket.socket) -> None:
    """The nursery's process, in a fork of the agent; never returns."""
    _become(sock)
    worker.warm_up()
    worker.become_subreaper()  # what a killed shepherd leaves comes here, where the mop finds it
    gc.collect()
    gc.disable()
    gc.freeze()  # the forks share these pages for as long as nobody writes to them
    Nursery(sock).serve()


def _become(sock: socket.socket) -> None:
    """Leave everything of the agent behind but the socket and stderr."""
    os.setsid()
    os.chdir("/")
    keep = sock.fileno()
    os.closerange(3, keep)
    os.closerange(keep + 1, 65536)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps workers
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, {shepherd.ORDER_SIGNAL})  # inherited: no order is missed
    worker.name_process("gl-nursery")
