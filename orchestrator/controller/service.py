"""The controller as the HTTP side sees it: commands in, answers and the published view out.

Comes in: commands, agents' syncs, log reads, on the event loop's thread. Goes out: results after they are durable.
Called by: api. Nothing here touches State: it goes through the inbox to the core thread, or reads the view.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from typing import Any

from orchestrator.controller.beats import Beats
from orchestrator.controller.commands import Command, Sync
from orchestrator.controller.elastic import Elastic
from orchestrator.controller.hands import CloudHands
from orchestrator.controller.inbox import Inbox, Item
from orchestrator.controller.loop import Core
from orchestrator.controller.notify import NOBODY, Notify
from orchestrator.controller.reads import LogChunk, Reads
from orchestrator.controller.settings import Settings
from orchestrator.controller.view import JobView, View
from orchestrator.ledger.records import Token
from orchestrator.model.clock import Clock
from orchestrator.model.errors import Conflict, NotFound, Unavailable
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import SyncAnswer, SyncRequest
from orchestrator.provision.cloud import Clouds, Facts
from orchestrator.store.base import HistoryReader, Store


class Controller:
    """One controller: its core thread, its view, and those who wait.

    `await start()` returns when State is loaded and the epoch is taken; `await stopped()` when the core has ended, with
    the exception that ended it (Fenced: a newer controller has taken the ledger). `stop()` may be called anywhere.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        notify: Notify = NOBODY,
        clouds: tuple[Clouds, Facts] | None = None,
    ) -> None:
        self._store = store
        self._inbox = Inbox()
        self.view = View()
        self.beats = Beats(clock, settings)
        self.history: HistoryReader = store.reader()
        self._hands = CloudHands(self._inbox, *clouds) if clouds is not None else None
        elastic = Elastic(self._hands)
        self._core = Core(store, clock, settings, self._inbox, self.view, self.beats, notify, elastic)
        self._reads = Reads(self.beats.wake)
        self._watchers: dict[int, list[asyncio.Event]] = {}
        self._ended: asyncio.Future[None] | None = None
        self._asked: dict[asyncio.Future[Any], bool] = {}  # those who wait for an answer of the core
        self._thread = threading.Thread(target=self._run, name="core", daemon=True)

    async def start(self) -> None:
        """Start the core thread; errors of loading the ledger are raised here."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._ended.add_done_callback(self._leave)
        ready: asyncio.Future[None] = loop.create_future()

        def ready_now() -> None:
            loop.call_soon_threadsafe(_resolve, ready, None)

        self._core.connect(loop, self._published, ready_now)
        self._thread.start()
        await asyncio.wait({ready, self._ended}, return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            self._ended.result()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._core.run()
        except BaseException as caught:  # noqa: BLE001 - whatever ends the core is told to whoever waits
            error = caught
        finally:
            self._store.close()
        self._core.loop.call_soon_threadsafe(_resolve, self._ended, error)

    def stop(self) -> None:
        """Let the core finish its cycle and end."""
        if self._hands is not None:
            self._hands.stop()
        self._inbox.close()

    async def stopped(self) -> None:
        """Wait for the core's end; raises what ended it, if that was not `stop`."""
        assert self._ended is not None
        await asyncio.shield(self._ended)

    # --- commands -------------------------------------------------------------------------------------------

    async def do(self, command: Command) -> Any:
        """The command's result, once its facts are durable. Raises the GanglineError that refuses it."""
        if self._ended is None or self._ended.done() or self._inbox.closed:
            raise Unavailable(
                "controller.stopping", "the controller is stopping", "ask again when it is back"
            )
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[answer] = True
        self._inbox.put(Item(command, answer))
        try:
            return await answer
        finally:
            answer.cancel()  # nobody would ever look at an error that comes later
            del self._asked[answer]

    def _leave(self, _: asyncio.Future[None]) -> None:
        """The core has ended: nobody else is answered."""
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(
                    Unavailable(
                        "controller.stopped", "the controller stopped before it could answer", "ask again"
                    )
                )

    def token(self, secret: str) -> Token | None:
        """The token of a bearer secret, if it is known here and has not expired."""
        token = self.view.tokens.get(hashlib.sha256(secret.encode()).hexdigest())
        if token is None or (token.expires_us and token.expires_us <= self._core.clock.now_us()):
            return None
        return token

    # --- jobs -----------------------------------------------------------------------------------------------

    def _published(self, jobs: list[int], nodes: list[str]) -> None:
        """On the event loop, after each publication: wake those who wait for these."""
        for job in jobs:
            for event in self._watchers.pop(job, ()):
                event.set()
        for node in nodes:
            self.beats.wake(node)

    async def job_changed(self, job: int, seen: JobView | None, timeout_s: float) -> JobView | None:
        """The job's view once it differs from `seen` (by identity), or after the timeout; None once it has ended."""
        if self.view.jobs.get(job) is seen and seen is not None:
            event = asyncio.Event()
            self._watchers.setdefault(job, []).append(event)
            try:
                await asyncio.wait_for(event.wait(), timeout_s)
            except TimeoutError:
                pass
            finally:
                waiting = self._watchers.get(job, [])
                if event in waiting:
                    waiting.remove(event)
        return self.view.jobs.get(job)

    # --- agents ---------------------------------------------------------------------------------------------

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        """One beat of the node that the caller has authenticated. Holds the answer while there is nothing to say."""
        if request.epoch > self.view.epoch:
            self._core.doubt()
            raise Conflict(
                "sync.newer-epoch",
                f"{request.node} has seen a controller of epoch {request.epoch}; this one is of {self.view.epoch}",
                "if another controller serves this cluster, send the node there; a wiped agent state forgets epochs",
            )
        if request.node not in self.view.nodes:
            raise NotFound("node.not-found", f"the cluster has no node {request.node}")
        knows = request.epoch == self.view.epoch
        self.beats.heard(request.node, knows)
        reply = None
        if self.beats.has_news(request):
            reply = await self.do(Sync(request))
            self.beats.noted(request, reply)
        elif not self._reads.of(request.node):
            await self.beats.idle(request)
        self.beats.heard(request.node, knows)
        return self.beats.answer(request, reply, self.view.epoch, self._reads.of(request.node))

    async def read_log(
        self, node: str, attempt: AttemptId, rank: int, offset: int, limit: int, wait_s: int
    ) -> LogChunk:
        """Bytes of a rank's output from the node that holds them."""
        return await self._reads.read(node, attempt, rank, offset, limit, wait_s)

    def read_arrived(self, node: str, read_id: str, chunk: LogChunk) -> bool:
        """The agent's answer to a read; False if nobody waits for it any more."""
        return self._reads.arrived(node, read_id, chunk)


def _resolve(future: asyncio.Future[None] | None, error: BaseException | None) -> None:
    if future is None or future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
