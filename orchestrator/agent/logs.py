"""Answers the controller's reads: bytes of a rank's output from an offset, waiting for some if asked to.

Comes in: `ReadRequest`s of an answer (the same one may come several times). Goes out: POSTs with the bytes, the size
and whether more can come. Called by: the daemon. It has a channel of its own, so that bulk never delays sync.

Output in the attempt's folder is read here. Output at a path of the job is read by a worker with the user's rights.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.agent import layout
from orchestrator.agent.channel import Channel, Outcome, Reply
from orchestrator.agent.loop import READ, Loop
from orchestrator.agent.plan import Plan
from orchestrator.agent.starter import Starter
from orchestrator.model.clock import SECOND
from orchestrator.model.codec import CodecError, decode
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import ReadRequest

LOOK_S = 0.1  # between two looks at outputs that somebody waits for
POST_TIMEOUT_S = 60.0
HELPER_WAIT_S = 2  # the longest that one worker waits for bytes before it is asked again
MOST_BYTES = 4 << 20  # of one answer, whatever was asked for
REMEMBERED = 1000  # reads that were answered, so that a repeated request is not answered twice


@dataclass(slots=True)
class _Read:
    request: ReadRequest
    until_us: int
    path: str
    foreign: bool  # at a path of the job
    asked: bool = False
    received: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class _Answer:
    id: str
    size: int
    ended: bool
    data: bytes


class LogServer:
    """See the module. `lives`: whether an attempt may still write."""

    def __init__(
        self,
        state_dir: str,
        loop: Loop,
        channel: Channel,
        starter: Starter,
        token: Callable[[], str],
        lives: Callable[[AttemptId], bool],
    ) -> None:
        self._state_dir = state_dir
        self._loop = loop
        self._channel = channel
        self._starter = starter
        self._token = token
        self._lives = lives
        self._reads: dict[str, _Read] = {}
        self._answers: deque[_Answer] = deque()
        self._answered: deque[str] = deque(maxlen=REMEMBERED)

    def take(self, requests: tuple[ReadRequest, ...]) -> bool:
        """Begin with those that are new; whether any is."""
        new = [each for each in requests if each.id not in self._reads and each.id not in self._answered]
        for request in new:
            self._begin(request)
        return bool(new)

    def _begin(self, request: ReadRequest) -> None:
        found = self._find(request)
        if found is None:
            self._answer(request.id, -1, True, b"")
            return
        until = self._loop.clock.monotonic_us() + request.wait_s * SECOND
        path, foreign = found
        self._reads[request.id] = _Read(request, until, path, foreign)
        self._look()

    def _find(self, request: ReadRequest) -> tuple[str, bool] | None:
        """The output's path and whether the job named it; None if nothing is known here of such a rank."""
        directory = layout.attempt_dir(self._state_dir, request.attempt)
        try:
            with open(os.path.join(directory, layout.PLAN), encoding="utf-8") as file:
                plan = decode(Plan, json.load(file))
        except (OSError, ValueError, CodecError):
            return None
        for rank in plan.ranks:
            if rank.rank == request.rank:
                return (rank.output, True) if rank.output else (layout.log_path(directory, rank.rank), False)
        return None

    def _look(self) -> None:
        for read in list(self._reads.values()):
            if not read.foreign:
                self._look_at(read)
            elif not read.asked:
                self._ask(read)
        if any(not read.asked for read in self._reads.values()):
            self._loop.after("logs", LOOK_S, self._look)

    def _done_waiting(self, read: _Read, size: int, ended: bool) -> bool:
        return size > read.request.offset or ended or self._loop.clock.monotonic_us() >= read.until_us

    def _look_at(self, read: _Read) -> None:
        ended = not self._lives(read.request.attempt)  # before the bytes are read: then these are all
        size, data = _read_range(read.path, read.request.offset, min(read.request.limit, MOST_BYTES))
        if self._done_waiting(read, size, ended):
            self._answer(read.request.id, size, ended, data)

    # --- outputs at a path of the job --------------------------------------------------------------------------------

    def _ask(self, read: _Read) -> None:
        read.asked = True
        read.received.clear()
        ended = not self._lives(read.request.attempt)
        ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(theirs, True)
        self._loop.watch(ours, READ, lambda _: self._receive(read, ours, ended))
        wait_s = 0 if ended else min(HELPER_WAIT_S, read.request.wait_s)
        self._starter.ask(
            "read",
            layout.attempt_dir(self._state_dir, read.request.attempt),
            lambda _pid, _start: None,
            fds=(theirs,),
            path=read.path,
            offset=read.request.offset,
            limit=min(read.request.limit, MOST_BYTES),
            wait_s=wait_s,
        )

    def _receive(self, read: _Read, fd: int, ended: bool) -> None:
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return
        if data:
            read.received += data
            return
        self._loop.forget(fd)
        os.close(fd)
        head, _, body = bytes(read.received).partition(b"\n")
        size = int(head) if head.lstrip(b"-").isdigit() else -1
        if size < 0 or self._done_waiting(read, size, ended):
            self._answer(read.request.id, size, ended, body)
        else:
            read.asked = False
            self._look()

    # --- answering -------------------------------------------------------------------------------------------------

    def _answer(self, read_id: str, size: int, ended: bool, data: bytes) -> None:
        self._reads.pop(read_id, None)
        self._answered.append(read_id)
        self._answers.append(_Answer(read_id, size, ended, data))
        self._post()

    def _post(self) -> None:
        if self._channel.busy or not self._answers:
            return
        answer = self._answers.popleft()
        path = f"/api/v1/agent/reads/{answer.id}?size={answer.size}&ended={int(answer.ended)}"
        self._channel.post(
            path,
            answer.data,
            self._token(),
            lambda outcome: self._posted(answer, outcome),
            timeout_s=POST_TIMEOUT_S,
            kind="application/octet-stream",
        )

    def _posted(self, answer: _Answer, outcome: Outcome) -> None:
        """Whoever waits for it asks again if it did not arrive."""
        arrived = isinstance(outcome, Reply) and outcome.status < 500
        if not arrived and answer.id in self._answered:
            self._answered.remove(answer.id)
        self._post()


def _read_range(path: str, offset: int, limit: int) -> tuple[int, bytes]:
    """The file's size (0 if it is not there yet) and bytes from the offset."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return 0, b""
    try:
        size = os.fstat(fd).st_size
        return size, os.pread(fd, limit, offset) if size > offset else b""
    finally:
        os.close(fd)
