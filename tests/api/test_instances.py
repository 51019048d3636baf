"""Bought nodes come in by their instance's papers, over a real TLS listener; and the archive that they fetch."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Receive

from orchestrator.agent import keypair
from orchestrator.api import archive
from orchestrator.api.hub import Hub
from orchestrator.api.sparing import Sparing
from orchestrator.model.clock import ManualClock
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import encode
from orchestrator.model.errors import NotFound, Unavailable
from orchestrator.model.protocol import InstanceJoin, SyncRequest
from orchestrator.model.stack_facts import FixedFact, StackFacts
from orchestrator.provision.aws import first
from orchestrator.provision.aws.known import Accounts
from orchestrator.provision.certificates import ensure
from orchestrator.provision.metal.archive import agent_archive
from tests.api.listening import Listening
from tests.api.served import PREFIX, until
from tests.api.test_node_keys import FACTS, NOW, Answer, ca_of
from tests.builders import cluster, facts, pool
from tests.provision.aws.papers import ACCOUNT, INSTANCE, REGION, document, region

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("api-instances")]
OTHER = "i-0fedcba9876543210"


def spec() -> ClusterSpec:
    return cluster(pool("p", nodes=2))


def stack(*fixed: tuple[str, str]) -> StackFacts:
    """What a site's stack says: fixed nodes with their instances."""
    nodes = tuple(FixedFact(node, "p", instance, "10.64.0.9") for node, instance in fixed)
    return StackFacts("test", "abcdefabcdef", "here", REGION, ACCOUNT, "digest", fixed=nodes)


def begin(state: Path) -> Listening:
    """A controller whose stack has `p-1` as INSTANCE."""
    pair = ensure(state, ("127.0.0.1",), NOW)
    made = Listening(state, tls_cert=str(pair.cert), tls_key=str(pair.key)).wait_ready()
    with made.client() as client:
        client.apply_cluster(spec())
    return made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Listening]:
    """Of the test's own."""
    yield from serve(tmp_path / "s")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    """For tests that leave it as it is."""
    yield from serve(tmp_path_factory.mktemp("s") / "s")


def serve(state: Path) -> Iterator[Listening]:
    region().trust(state)
    Accounts(state).keep(stack(("p-1", INSTANCE)))
    made = begin(state)
    yield made
    made.kill()


class Node:
    """A bought node that speaks for itself."""

    def __init__(self, server: Listening, folder: Path, instance: str = INSTANCE) -> None:
        folder.mkdir()
        self.server, self.folder, self.instance = server, folder, instance
        self.token = ""

    def connection(self, *, identity: bool) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(ca_of(self.server)))
        if identity:
            context.load_cert_chain(keypair.identity_path(str(self.folder)))
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=20, context=context)

    def post(self, path: str, message: Any, *, identity: bool = False) -> Answer:
        connection = self.connection(identity=identity)
        headers = {"Content-Type": "application/json"}
        if identity:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request("POST", PREFIX + path, json.dumps(encode(message)), headers)
            answer = connection.getresponse()
            return Answer(answer.status, json.loads(answer.read()))
        finally:
            connection.close()

    def ask(self, text: str = "", signature: str = "", key: str | None = None) -> Answer:
        """A join; the papers are its own and true unless told otherwise."""
        text = text or document(self.instance)
        if key is None:
            key = keypair.lasting(str(self.folder), self.instance)
        return self.post("/agent/join-aws", InstanceJoin(text, signature or region().sign(text), FACTS, key))

    def join(self) -> str:
        """As an agent does it; what the controller calls it."""
        answer = self.ask()
        assert answer.status == 200, answer
        keypair.store(str(self.folder), self.instance, answer.plain["certificate"])
        keypair.done(str(self.folder))
        self.token = answer.plain["token"]
        return str(answer.plain["node"])

    def beat(self, name: str = "p-1") -> Answer:
        request = SyncRequest(name, f"outbox-{name}", "b", facts=facts(pool("p")))
        return self.post("/agent/sync", request, identity=True)


def test_it_is_told_who_it_is_and_let_in(server: Listening, tmp_path: Path) -> None:
    node = Node(server, tmp_path / "n")
    assert node.join() == "p-1"
    assert node.beat().status == 200
    with server.client() as client:
        until(
            lambda: next(one for one in client.nodes() if one.name == "p-1").contact == "ok"
        )  # seen soon after


def test_again_with_the_same_key_and_with_no_other(server: Listening, tmp_path: Path) -> None:
    """An answer was lost, then the agent joins again after it was in: always the same key."""
    node = Node(server, tmp_path / "n")
    assert node.ask().status == 200  # and the answer is lost
    thief = Node(server, tmp_path / "t")
    assert (thief.ask().status, thief.ask().code) == (403, "join.other-key")
    node.join()
    first = node.token
    assert node.beat().status == 200
    node.join()
    assert node.token != first
    assert node.beat().status == 200
    assert thief.ask().code == "join.other-key"


def test_a_restart_of_the_controller_forgets_nothing(server: Listening, tmp_path: Path) -> None:
    node = Node(server, tmp_path / "n")
    node.join()
    assert server.stop()[0] == 0
    again = begin(server.state)
    try:
        node.server = again
        assert node.beat().status == 200
        assert Node(again, tmp_path / "t").ask().code == "join.other-key"
        assert node.join() == "p-1"
    finally:
        again.kill()


def test_a_lost_key_is_healed_by_revoking_its_token(server: Listening, tmp_path: Path) -> None:
    Node(server, tmp_path / "lost").join()
    node = Node(server, tmp_path / "n")
    assert "gangline token list" in node.ask().plain["hint"]
    with server.client() as client:
        (token,) = [one for one in client.tokens() if one.name == "p-1"]
        client.revoke_token(token.id)
    assert node.join() == "p-1"


def test_only_who_is_waited_for_comes_in(server: Listening, tmp_path: Path) -> None:
    """The facts of the stack come later than the node asks: it is let in from then on."""
    node = Node(server, tmp_path / "n", OTHER)
    assert (node.ask().status, node.ask().code) == (403, "join.not-expected")
    Accounts(server.state).keep(stack(("p-1", INSTANCE), ("p-2", OTHER)))
    assert node.join() == "p-2"
    assert node.beat("p-2").status == 200
    assert node.beat("p-1").code == "access.other-node"


def test_another_instance_in_a_nodes_place_takes_its_name(server: Listening, tmp_path: Path) -> None:
    old = Node(server, tmp_path / "old")
    old.join()
    Accounts(server.state).keep(stack(("p-1", OTHER)))
    new = Node(server, tmp_path / "new", OTHER)
    assert new.join() == "p-1"
    assert new.beat().status == 200
    assert old.beat().code == "access.bad-token"
    assert old.ask().code == "join.not-expected"


def test_a_node_that_the_file_does_not_have_is_not_let_in(server: Listening, tmp_path: Path) -> None:
    Accounts(server.state).keep(stack(("gone-1", INSTANCE)))
    assert Node(server, tmp_path / "n").ask().code == "join.not-expected"


@pytest.mark.parametrize(
    ("text", "signer", "status", "code"),
    [
        (document(accountId="210987654321"), "test", 403, "identity.other-account"),
        (document(), "another", 401, "identity.bad-signature"),
        (document(region="eu-test-2"), "test", 401, "identity.unknown-region"),
        (document(pendingTime="2999-01-01T00:00:00Z"), "test", 401, "identity.time"),
        ("{}", "test", 401, "identity.malformed"),
    ],
)
def test_strangers_are_refused_with_a_reason_and_learn_nothing(
    shared: Listening, tmp_path: Path, text: str, signer: str, status: int, code: str
) -> None:
    answer = Node(shared, tmp_path / "n").ask(text, region(signer).sign(text))
    assert (answer.status, answer.code) == (status, code)
    assert ACCOUNT not in json.dumps(answer.plain)
    with shared.client() as client:
        assert client.tokens() == [] or all(one.role != "node" for one in client.tokens())


def test_refusals_are_in_the_log_once_a_minute(server: Listening, tmp_path: Path) -> None:
    node = Node(server, tmp_path / "n", OTHER)
    for _ in range(20):
        node.ask()
    _, _, said = server.stop()
    assert said.count(f"nobody waits for instance {OTHER} [join.not-expected]") == 1


@pytest.mark.parametrize(("key", "status", "code"), [("", 403, "join.no-key"), ("x", 422, "join.bad-key")])
def test_a_key_is_needed(shared: Listening, tmp_path: Path, key: str, status: int, code: str) -> None:
    answer = Node(shared, tmp_path / "n").ask(key=key)
    assert (answer.status, answer.code) == (status, code)


def test_a_message_that_is_too_long_is_not_read(shared: Listening, tmp_path: Path) -> None:
    assert Node(shared, tmp_path / "n").ask("x" * 300_000, "x").status == 413


# --- the archive -----------------------------------------------------------------------------------------------------


def fetch(server: Listening, tmp_path: Path, etag: str = "") -> tuple[int, bytes, str]:
    connection = Node(server, tmp_path / "n").connection(identity=False)
    try:
        connection.request("GET", f"{PREFIX}/agent", headers={"If-None-Match": etag} if etag else {})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers["etag"]
    finally:
        connection.close()


def test_the_archive_comes_without_a_token_and_says_its_sum(shared: Listening, tmp_path: Path) -> None:
    status, body, etag = fetch(shared, tmp_path)
    assert (status, body == agent_archive().data) == (200, True)
    assert etag == f'"{hashlib.sha256(body).hexdigest()}"'


def test_whoever_has_it_gets_it_not_again(shared: Listening, tmp_path: Path) -> None:
    etag = f'"{agent_archive().sha256}"'
    assert fetch(shared, tmp_path, etag) == (304, b"", etag)


def test_a_controller_without_an_archive_tells_its_log_why_and_strangers_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none() -> None:
        raise NotFound("archive.other-pynvml", "/home/ada/pynvml.py is of another release", "install 13")

    monkeypatch.setattr("orchestrator.provision.metal.archive.agent_archive", none)
    hub = cast(Hub, SimpleNamespace(refusals=Sparing(ManualClock())))
    with pytest.raises(Unavailable, match="no agent to give") as raised:
        asyncio.run(archive.get(hub, {"headers": []}, cast(Receive, None)))
    assert "ada" not in raised.value.message + raised.value.hint
    assert "/home/ada/pynvml.py is of another release; install 13" in caplog.text


@pytest.fixture
def boot(shared: Listening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a node's first step reads; it writes below the test's folder."""
    monkeypatch.setattr(first, "CA", tmp_path / "etc" / "ca.pem")
    monkeypatch.setattr(first, "ARCHIVE", tmp_path / "opt" / "agent.pyz")
    pem = ca_of(shared).read_text()
    return {"url": shared.url, "ca_sha256": hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()}


def test_the_first_step_fetches_authority_and_archive_and_each_once(
    shared: Listening, boot: dict[str, str]
) -> None:
    assert first.fetch(boot)
    assert first.CA.read_bytes() == ca_of(shared).read_bytes()
    assert first.ARCHIVE.read_bytes() == agent_archive().data
    assert not first.fetch(boot), "it is here already"
    first.ARCHIVE.write_bytes(b"an older one")
    assert first.fetch(boot)


def test_the_first_step_takes_nothing_from_a_controller_with_another_authority(boot: dict[str, str]) -> None:
    with pytest.raises(OSError, match="does not have the pinned certificate authority"):
        first.fetch({**boot, "ca_sha256": "0" * 64})
    assert not first.CA.exists()
    assert not first.ARCHIVE.exists()


def test_the_first_step_waits_for_its_controller(
    boot: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Longer each time, and the reason is said once."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 7:
            away["url"] = boot["url"]

    away = {**boot, "url": "https://127.0.0.1:1"}
    monkeypatch.setattr(time, "sleep", sleep)
    assert first.fetched(away)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert capsys.readouterr().out.count("no agent from https://127.0.0.1:1 yet: ") == 1
