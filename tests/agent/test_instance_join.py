"""What an instance does with the state folder of another one; test_bought.py has how it is let in."""

from __future__ import annotations

from pathlib import Path
from typing import cast

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
