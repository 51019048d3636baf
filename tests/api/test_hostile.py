"""What clients should not send: every answer is a problem document, and nothing of it reaches the controller."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from orchestrator.api import bodies
from orchestrator.api.access import PEER
from tests.api.served import PREFIX, Answer, Served, document, exchange

JSON = {"content-type": "application/json"}
ROUTES = ("/jobs", "/tokens", "/jobs/1/cancel", "/recover", "/agent/sync", "/agent/join")

BAD_JSON: dict[str, bytes] = {
    "nothing": b" ",
    "half": b'{"a": ',
    "two": b"{} {}",
    "nan": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "huge float": b'{"a": 1e999}',
    "huge integer": b'{"a": ' + b"9" * 5000 + b"}",
    "key twice": b'{"a": 1, "b": {"c": 1, "c": 1}}',
    "bad utf-8": b'{"a": "\xff"}',
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "bom": b'\xef\xbb\xbf{"a": 1}',
    "half a surrogate": b'{"a": "\\ud800"}',
    "half a surrogate in a key": b'{"\\udfff": 1}',
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "control character": b'{"a": "\x01"}',
    "single quotes": b"{'a': 1}",
    "comment": b'{"a": 1} // no',
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    served = Served(tmp_path_factory.mktemp("hostile"), None)
    yield served
    served.close()


def send(served: Served, path: str, raw: bytes, headers: dict[str, str], method: str = "POST") -> Answer:
    """A body as somebody who may."""
    who = {"role": "node", "name": "n"} if path == "/agent/sync" else {"role": "join", "name": "*"}
    how: dict[str, Any] = who if path.startswith("/agent") else {"role": "admin", "name": "root"}
    return served.request(method, PREFIX + path, raw=raw, headers=headers, **how)


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("what", BAD_JSON)
def test_what_is_not_strict_json_is_refused(shared: Served, path: str, what: str) -> None:
    seq = shared.controller.view.seq

    answer = send(shared, path, BAD_JSON[what], JSON)

    assert (answer.status, answer.code) == (400, "request.bad-json")
    assert len(answer.body) < 1000
    shared.settle()
    assert all(event.type == "token.created" for event in shared.controller._store.tail(seq))


class Counted(str):
    """A key that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_the_key_that_is_there_twice_is_found_in_one_walk() -> None:
    """A body of 2 MiB has room for 200,000 keys: with a walk for each of them the server would be gone for minutes."""
    pairs: list[tuple[str, Any]] = [(Counted(f"k{number}"), 0) for number in range(2000)]

    with pytest.raises(ValueError, match="the key 'k1999' is there twice"):
        bodies._pairs([*pairs, (Counted("k1999"), 0)])

    assert Counted.compared < 10 * len(pairs)


@pytest.mark.parametrize(
    ("path", "who"),
    [
        ("/agent/sync", {"role": "admin", "name": "root"}),
        ("/agent/sync", {"role": "join", "name": "*"}),
        ("/agent/join", {"role": "node", "name": "n"}),
        ("/agent/reads/1?size=1&ended=0", {"role": "read", "name": "bob"}),
        ("/jobs", {"role": "read", "name": "bob"}),
        ("/jobs", {"role": "node", "name": "n"}),
    ],
)
def test_who_may_not_is_refused_before_the_body_is_looked_at(
    shared: Served, path: str, who: dict[str, Any]
) -> None:
    answer = shared.request("POST", PREFIX + path, raw=b"[" * 1_000_000, headers=JSON, **who)

    assert answer.status == 403


def test_a_number_that_is_too_long_is_told_in_our_words(shared: Served) -> None:
    answer = send(shared, "/jobs", BAD_JSON["huge integer"], JSON)

    assert "more than 400 digits" in answer.json()["detail"]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_other_types_are_refused(shared: Served, path: str, kind: str) -> None:
    answer = send(shared, path, b"{}", {"content-type": kind} if kind else {})

    assert (answer.status, answer.code) == (415, "request.content-type")


def test_type_may_have_parameters(shared: Served) -> None:
    raw = json.dumps(document(hold=True)).encode()

    assert send(shared, "/jobs", raw, {"content-type": "Application/JSON; charset=utf-8"}).status == 201


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/jobs", bodies.MOST_BODY),
        ("/tokens", bodies.MOST_BODY),
        ("/agent/sync", bodies.MOST_AGENT),
        ("/cluster", bodies.MOST_CLUSTER),
    ],
)
@pytest.mark.parametrize("told", [True, False])
def test_large_bodies_are_refused(shared: Served, path: str, most: int, told: bool) -> None:
    headers = JSON | ({"content-length": str(most + 1)} if told else {})
    raw = b"" if told else b" " * (most + 1)

    answer = send(shared, path, raw, headers, "PUT" if path == "/cluster" else "POST")

    assert (answer.status, answer.code) == (413, "request.too-large")


async def _pieces(app: Any, pieces: list[Any]) -> tuple[list[Any], int]:
    """A POST /jobs whose body comes in pieces; what was sent, and how many pieces were taken."""
    taken = 0
    sent: list[Any] = []

    async def receive() -> Any:
        nonlocal taken
        taken += 1
        if taken > len(pieces):
            await asyncio.get_running_loop().create_future()
        return pieces[taken - 1]

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"{PREFIX}/jobs",
        "query_string": b"",
        "headers": headers,
    }
    await app(scope | {PEER: 0}, receive, send)
    return sent, taken


def test_large_body_in_pieces_is_not_read_to_its_end(shared: Served) -> None:
    piece = {"type": "http.request", "body": b" " * 65536, "more_body": True}

    sent, taken = shared.run(_pieces(shared.app, [piece] * 1000))

    assert sent[0]["status"] == 413
    assert taken == bodies.MOST_BODY // 65536 + 1


def test_client_that_leaves_in_the_middle_gets_no_answer(shared: Served) -> None:
    first = {"type": "http.request", "body": b"{", "more_body": True}

    sent, _ = shared.run(_pieces(shared.app, [first, {"type": "http.disconnect"}]))

    assert sent == []


@pytest.mark.parametrize("pieces", [[], [{"type": "http.request", "body": b"{", "more_body": True}]])
def test_body_that_does_not_come_is_not_waited_for(
    shared: Served, monkeypatch: pytest.MonkeyPatch, pieces: list[Any]
) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.01)

    sent, _ = shared.run(_pieces(shared.app, pieces))

    assert sent[0]["status"] == 408


@pytest.mark.parametrize("key", ["x" * 201, "a b", "a\tb", "é"])
def test_bad_key_is_refused(shared: Served, key: str) -> None:
    answer = send(shared, "/jobs", json.dumps(document()).encode(), JSON | {"idempotency-key": key})

    assert (answer.status, answer.code) == (422, "request.bad-key")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/jobs", "GET, POST"),
        ("DELETE", "/jobs/1", "GET"),
        ("GET", "/jobs/1/cancel", "POST"),
        ("POST", "/status", "GET"),
        ("GET", "/agent/sync", "POST"),
        ("PATCH", "/cluster", "GET, PUT"),
        ("BREW", "/gpus", "GET"),
    ],
)
def test_other_methods_are_told_what_is_allowed(shared: Served, method: str, path: str, allow: str) -> None:
    answer = shared.request(method, PREFIX + path)

    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "request.method", allow)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        PREFIX,
        f"{PREFIX}/",
        f"{PREFIX}/jobs/",
        f"{PREFIX}/jobs/1/",
        f"{PREFIX}/agent/reads/",
        f"{PREFIX}/agent/reads",
        "/api/v2/jobs",
        "//jobs",
    ],
)
def test_other_paths_are_not_found(shared: Served, path: str) -> None:
    answer = shared.request("GET", path)

    assert (answer.status, answer.code) == (404, "request.no-route")


@pytest.mark.parametrize("job", ["0", "-1", "x", "1.5", "9" * 40, "%00", "1%2F2", "٣"])
def test_bad_number_of_a_job_is_refused(shared: Served, job: str) -> None:
    answer = shared.get(f"/jobs/{job}")

    assert answer.status in (404, 422)
    assert answer.code == "request.no-route" or answer.json()["errors"][0]["path"] == "path.job"


@pytest.mark.parametrize("route", ["/status", "/nodes", "/tokens", "/healthz", "/jobs/1", "/version"])
def test_unknown_parameters_are_errors_everywhere(shared: Served, route: str) -> None:
    answer = shared.get(f"{route}?verbose=1")

    assert (answer.status, answer.code) == (422, "request.unknown-parameter")


def test_unforeseen_error_is_told_without_its_traceback(
    shared: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the secret is no-number")

    for target, path in (
        ("orchestrator.api.render_cluster.gpus", "/gpus"),
        ("orchestrator.api.submit._key", "/jobs"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, broken)
            answer = shared.get(path) if path == "/gpus" else shared.post(path, document())

        body = answer.json()
        assert (answer.status, body["code"]) == (500, "server.internal")
        assert "no-number" not in answer.body.decode()
        assert f"request {body['request_id']} failed" in caplog.text
        assert "the secret is no-number" in caplog.text


def test_websockets_are_closed(shared: Served) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    shared.run(shared.app({"type": "websocket", "path": "/"}, receive, send))

    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_head_requests_and_empty_paths_get_an_answer(shared: Served) -> None:
    scope = {"type": "http", "method": "HEAD", "path": "", "query_string": b"", "headers": [], PEER: 0}

    assert shared.run(exchange(shared.app, scope, b"")).status == 404
