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

from orchestrator.agent import preparer, procfs, shepherd, worker
from orchestrator.agent.deeds import do_deed
from orchestrator.model.clock import SystemClock

MAX_REQUEST = 65536  # bytes: requests name folders; what is large lies in them
MOST_IDLE = (
    8  # shepherds that wait for their next attempt: as many as a node full of one-GPU jobs ends at once
)
IDLE_S = 10.0  # after which they end
MOST_ATTEMPTS = 500  # of one shepherd, so that nothing can pile up in it


_KEPT = {
    "run": shepherd.run,
    "prepare": preparer.run,
}  # deeds of processes that are kept for the next attempt
_NAMES = {"run": "gl-shepherd", "prepare": "gl-prepare"}


@dataclass(slots=True)
class _Shepherd:
    sock: socket.socket
    pid: int
    start: int
    request: int  # what it works on, or worked on last
    idle_since: float = 0.0


class Nursery:
    """The process's state: its shepherds by descriptor, those that are idle in the order in which they became so."""

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._poll = select.poll()
        self._poll.register(agent.fileno(), select.POLLIN)
        self._shepherds: dict[int, _Shepherd] = {}
        self._idle: list[_Shepherd] = []
        self._others: dict[int, int] = {}  # workers for one deed: pid and start

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
        if request["do"] == "kill":
            pid, start = self._kill(request["pid"], request["target"])
        elif request["do"] in _KEPT:
            made = self._reuse(data, request["id"]) or self._new_shepherd(request)
            pid, start = made.pid, made.start
        else:
            siblings = self._siblings()
            pid = self._fork(request, fds, siblings)
            start = self._others[pid] = procfs.start_of(pid)
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

    def _kill(self, pid: int, request: int) -> tuple[int, int]:
        """End the process that works on `request`, unless it has done so and serves another attempt by now.

        0, 1: it is of no nursery that could have given it more work: whoever asks may kill it without asking.
        """
        who = next((each for each in self._shepherds.values() if each.pid == pid), None)
        if who is None:
            return 0, 1
        self._hear_all()
        if who.sock.fileno() >= 0 and who not in self._idle and who.request == request:
            os.kill(pid, signal.SIGKILL)
        return pid, who.start

    def _reuse(self, data: bytes, request: int) -> _Shepherd | None:
        if not self._idle:
            self._hear_all()
        while self._idle:
            chosen = self._idle.pop()
            try:
                chosen.sock.send(data)
                chosen.request = request
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
        made = _Shepherd(ours, pid, procfs.start_of(pid), request["id"])
        self._shepherds[ours.fileno()] = made
        self._poll.register(ours.fileno(), select.POLLIN)
        return made

    def _heard(self, who: _Shepherd) -> None:
        """It is idle, or it has ended; or this was heard already."""
        try:
            data = who.sock.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._forget(who)
            return
        who.idle_since = time.monotonic()
        self._idle.append(who)

    def _hear_all(self) -> None:
        """Whatever shepherds have said by now."""
        for fd, _ in self._poll.poll(0):
            if fd in self._shepherds:
                self._heard(self._shepherds[fd])

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
        code = 1
        try:
            self._leave_nursery()
            clock = SystemClock()
            for served in range(1, MOST_ATTEMPTS + 1):
                worker.name_process(_NAMES[request["do"]])
                _KEPT[request["do"]](request["dir"], clock)
                following = _next_request(sock) if served < MOST_ATTEMPTS else None
                if following is None:
                    break
                request = following
            code = 0
        except BaseException as error:  # noqa: BLE001 - its end must be told, whatever it was; it goes nowhere from here
            worker.note_crash(request["dir"], error)
        finally:
            os._exit(code)

    def _fork(self, request: dict[str, Any], fds: list[int], siblings: frozenset[int]) -> int:
        """A worker for one deed."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            self._leave_nursery()
            worker.name_process(f"gl-{request['do']}")
            do_deed(request, fds, siblings)
            code = 0
        except BaseException as error:  # noqa: BLE001 - as above
            worker.note_crash(request["dir"], error)
        finally:
            os._exit(code)

    def _siblings(self) -> frozenset[int]:
        """All workers that live: children of the nursery that no dead shepherd has left behind."""
        self._others = {pid: start for pid, start in self._others.items() if procfs.start_of(pid) == start}
        return frozenset([*self._others, *(each.pid for each in self._shepherds.values())])


def _next_request(sock: socket.socket) -> dict[str, Any] | None:
    """Say that this shepherd is idle and wait for its next attempt; None when the nursery is gone."""
    try:
        sock.send(b"i")
        worker.name_process("gl-idle")
        data = sock.recv(MAX_REQUEST)
    except OSError:
        return None
    request: dict[str, Any] | None = json.loads(data) if data else None
    return request


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
