"""A real agent joins a real controller by its instance's papers: kills in between, copies, another instance."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.model import instance
from orchestrator.model.stack_facts import FixedFact, StackFacts
from orchestrator.provision.aws.known import Bought
from orchestrator.provision.certificates import ensure
from tests.agent.running import RunningAgent, until
from tests.api.listening import Listening
from tests.builders import cluster, pool
from tests.provision.aws.papers import ACCOUNT, INSTANCE, REGION, region
from tests.testbed.metadata import Emulated, papers_of

pytestmark = pytest.mark.system
DIED = -signal.SIGKILL
POINTS = (
    "join.key.made",
    "join.answer.before-keep",
    "join.identity.after",
    "join.name.after",
    "join.token.after",
)
OTHER = "i-0fedcba9876543210"


class Scene:
    """A controller with TLS that waits for INSTANCE as node p-1, and agents."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "s"
        self.pair = ensure(self.state, ("127.0.0.1",), dt.datetime.now(dt.UTC))
        region().trust(self.state)
        self.expect(("p-1", INSTANCE))
        cert, key = str(self.pair.cert), str(self.pair.key)
        self.server = Listening(self.state, tls_cert=cert, tls_key=key).wait_ready()
        self.url = self.server.url
        with self.server.client() as client:
            client.apply_cluster(cluster(pool("p", nodes=2)))
        self.agents: list[RunningAgent] = []
        self.services: list[Emulated] = []

    def expect(self, *fixed: tuple[str, str]) -> None:
        nodes = tuple(FixedFact(node, "p", name, "10.64.0.9") for node, name in fixed)
        Bought(self.state).keep(
            StackFacts("test", "abcdefabcdef", "here", REGION, ACCOUNT, "digest", fixed=nodes)
        )

    def agent(self, name: str = INSTANCE, node: str = "") -> RunningAgent:
        """One that is not started yet, on a machine that says that it is that instance."""
        number = len(self.agents)
        service = Emulated(self.folder / f"m{number}", name)
        service.__enter__()
        self.services.append(service)
        made = RunningAgent(
            self.folder / f"a{number}",
            self,
            node,
            ca=str(self.pair.ca),
            join="aws",
            metadata=service.url,
            supervisor="process-tree",
        )
        self.agents.append(made)
        return made

    def open(self) -> list[str]:
        with self.server.client() as client:
            return [node.name for node in client.nodes() if node.contact == "ok"]

    def heard(self, name: str = "p-1") -> None:
        """Until the controller has heard the node after now."""
        since = dt.datetime.now(dt.UTC)

        def ready() -> bool:
            at = client.node(name).contact_at
            return at is not None and at > since

        with self.server.client() as client:
            until(ready, f"{name} was heard")

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        for service in self.services:
            service.__exit__(None, None, None)
        self.server.kill()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def again(scene: Scene) -> None:
    """The first agent still has what it needs: it starts and is heard, without another join."""
    first = scene.agents[0]
    first.stop()
    first.start()
    scene.heard()
    assert first.log_text().count("joined cluster") == 1


def says(agent: RunningAgent, words: str) -> str:
    until(lambda: words in agent.log_text(), f"the log says {words!r}")
    return agent.log_text()


def test_it_gets_its_name_from_the_controller_and_keeps_it(scene: Scene) -> None:
    agent = scene.agent().start()
    scene.heard()
    assert says(agent, "p-1: process-tree").count(f"as p-1, which is instance {INSTANCE}") == 1
    assert json.loads((Path(agent.state_dir) / "instance.json").read_text()) == {
        "instance": INSTANCE,
        "node": "p-1",
    }
    agent.stop()
    agent.start()
    scene.heard()
    assert agent.log_text().count("joined cluster") == 1, "the same instance is in already"


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_in_the_middle_is_followed_by_the_same_join(scene: Scene, point: str) -> None:
    agent = scene.agent().start(point)
    assert agent.wait_died() == DIED, f"{point} was not passed"
    agent.start()
    scene.heard()
    assert not any(
        name.endswith((".new", ".pub")) or "joining" in name for name in os.listdir(agent.state_dir)
    )


def test_a_lost_token_is_replaced_by_the_same_key(scene: Scene) -> None:
    agent = scene.agent().start()
    scene.heard()
    agent.stop()
    identity = Path(agent.state_dir) / "identity.pem"
    (Path(agent.state_dir) / "token").write_text("gln_nothing\n")
    before = identity.read_text().partition("-----END EC")[0]
    agent.start()
    scene.heard()
    assert identity.read_text().partition("-----END EC")[0] == before


def test_a_copied_document_opens_nothing(scene: Scene) -> None:
    """A job has read the papers, or somebody has them from a log: another key comes with them."""
    scene.agent().start()
    scene.heard()
    thief = scene.agent().start()
    says(thief, f"can't join: 403: instance {INSTANCE} has joined with another key pair")
    again(scene)
    assert scene.open() == ["p-1"]


def test_nobody_waits_for_it_until_somebody_does(scene: Scene) -> None:
    agent = scene.agent(OTHER).start()
    says(agent, f"can't join: 403: nobody waits for instance {OTHER}")
    scene.expect(("p-1", INSTANCE), ("p-2", OTHER))
    scene.heard("p-2")


def test_a_disk_that_is_a_copy_of_anothers_is_set_aside(scene: Scene) -> None:
    """An image was made of a node: the instance that starts from it is another node, and neither knows the other's."""
    first = scene.agent().start()
    scene.heard()
    second = scene.agent(OTHER)
    shutil.copytree(first.state_dir, second.state_dir, ignore=shutil.ignore_patterns("notices"))
    scene.expect(("p-1", INSTANCE), ("p-2", OTHER))
    second.start()
    scene.heard("p-2")
    told = says(second, f"is of instance {INSTANCE}, and this is another one")
    assert "joined cluster test as p-2" in told
    assert list((Path(second.state_dir) / "former").iterdir())
    again(scene)


def test_a_fixed_node_is_who_its_user_data_says(scene: Scene) -> None:
    agent = scene.agent(node="p-2").start()
    says(agent, "the controller has this instance as node p-1, and the config says p-2")
    scene.expect(("p-2", INSTANCE))
    scene.heard("p-2")


def test_without_a_metadata_service_it_says_so_and_a_node_that_is_in_goes_on(scene: Scene) -> None:
    agent = scene.agent().start()
    scene.heard()
    agent.stop()
    service = scene.services[0]
    os.rename(service.url.removeprefix("unix:"), f"{service.answers}.away")
    agent.start()
    scene.heard()
    says(agent, "has no identity document")


def test_a_notice_is_in_the_beats_from_then_on(scene: Scene) -> None:
    agent = scene.agent().start()
    scene.heard()
    scene.services[0].say(
        instance.INTERRUPTION_PATH, json.dumps({"action": "terminate", "time": "2017-09-18T08:22:00Z"})
    )
    says(agent, "the cloud says that this node ends: interruption, at 2017-09-18T08:22:00Z")


def test_true_papers_of_another_account_open_nothing(scene: Scene) -> None:
    agent = scene.agent()
    from tests.provision.aws.papers import document

    for path, text in papers_of(INSTANCE, document(accountId="210987654321")).items():
        scene.services[0].say(path, text)
    agent.start()
    says(agent, "can't join: 403: the instance is in no account and region of this cluster")
    assert scene.open() == []
