"""Many emulated agents in one process: they speak the real sync protocol, and their jobs are words in its answers.

Comes in: where the server is, node names, a join token; its answers. Goes out: syncs as `orchestrator.agent` sends
them, and what was seen of starts, restarts and ends. Called by: helper, as a process of its own.

Each agent has one kept connection. It holds an idle poll there with the revision it has seen; what an answer wants is
done at once and reported on the same connection: STARTED and ENDED of a job in one sync, as the real agent reports a
job that is short. Jobs whose command begins with `sleep` start and are held until the controller ends them. A start
counts as acknowledged when the answer that acknowledges its STARTED event is here: it is in the ledger by then.

Agents with `push` have a second connection for events, as real ones do, so that the end of a job need not wait for a
poll. Jobs whose command begins with `bench-run` then run for so many seconds, and end by themselves; what ran when on
which devices is kept.

Poll times, their jitter and the pauses before another try are the real agent's (agent/sync.py).
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from orchestrator.agent.sync import DEFAULT_POLL_S, FIRST_PAUSE_S, LONGEST_PAUSE_S
from orchestrator.model.clock import SystemClock
from orchestrator.model.codec import encode
from orchestrator.model.node import Device, NodeFacts
from tests.bench import helper
from tests.bench.helper import Plain, now_ns
from tests.bench.link import Done, Link, head, request

JOIN_PATH = "/api/v1/agent/join"
SYNC_PATH = "/api/v1/agent/sync"
JOINING = 32  # agents that join at a time
GIB = 1 << 30
CORES, MEMORY = 192, 2048 * GIB

clock = SystemClock()


def facts(gpus: int, model: str) -> Plain:
    """What an emulated node is made of."""
    devices = tuple(Device(slot, model, 80 * GIB, f"EMU-{slot}", emulated=True) for slot in range(gpus))
    found = NodeFacts(secrets.token_hex(16), CORES, MEMORY, devices, run_as="root", supervisor="process-tree")
    plain: Plain = encode(found)
    return plain


class Span(NamedTuple):
    """A job's time on devices of one node, by the clock of `now_ns`."""

    job: int
    node: str
    slots: list[int]
    begun_ns: int
    ended_ns: int


class Fleet:
    """All agents of this process, and what they have seen."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.random = random.Random(secrets.randbits(32))
        self.agents: list[Agent] = []
        self.started: list[tuple[int, int]] = []  # job, when its start was acknowledged
        self.spans: list[Span] = []  # of `bench-run`
        self.ran = 0  # devices in all spans
        self.beats = 0
        self.wrong: list[str] = []  # what no controller may ask for
        # By node: the epoch of its last answer, and when that epoch's first answer came.
        self.answered: dict[str, tuple[int, int]] = {}
        self._news = asyncio.Event()

    def heard(self, node: str, epoch: int) -> None:
        """An answer has come."""
        self.beats += 1
        if self.answered.get(node, (0, 0))[0] != epoch:
            self.answered[node] = (epoch, now_ns())
            self._news.set()

    def start_acknowledged(self, job: int, at_ns: int) -> None:
        """The ledger has a start."""
        self.started.append((job, at_ns))
        self._news.set()

    def over(self, span: Span) -> None:
        """A job has ended on a node."""
        self.spans.append(span)
        self.ran += len(span.slots)
        self._news.set()

    async def until(self, there: Callable[[], bool], timeout_s: float) -> None:
        """Wait until it is so, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not there():
                    self._news.clear()
                    await self._news.wait()


class Agent:
    """One node. `push`: events have a connection of their own."""

    def __init__(self, fleet: Fleet, node: str, facts: Plain, *, push: bool = False) -> None:
        self.fleet = fleet
        self.node = node
        self.facts = facts
        self._push: Link | None = None
        self._pushes, self._pushing, self._pushed = push, False, 0
        self.first = asyncio.Event()  # an answer has come
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._head = b""
        self._outbox = secrets.token_hex(8)
        self._epoch, self._seen, self._poll_s = 0, "", DEFAULT_POLL_S
        self._n = 0
        self._events: list[Plain] = []
        self._held: dict[tuple[int, int], Plain] = {}
        self._done: set[tuple[int, int]] = set()  # started here, while an answer names them
        self._failures = 0
        self._facts_due = True

    async def join(self, token: str) -> None:
        """Let in by a join token; the first sync goes out."""
        answer: asyncio.Future[tuple[int, bytes]] = self._loop.create_future()
        await self._connect()
        body = json.dumps({"node": self.node, "facts": self.facts}).encode()
        assert self._link is not None
        self._link.send(request(head(JOIN_PATH, token), body), lambda *got: answer.set_result(got))
        status, text = await answer
        if status != 200:
            raise RuntimeError(f"{self.node} may not join: {status} {text[:300].decode(errors='replace')}")
        self._head = head(SYNC_PATH, json.loads(text)["token"])
        self._sync(0)

    async def _connect(self) -> None:
        link = Link(_nothing, self._lost)
        await self._loop.create_connection(lambda: link, self.fleet.host, self.fleet.port)
        self._link = link
        if self._pushes and self._push is None:
            push = Link(_nothing, self._lost_push)
            await self._loop.create_connection(lambda: push, self.fleet.host, self.fleet.port)
            self._push, self._pushing = push, False

    # --- requests ---------------------------------------------------------------------------------------------------

    def _sync(self, wait_s: int) -> None:
        plain = self._plain(wait_s)
        if self._events and not self._pushes:
            plain["events"] = self._events
        if self._facts_due:
            plain["facts"] = self.facts
        assert self._link is not None
        self._send(self._link, plain, self._answer)

    def _report(self) -> None:
        """Push what was not pushed yet; at once, or when the last push is answered."""
        if self._push is None or self._pushing or not self._events or self._events[-1]["n"] <= self._pushed:
            return
        self._pushing, self._pushed = True, self._events[-1]["n"]
        self._send(self._push, {**self._plain(0), "events": self._events}, self._push_answered)

    def _send(self, link: Link, plain: Plain, done: Done) -> None:
        link.send(request(self._head, json.dumps(plain, separators=(",", ":")).encode()), done)

    def _plain(self, wait_s: int) -> Plain:
        return {
            "node": self.node,
            "outbox": self._outbox,
            "boot_id": self.facts["boot_id"],
            "epoch": self._epoch,
            "protocol": 1,
            "held": list(self._held),
            "wait_s": wait_s,
            "seen": self._seen,
        }

    def poll(self, shortest: float = 0.7) -> None:
        """Hold an idle poll for `shortest` to 1 of the time that the controller grants."""
        self._sync(max(1, int(self._poll_s * self.fleet.random.uniform(shortest, 1.0))))

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer(self, status: int, body: bytes) -> None:
        if status != 200:
            if status != 503:
                self.fleet.wrong.append(f"{self.node}: sync was answered with {status}: {body[:200]!r}")
            self._pause()
            return
        answer = self._take(body)
        self._failures, self._facts_due = 0, bool(answer.get("want_facts"))
        if (self._events and not self._pushes) or self._facts_due:
            self._sync(0)
        elif self.first.is_set():
            self.poll()
        else:
            self.first.set()
            self.poll(0.01)  # so that beats are spread from the start

    def _push_answered(self, status: int, body: bytes) -> None:
        self._pushing = False
        if status == 200:
            self._take(body)
        else:
            self.fleet.wrong.append(f"{self.node}: a push was answered with {status}: {body[:200]!r}")

    def _take(self, body: bytes) -> Plain:
        """Do what an answer says."""
        answer: Plain = json.loads(body)
        self._epoch, self._seen = answer["epoch"], answer.get("revision", "")
        self._poll_s = answer.get("poll_s", 90)
        self.fleet.heard(self.node, self._epoch)
        self._acknowledged(answer["acked"])
        self._want(answer.get("desired", ()))
        if answer.get("want_inventory"):
            self.fleet.wrong.append(f"{self.node}: an inventory was asked for")
        self._report()
        return answer

    def _acknowledged(self, acked: int) -> None:
        if not self._events or acked < self._events[0]["n"]:
            return
        now = now_ns()
        for event in self._events:
            if event["n"] <= acked and event["kind"] == "started":
                self.fleet.start_acknowledged(event["attempt"][0], now)
        self._events = [event for event in self._events if event["n"] > acked]

    def _want(self, desired: Iterable[Plain]) -> None:
        named = set()
        for wish in desired:
            attempt = (wish["attempt"][0], wish["attempt"][1])
            named.add(attempt)
            if wish["phase"] == "end":
                self._end(attempt)
            elif attempt not in self._done:
                self._start(attempt, wish)
        if not self._pushes:  # else answers may overtake each other, and an old one may name it once more
            self._done &= named

    def _start(self, attempt: tuple[int, int], wish: Plain) -> None:
        launch = wish.get("launch") or self._held.get(attempt)
        if launch is None or attempt[1] != 1 or wish.get("started"):
            self.fleet.wrong.append(
                f"{self.node}: told to start {attempt[0]}/{attempt[1]}, a start that is not its first"
            )
            return
        if wish["phase"] == "prepare":
            if attempt not in self._held:
                self._held[attempt] = launch
                self._event("prepared", attempt)
            return
        self._done.add(attempt)
        self._event("started", attempt, started=True, pids=[100_000 + rank for rank in _ranks(launch)])
        self._held[attempt] = launch
        command = launch["job"]["command"]
        if command[0] == "bench-run":
            self._loop.call_later(float(command[1]), self._ran, attempt, launch["slots"], now_ns())
        elif command[0] != "sleep":
            self._over(attempt, {})

    def _ran(self, attempt: tuple[int, int], slots: list[int], begun_ns: int) -> None:
        """A job has ended by itself."""
        if attempt not in self._held:
            self.fleet.wrong.append(f"{self.node}: {attempt[0]}/{attempt[1]} was ended before its time")
            return
        self._over(attempt, {})
        self.fleet.over(Span(attempt[0], self.node, slots, begun_ns, now_ns()))
        self._report()

    def _end(self, attempt: tuple[int, int]) -> None:
        if attempt in self._held:
            self._over(attempt, {"signal": 15})

    def _over(self, attempt: tuple[int, int], how: Plain) -> None:
        launch = self._held.pop(attempt)
        results = [{"rank": rank, **how, "ended_us": clock.now_us()} for rank in _ranks(launch)]
        self._event("ended", attempt, started=True, results=results)

    def _event(self, kind: str, attempt: tuple[int, int], **more: Any) -> None:
        self._n += 1
        self._events.append({"n": self._n, "t_us": clock.now_us(), "kind": kind, "attempt": attempt, **more})

    def holds(self) -> list[tuple[int, int]]:
        """Attempts that run here."""
        return list(self._held)

    # --- no contact -------------------------------------------------------------------------------------------------

    def _lost(self) -> None:
        self._link = None
        if self._head:
            self._pause()

    def _lost_push(self) -> None:
        self._push = None
        self.fleet.wrong.append(f"{self.node}: the connection for events was lost")

    def _pause(self) -> None:
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._failures, 10))
        self._failures += 1
        self._loop.call_later(pause * self.fleet.random.uniform(0.5, 1.0), self._try_again)

    def _try_again(self) -> None:
        self._trying = self._loop.create_task(self._again())

    async def _again(self) -> None:
        if self._link is None:
            try:
                await self._connect()
            except OSError:
                self._pause()
                return
        self._sync(0)


def _ranks(launch: Plain) -> range:
    """The ranks of this node's part of a gang."""
    part = launch["parts"][launch["index"]]
    return range(part["first_rank"], part["first_rank"] + part["tasks"])


def _nothing() -> None:
    return None


# --- what a benchmark asks ------------------------------------------------------------------------------------------


class Served:
    """The handlers of one helper process."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None

    @property
    def fleet(self) -> Fleet:
        """The agents, once they have joined."""
        assert self._fleet is not None
        return self._fleet

    async def join(self, plain: Plain) -> Plain:
        """Make an agent for each of `nodes` (name to GPU model), and let all join with the token; answers when each has
        had an answer."""
        fleet = self._fleet = Fleet(plain["host"], plain["port"])
        nodes: dict[str, str] = plain["nodes"]
        made = {model: facts(plain["gpus"], model) for model in dict.fromkeys(nodes.values())}
        push = plain.get("push", False)
        fleet.agents = [Agent(fleet, node, made[model], push=push) for node, model in nodes.items()]
        room = asyncio.Semaphore(JOINING)

        async def join(agent: Agent) -> None:
            async with room:
                await agent.join(plain["token"])
                await agent.first.wait()

        await asyncio.gather(*(join(agent) for agent in fleet.agents))
        return {"joined": len(fleet.agents)}

    async def wait_started(self, plain: Plain) -> Plain:
        """When `count` starts have been acknowledged since the last call, or after `timeout_s`: which, and when."""
        fleet = self.fleet
        await fleet.until(lambda: len(fleet.started) >= plain["count"], plain["timeout_s"])
        started, fleet.started = fleet.started, []
        return {"started": started, "wrong": fleet.wrong[:5]}

    async def wait_ran(self, plain: Plain) -> Plain:
        """When jobs have ended on `devices` devices, each counted as often as it had one, or after `timeout_s`: which
        ran, where and when, since the last call."""
        fleet = self.fleet
        await fleet.until(lambda: fleet.ran >= plain["devices"], plain["timeout_s"])
        spans, fleet.spans, fleet.ran = fleet.spans, [], 0
        return {"spans": spans, "wrong": fleet.wrong[:5]}

    async def back(self, plain: Plain) -> Plain:
        """When every agent has had an answer of another epoch than `epoch`, or after `timeout_s`: when each had."""
        fleet = self.fleet
        old = plain["epoch"]
        await fleet.until(
            lambda: all(epoch != old for epoch, _ in fleet.answered.values()), plain["timeout_s"]
        )
        back = [at for epoch, at in fleet.answered.values() if epoch != old]
        return {
            "back": back,
            "wrong": fleet.wrong[:5],
            "held": [job for a in fleet.agents for job, _ in a.holds()],
        }

    async def beats(self, _: Plain) -> Plain:
        """How many answers have come so far."""
        return {"beats": self.fleet.beats}


def serve() -> None:
    """The helper's process."""
    served = Served()
    helper.serve(
        {
            "join": served.join,
            "wait_started": served.wait_started,
            "wait_ran": served.wait_ran,
            "back": served.back,
            "beats": served.beats,
        }
    )
