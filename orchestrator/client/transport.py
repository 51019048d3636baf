"""One connection pool to one controller: addresses, tokens, time-outs, tries.

Comes in: requests of `client`. Goes out: answers below 400, or a GanglineError. Called by: client. The only module that
knows httpx2.

What is tried again: anything that never left (no connection); what may be repeated safely (`again=True`: reads, and
submits with an Idempotency-Key) also when the answer was lost or said 503. Pauses double from 0.1 s to 2 s until
`patience_s` have passed since the first failure.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2

from orchestrator.client.problems import error_of
from orchestrator.model.errors import GanglineError, InputError, TimedOut, Unavailable
from orchestrator.wire.api import PREFIX

CONNECT_S = 5.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
MOST_CONNECTIONS = 100


@dataclass(frozen=True, slots=True)
class Target:
    """Where the controller listens: a base URL, and the socket's path if it is a Unix one."""

    base: str
    socket: str = ""

    def __str__(self) -> str:
        return f"unix://{self.socket}" if self.socket else self.base


def parse_url(url: str) -> Target:
    """`https://host:port` or `unix:///path`; InputError for anything else, and for a secret inside it."""
    try:
        parts = urlsplit(url)
        port_is_good = parts.port is None or parts.port > 0
    except ValueError:
        raise _bad_url(url) from None
    if parts.username or parts.password:
        raise InputError(
            "client.bad-url", "an address holds no user or password", "give the token by GANGLINE_TOKEN"
        )
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return Target("http://gangline", unquote(parts.path))
    if (
        parts.scheme in ("http", "https")
        and parts.hostname
        and port_is_good
        and not parts.query
        and not parts.fragment
    ):
        return Target(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}")
    raise _bad_url(url)


def _bad_url(url: str) -> InputError:
    return InputError(
        "client.bad-url",
        f"{url!r} is no address of a controller",
        "write https://host:port, http://127.0.0.1:port or unix:///path/to/api.sock",
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `again`: it may be sent twice. `wait_s`: how long the server may hold it."""

    method: str
    path: str
    params: Mapping[str, str | int] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    again: bool = False
    wait_s: float = 0.0


class Transport:
    """Sends requests; safe to use from several threads."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        ca_file: str = "",
        timeout_s: float = 30.0,
        patience_s: float = 5.0,
        pool: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.target = parse_url(url)
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._sleep, self._now = sleep, now
        headers = {"Accept": "application/json, application/problem+json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx2.Client(
            base_url=self.target.base + PREFIX,
            headers=headers,
            transport=pool or _pool(self.target, ca_file),
            trust_env=False,
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, asked: Asked) -> httpx2.Response:
        """The answer. Unavailable if there is none, TimedOut if it takes too long, else the error that it is."""
        deadline, pause = 0.0, FIRST_PAUSE_S
        while True:
            try:
                return self._once(asked)
            except _Again as failure:
                deadline = deadline or self._now() + self._patience_s
                left = deadline - self._now()
                if left <= 0:
                    raise failure.error from failure.__cause__
            self._sleep(min(pause, left))
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _once(self, asked: Asked) -> httpx2.Response:
        try:
            answer = self._http.request(
                asked.method,
                asked.path,
                params=dict(asked.params),
                json=asked.json,
                content=asked.content,
                headers=dict(asked.headers),
                timeout=httpx2.Timeout(self._timeout_s + asked.wait_s, connect=CONNECT_S),
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise _Again(self._unreachable(error)) from error
        except httpx2.TimeoutException as error:
            raise TimedOut(
                "client.timeout",
                f"{self.target} did not answer within {self._timeout_s + asked.wait_s:g} s",
                "ask again, or allow more time",
            ) from error
        except httpx2.TransportError as error:
            lost = Unavailable("client.lost", f"the connection to {self.target} broke: {error}", "ask again")
            raise (_Again(lost) if asked.again else lost) from error
        if answer.status_code < 400:
            return answer
        found = error_of(answer.status_code, answer.headers.get("content-type", ""), answer.content)
        if asked.again and isinstance(found, Unavailable):
            raise _Again(found)
        raise found

    def _unreachable(self, error: Exception) -> Unavailable:
        if isinstance(error.__cause__, ssl.SSLError) or "CERTIFICATE" in str(error):
            return Unavailable(
                "client.certificate",
                f"the certificate of {self.target} is not trusted: {error}",
                "give the certificate of the authority that signed it: its path in GANGLINE_CA, in Python as ca_file",
            )
        return Unavailable(
            "client.unreachable",
            f"there is no controller at {self.target}: {error}",
            "`gangline up` starts one for a local cluster; check the address and that the server runs",
        )


class _Again(Exception):
    """The request may be sent again; `error` is raised when patience is used up."""

    def __init__(self, error: GanglineError) -> None:
        super().__init__(str(error))
        self.error = error


def _pool(target: Target, ca_file: str) -> httpx2.HTTPTransport:
    limits = httpx2.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_CONNECTIONS)
    if target.socket:
        return httpx2.HTTPTransport(uds=target.socket, limits=limits, verify=False)
    if target.base.startswith("http:"):
        return httpx2.HTTPTransport(limits=limits, verify=False)
    return httpx2.HTTPTransport(limits=limits, verify=_trust(ca_file))


def _trust(ca_file: str) -> ssl.SSLContext | bool:
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InputError(
            "client.bad-ca", f"the CA file {ca_file} can't be used: {error}", path=ca_file
        ) from error
