"""An AWS account made of answers: real boto3 clients that are answered before anything is sent.

Comes in: answers or error codes by operation. Goes out: a factory of clients, and what they were asked; botocore's own
models check every request. Called by: tests of the live checks. Any thread may ask, in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, local
from types import SimpleNamespace
from typing import Any

import boto3

KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
_SESSION, _MAKING = (
    boto3.session.Session(),
    Lock(),
)  # it keeps the models of services, and is not for several threads
Answer = dict[str, Any] | str | Callable[[dict[str, Any]], "dict[str, Any] | str"]


class Answers:
    """`DescribeSubnets={...}` is what that operation answers; a text is an error code; a function is asked with the
    request. An operation without an answer is refused like one that the credentials may not call."""

    def __init__(self, **answers: Answer) -> None:
        self.answers: dict[str, Answer] = dict(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._mine = local()

    def __call__(self, service: str, region: str) -> Any:
        """A client of a service, which sends nothing."""
        with _MAKING:
            client = _SESSION.client(service, region_name=region, **KEYS)
        client.meta.events.register("provide-client-params.*.*", self._note)
        client.meta.events.register("before-call.*.*", self._answer)
        return client

    def requests(self, operation: str) -> list[dict[str, Any]]:
        """What an operation was asked with, oldest first."""
        return [params for name, params in self.asked if name == operation]

    def _note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.asked.append((model.name, params))
        self._mine.request = params

    def _answer(self, model: Any, **_: Any) -> tuple[Any, dict[str, Any]]:
        found = self.answers.get(model.name, "UnauthorizedOperation")
        if callable(found):
            found = found(self._mine.request)  # a client asks and is answered in one thread
        if isinstance(found, str):
            error = {"Code": found, "Message": f"{found} was\n answered."}
            return SimpleNamespace(status_code=400), {"Error": error, "ResponseMetadata": {}}
        return SimpleNamespace(status_code=200), {**found, "ResponseMetadata": {}}
