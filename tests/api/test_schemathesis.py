"""Generated requests against the OpenAPI document: what it allows is answered as it says, what it forbids is refused.

schemathesis makes good and bad requests from the document; a real server answers them. Its own checks hold every answer
to the documented statuses, types, headers and schemas, and bad data to a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from orchestrator.api.app import make_fastapi
from orchestrator.model.codec import encode
from orchestrator.model.node import NodeFacts
from tests.api.listening import Listening
from tests.api.served import PREFIX, document
from tests.builders import cluster, pool

pytestmark = pytest.mark.system

SCHEMA = schemathesis.openapi.from_dict(make_fastapi().openapi())
SCHEMA.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


class Target:
    """A server with two nodes, some jobs, and a token for each kind of caller."""

    def __init__(self, server: Listening) -> None:
        self.http = httpx2.Client(base_url=server.url, timeout=30)
        self.url = server.url
        self.tokens = {"admin": server.admin_token}
        with server.client() as client:
            client.apply_cluster(cluster(pool("p", nodes=2)))
            self.tokens["join"] = client.create_token("join", "*").secret
            for hold in (True, False):
                client.submit(document(hold=hold))
        joining = {"node": "p-1", "facts": encode(NodeFacts("b", 4, 1 << 30))}
        answer = self.http.post(f"{PREFIX}/agent/join", json=joining, headers=self.bearer("join"))
        self.tokens["node"] = answer.json()["token"]

    def bearer(self, kind: str) -> dict[str, str]:
        """The header of a caller."""
        return {"Authorization": f"Bearer {self.tokens[kind]}"}

    def for_path(self, path: str) -> dict[str, str]:
        """Of somebody who may use that route."""
        if "/agent/" not in path:
            return self.bearer("admin")
        return self.bearer("join" if path.endswith("/join") else "node")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    server = Listening(tmp_path_factory.mktemp("s") / "s").wait_ready()
    found = Target(server)
    yield found
    found.http.close()
    code, _, err = server.stop()
    assert (code, "Traceback" in err) == (0, False), err


@SCHEMA.parametrize()
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_documented(case: Any, target: Target) -> None:
    for waits in ("timeout", "wait"):  # nobody waits for long here
        given = str((case.query or {}).get(waits, 30))
        if case.path.endswith(("/wait", "/logs")) and given.isdecimal() and int(given) <= 60:
            case.query = {**(case.query or {}), waits: 0}
    if case.path.endswith("/tokens/{token}"):
        case.path_parameters["token"] = f"not-{case.path_parameters['token']}"[:64]  # keep those in use

    case.call_and_validate(base_url=target.url, headers=target.for_path(case.path), checks=CHECKS)
