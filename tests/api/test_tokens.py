"""Tokens over HTTP: made, shown without secrets, revoked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.store.base import Store
from orchestrator.wire import api_cluster as wire
from tests.api.served import PREFIX, Served


def create(served: Served, asked: str = "submit", person: str = "alice", **who: Any) -> Any:
    """A token over HTTP."""
    return served.post("/tokens", {"role": asked, "name": person}, **who)


def test_new_token_opens_what_its_role_says(served: Served) -> None:
    made = wire.TokenCreated.model_validate_json(create(served).body)

    assert made.secret.startswith("gln_")
    assert len(made.secret) > 40
    assert (made.role, made.name, made.expires_at) == ("submit", "alice", None)
    assert served.get("/status", token=made.secret).status == 200
    assert served.post("/recover", {}, token=made.secret).status == 403


def test_secret_is_shown_once_and_kept_nowhere(served: Served) -> None:
    secret = create(served).json()["secret"]

    listed = served.get("/tokens").body.decode()

    store: Store = served.controller._store
    ledger = json.dumps([event.body for event in list(store.tail(0))])
    assert "tok-" in listed
    assert secret not in listed
    assert secret not in ledger
    assert secret[4:] not in ledger


@pytest.mark.parametrize("name", ["a b", "a:b", "a\n", "a\x1b"])
def test_token_needs_a_name_that_a_machine_can_know(served: Served, name: str) -> None:
    assert served.post("/tokens", {"role": "submit", "name": name}).code == "token.bad-name"


@pytest.mark.parametrize("name", ["alice", "CORP\\alice", "alice@example.org", "svc$"])
def test_names_of_directories_are_names_too(served: Served, name: str) -> None:
    assert served.post("/tokens", {"role": "submit", "name": name}).status == 201


def test_tokens_are_listed_in_order_and_others_are_hidden(served: Served) -> None:
    ids = []
    for name in ("alice", "bob", "alice"):
        served.clock.advance(1)
        ids.append(create(served, person=name).json()["id"])

    everyone = [item["id"] for item in served.get("/tokens").json()["items"]]
    mine = [item["id"] for item in served.get("/tokens", uid=1001).json()["items"]]

    assert [found for found in everyone if found in ids] == ids
    assert mine == [ids[0], ids[2]]


def test_revoked_token_opens_nothing(served: Served) -> None:
    made = create(served).json()

    answer = served.request("DELETE", f"{PREFIX}/tokens/{made['id']}")

    assert (answer.status, answer.body) == (204, b"")
    assert served.get("/status", token=made["secret"]).status == 401
    assert served.request("DELETE", f"{PREFIX}/tokens/{made['id']}").code == "token.not-found"


@pytest.mark.parametrize(
    ("who", "status"),
    [
        ({"uid": 1001}, 204),  # her own
        ({"uid": 1002}, 404),  # another's: not even that it is there
        ({"role": "operator", "name": "carol"}, 403),
        ({"role": "admin", "name": "carol"}, 204),
    ],
)
def test_who_may_revoke(served: Served, who: dict[str, Any], status: int) -> None:
    made = create(served).json()["id"]

    assert served.request("DELETE", f"{PREFIX}/tokens/{made}", **who).status == status


@pytest.mark.parametrize(
    ("role", "name", "who", "status"),
    [
        ("submit", "alice", {"uid": 1001}, 201),
        ("read", "alice", {"uid": 1001}, 201),
        ("operator", "alice", {"uid": 1001}, 403),  # more than she has
        ("submit", "bob", {"uid": 1001}, 403),
        ("join", "alice", {"uid": 1001}, 403),
        ("submit", "alice", {"role": "submit", "name": "alice"}, 403),  # a token makes none
        ("submit", "alice", {"role": "operator", "name": "alice"}, 403),
        ("join", "*", {"role": "admin", "name": "root"}, 201),
    ],
)
def test_who_may_make_which(served: Served, role: str, name: str, who: dict[str, Any], status: int) -> None:
    assert create(served, role, name, **who).status == status


@pytest.mark.parametrize(
    "body",
    [
        {"role": "node", "name": "p-1"},
        {"role": "king", "name": "alice"},
        {"role": "read"},
        {"role": "read", "name": ""},
        {"role": "read", "name": "alice", "expires_s": -1},
        {"role": "read", "name": "alice", "expires_s": 1.5},
        {"role": "read", "name": "alice", "secret": "mine"},
        {"role": "read", "name": None},
        [],
        None,
    ],
)
def test_bad_wish_is_refused(served: Served, body: Any) -> None:
    answer = served.post(
        "/tokens", raw=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )

    assert answer.status == 422
    assert all(item["path"].startswith("body") for item in answer.json()["errors"])
