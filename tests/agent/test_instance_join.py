"""What an instance does with the state folder of another one; test_bought.py has how it is let in."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.agent import former, keypair
from orchestrator.agent.asking import store_token
from orchestrator.agent.channel import Channel
from orchestrator.agent.cloud import Metadata, Papers
from orchestrator.agent.config import Config
from orchestrator.agent.instance_join import InstanceJoiner, Name, read_name, store_name
from orchestrator.agent.loop import Loop
from orchestrator.agent.trust import Trust
from orchestrator.model.clock import SystemClock
from orchestrator.model.node import NodeFacts
from orchestrator.model.protocol import JoinAnswer

OTHERS = Name("i-0aaaaaaaaaaaaaaaa", "p-1")
FACTS = cast(NodeFacts, None)  # nobody reads them before the papers are sent


class Known:
    """A metadata service that answers at once, with the papers of one instance."""

    def papers(self, done: object) -> None:
        done(Papers("i-0bbbbbbbbbbbbbbbb", "document", "signature"))  # type: ignore[operator]


def joiner(folder: Path) -> InstanceJoiner:
    """Of an instance that started from an image of another one."""
    store_name(str(folder), OTHERS)
    store_token(str(folder / "token"), "others")
    Path(keypair.identity_path(str(folder))).write_text("others")
    config = Config("", str(folder), url="https://127.0.0.1:1", join="aws")
    trust, loop = Trust(config), Loop(SystemClock())
    channel = Channel("controller", trust.endpoint, loop)
    return InstanceJoiner(config, trust, channel, loop, cast(Metadata, Known()))


def test_what_is_of_another_instance_is_set_aside(tmp_path: Path) -> None:
    told: list[str | None] = []
    joiner(tmp_path).join(FACTS, told.append)
    assert told == [None], "not let in this time; next time it is a new node"
    assert read_name(str(tmp_path)) == Name()
    assert not (tmp_path / "token").exists()
    assert not Path(keypair.identity_path(str(tmp_path))).exists()


def test_a_disk_that_fails_on_the_way_leaves_what_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next start would take the other one's journal for its own."""

    def full(folder: str, _clock: object) -> str:
        raise OSError(28, "No space left on device", folder)

    made = joiner(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(former, "set_aside", full)
        made.join(FACTS, lambda _: None)
    assert read_name(str(tmp_path)) == OTHERS
    made.join(FACTS, lambda _: None)
    assert read_name(str(tmp_path)) == Name()


ME = Name("i-0bbbbbbbbbbbbbbbb", "p-2")
LET_IN = JoinAnswer("secret", "atlas", "certificate", "p-2")


class Controller:
    """In place of what asks: answers at once, or keeps what it was to be told."""

    def __init__(self, answer: JoinAnswer = LET_IN) -> None:
        self.answer, self.asked, self.errors = answer, 0, list[str]()

    def ask(self, path: str, message: Any, token: str, keep: Any, joined: Any) -> None:
        self.asked += 1
        try:
            keep(self.answer)
        except (ValueError, OSError) as error:
            self.errors.append(str(error))
            joined(None)
        else:
            joined(self.answer.token)

    def fail(self, text: str, joined: Any) -> None:
        self.errors.append(text)
        joined(None)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstanceJoiner:
    """Of an instance with an empty folder; key pairs are the affair of test_keypair."""
    monkeypatch.setattr(keypair, "lasting", lambda folder, name: "public key")
    monkeypatch.setattr(keypair, "store", lambda folder, name, certificate: None)
    monkeypatch.setattr(keypair, "done", lambda folder: None)
    config = Config("", str(tmp_path), url="https://127.0.0.1:1", join="aws")
    trust, loop = Trust(config), Loop(SystemClock())
    channel = Channel("controller", trust.endpoint, loop)
    return InstanceJoiner(config, trust, channel, loop, cast(Metadata, Known()))


def test_what_it_was_given_does_at_the_start_alone(tmp_path: Path, mine: InstanceJoiner) -> None:
    """Whoever asks again was refused with it, and shows its papers anew."""
    store_name(str(tmp_path), ME)
    store_token(str(tmp_path / "token"), "older")
    asker = mine._asker = cast(Any, Controller())
    told: list[str | None] = []
    mine.join(FACTS, told.append)
    assert (told, asker.asked) == (["older"], 0)
    mine.join(FACTS, told.append)
    assert (told, asker.asked) == (["older", "secret"], 1)


def test_a_token_without_a_name_is_not_believed(tmp_path: Path, mine: InstanceJoiner) -> None:
    store_token(str(tmp_path / "token"), "whose")
    mine._asker = cast(Any, Controller())
    told: list[str | None] = []
    mine.join(FACTS, told.append)
    assert told == ["secret"]
    assert read_name(str(tmp_path)) == ME


def test_the_name_is_kept_before_the_token(
    tmp_path: Path, mine: InstanceJoiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the token it is in: a start that finds it has to know for which instance it was."""

    def full(path: str, _text: str) -> None:
        raise OSError(28, "No space left on device", path)

    mine._asker = cast(Any, Controller())
    told: list[str | None] = []
    with monkeypatch.context() as patch:
        real = store_token
        patch.setattr(
            "orchestrator.agent.instance_join.store_token",
            lambda path, text: (full if path.endswith("token") else real)(path, text),
        )
        mine.join(FACTS, told.append)
    assert told == [None]
    assert read_name(str(tmp_path)) == ME
    assert not (tmp_path / "token").exists()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (LET_IN, "as node p-2, and the config says p-1"),
        (JoinAnswer("secret", "atlas", node="p-1"), "no name or no certificate"),
    ],
)
def test_an_answer_for_another_node_is_not_kept(
    tmp_path: Path, mine: InstanceJoiner, answer: JoinAnswer, words: str
) -> None:
    mine._config = Config("p-1", str(tmp_path), url="https://127.0.0.1:1", join="aws")
    asker = mine._asker = cast(Any, Controller(answer))
    told: list[str | None] = []
    mine.join(FACTS, told.append)
    assert told == [None]
    assert words in asker.errors[0]
    assert not (tmp_path / "token").exists()
