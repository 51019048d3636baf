"""A real agent is let in by a real controller over TLS: its key pair, what its join token pins, kills in between."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client import Client
from orchestrator.model import join_line
from orchestrator.model.join_line import JoinLine
from orchestrator.provision.certificates import ensure
from tests.agent.running import RunningAgent, until
from tests.api.listening import Listening
from tests.builders import cluster, pool

pytestmark = pytest.mark.system
DIED = -signal.SIGKILL
POINTS = ("join.key.made", "join.answer.before-keep", "join.identity.after", "join.token.after")
OTHER_SUM = "0" * 64


@dataclass
class Scene:
    """A controller with TLS that may be ended and started again, and agents of its first node."""

    folder: Path
    agents: list[RunningAgent] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self.since = dt.datetime.now(dt.UTC)
        self.state = self.folder / "s"
        self.pair = ensure(self.state, ("127.0.0.1",), dt.datetime.now(dt.UTC))
        self.start_server("127.0.0.1:0")

    def start_server(self, address: str = "") -> None:
        """On the same address as before, unless told otherwise."""
        address = address or self.url.removeprefix("https://")
        cert, key = str(self.pair.cert), str(self.pair.key)
        self.server = Listening(self.state, address=address, tls_cert=cert, tls_key=key).wait_ready()
        self.url = self.server.url
        with self.server.client() as client:
            client.apply_cluster(cluster(pool("p", nodes=1)))

    def line(self) -> JoinLine:
        """A join token for the node, as it is made over TLS."""
        with Client(self.url, self.server.admin_token, ca_file=str(self.pair.ca)) as client:
            return join_line.parse(client.create_token("join", "p-1").join_line)

    def agent(self, line: JoinLine, **config: Any) -> RunningAgent:
        """An agent that is not started yet. A config key that is None is left out; `supervisor` is the plainest."""
        plain = {"url": self.url, "ca": str(self.pair.ca), "supervisor": "process-tree", **config}
        made = RunningAgent(
            self.folder / f"a{len(self.agents)}",
            self,
            "p-1",
            **{key: value for key, value in plain.items() if value is not None},
        )
        if config.get("url", "") is None:
            del made.config["url"]
            made.config_path.write_text(json.dumps(made.config))
        self.agents.append(made)
        self.give(made, line)
        return made

    def give(self, agent: RunningAgent, line: JoinLine) -> None:
        """Another join token in the agent's file."""
        (agent.config_path.parent / "join").write_text(line.text + "\n")

    def stop_server(self) -> None:
        assert self.server.stop()[0] == 0
        self.since = dt.datetime.now(dt.UTC)

    def again(self, agent: RunningAgent) -> None:
        """Stop it and start it."""
        agent.stop()
        self.since = dt.datetime.now(dt.UTC)
        agent.start()

    def heard(self) -> None:
        """Until the controller has heard the node since the last of its agents, or itself, was started."""

        def ready() -> bool:
            at = client.node("p-1").contact_at
            return at is not None and at > self.since

        with self.server.client() as client:
            until(ready, "the node was heard")

    def joined_again(self, agent: RunningAgent) -> None:
        """Pauses between tries have grown by then: to half a minute for a join, ten seconds for a beat."""
        until(lambda: agent.log_text().count("joined cluster") == 2, "it joined again", 90)

    def contact(self) -> str:
        with self.server.client() as client:
            return client.node("p-1").contact

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.server.kill()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def says(agent: RunningAgent, words: str) -> str:
    """Until the agent's log has these words; the log."""
    until(lambda: words in agent.log_text(), f"the log says {words!r}")
    return agent.log_text()


def files(agent: RunningAgent) -> set[str]:
    return {name for name in os.listdir(agent.state_dir) if name.endswith((".pem", ".key", ".new", ".pub"))}


def test_a_node_makes_a_key_of_its_own_and_keeps_it_to_itself(scene: Scene) -> None:
    agent = scene.agent(scene.line()).start()
    scene.heard()
    identity = Path(agent.state_dir) / "identity.pem"
    assert stat.S_IMODE(identity.stat().st_mode) == 0o600
    assert "PRIVATE KEY" in identity.read_text()
    assert files(agent) == {"identity.pem"}
    scene.again(agent)
    scene.heard()
    assert agent.log_text().count("joined cluster") == 1


def test_a_copied_token_opens_nothing(scene: Scene) -> None:
    agent = scene.agent(scene.line()).start()
    scene.heard()
    token = (Path(agent.state_dir) / "token").read_text()
    agent.stop()
    thief = scene.agent(JoinLine("nothing"))
    Path(thief.state_dir).mkdir()
    (Path(thief.state_dir) / "token").write_text(token)
    thief.start()
    told = says(thief, "can't join")
    assert "node p-1's token was given to a key pair, and this connection has shown no key" in told
    assert "gangline token create --role join --name p-1" in told


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_in_the_middle_is_followed_by_the_same_join(scene: Scene, point: str) -> None:
    agent = scene.agent(scene.line()).start(point)
    assert agent.wait_died() == DIED, f"{point} was not passed"
    scene.since = dt.datetime.now(dt.UTC)
    agent.start()
    scene.heard()
    scene.again(agent)
    scene.heard()
    assert not any(name.endswith((".new", ".pub")) for name in files(agent))


def test_a_lost_key_is_told_and_a_new_join_token_heals_it(scene: Scene) -> None:
    agent = scene.agent(scene.line()).start()
    scene.heard()
    agent.stop()
    (Path(agent.state_dir) / "identity.pem").unlink()
    agent.start()
    told = says(agent, "can't join: 401")
    assert (
        "this connection has shown no key; use the node's own key; if it is lost, let the node join" in told
    )
    scene.give(agent, scene.line())
    scene.joined_again(agent)
    scene.heard()


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_damaged_key_is_told_by_its_place(scene: Scene, text: str) -> None:
    agent = scene.agent(scene.line()).start()
    scene.heard()
    agent.stop()
    (Path(agent.state_dir) / "identity.pem").write_text(text)
    agent.start()
    told = says(agent, "can't join: 401")
    assert f"{agent.state_dir}/identity.pem: " in told
    assert "the node's key pair is lost" in told
    assert "Traceback" not in told


def test_without_a_program_that_makes_keys_the_agent_says_what_to_install(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    agent = scene.agent(scene.line()).start()
    told = says(agent, "no key pair can be made")
    assert "install openssh-client or openssl" in told
    assert not (Path(agent.state_dir) / "token").exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl (Debian package openssl)")
def test_openssl_makes_the_key_where_there_is_no_ssh_keygen(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "openssl").symlink_to(str(shutil.which("openssl")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    agent = scene.agent(scene.line()).start()
    scene.heard()
    assert files(agent) == {"identity.pem"}


# --- what the join token pins ----------------------------------------------------------------------------------------


def test_address_and_authority_come_from_the_join_token_alone(scene: Scene) -> None:
    line = scene.line()
    agent = scene.agent(line, url=None, ca=None).start()
    scene.heard()
    assert files(agent) == {"identity.pem", f"ca-{line.ca_sha256[:16]}.pem"}
    agent.stop()
    (agent.config_path.parent / "join").unlink()
    scene.since = dt.datetime.now(dt.UTC)
    agent.start()
    scene.heard()
    scene.stop_server()
    scene.start_server()
    scene.heard()
    assert agent.log_text().count("joined cluster") == 1


@pytest.mark.parametrize("ca", [True, False], ids=["known", "fetched"])
def test_a_join_token_for_another_authority_is_not_spent_here(scene: Scene, ca: bool) -> None:
    good = scene.line()
    config = {} if ca else {"ca": None}
    agent = scene.agent(JoinLine(good.secret, good.url, OTHER_SUM), **config).start()
    told = says(agent, "nothing was sent")
    assert ("has no certificate with the SHA-256 0000000000000000..." in told) is ca
    assert ("is not the controller that the join token is for" in told) is not ca
    assert good.secret not in told
    assert scene.contact() == "never"
    scene.give(agent, good)
    scene.heard()


def test_a_join_token_for_another_address_is_not_spent_here(scene: Scene) -> None:
    good = scene.line()
    agent = scene.agent(JoinLine(good.secret, "https://127.0.0.2:1", good.ca_sha256)).start()
    told = says(agent, "nothing was sent")
    assert f"for the controller at https://127.0.0.2:1, and the config's url is {scene.url}" in told
    assert scene.contact() == "never"


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda text: text[:-1], "the line is cut"),
        (lambda _: "", "is empty"),
        (lambda text: text + " x", "got more"),
    ],
)
def test_a_line_that_was_cut_is_told_without_its_secret(scene: Scene, cut: Any, words: str) -> None:
    line = scene.line()
    agent = scene.agent(line)
    (agent.config_path.parent / "join").write_text(cut(line.text))
    agent.start()
    assert line.secret not in says(agent, words)


def test_a_bare_secret_lets_in_as_ever(scene: Scene) -> None:
    scene.agent(JoinLine(scene.line().secret)).start()
    scene.heard()


def test_a_new_authority_behind_a_new_join_token_is_taken_over(scene: Scene) -> None:
    """The controller's folder of keys was lost; its ledger was not."""
    agent = scene.agent(scene.line(), url=None, ca=None).start()
    scene.heard()
    scene.stop_server()
    shutil.rmtree(scene.state / "tls")
    scene.pair = ensure(scene.state, ("127.0.0.1",), dt.datetime.now(dt.UTC))
    scene.start_server()
    says(agent, "who answers there is not the controller that is trusted here")
    scene.give(agent, scene.line())
    scene.joined_again(agent)
    scene.heard()


def test_a_node_whose_certificate_is_not_taken_any_more_says_so_and_joins_again(scene: Scene) -> None:
    agent = scene.agent(scene.line()).start()
    scene.heard()
    scene.stop_server()
    for name in ("nodes.key", "nodes.pem"):
        (scene.state / "tls" / name).unlink()
    scene.start_server()
    says(agent, "can't join: 401")
    assert "and this connection has shown no key" in agent.log_text()
    scene.give(agent, scene.line())
    scene.joined_again(agent)
    scene.heard()
