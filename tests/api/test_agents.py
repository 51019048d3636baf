"""The agents' routes: join, sync, and that a node speaks for itself alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.api import bodies, bounds
from orchestrator.model.attempt import RankResult
from orchestrator.model.codec import decode, encode
from orchestrator.model.errors import InputError
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import Owner
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import (
    AgentEvent,
    EventKind,
    GangPart,
    Holding,
    JoinAnswer,
    JoinRequest,
    Launch,
    SyncAnswer,
    SyncRequest,
)
from tests.api.served import PREFIX, Served, document, until
from tests.builders import cluster, facts, job, pool

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


def _with(beat: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    inner: Any = beat
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return beat


def _full_beat() -> dict[str, Any]:
    """A beat with everything in it that a node can tell."""
    event = AgentEvent(1, 5, EventKind.ENDED, AttemptId(50, 1), results=(RankResult(0),))
    gang = (GangPart("p-1", "127.0.0.1", 0, 1), GangPart("p-2", "127.0.0.1", 1, 1))
    launch = Launch(job(), Owner("alice", 1001, 1001), gang, 0, (0, 1), 1, 5, "127.0.0.1", 20_000, "c", 5)
    holding = Holding(AttemptId(50, 1), launch, True, True, 5, event)
    running = Holding(AttemptId(51, 1), None, started=True)
    full = SyncRequest(
        "p-1",
        "o",
        "b",
        facts=replace(facts(pool("p")), hostname="h"),
        events=(event,),
        held=(AttemptId(51, 1),),
        inventory=(holding, running),
    )
    beat: dict[str, Any] = encode(full)
    return beat


def _check(beat: dict[str, Any]) -> None:
    body = json.dumps(beat).encode()
    bounds.check(decode(SyncRequest, bodies.parse(body)), body)


def test_what_a_node_can_tell_is_within_the_bounds() -> None:
    _check(_full_beat())


@pytest.mark.parametrize("bad", [-1, 1024, 10**9, 10**30])
def test_slot_that_no_machine_has_is_refused(served: Served, bad: int) -> None:
    seq = served.controller.view.seq
    beat = _with(_full_beat(), ("facts", "devices", 0, "slot"), bad)

    answer = served.post("/agent/sync", beat, token=served.token("node", "p-1"))

    assert (answer.status, answer.code) == (422, "protocol.out-of-bounds")
    assert str(answer.json()["path"]).startswith("facts.devices")
    served.settle()
    assert all(event.type == "token.created" for event in served.controller._store.tail(seq))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("facts", "cores"), -1),
        (("facts", "memory"), 2**53),
        (("facts", "memory"), int("9" * 399)),
        (("facts", "hostname"), "x" * 70_000),
        (("facts", "devices", 1, "slot"), 0),
        (("facts", "devices", 1, "memory"), -1),
        (("outbox",), "x" * 70_000),
        (("epoch",), 2**63),
        (("events", 0, "n"), 2**53),
        (("events", 0, "n"), -1),
        (("events", 0, "attempt"), [2**70, 1]),
        (("events", 0, "attempt"), [0, 1]),
        (("events", 0, "tail"), "x" * 70_000),
        (("events", 0, "results", 0, "rank"), -1),
        (("held",), [[-1, 1]]),
        (("held",), [[number, 1] for number in range(1, 4098)]),
        (("inventory", 1, "attempt"), [2**63, 1]),
        (("inventory", 0, "attempt"), [51, 1]),
        (("inventory", 0, "started_us"), -1),
        (("inventory", 0, "launch", "slots"), [-1]),
        (("inventory", 0, "launch", "slots"), [1, 1]),
        (("inventory", 0, "launch", "instances"), [{"slot": 9, "profile": "a", "start": 0, "size": 1}]),
        (("inventory", 0, "launch", "instances"), [{"slot": 1, "profile": "a", "start": 5, "size": 4}]),
        (("inventory", 0, "launch", "instances"), [{"slot": 1, "profile": "a", "start": 0, "size": 1}] * 2),
        (("inventory", 0, "launch", "cores"), -1),
        (("inventory", 0, "launch", "submitted_us"), -(10**30)),
        (("inventory", 0, "launch", "master_port"), 65_536),
        (("inventory", 0, "launch", "owner", "uid"), -1),
        (("inventory", 0, "launch", "parts", 1, "node"), "p-1"),
        (("inventory", 0, "launch", "parts", 1, "tasks"), 0),
        (("inventory",), [{"attempt": [number, 1], "launch": None} for number in range(1, 4098)]),
    ],
)
def test_what_no_node_can_mean_is_refused(path: tuple[str | int, ...], value: Any) -> None:
    """It would be folded, stored and added up for all, for as long as the ledger lives."""
    with pytest.raises(InputError) as caught:
        _check(_with(_full_beat(), path, value))

    assert caught.value.code == "protocol.out-of-bounds"


@pytest.mark.parametrize("number", [2**53 - 1, 2**53, 9_999_999_999_999_999, 10**16, -(2**53), 10**40])
def test_a_number_is_judged_however_its_text_is_made(number: int) -> None:
    """A short text without long numbers is not looked through: it must be one that needs no look."""
    beat = _with(_full_beat(), ("events", 0, "t_us"), number)

    if abs(number) < 2**53:
        _check(beat)
        return
    with pytest.raises(InputError):
        _check(beat)


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
