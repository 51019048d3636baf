"""Nodes' key pairs over a real TLS listener: a token is worth something only with the key that it was given to."""

from __future__ import annotations

import datetime as dt
import hashlib
import http.client
import ipaddress
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchestrator.agent import keypair
from orchestrator.client import Client
from orchestrator.model import join_line
from orchestrator.model.codec import encode
from orchestrator.model.errors import Unauthenticated
from orchestrator.model.join_line import JoinLine
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import JoinRequest, SyncRequest
from orchestrator.provision import certificates, files, node_keys
from orchestrator.provision.certificates import Certificates, ensure
from orchestrator.store import backup
from orchestrator.store.restore import restore
from tests.api.listening import Listening
from tests.api.served import PREFIX
from tests.builders import cluster, facts, pool

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("api-node-keys")]
NOW = dt.datetime.now(dt.UTC)
FACTS = NodeFacts("b", 4, 1 << 30)
Start = Callable[..., Listening]


class Answer(NamedTuple):
    status: int
    plain: Any

    @property
    def code(self) -> str:
        """The stable word of a refusal."""
        return str(self.plain["code"])


class Host:
    """A node of these tests, with a state folder as its agent has it."""

    def __init__(self, folder: Path, server: Listening, ca: Path, name: str = "p-1") -> None:
        folder.mkdir()
        self.folder, self.server, self.ca, self.name = folder, server, ca, name
        self.token = ""

    def context(self, identity: Path | None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(self.ca))
        if identity is not None:
            made.load_cert_chain(identity)
        return made

    def post(self, path: str, body: Any, token: str, identity: Path | None) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.server.port, timeout=20, context=self.context(identity)
        )
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request("POST", PREFIX + path, json.dumps(encode(body)), headers)
            answer = connection.getresponse()
            return Answer(answer.status, json.loads(answer.read()))
        finally:
            connection.close()

    def ask(self, secret: str, public_key: str) -> Answer:
        """A join."""
        return self.post("/agent/join", JoinRequest(self.name, FACTS, public_key), secret, None)

    def join(self, secret: str) -> Host:
        """As an agent does it."""
        answer = self.ask(secret, keypair.waiting(str(self.folder), secret))
        assert answer.status == 200, answer
        keypair.store(str(self.folder), secret, answer.plain["certificate"])
        keypair.done(str(self.folder))
        self.token = answer.plain["token"]
        return self

    @property
    def identity(self) -> Path:
        return Path(keypair.identity_path(str(self.folder)))

    def beat(self, token: str = "", identity: Path | None = None, *, bare: bool = False) -> Answer:
        """A sync: with its own token and key, unless told otherwise; `bare`: no key is shown."""
        shown = None if bare else identity or self.identity
        request = SyncRequest(self.name, f"outbox-{self.name}", "b", facts=facts(pool("p")))
        return self.post("/agent/sync", request, token or self.token, shown)


def begin(folder: Path, found: Certificates | None = None) -> Listening:
    """A server with TLS and a cluster of two nodes; certificates of its own CA unless others are given."""
    pair = found or ensure(folder, ("127.0.0.1",), NOW)
    server = Listening(folder, tls_cert=str(pair.cert), tls_key=str(pair.key)).wait_ready()
    with server.client() as client:
        client.apply_cluster(cluster(pool("p", nodes=2)))
    return server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    """For tests that leave it as it is; nodes join again and again."""
    made = begin(tmp_path_factory.mktemp("s") / "s")
    yield made
    code, _, err = made.stop()
    assert (code, "Traceback" in err) == (0, False), err


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers on the test's own state folder, and ends them."""
    running: list[Listening] = []

    def run(found: Certificates | None = None) -> Listening:
        running.append(begin(tmp_path / "s", found))
        return running[-1]

    yield run
    for made in running:
        made.kill()


def ca_of(server: Listening) -> Path:
    """What its certificate is trusted by."""
    return server.state / "tls" / "ca.pem"


def secret_for(server: Listening, node: str = "p-1") -> str:
    """A join token's secret."""
    with server.client() as client:
        return client.create_token("join", node).secret


@pytest.fixture
def ca(server: Listening) -> Path:
    return ca_of(server)


@pytest.fixture
def host(tmp_path: Path, server: Listening) -> Host:
    """A node that was let in by the shared server."""
    return Host(tmp_path / "h", server, ca_of(server)).join(secret_for(server))


@pytest.fixture
def guest(tmp_path: Path, start: Start) -> Host:
    """A node that was let in by a server of the test's own, which may be ended."""
    own = start()
    return Host(tmp_path / "h", own, ca_of(own)).join(secret_for(own))


def test_its_own_key_and_token_let_it_speak(host: Host) -> None:
    assert host.beat().status == 200
    assert host.identity.stat().st_mode & 0o777 == 0o600


def test_a_stolen_token_is_worth_nothing(host: Host) -> None:
    answer = host.beat(bare=True)
    assert (answer.status, answer.code) == (401, "access.node-key")
    assert answer.plain["detail"] == (
        "node p-1's token was given to a key pair, and this connection has shown no key"
    )
    assert "gangline token create --role join --name p-1" in answer.plain["hint"]
    assert host.beat().status == 200, "the node itself goes on"


def test_a_stolen_token_is_worth_nothing_on_the_controllers_own_socket(host: Host) -> None:
    with (
        Client(f"unix://{host.server.socket}", host.token) as client,
        pytest.raises(Unauthenticated) as caught,
    ):
        client.status()
    assert caught.value.code == "access.node-key"


def test_the_key_of_another_node_is_worth_nothing(tmp_path: Path, host: Host, ca: Path) -> None:
    other = Host(tmp_path / "o", host.server, ca, "p-2").join(secret_for(host.server, "p-2"))
    answer = host.beat(identity=other.identity)
    assert (answer.status, answer.code) == (401, "access.node-key")
    assert "has shown another key" in answer.plain["detail"]
    assert other.beat().status == 200


def test_a_certificate_of_another_authority_ends_the_connection(tmp_path: Path, host: Host) -> None:
    state = tmp_path / "other"
    state.mkdir()
    key = node_keys.read_key(keypair.waiting(str(state), "x"))
    certificate = node_keys.ensure(state, NOW).sign("p-1", key)
    keypair.store(str(state), "x", certificate)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        host.beat(identity=Path(keypair.identity_path(str(state))))


def test_people_need_no_certificate(server: Listening, ca: Path) -> None:
    with server.client() as client:
        secret = client.create_token("read", "alice").secret
    with Client(server.url, secret, ca_file=str(ca)) as client:
        assert client.status().cluster == "test"


def test_a_node_that_joins_again_has_a_new_key_and_the_old_one_opens_nothing(
    tmp_path: Path, host: Host
) -> None:
    old_token = host.token
    old = tmp_path / "old.pem"
    old.write_bytes(host.identity.read_bytes())
    host.join(secret_for(host.server))
    assert host.beat().status == 200
    assert old.read_bytes() != host.identity.read_bytes()
    assert host.beat(identity=old).code == "access.node-key"
    assert host.beat(token=old_token, identity=old).code == "access.bad-token"


def test_a_node_from_before_there_were_keys_goes_on_and_gets_one_when_it_joins_again(
    tmp_path: Path, server: Listening, ca: Path
) -> None:
    host = Host(tmp_path / "h", server, ca)
    answer = host.ask(secret_for(server), "")
    assert "certificate" not in answer.plain
    host.token = answer.plain["token"]
    assert host.beat(bare=True).status == 200
    host.join(secret_for(server))
    assert host.beat(bare=True).code == "access.node-key"


@pytest.mark.parametrize("key", ["x", "AAAA", "A" * 5000, "é"])
def test_what_is_no_key_is_refused_and_spends_nothing(
    tmp_path: Path, server: Listening, ca: Path, key: str
) -> None:
    host, secret = Host(tmp_path / "h", server, ca), secret_for(server)
    answer = host.ask(secret, key)
    assert (answer.status, answer.code) == (422, "join.bad-key")
    assert host.join(secret).beat().status == 200


def test_a_join_whose_answer_was_lost_can_be_asked_again_with_the_same_key_alone(
    tmp_path: Path, server: Listening, ca: Path
) -> None:
    host, secret = Host(tmp_path / "h", server, ca), secret_for(server)
    assert host.ask(secret, keypair.waiting(str(host.folder), secret)).status == 200  # and the answer is lost
    thief = Host(tmp_path / "t", server, ca)
    answer = thief.ask(secret, keypair.waiting(str(thief.folder), secret))
    assert (answer.status, answer.code) == (401, "access.join-spent")
    host.join(secret)
    assert host.beat().status == 200
    again = host.ask(secret, keypair.waiting(str(host.folder), secret))
    assert again.code == "access.bad-token", "the node was heard: the join token is gone"


# --- the controller's own life ---------------------------------------------------------------------------------------


def test_a_restart_changes_nothing(start: Start, guest: Host) -> None:
    assert guest.server.stop()[0] == 0
    guest.server = start()
    assert guest.beat().status == 200
    assert guest.beat(bare=True).code == "access.node-key"


@pytest.mark.parametrize("lost", ["nodes.key", "nodes.pem"])
def test_with_one_of_the_authoritys_files_lost_nodes_go_on(
    tmp_path: Path, start: Start, guest: Host, lost: str
) -> None:
    guest.server.stop()
    (guest.server.state / "tls" / lost).unlink()
    guest.server = start()
    assert guest.beat().status == 200
    other = Host(tmp_path / "o", guest.server, ca_of(guest.server), "p-2").join(
        secret_for(guest.server, "p-2")
    )
    assert other.beat().status == 200


def test_with_both_lost_a_node_has_to_join_again_and_can(start: Start, guest: Host) -> None:
    guest.server.stop()
    for name in ("nodes.key", "nodes.pem"):
        (guest.server.state / "tls" / name).unlink()
    guest.server = start()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        guest.beat()
    assert guest.join(secret_for(guest.server)).beat().status == 200


def test_a_restored_ledger_knows_the_key_again(tmp_path: Path, start: Start, guest: Host) -> None:
    kept = tmp_path / "kept.ledger"
    backup.backup(guest.server.state, kept)
    old_token, old = guest.token, tmp_path / "old.pem"
    old.write_bytes(guest.identity.read_bytes())
    guest.join(secret_for(guest.server))
    guest.server.stop()
    restore(kept, guest.server.state, 1)
    guest.server = start()
    assert guest.beat().code == "access.bad-token", "what it was given after the backup is not known"
    assert guest.beat(token=old_token, identity=old).status == 200
    assert guest.beat(token=old_token, bare=True).code == "access.node-key"


def test_an_operators_own_certificate_gives_nodes_keys_all_the_same(tmp_path: Path, start: Start) -> None:
    theirs = self_signed(tmp_path / "theirs")
    server = start(theirs)
    assert not (server.state / "tls" / "ca.pem").exists(), (
        "hosts must not be told to trust what signed nothing"
    )
    with Client(server.url, server.admin_token, ca_file=str(theirs.cert)) as client:
        line = join_line.parse(client.create_token("join", "p-1").join_line)
    assert line.url == server.url
    assert line.ca_sha256 == sum_of(theirs.cert)
    host = Host(tmp_path / "h", server, theirs.cert).join(line.secret)
    assert host.beat().status == 200
    assert host.beat(bare=True).code == "access.node-key"


# --- what a join token says ------------------------------------------------------------------------------------------


def test_a_join_token_pins_the_address_that_was_called_and_the_authority(server: Listening, ca: Path) -> None:
    with Client(server.url, server.admin_token, ca_file=str(ca)) as client:
        made = client.create_token("join", "p-1")
        assert client.create_token("read", "alice").join_line == ""
    assert join_line.parse(made.join_line) == JoinLine(made.secret, server.url, sum_of(ca))


def test_a_join_token_that_was_made_on_the_socket_has_no_address_to_say(server: Listening) -> None:
    with server.client() as client:
        made = client.create_token("join", "p-1")
    assert made.join_line == made.secret


def test_the_authority_is_told_to_anybody(server: Listening, ca: Path) -> None:
    context = ssl.create_default_context(cafile=str(ca))
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=20, context=context)
    connection.request("GET", f"{PREFIX}/ca")
    assert connection.getresponse().read() == ca.read_bytes()
    connection.close()


def sum_of(path: Path) -> str:
    """The SHA-256 of a file's only certificate."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(path.read_text())).hexdigest()


def self_signed(folder: Path) -> Certificates:
    """A certificate for 127.0.0.1 that signs itself, as an operator may have one."""
    folder.mkdir()
    key, name = ec.generate_private_key(ec.SECP256R1()), certificates.common_name("atlas")
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        certificates.builder(name, name, key.public_key(), NOW, NOW + dt.timedelta(days=9))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files.write_whole(folder / "key.pem", certificates.key_pem(key), 0o600)
    files.write_whole(folder / "cert.pem", made.public_bytes(serialization.Encoding.PEM), 0o644)
    return Certificates(folder / "cert.pem", folder / "cert.pem", folder / "key.pem")
