"""A client on a served controller, without a socket; and transports that fail on purpose.

Comes in: a Served, or a script of answers. Goes out: Clients. Called by: tests of the client.
"""

from __future__ import annotations

from collections.abc import Iterable

import httpx2

from orchestrator.client import Client
from orchestrator.client.transport import Transport
from tests.api.served import Served

URL = "http://127.0.0.1:1"


class Bridge(httpx2.BaseTransport):
    """Carries requests of the HTTP library to the application."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        target = request.url.raw_path.decode()
        headers = {key: value for key, value in request.headers.items() if key != "authorization"}
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        answer = self._served.request(
            request.method,
            target,
            raw=request.read(),
            headers=headers,
            token=token or None,
            anonymous=not token,
        )
        return httpx2.Response(answer.status, headers=answer.headers, content=answer.body)


def client_of(served: Served, role: str = "admin", name: str = "root") -> Client:
    """A client with a token of that role."""
    return Client(URL, transport=Transport(URL, served.token(role, name), pool=Bridge(served)))


Step = httpx2.Response | Exception


class Scripted(httpx2.BaseTransport):
    """Answers as the script says, one step for each request; keeps the requests."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = list(steps)
        self.requests: list[httpx2.Request] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


def scripted(*steps: Step, pauses: list[float] | None = None) -> tuple[Client, Scripted]:
    """A client whose server follows a script; its clock moves only when it pauses."""
    pool, slept = Scripted(steps), pauses if pauses is not None else []
    transport = Transport(
        URL, "gln_secret", patience_s=5, pool=pool, sleep=slept.append, now=lambda: 1000 + sum(slept)
    )
    return Client(URL, transport=transport), pool
