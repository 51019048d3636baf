"""What a type of resource is to the provider, and the table of all of them.

Comes in: the functions of network, groups, machines, identity and storage. Goes out: `KINDS` by Pulumi's type
token. Called by: server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from botocore.exceptions import ClientError

Values = dict[str, Any]
LONGEST_WAIT_S = 30.0


class Clients:
    """boto3 clients of one region, made when they are first used; the endpoint comes from the environment."""

    def __init__(self, region: str, default_tags: dict[str, str] | None = None) -> None:
        self.region, self.default_tags = region, default_tags or {}
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()  # the engine asks for many resources at once

    def __getattr__(self, service: str) -> Any:
        if service.startswith("_"):
            raise AttributeError(service)
        with self._lock:
            if service not in self._made:
                self._made[service] = _session().client(service, region_name=self.region)
            return self._made[service]

    @cache  # noqa: B019 - one object lives as long as its process
    def account(self) -> str:
        """Twelve digits."""
        return str(self.sts.get_caller_identity()["Account"])

    def tags(self, inputs: Values) -> dict[str, str]:
        """The tags of a resource with the provider's own."""
        return self.default_tags | (inputs.get("tags") or {})


@cache
def _session() -> Any:
    import boto3

    return boto3.session.Session()


@dataclass(frozen=True)
class Kind:
    """One type. `create` returns an id; `read` all that can be seen, None where it is gone; both may raise ClientError.

    `replace`: inputs that make a new one when they change. `computed`: outputs that only AWS knows. `moving`: those
    that a change of inputs changes. `named`: the input that is made from Pulumi's name where it is absent. `tagged`:
    tags are kept by EC2's CreateTags on the id.
    """

    create: Callable[[Clients, Values], str]
    read: Callable[[Clients, str, Values], Values | None]
    delete: Callable[[Clients, str, Values], None]
    update: Callable[[Clients, str, Values, Values], None] | None = None
    replace: frozenset[str] = frozenset()
    computed: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()
    named: str = ""
    tagged: bool = False


KINDS: dict[str, Kind] = {}


def kind(token: str, entry: Kind) -> None:
    """Enter a type into the table."""
    KINDS[token] = entry


def words(text: str) -> frozenset[str]:
    """Names in one text."""
    return frozenset(text.split())


def code_of(wrong: ClientError) -> str:
    """The error's code."""
    return str(wrong.response["Error"]["Code"])


def gone(wrong: ClientError) -> bool:
    """Whether an error says that a thing does not exist."""
    code = code_of(wrong)
    return "NotFound" in code or code in ("NoSuchEntity", "InvalidPlacementGroup.Unknown")


def read_or_none(call: Callable[[], Any]) -> Any:
    """What a call says; None where the thing does not exist."""
    try:
        return call()
    except ClientError as wrong:
        if gone(wrong):
            return None
        raise


@dataclass
class Wait:
    """Ask until an answer is good, as the real provider does; TimeoutError after LONGEST_WAIT_S."""

    what: str
    deadline: float = field(default_factory=lambda: time.monotonic() + LONGEST_WAIT_S)

    def until(self, ask: Callable[[], Any]) -> Any:
        """The first answer that is not None."""
        while (found := ask()) is None:
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"{self.what} after {LONGEST_WAIT_S:g} s")
            time.sleep(0.05)
        return found
