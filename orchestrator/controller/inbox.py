"""The queue between those who ask and the one core thread, and the way back.

Comes in: commands from any thread, each with a reply. Goes out: batches of them, in order; replies in one delivery per
cycle. Called by: service (puts), loop (takes, delivers).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from orchestrator.controller.commands import Command


@dataclass(slots=True)
class Item:
    """A command, the future of who waits for its answer, and the answer (or error) once there is one."""

    command: Command
    reply: asyncio.Future[Any]
    answer: Any = None


Answers = list[tuple[asyncio.Future[Any], Any]]


def deliver(answers: Answers) -> None:
    """On the event loop: give each waiter its answer. Whoever has gone away misses it."""
    for reply, answer in answers:
        if reply.done():
            continue
        if isinstance(answer, BaseException):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)


class Inbox:
    """Unbounded in commands, since each has a client that waits for it: their number bounds it."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._wake = threading.Event()
        self._closed = False

    def put(self, item: Item) -> None:
        """Hand a command over; it is answered after its facts are durable."""
        self._items.append(item)
        self._wake.set()

    def take(self, timeout_s: float, most: int) -> list[Item]:
        """What is there, at most so many; waits up to `timeout_s` for the first."""
        if not self._items:
            self._wake.wait(timeout_s)
        self._wake.clear()
        batch: list[Item] = []
        while self._items and len(batch) < most:
            batch.append(self._items.popleft())
        if self._items:
            self._wake.set()
        return batch

    def wake(self) -> None:
        """Let the taker look around."""
        self._wake.set()

    def close(self) -> None:
        """Wake the taker for the last time."""
        self._closed = True
        self._wake.set()

    @property
    def closed(self) -> bool:
        """Whether the controller is being stopped."""
        return self._closed
