"""The agents' routes: join, sync, and that a node speaks for itself alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.model.codec import decode, encode
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from tests.api.served import PREFIX, Served, document, until
from tests.builders import cluster, facts, pool

FACTS = NodeFacts("boot-1", 64, 64 << 30)


def join(served: Served, node: str, token_for: str) -> Any:
    """A node asks to be let in."""
    body = encode(JoinRequest(node, FACTS))
    return served.post("/agent/join", body, role="join", name=token_for)


@pytest.fixture
def waiting(empty: Served) -> Served:
    """A cluster whose nodes nobody has heard of."""
    empty.apply(cluster(pool("p", nodes=2)), ready=False)
    return empty


@pytest.mark.parametrize("token_for", ["p-1", "*"])
def test_join_gives_the_node_a_token_of_its_own(waiting: Served, token_for: str) -> None:
    answer = join(waiting, "p-1", token_for)

    made = decode(JoinAnswer, answer.json())
    assert made.cluster == "test"
    beat = encode(SyncRequest("p-1", "outbox", "boot-1", facts=facts(pool("p"))))
    assert waiting.post("/agent/sync", beat, token=made.token).status == 200
    waiting.settle()
    assert waiting.controller.view.nodes["p-1"].contact == "ok"


def test_join_token_of_one_node_is_spent(waiting: Served) -> None:
    assert join(waiting, "p-1", "p-1").status == 200

    assert join(waiting, "p-1", "p-1").status == 401


def test_join_token_for_any_node_lets_all_in(waiting: Served) -> None:
    assert [join(waiting, node, "*").status for node in ("p-1", "p-2", "p-1")] == [200, 200, 200]


def test_second_join_ends_the_first_token(waiting: Served) -> None:
    first = join(waiting, "p-1", "*").json()["token"]
    second = join(waiting, "p-1", "*").json()["token"]

    def sync(token: str) -> int:
        return int(
            waiting.post("/agent/sync", encode(SyncRequest("p-1", "o", "b", facts=FACTS)), token=token).status
        )

    assert (sync(first), sync(second)) == (401, 200)


@pytest.mark.parametrize(
    ("node", "token_for", "status", "code"),
    [("p-2", "p-1", 403, "access.other-node"), ("x-1", "*", 404, "node.not-found")],
)
def test_join_of_another_node_is_refused(
    waiting: Served, node: str, token_for: str, status: int, code: str
) -> None:
    answer = join(waiting, node, token_for)

    assert (answer.status, answer.code) == (status, code)


def test_node_speaks_for_itself_alone(served: Served) -> None:
    beat = encode(SyncRequest("p-2", "outbox", "boot-1"))

    answer = served.post("/agent/sync", beat, token=served.token("node", "p-1"))

    assert (answer.status, answer.code) == (403, "access.other-node")


def test_sync_tells_what_is_wanted(served: Served) -> None:
    job = served.submit()
    agent = served.agents["p-1"]

    answer = served.post("/agent/sync", encode(agent.request()), token=served.token("node", "p-1"))

    (desired,) = decode(SyncAnswer, answer.json()).desired
    assert desired.attempt == (job, 1)
    assert desired.launch is not None
    assert desired.launch.job.command == ("true",)


def test_idle_sync_is_held_and_answered_when_there_is_work(served: Served) -> None:
    agent = served.agents["p-1"]
    request = replace(agent.request(), wait_s=60)
    before = served.hub._polls.copy()
    holding = served.start(
        served.send("POST", f"{PREFIX}/agent/sync", body=encode(request), token=served.token("node", "p-1"))
    )
    until(lambda: served.hub._polls != before)

    served.submit(document())

    assert decode(SyncAnswer, holding.result(10).json()).desired


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "node"),
        ({"node": 7, "outbox": "o", "boot_id": "b"}, "node"),
        ({"node": "p-1", "outbox": "o", "boot_id": "b", "events": [{"n": "1"}]}, "events.[0].t_us"),
        ({"node": "p-1", "outbox": "o", "boot_id": "b", "held": [[1]]}, "held.[0]"),
        ({"node": "p-1", "outbox": "o", "boot_id": "b", "epoch": 1.5}, "epoch"),
        ([], ""),
        ("x", ""),
        (7, ""),
    ],
)
def test_malformed_message_is_refused_with_its_place(served: Served, body: Any, path: str) -> None:
    answer = served.post("/agent/sync", body, token=served.token("node", "p-1"))

    assert (answer.status, answer.code, answer.json()["path"]) == (422, "protocol.malformed", path)


def test_field_of_a_newer_agent_is_passed_over(served: Served) -> None:
    beat = encode(served.agents["p-1"].request()) | {"mood": "good"}

    assert served.post("/agent/sync", beat, token=served.token("node", "p-1")).status == 200


def test_agent_that_claims_a_newer_controller_is_refused_and_stops_nobody(served: Served) -> None:
    """The ledger's word counts, and it knows of none."""
    beat = encode(replace(served.agents["p-1"].request(), epoch=served.controller.view.epoch + 1))

    answer = served.post("/agent/sync", beat, token=served.token("node", "p-1"))

    assert (answer.status, answer.code) == (409, "sync.newer-epoch")
    honest = encode(served.agents["p-1"].request())
    assert served.post("/agent/sync", honest, token=served.token("node", "p-1")).status == 200
