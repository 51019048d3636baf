"""`server` verbs before they touch a ledger: whose it is."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli import server_cmd
from tests.cli.conftest import Said


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of another user's."""
    folder = tmp_path / "gangline"
    folder.mkdir()
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return folder


@pytest.mark.needs("root")
@pytest.mark.parametrize("words", [("restore", "copy"), ("backup", "copy"), ("run",)])
def test_root_leaves_nothing_that_another_users_controller_cant_open(
    foreign: Path, gangline: Callable[..., Said], words: tuple[str, ...]
) -> None:
    said = gangline("server", *words, "--state", str(foreign))
    assert (said.code, "[server.other-owner]" in said.err) == (5, True), said
    assert "runuser -u nobody -- gangline server" in said.err
    assert list(foreign.iterdir()) == []


@pytest.mark.needs("root")
def test_nor_in_a_new_folder_below_the_machines(
    foreign: Path, gangline: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_cmd, "SERVER_ROOT", foreign)
    said = gangline("server", "restore", "copy", "--state", str(foreign / "atlas"))
    assert (said.code, "[server.other-owner]" in said.err) == (5, True), said
    assert list(foreign.iterdir()) == []
