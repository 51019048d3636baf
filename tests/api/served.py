"""A real controller behind the real application, without a socket: requests go in by ASGI.

Comes in: a cluster, who asks. Goes out: answers. Called by: tests of api and client. The controller's core runs in its
own thread on a SQLite store in a temporary folder, the application on an event loop in another; only people's names are
made up. Nodes are the model agents of tests/controller, whose beats go through the agents' routes.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from orchestrator.api.access import PEER
from orchestrator.api.app import make_app
from orchestrator.api.hub import Hub
from orchestrator.api.people import People, Person
from orchestrator.api.tokens import new_id, sha256_of
from orchestrator.controller import commands
from orchestrator.controller.service import Controller
from orchestrator.controller.settings import Settings
from orchestrator.model.clock import ManualClock
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import decode, encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import Owner
from orchestrator.model.protocol import SyncAnswer
from tests.builders import cluster, facts, pool
from tests.controller.world import ModelAgent
from tests.ledgers import open_quickly

T = TypeVar("T")

PREFIX = "/api/v1"
PEOPLE = {
    "root": Person(Owner("root", 0, 0, (0,)), ("root",)),
    "alice": Person(Owner("alice", 1001, 1001, (1001, 2000)), ("alice", "research")),
    "bob": Person(Owner("bob", 1002, 1002, (1002,)), ("bob",)),
    "carol": Person(Owner("carol", 1003, 1003, (1003, 3000)), ("carol", "infra")),
    "daemon": Person(Owner("daemon", 1, 1, (1,)), ("daemon",)),
}
UIDS = {person.owner.uid: name for name, person in PEOPLE.items()}


def document(name: str = "j", **spec: Any) -> dict[str, Any]:
    """A job document: one task of one GPU, unless told otherwise."""
    spec.setdefault("command", ["true"])
    if not spec.keys() & {"nodes", "tasks"}:
        spec |= {"tasks": 1, "per_task": {"gpus": 1}}
    return {"apiVersion": "gangline/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as a value; that an error is a problem document is checked on the way."""
        if self.status >= 400:
            assert self.headers["content-type"] == "application/problem+json", self.body
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The stable word of an error."""
        return str(self.json()["code"])


class Served:
    """See the module. Methods may be called from the test's thread; `run` takes coroutines to the loop's."""

    def __init__(self, folder: Path, spec: ClusterSpec | None) -> None:
        self.clock = ManualClock()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="api", daemon=True)
        self._thread.start()
        self.controller = Controller(open_quickly(folder / "state"), self.clock, Settings(poll_s=1))
        self.run(self.controller.start())
        people = People(self.clock, look=PEOPLE.get, name=lambda uid: UIDS.get(uid, ""))
        self.hub = Hub(self.controller, self.clock, people, "1.2.3")
        self.app = make_app(self.hub)
        self.secrets: dict[tuple[str, str], str] = {}
        self.agents: dict[str, ModelAgent] = {}
        if spec is not None:
            self.apply(spec)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = 30) -> T:
        """Run a coroutine on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def start(self, work: Coroutine[Any, Any, T]) -> Any:
        """Run a coroutine on the loop; its future."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """End everything that was started."""
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    async def _end(self) -> None:
        self.hub.stop()
        self.controller.stop()
        await self.controller.stopped()
        self.hub.close()
        await asyncio.sleep(0)

    # --- the cluster ----------------------------------------------------------------------------------------

    def do(self, command: commands.Command) -> Any:
        """A command past the HTTP side."""
        return self.run(self.controller.do(command))

    def apply(self, spec: ClusterSpec, *, ready: bool = True) -> None:
        """The wanted cluster, with a model agent on each node."""
        self.do(commands.ApplyCluster(spec, "test"))
        for each in spec.pools:
            for name in each.nodes:
                self.agents[name] = ModelAgent(name, f"outbox-{name}", facts(each))
        if ready:
            self.beat(2)

    def beat(self, rounds: int = 5) -> None:
        """Every node beats, over the agents' route: often enough for a gang to be prepared, committed and started."""
        for _ in range(rounds):
            self.settle()
            for agent in self.agents.values():
                answer = self.post(
                    "/agent/sync", encode(agent.request()), token=self.token("node", agent.name)
                )
                assert answer.status == 200, answer.body
                agent.take(decode(SyncAnswer, answer.json()))
        self.settle()

    def finish(self, job: int, code: int = 0) -> None:
        """The job's processes leave, and everyone hears of it."""
        for agent in self.agents.values():
            for attempt in [attempt for attempt in agent.running if attempt.job == job]:
                agent.finish(AttemptId(*attempt), code)
        self.beat()

    def token(self, role: str, name: str) -> str:
        """A secret with that role, made past the HTTP side; the same one for the same words."""
        secret = self.secrets.get((role, name))
        if secret is None:
            secret = self.secrets[role, name] = f"gln_{role}-{name}"
            self.do(commands.CreateToken(new_id(), sha256_of(secret), role, name, "test"))
            self.settle()
        return secret

    def settle(self) -> None:
        """What was answered so far is in the view."""
        self.run(self.hub.caught_up())

    # --- requests -------------------------------------------------------------------------------------------

    def get(self, path: str, **how: Any) -> Answer:
        """GET below /api/v1."""
        return self.request("GET", PREFIX + path, **how)

    def post(self, path: str, body: Any = None, **how: Any) -> Answer:
        """POST of JSON below /api/v1."""
        return self.request("POST", PREFIX + path, body=body, **how)

    def submit(self, spec: Mapping[str, Any] | None = None, **how: Any) -> int:
        """A job in; its id."""
        answer = self.post("/jobs", spec or document(), **how)
        assert answer.status == 201, answer.body
        self.settle()
        return int(answer.json()["id"])

    def request(self, method: str, path: str, **how: Any) -> Answer:
        """One request, and its whole answer."""
        return self.run(self.send(method, path, **how))

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        raw: bytes | None = None,
        token: str | None = None,
        role: str = "admin",
        name: str = "root",
        uid: int | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        anonymous: bool = False,
    ) -> Answer:
        """The same on the loop. Without `token` or `uid` it comes from a token with `role` and `name`."""
        parts = urlsplit(path)
        found = {"host": "test"}
        if raw is None and body is not None:
            raw = json.dumps(body).encode()
            found["content-type"] = "application/json"
        if token is None and uid is None and not anonymous:
            token = self.secrets.get((role, name))
            if token is None:
                token = await asyncio.to_thread(self.token, role, name)
        if token is not None:
            found["authorization"] = f"Bearer {token}"
        found |= {key.lower(): value for key, value in (headers or {}).items()}
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "root_path": "",
            "query_string": (parts.query or urlencode(query or {})).encode(),
            "headers": [(key.encode(), value.encode("latin-1")) for key, value in found.items()],
            "server": ("test", 80),
            "client": ("test", 1),
        }
        if uid is not None:
            scope[PEER] = uid
        return await exchange(self.app, scope, raw or b"")


async def exchange(app: Any, scope: dict[str, Any], body: bytes) -> Answer:
    """One ASGI exchange."""
    sent: list[Any] = []
    given = False

    async def receive() -> Any:
        nonlocal given
        if given:
            await asyncio.get_running_loop().create_future()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    headers = {key.decode().lower(): value.decode("latin-1") for key, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]))


def until(true: Callable[[], bool], timeout_s: float = 20) -> None:
    """Until something holds that another thread brings about."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def two_nodes() -> ClusterSpec:
    """A pool of two nodes with 8 GPUs each."""
    return cluster(pool("p", nodes=2))
