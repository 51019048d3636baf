"""Messages of the agent protocol: golden forms, so that controller N and agent N-1 still understand each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.model.attempt import RankResult
from orchestrator.model.codec import decode, encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import Owner
from orchestrator.model.node import Device, NodeFacts
from orchestrator.model.protocol import (
    PROTOCOL,
    AgentEvent,
    Desired,
    EndOrder,
    EventKind,
    GangPart,
    Holding,
    JoinAnswer,
    JoinRequest,
    Launch,
    Phase,
    ReadRequest,
    SyncAnswer,
    SyncRequest,
)
from tests.builders import job

FACTS = NodeFacts("boot-1", 8, 1 << 34, (Device(0, "L40S-48GB", emulated=True),))
FACTS_PLAIN = {
    "boot_id": "boot-1",
    "cores": 8,
    "memory": 1 << 34,
    "devices": [{"slot": 0, "model": "L40S-48GB", "emulated": True}],
}
LAUNCH = Launch(
    job("train"),
    Owner("alice", 1001, 1001),
    (GangPart("n1", "10.0.0.1", 0, 2),),
    0,
    (0, 1),
    master_port=20000,
)
LAUNCH_PLAIN = {
    "job": {"name": "train", "request": {"tasks": 1, "per_task": {"gpus": 1}}, "command": ["true"]},
    "owner": {"name": "alice", "uid": 1001, "gid": 1001},
    "parts": [{"node": "n1", "address": "10.0.0.1", "first_rank": 0, "tasks": 2}],
    "index": 0,
    "slots": [0, 1],
    "master_port": 20000,
}
ENDED = AgentEvent(
    7, 9, EventKind.ENDED, AttemptId(3, 2), True, results=(RankResult(1, 0, 9, 8),), cause="fenced", tail="x"
)
ENDED_PLAIN = {
    "n": 7,
    "t_us": 9,
    "kind": "ended",
    "attempt": [3, 2],
    "started": True,
    "results": [{"rank": 1, "signal": 9, "ended_us": 8}],
    "cause": "fenced",
    "tail": "x",
}

MESSAGES: list[tuple[Any, dict[str, Any]]] = [
    (SyncRequest("n1", "o", "b"), {"node": "n1", "outbox": "o", "boot_id": "b"}),
    (
        SyncRequest(
            "n1", "o", "b", 5, events=(ENDED,), held=(AttemptId(3, 2),), wait_s=60, seen="5.1", facts=FACTS
        ),
        {
            "node": "n1",
            "outbox": "o",
            "boot_id": "b",
            "epoch": 5,
            "events": [ENDED_PLAIN],
            "held": [[3, 2]],
            "wait_s": 60,
            "seen": "5.1",
            "facts": FACTS_PLAIN,
        },
    ),
    (
        SyncRequest("n1", "o", "b", inventory=(Holding(AttemptId(3, 2), LAUNCH, True, True, 4, ENDED),)),
        {
            "node": "n1",
            "outbox": "o",
            "boot_id": "b",
            "inventory": [
                {
                    "attempt": [3, 2],
                    "launch": LAUNCH_PLAIN,
                    "prepared": True,
                    "started": True,
                    "started_us": 4,
                    "ended": ENDED_PLAIN,
                }
            ],
        },
    ),
    (
        SyncRequest("n1", "o", "b", inventory=()),
        {"node": "n1", "outbox": "o", "boot_id": "b", "inventory": []},
    ),
    (
        SyncRequest("n1", "o", "b", inventory=(Holding(AttemptId(3, 2), None),)),
        {"node": "n1", "outbox": "o", "boot_id": "b", "inventory": [{"attempt": [3, 2], "launch": None}]},
    ),
    (SyncAnswer(5, 7), {"epoch": 5, "acked": 7}),
    (
        SyncAnswer(5, 7, "5.2", (Desired(AttemptId(3, 2), Phase.RUN, launch=LAUNCH),), 60, 30, True, True),
        {
            "epoch": 5,
            "acked": 7,
            "revision": "5.2",
            "desired": [{"attempt": [3, 2], "phase": "run", "launch": LAUNCH_PLAIN}],
            "lease_s": 60,
            "poll_s": 30,
            "want_facts": True,
            "want_inventory": True,
        },
    ),
    (
        SyncAnswer(
            5,
            7,
            desired=(
                Desired(AttemptId(3, 2), Phase.END, True, end=EndOrder("cancelled", "SIGINT", "launcher", 0)),
            ),
        ),
        {
            "epoch": 5,
            "acked": 7,
            "desired": [
                {
                    "attempt": [3, 2],
                    "phase": "end",
                    "started": True,
                    "end": {"why": "cancelled", "signal": "SIGINT", "to": "launcher", "grace_s": 0},
                }
            ],
        },
    ),
    (
        SyncAnswer(5, 7, reads=(ReadRequest("r1", AttemptId(3, 2), 0, 100, 4096, 30),)),
        {
            "epoch": 5,
            "acked": 7,
            "reads": [{"id": "r1", "attempt": [3, 2], "rank": 0, "offset": 100, "limit": 4096, "wait_s": 30}],
        },
    ),
    (JoinRequest("n1", FACTS), {"node": "n1", "facts": FACTS_PLAIN}),
    (JoinAnswer("secret", "atlas"), {"token": "secret", "cluster": "atlas"}),
]


@pytest.mark.parametrize(("message", "plain"), MESSAGES, ids=lambda value: type(value).__name__)
def test_a_message_has_this_form_on_the_wire(message: Any, plain: dict[str, Any]) -> None:
    assert json.loads(json.dumps(encode(message))) == plain
    assert decode(type(message), plain) == message


def test_an_absent_inventory_and_an_empty_one_differ() -> None:
    """One says nothing; the other says that the node holds nothing."""
    assert decode(SyncRequest, {"node": "n", "outbox": "o", "boot_id": "b"}).inventory is None
    assert decode(SyncRequest, {"node": "n", "outbox": "o", "boot_id": "b", "inventory": []}).inventory == ()


def test_the_protocol_has_a_number() -> None:
    assert SyncRequest("n", "o", "b").protocol == PROTOCOL == 1
