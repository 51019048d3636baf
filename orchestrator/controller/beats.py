"""The hearts of the nodes: who was heard when, who waits for news, what each node should have.

Comes in: syncs (on the event loop), desired states (from the core after each commit). Goes out: answers, held back
while there is nothing to say. Called by: service (event loop), publish and timers (core thread).

Shared between the two threads: `heard_us` and `_desired`, whose entries are replaced whole, never changed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.controller.commands import SyncReply
from orchestrator.controller.settings import Settings
from orchestrator.model.clock import SECOND, Clock
from orchestrator.model.ids import AttemptId
from orchestrator.model.instance import Ending
from orchestrator.model.node import Contact
from orchestrator.model.protocol import Desired, EndOrder, Phase, ReadRequest, SyncAnswer, SyncRequest


class _Noted(NamedTuple):
    """What the core knows of a node's journal; a sync that says something else is news."""

    boot_id: str
    outbox: str
    held: tuple[AttemptId, ...]
    ending: Ending | None = None


def _noted(request: SyncRequest) -> _Noted:
    return _Noted(request.boot_id, request.outbox, request.held, request.ending)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A node's desired attempts, and the revision that names them."""

    revision: str
    attempts: dict[AttemptId, Desired]


_NOTHING = _Wanted("0", {})
AWAY_US = 4 * SECOND  # twice the longest that a cycle waits for something to do


class Beats:
    """One entry per node in each table; a node without one has not been heard or is wanted nothing of."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._settings = settings
        self._listening_us = clock.monotonic_us()
        self._heard_us: dict[str, int] = {}
        self._started_us = clock.monotonic_us()
        self._knowing: dict[str, bool] = {}
        self._noted: dict[str, _Noted] = {}
        self._desired: dict[str, _Wanted] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._contacts: dict[str, Contact] = {}
        self._closing = False

    # --- the core's side ------------------------------------------------------------------------------------

    def silent_us(self, node: str) -> int:
        """Microseconds since the node was heard; the controller's own absence does not count."""
        return self._clock.monotonic_us() - max(self._heard_us.get(node, 0), self._listening_us)

    def knows_lease(self, node: str, before_s: int) -> bool:
        """Whether the node goes by no longer lease than the present one; `before_s`: what an earlier controller may
        have given it, which has run out when this one has been there for twice as long."""
        age_us = self._clock.monotonic_us() - self._started_us
        return node in self._knowing or age_us >= 2 * before_s * SECOND

    def heard_at_us(self, node: str) -> int | None:
        """When the node was heard last, UTC; None if this controller has not heard it yet. Any thread may ask."""
        heard_us = self._heard_us.get(node)
        return None if heard_us is None else self._clock.now_us() - (self._clock.monotonic_us() - heard_us)

    def begun(self, at_us: int) -> None:
        """The core's present cycle began then. Cycles take moments: one that took longer was stopped with its process,
        or its machine slept, and heard nobody meanwhile. Silence counts from now on."""
        now_us = self._clock.monotonic_us()
        if now_us - at_us >= AWAY_US:
            self._listening_us = now_us

    def set_desired(self, node: str, revision: str, attempts: dict[AttemptId, Desired]) -> None:
        """What the node should have from now on. Without a `revision` it is what the next answer will say, and no poll
        is answered for it."""
        revision = revision or self._desired.get(node, _NOTHING).revision
        self._desired[node] = _Wanted(revision, attempts)

    def desired(self, node: str) -> dict[AttemptId, Desired]:
        """What it should have."""
        return self._desired.get(node, _NOTHING).attempts

    def set_contact(self, node: str, contact: Contact) -> None:
        """What the ledger says of its contact."""
        self._contacts[node] = contact

    # --- the event loop's side ------------------------------------------------------------------------------

    def heard(self, node: str, knows: bool) -> None:
        """The node is there. `knows`: it has had an answer of this controller, and with it the present lease."""
        self._heard_us[node] = self._clock.monotonic_us()
        if knows:
            self._knowing[node] = True

    def has_news(self, request: SyncRequest) -> bool:
        """Whether the core must see this beat."""
        if request.events or request.facts is not None or request.inventory is not None:
            return True
        if self._contacts.get(request.node) is not Contact.OK:
            return True
        noted = self._noted.get(request.node)
        if noted is None or noted._replace(held=request.held) != _noted(request):
            return True
        # An attempt that the node was told to run, or that the core has seen there, is known; one that it holds no
        # more is told by its events.
        desired = self._desired.get(request.node, _NOTHING).attempts
        return any(attempt not in noted.held and attempt not in desired for attempt in request.held)

    def noted(self, request: SyncRequest, reply: SyncReply) -> None:
        """The core has seen it, and wants nothing more of it."""
        if not (reply.want_facts or reply.want_inventory or reply.over):
            self._noted[request.node] = _noted(request)

    def forget(self) -> None:
        """Let the core look at every node's next beat again."""
        self._noted = {}

    async def idle(self, request: SyncRequest) -> None:
        """Wait while there is nothing to say: at most what the node grants, and a poll's time."""
        wanted = self._desired.get(request.node, _NOTHING)
        if wanted.revision != request.seen or self._closing:
            return
        poll_s = self._settings.idle_s * random.uniform(2 / 3, 4 / 3)  # so that beats spread out
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        waiters = self._waiting.setdefault(request.node, [])
        waiters.append(waiter)
        over = loop.call_later(min(request.wait_s, poll_s), _let_go, waiter)
        try:
            await waiter
        finally:
            over.cancel()
            if waiter in waiters:
                waiters.remove(waiter)

    def wake(self, node: str) -> None:
        """There is something to say to the node."""
        for waiter in self._waiting.pop(node, ()):
            _let_go(waiter)

    def close(self) -> None:
        """Answer everyone who waits; hold nobody any more."""
        self._closing = True
        for node in list(self._waiting):
            self.wake(node)

    def answer(
        self, request: SyncRequest, reply: SyncReply | None, epoch: int, reads: Iterable[ReadRequest]
    ) -> SyncAnswer:
        """What the node should have, without the launches that it holds already."""
        wanted = self._desired.get(request.node, _NOTHING)
        held = dict.fromkeys(request.held)
        desired = tuple(
            Desired(entry.attempt, entry.phase, entry.started, end=entry.end)
            if attempt in held and entry.launch is not None
            else entry
            for attempt, entry in wanted.attempts.items()
        )
        for attempt in reply.over if reply else ():
            order = EndOrder("over", grace_s=self._settings.failure_grace_s)
            desired += (Desired(attempt, Phase.END, started=True, end=order),)
        return SyncAnswer(
            epoch=epoch,
            acked=reply.acked if reply else 0,
            revision=wanted.revision,
            desired=desired,
            lease_s=self._settings.lease_s,
            poll_s=self._settings.idle_s,
            want_facts=reply.want_facts if reply else False,
            want_inventory=reply.want_inventory if reply else False,
            reads=tuple(reads),
        )


def _let_go(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
