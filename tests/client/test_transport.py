"""Addresses, tries and errors of the client, against a server that follows a script."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from orchestrator.client import InvalidInput
from orchestrator.client.problems import error_of
from orchestrator.client.transport import Asked, Target, Transport, parse_url
from orchestrator.model.errors import (
    Conflict,
    GanglineError,
    InputError,
    NotFound,
    Refused,
    TimedOut,
    Unauthenticated,
    Unavailable,
)
from tests.api.served import document
from tests.client.bridge import scripted

MADE = httpx2.Response(201, json={"id": 7, "repeated": False})
AGAIN = httpx2.Response(200, json={"id": 7, "repeated": True})
REFUSED = httpx2.ConnectError("refused")


def problem(status: int, code: str = "x.y", **rest: Any) -> httpx2.Response:
    """An error as the server tells it."""
    body = {"title": "t", "status": status, "detail": "what happened", "code": code} | rest
    return httpx2.Response(
        status, content=json.dumps(body).encode(), headers={"content-type": "application/problem+json"}
    )


# --- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://atlas.example.org:7443", Target("https://atlas.example.org:7443")),
        ("http://127.0.0.1:80/", Target("http://127.0.0.1:80")),
        ("https://proxy/atlas/", Target("https://proxy/atlas")),
        ("http://[::1]:7443", Target("http://[::1]:7443")),
        ("unix:///run/gangline/api.sock", Target("http://gangline", "/run/gangline/api.sock")),
        ("unix:/run/api.sock", Target("http://gangline", "/run/api.sock")),
        ("unix:///with%20space", Target("http://gangline", "/with space")),
    ],
)
def test_addresses(url: str, target: Target) -> None:
    assert parse_url(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "",
        "atlas:7443",
        "ftp://x",
        "unix://host/path",
        "http://",
        "https://user:pw@host",
        "http://h?x=1",
        "http://[::1",
        "http://h:x",
        "http://h:0",
    ],
)
def test_bad_addresses_are_told(url: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_url(url)

    assert caught.value.code == "client.bad-url"
    assert "pw" not in str(caught.value)


def test_path_in_front_of_the_api_is_kept() -> None:
    pool_client, pool = scripted(httpx2.Response(200, json={"items": []}))
    transport = Transport("https://proxy/atlas", pool=pool)

    transport.send(Asked("GET", "/nodes"))

    assert str(pool.requests[0].url) == "https://proxy/atlas/api/v1/nodes"
    pool_client.close()


# --- tries ----------------------------------------------------------------------------------------------------------


def test_submit_always_has_a_key_and_keeps_it_through_all_tries() -> None:
    client, pool = scripted(
        REFUSED,
        httpx2.ReadError("reset"),
        problem(503, "controller.stopping"),
        httpx2.RemoteProtocolError("eof"),
        AGAIN,
    )

    made = client.submit(document())

    keys = {request.headers["idempotency-key"] for request in pool.requests}
    assert (made.id, len(pool.requests), len(keys)) == (7, 5, 1)
    assert all(len(key) > 15 for key in keys)


def test_two_submits_have_two_keys() -> None:
    client, pool = scripted(MADE, MADE)

    client.submit(document())
    client.submit(document())

    assert len({request.headers["idempotency-key"] for request in pool.requests}) == 2


def test_pauses_grow_and_end_with_patience() -> None:
    pauses: list[float] = []
    client, pool = scripted(*[REFUSED] * 20, pauses=pauses)

    with pytest.raises(Unavailable) as caught:
        client.status()

    assert caught.value.code == "client.unreachable"
    assert pauses[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert sum(pauses) == pytest.approx(5)
    assert len(pool.requests) == len(pauses) + 1


@pytest.mark.parametrize(
    "failure", [httpx2.ReadError("reset"), httpx2.RemoteProtocolError("eof"), problem(503)]
)
def test_what_may_not_come_twice_is_sent_once(failure: Any) -> None:
    client, pool = scripted(failure, MADE)

    with pytest.raises(Unavailable):
        client.cancel(7)

    assert len(pool.requests) == 1


def test_what_never_left_is_sent_again() -> None:
    client, pool = scripted(REFUSED, problem(404))

    with pytest.raises(NotFound):
        client.cancel(7)

    assert len(pool.requests) == 2


def test_slow_answer_is_told_and_not_asked_again() -> None:
    client, pool = scripted(httpx2.ReadTimeout("slow"))

    with pytest.raises(TimedOut) as caught:
        client.status()

    assert (caught.value.code, caught.value.exit_code, len(pool.requests)) == ("client.timeout", 6, 1)


def test_long_poll_may_take_as_long_as_it_asks_for() -> None:
    client, pool = scripted(problem(404))

    with pytest.raises(NotFound):
        client.wait_once(7, 45)

    assert pool.requests[0].extensions["timeout"]["read"] == 30 + 45
    assert pool.requests[0].url.params["timeout"] == "46"


def test_secret_goes_into_the_header_and_nowhere_else() -> None:
    client, pool = scripted(problem(401, "access.bad-token"))

    with pytest.raises(Unauthenticated) as caught:
        client.status()

    assert pool.requests[0].headers["authorization"] == "Bearer gln_secret"
    assert "gln_secret" not in str(pool.requests[0].url) + str(caught.value) + repr(client)


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InputError),
        (401, Unauthenticated),
        (403, Refused),
        (404, NotFound),
        (405, GanglineError),
        (409, Conflict),
        (413, InputError),
        (422, InputError),
        (500, GanglineError),
        (503, Unavailable),
        (504, TimedOut),
    ],
)
def test_status_chooses_the_class_and_the_rest_is_kept(status: int, kind: type[GanglineError]) -> None:
    answer = problem(status, "a.b", hint="do this", path="spec.x")

    error = error_of(status, "application/problem+json; charset=utf-8", answer.content)

    assert type(error) is kind
    assert (error.code, error.message, error.hint, error.path) == (
        "a.b",
        "what happened",
        "do this",
        "spec.x",
    )


def test_several_faults_come_along() -> None:
    item = {"path": "spec.x", "line": 3, "column": 5, "code": "c", "message": "m", "hint": "h", "new": 1}

    error = error_of(422, "application/problem+json", problem(422, errors=[item, item]).content)

    assert isinstance(error, InvalidInput)
    assert [(found.path, found.line, found.column) for found in error.errors] == [("spec.x", 3, 5)] * 2


def test_internal_error_names_its_number_in_the_log() -> None:
    error = error_of(500, "application/problem+json", problem(500, request_id="abc123").content)

    assert "abc123" in error.hint


@pytest.mark.parametrize(
    ("status", "content_type", "body", "kind"),
    [
        (502, "text/html", b"<html>\n  bad   gateway", Unavailable),
        (404, "text/plain", b"nope", GanglineError),
        (500, "application/problem+json", b"not json", GanglineError),
        (418, "", b"\xff\xfe", GanglineError),
    ],
)
def test_answers_of_others_are_told_apart(
    status: int, content_type: str, body: bytes, kind: type[GanglineError]
) -> None:
    error = error_of(status, content_type, body)

    assert type(error) is kind
    assert error.code == "client.not-gangline"
    assert str(status) in error.message


@pytest.mark.parametrize("body", [b"", b"[]", b'{"version": 1}', b"<html>"])
def test_good_status_with_an_unreadable_body_is_told(body: bytes) -> None:
    client, _ = scripted(httpx2.Response(200, content=body))

    with pytest.raises(GanglineError) as caught:
        client.version()

    assert caught.value.code == "client.bad-answer"


def test_fields_of_a_newer_server_are_passed_over() -> None:
    client, _ = scripted(httpx2.Response(200, json={"version": "9", "agent_protocol": 3, "mood": "good"}))

    assert client.version().version == "9"


def test_missing_ca_file_is_told() -> None:
    with pytest.raises(InputError) as caught:
        Transport("https://x", ca_file="/nowhere.pem")

    assert (caught.value.code, caught.value.path) == ("client.bad-ca", "/nowhere.pem")
