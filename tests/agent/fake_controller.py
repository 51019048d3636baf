"""A fake controller for tests of the agent: join, sync and reads on loopback, with desired states that a test scripts.

Comes in: what the test wants of attempts. Goes out: the events, requests and bytes that agents sent. Called by: the
agent's system tests and its bench. It keeps no ledger and decides nothing; it is no model of the real controller
beyond the protocol's words.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from orchestrator.model.codec import decode, encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import (
    AgentEvent,
    Desired,
    EndOrder,
    EventKind,
    Launch,
    Phase,
    ReadRequest,
    SyncAnswer,
)

JOIN_TOKEN = "let-me-in"
DEADLINE_S = 20.0


class FakeController:
    """One server on a port of its own, in a thread. All state is read and written under one lock."""

    def __init__(
        self,
        *,
        lease_s: int = 60,
        poll_s: int = 30,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self._host = host
        self._tls = tls
        self.node_token = "node-token"
        self.lease_s, self.poll_s, self.epoch = lease_s, poll_s, 1
        self.events: list[AgentEvent] = []
        self.repeats = 0  # events that came again
        self.acked: dict[str, int] = {}
        self.requests: list[dict[str, Any]] = []
        self.bodies: dict[str, tuple[int, bool, bytes]] = {}
        self.keep_requests = True
        self.forget_ended = True  # what has ended is wanted no more
        self._want_facts = self._want_inventory = False
        self._wishes: dict[str, dict[AttemptId, Desired]] = {}
        self._held: dict[str, set[AttemptId]] = {}
        self._reads: dict[str, ReadRequest] = {}
        self._version = 0
        self._told: dict[str, int] = {}
        self._changed = threading.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._port = port
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(DEADLINE_S)

    # --- what a test says ------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self._host}:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def want(self, node: str, *wishes: Desired) -> None:
        """Set what is wanted of some attempts on a node."""
        with self._changed:
            self._wishes.setdefault(node, {}).update({wish.attempt: wish for wish in wishes})
        self._bump()

    def run(self, node: str, attempt: AttemptId, launch: Launch) -> None:
        self.want(node, Desired(attempt, Phase.RUN, launch=launch))

    def end(self, node: str, attempt: AttemptId, order: EndOrder | None = None) -> None:
        self.want(node, Desired(attempt, Phase.END, end=order or EndOrder("the test says so")))

    def forget(self, node: str, attempt: AttemptId) -> None:
        """Nothing is wanted of it any more, as of what is over without the node's word."""
        with self._changed:
            del self._wishes[node][attempt]
        self._bump()

    def ask_inventory(self) -> None:
        self._want_inventory = True
        self._bump()

    def ask_facts(self) -> None:
        self._want_facts = True
        self._bump()

    def read(self, read: ReadRequest) -> tuple[int, bool, bytes]:
        """Bytes of an output: size, whether it has ended, data."""
        with self._changed:
            self._reads[read.id] = read
        self._bump()
        self.wait(lambda: read.id in self.bodies, f"read {read.id}")
        return self.bodies[read.id]

    def wait(self, ready: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
        """Until `ready()` is true; asked again whenever an agent spoke."""
        end = time.monotonic() + deadline_s
        with self._changed:
            while not (found := ready()):
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(
                        f"not within {deadline_s} s: {what}; the last events: {self.events[-8:]}"
                    )
                self._changed.wait(left)
            return found

    def of(self, attempt: AttemptId, kind: EventKind) -> list[AgentEvent]:
        return [event for event in self.events if event.attempt == attempt and event.kind is kind]

    def wait_for(self, attempt: AttemptId, kind: EventKind, deadline_s: float = DEADLINE_S) -> AgentEvent:
        """The first event of that kind."""
        found: list[AgentEvent] = self.wait(
            lambda: self.of(attempt, kind), f"{kind} of {attempt}", deadline_s
        )
        return found[0]

    def close(self) -> None:
        """Stop serving: connections break, and new ones are refused."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(DEADLINE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    # --- the server ------------------------------------------------------------------------------------------------

    def _bump(self) -> None:
        self._version += 1
        self._loop.call_soon_threadsafe(self._wake.set)

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._client, self._host, self._port, ssl=self._tls)
        )
        self._port = self._server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()

    async def _shut(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().split("\r\n")
                target = lines[0].split(" ")[1]
                fields = {
                    name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])
                }
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                status, answer = await self._route(target, body, fields.get("authorization", ""), reader)
                data = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _route(
        self, target: str, body: bytes, bearer: str, reader: asyncio.StreamReader
    ) -> tuple[int, Any]:
        parts = urlsplit(target)
        if parts.path == "/api/v1/agent/join":
            if bearer != f"Bearer {JOIN_TOKEN}":
                return 401, {"detail": "no such join token"}
            return 200, {"token": self.node_token, "cluster": "test"}
        if bearer != f"Bearer {self.node_token}":
            return 401, {"detail": "no such token"}
        if parts.path == "/api/v1/agent/sync":
            return 200, await self._sync(json.loads(body), reader)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self._changed:
            read_id = parts.path.rsplit("/", 1)[1]
            self._reads.pop(read_id, None)
            self.bodies[read_id] = (int(query["size"]), query["ended"] == "1", body)
            self._changed.notify_all()
        return 204, ""

    async def _sync(self, plain: dict[str, Any], reader: asyncio.StreamReader) -> Any:
        node = plain["node"]
        self._take(node, plain)
        if not plain.get("events") and not plain.get("facts"):
            end = self._loop.time() + plain.get("wait_s", 0)
            while self._told.get(node) == self._version and self._loop.time() < end:
                self._wake.clear()
                try:
                    await asyncio.wait_for(self._wake.wait(), end - self._loop.time())
                except TimeoutError:
                    break
        if reader.at_eof():
            raise ConnectionError("the agent that asked is gone: it is told nothing")
        with self._changed:
            return self._answer(node, plain["outbox"])

    def _take(self, node: str, plain: dict[str, Any]) -> None:
        with self._changed:
            if self.keep_requests:
                self.requests.append(plain)
            self._want_facts = self._want_facts and "facts" not in plain
            self._want_inventory = self._want_inventory and "inventory" not in plain
            self._held[node] = {AttemptId(*each) for each in plain.get("held", ())}
            outbox = plain["outbox"]
            for each in plain.get("events", ()):
                if each["n"] <= self.acked.get(outbox, 0):
                    self.repeats += 1
                    continue
                event = decode(AgentEvent, each)
                self.acked[outbox] = each["n"]
                self.events.append(event)
                if event.kind is EventKind.ENDED and self.forget_ended:
                    self._wishes.get(node, {}).pop(event.attempt, None)
            self._changed.notify_all()

    def _answer(self, node: str, outbox: str) -> Any:
        held = self._held.get(node, set())
        wishes = [
            Desired(
                wish.attempt,
                wish.phase,
                wish.started,
                None if wish.attempt in held else wish.launch,
                wish.end,
            )
            for wish in self._wishes.get(node, {}).values()
        ]
        self._told[node] = self._version
        answer = SyncAnswer(
            epoch=self.epoch,
            acked=self.acked.get(outbox, 0),
            desired=tuple(wishes),
            lease_s=self.lease_s,
            poll_s=self.poll_s,
            want_facts=self._want_facts,
            want_inventory=self._want_inventory,
            reads=tuple(self._reads.values()),
        )
        return encode(answer)
