"""The queue between those who ask and the one core thread, and the way back.

Comes in: commands from any thread, each with a reply. Goes out: batches of them, in order; replies in one delivery per
publication. Called by: service (puts), loop (takes, tells).

Submits come by the hundred, and devices stand idle until what nodes tell is heard. So a batch takes few submits,
fewer the more there is besides, and all else overtakes the others. Of a crowd a batch takes its part besides, so that
nobody in it waits for long. Whoever waits for a submit has nothing else under way that could overtake it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.controller.commands import Command, Submit, Sync

SPARED = 4  # of the submits that a batch may have this part comes in whatever else does
CROWD = 16  # of those that wait this part comes in as well, though it is more: of a thousand, 62 a batch


@dataclass(slots=True)
class Item:
    """A command, the future of who waits for its answer, and the answer (or error) once there is one."""

    command: Command
    reply: asyncio.Future[Any]
    answer: Any = None


Published = Callable[[list[int], list[str]], None]


class News(NamedTuple):
    """The jobs that a publication has changed, and the nodes that should be told something new."""

    jobs: list[int]
    nodes: list[str]


NOTHING = News([], [])


def tell(items: list[Item], published: Published, news: News) -> None:
    """On the event loop, after a publication: give each who waits its answer, then say which jobs and nodes have news.
    A node that has just been answered has heard its own: to answer the poll that it holds as well would be one answer
    more for each start. If it misses the answer, it asks again."""
    heard = {
        item.command.request.node: True
        for item in items
        if _deliver(item.reply, item.answer) and isinstance(item.command, Sync)
    }
    published(news.jobs, [node for node in news.nodes if node not in heard])


def _deliver(reply: asyncio.Future[Any], answer: Any) -> bool:
    """Whether it was a result. Whoever has gone away misses it."""
    if reply.done():
        return False
    if isinstance(answer, BaseException):
        reply.set_exception(answer)
        return False
    reply.set_result(answer)
    return True


class Inbox:
    """Unbounded in commands, since each has a client that waits for it: their number bounds it."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._overtaken: deque[Item] = deque()  # submits that were there when a batch had enough of them
        self._wake = threading.Event()
        self._closed = False

    def put(self, item: Item) -> None:
        """Hand a command over; it is answered after its facts are durable."""
        self._items.append(item)
        self._wake.set()

    def take(self, timeout_s: float, most: int, most_submits: int) -> list[Item]:
        """What is there, at most so many, and few submits (`_room`); waits up to `timeout_s` for the first."""
        if not (self._items or self._overtaken):
            self._wake.wait(timeout_s)
        self._wake.clear()
        submits = min(most, self._room(most_submits))
        batch = [self._overtaken.popleft() for _ in range(min(submits, len(self._overtaken)))]
        submits -= len(batch)
        while self._items and len(batch) < most:
            item = self._items.popleft()
            if not isinstance(item.command, Submit):
                batch.append(item)
            elif submits:
                submits -= 1
                batch.append(item)
            else:
                self._overtaken.append(item)
        if self._items or self._overtaken:
            self._wake.set()
        return batch

    def _room(self, most_submits: int) -> int:
        """How many submits the next batch may have."""
        there = list(self._items)
        others = sum(not isinstance(item.command, Submit) for item in there)
        waiting = len(there) - others + len(self._overtaken)
        return max(1, most_submits // SPARED, most_submits - others, waiting // CROWD)

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
