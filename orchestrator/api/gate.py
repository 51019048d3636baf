"""Where every request enters: who asks, is the body sound, and one form for every failure.

Comes in: ASGI. Goes out: the answer of a route, or a problem document. Called by: the HTTP server, tests.

The few routes that many call often (submit, the agents') are answered here, beside FastAPI: its machinery costs more
than their work. Everything else has its body read and checked as strict JSON first, so that no route parses bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api import bodies, problems
from orchestrator.api.hub import Hub
from orchestrator.model.errors import GanglineError, NotFound
from orchestrator.wire.api import PREFIX

CALLER = "gangline.caller"  # where the caller is in the scope
BODY = "gangline.body"  # where a checked body is, if the request had one
GONE = "gangline.gone"  # the protocol puts it into the scope when the connection has closed
QUICK = "gangline.quick"  # a shorter way for a whole answer, where the protocol has one: see `Quick`
TOLD = "gangline.told"  # in the scope once an internal error has been answered
AGENT_PATH = f"{PREFIX}/agent"
OPEN_PATHS = (
    f"{PREFIX}/healthz",
    f"{PREFIX}/ca",
    f"{PREFIX}/openapi.json",
    AGENT_PATH,
    f"{AGENT_PATH}/join-aws",  # what it shows is in its body
)
CLUSTER_PATH = f"{PREFIX}/cluster"
BODY_METHODS = ("POST", "PUT", "PATCH", "DELETE")

Handler = Callable[[Hub, Scope, Receive], Awaitable[Response]]
Quick = Callable[[Response], bool]  # whether it has sent the answer


class Gate:
    """The whole application. `exact` and `below` are the quick routes: by method and path, or its beginning."""

    def __init__(
        self,
        hub: Hub,
        app: ASGIApp,
        exact: dict[tuple[str, str], Handler],
        below: dict[tuple[str, str], Handler],
    ) -> None:
        self._hub = hub
        self._app = app
        self._exact = exact
        self._below = below

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] == "http":
            await _Exchange(scope, receive, send).run(self._answer)
        elif scope["type"] == "lifespan":
            await _lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        quick: Quick | None = scope.pop(
            QUICK, None
        )  # it holds the scope: left there, only a collection would end both
        if path not in OPEN_PATHS:
            scope[CALLER] = await self._hub.access.caller(scope)
        handler = self._handler(scope["method"], path)
        if handler is not None:
            response = await handler(self._hub, scope, receive)
            if quick is None or not quick(response):
                await response(scope, receive, send)
            return
        if scope["method"] in BODY_METHODS:
            receive = await _checked(scope, receive, path)
        await self._app(scope, receive, send)

    def _handler(self, method: str, path: str) -> Handler | None:
        found = self._exact.get((method, path))
        if found is None and self._below:
            start, _, last = path.rpartition("/")
            found = self._below.get((method, start)) if last else None
        return found


class _Exchange:
    """One request and whether its answer has begun."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.begun = False

    async def send(self, message: Message) -> None:
        self.begun = True
        await self._send(message)

    async def run(self, answer: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        """Answer, whatever happens; only the end of the task itself goes through."""
        try:
            await answer(self.scope, self.receive, self.send)
        except bodies.Gone:
            return
        except GanglineError as error:
            await self._fail(problems.respond(error), error)
        except asyncio.CancelledError:
            if GONE not in self.scope:
                raise
        except Exception as error:  # noqa: BLE001 - every failure gets the one form
            await self._fail(
                problems.respond_internal(error, self.scope["method"], self.scope["path"]), error
            )

    async def _fail(self, response: Response, error: Exception) -> None:
        if TOLD in self.scope:
            return
        if self.begun:  # half an answer is out: closing the connection is all that is left to say
            raise error
        await response(self.scope, self.receive, self._send)


async def _checked(scope: Scope, receive: Receive, path: str) -> Receive:
    """Read the body, prove that it is strict JSON, and hand it on as if nothing had been read."""
    cluster = path == CLUSTER_PATH
    body = await bodies.read(scope, receive, bodies.MOST_CLUSTER if cluster else bodies.MOST_BODY)
    scope[BODY] = body
    if body and not cluster:
        bodies.require_json(scope)
        bodies.parse(body)
    return replayed(body, receive)


def replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body again, once, and then what really comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _lifespan(receive: Receive, send: Send) -> None:
    """Nothing to do at start and stop: serve.py does it in its own order."""
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


def no_route(path: str) -> NotFound:
    """The error for a path that nobody answers."""
    return NotFound(
        "request.no-route", f"there is nothing at {path}", f"{PREFIX}/openapi.json lists the routes"
    )


def caller_in(scope: Scope) -> Any:
    """The caller that this gate has let in."""
    return scope[CALLER]
