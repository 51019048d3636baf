"""Clients that submit jobs, each on its own kept connection: one POST a job with its own Idempotency-Key.

Comes in: where the server is, a token, a job document, how many, how fast; or documents and a plan. Goes out: for
each job its id, when its request was sent (or was due) and when its acknowledgement came. Called by: helper, as a
process of its own.

`rate` 0 is a closed loop: each client sends its next job when the last is acknowledged. Otherwise jobs are due at that
rate a second and their times count from when they were due, so that a server that stalls can't hide it. A request whose
answer was lost, or that was told to come again (503), is sent again with the same key.

With a `plan`, jobs differ and each has its own time: [microseconds after the begin, which of `documents`], by time.
`numbers` then says which job of the plan a row is about.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field

from tests.bench import helper
from tests.bench.helper import Plain, now_ns
from tests.bench.link import Link, head, request

PATH = "/api/v1/jobs"
AGAIN_S = 0.1


@dataclass(slots=True)
class Run:
    """One run: what is still to be sent, and what became of the rest. Times in nanoseconds, CLOCK_MONOTONIC."""

    host: str
    port: int
    token: str
    bodies: list[bytes]
    jobs: int
    rate: float
    prefix: str
    plan: list[tuple[int, int]] = field(
        default_factory=list
    )  # due, in microseconds after the begin; which body
    begun: int = 0
    sent: int = 0
    repeats: int = 0
    rows: list[tuple[int, int, int]] = field(default_factory=list)  # job, sent or due, acknowledged
    numbers: list[int] = field(default_factory=list)  # of each row: which job it was, from 0
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    error: str = ""

    def next_due(self) -> tuple[int, int] | None:
        """The number and time of the next job; None when all have been handed out."""
        if self.sent >= self.jobs:
            return None
        number = self.sent
        self.sent += 1
        if self.plan:
            return number, self.begun + self.plan[number][0] * 1000
        return number, self.begun + int(number / self.rate * 1e9) if self.rate else 0

    def body(self, number: int) -> bytes:
        """The document of a job."""
        return self.bodies[self.plan[number][1] if self.plan else 0]

    def fail(self, why: str) -> None:
        """Nothing more will come of this run."""
        self.error = why
        self.finished.set()


class Client:
    """One connection. `_owed`: a request is out, or will go out as soon as there is a connection again."""

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._run = run
        self._loop = loop
        self._link = Link(_nothing, self._lost)
        self._up = False
        self._owed = False
        self._number = 0
        self._from_ns = 0

    async def connect(self) -> None:
        """Connect; OSError if nobody listens."""
        self._link = Link(_nothing, self._lost)
        await self._loop.create_connection(lambda: self._link, self._run.host, self._run.port)
        self._up = True

    def next(self) -> None:
        """Take the next job when it is due."""
        due = self._run.next_due()
        if due is None:
            return
        self._number, due_ns = due
        self._from_ns = due_ns or now_ns()
        early_ns = self._from_ns - now_ns()
        if early_ns <= 0:
            self._send()
        else:
            self._loop.call_later(early_ns / 1e9, self._send)

    def _send(self) -> None:
        self._owed = True
        if self._up:
            run = self._run
            start = head(PATH, run.token, f"Idempotency-Key: {run.prefix}-{self._number}\r\n")
            self._link.send(request(start, run.body(self._number)), self._answered)

    def _answered(self, status: int, body: bytes) -> None:
        run = self._run
        self._owed = False
        if status == 503:
            run.repeats += 1
            self._loop.call_later(AGAIN_S, self._send)
            return
        if status not in (200, 201):
            run.fail(f"submitting was answered with {status}: {body[:300].decode(errors='replace')}")
            return
        run.rows.append((json.loads(body)["id"], self._from_ns, now_ns()))
        run.numbers.append(self._number)
        if len(run.rows) == run.jobs:
            run.finished.set()
        self.next()

    def _lost(self) -> None:
        self._up = False
        if not self._run.finished.is_set():
            self._again = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while not self._up:
            await asyncio.sleep(AGAIN_S)
            with suppress(OSError):
                await self.connect()
        if self._owed:
            self._run.repeats += 1
            self._send()

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def _nothing() -> None:
    return None


async def submit(plain: Plain) -> Plain:
    """Submit all and answer with what became of each; `clients` is how many connections."""
    clients = plain.pop("clients")
    plain.setdefault("documents", [plain.pop("document", None)])
    bodies = [json.dumps(document).encode() for document in plain.pop("documents")]
    run = Run(bodies=bodies, **plain)
    loop = asyncio.get_running_loop()
    group = [Client(run, loop) for _ in range(clients)]
    await asyncio.gather(*(client.connect() for client in group))
    run.begun = now_ns()
    for client in group:
        client.next()
    await run.finished.wait()
    for client in group:
        client.close()
    if run.error:
        raise RuntimeError(run.error)
    return {"begun": run.begun, "rows": run.rows, "numbers": run.numbers, "repeats": run.repeats}


def serve() -> None:
    """The helper's process."""
    helper.serve({"submit": submit})
