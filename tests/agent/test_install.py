"""What a bought node's archive puts in place, and when the agent is started anew."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import config, install
from orchestrator.agent.install import Changed, InstallError
from orchestrator.model import installed

BOOT = {"url": "https://c.example.org:7443", "ca_sha256": "ab" * 32, "site": "use1", "pool": "burst", "node": "",
"agent": {}}  # fmt: skip


def put(root: Path, **change: Any) -> Changed:
    root.mkdir(exist_ok=True)
    (root / "boot.json").write_text(json.dumps({**BOOT, **change}))
    return install.install(str(root / "boot.json"), str(root))


def text_of(root: Path, path: str) -> str:
    return (root / path.lstrip("/")).read_text()


def test_everything_is_in_place_and_the_same_again_changes_nothing(tmp_path: Path) -> None:
    assert put(tmp_path / "r") == Changed(agent=True, login=True)
    assert put(tmp_path / "r") == Changed(agent=False, login=False)
    unit = text_of(tmp_path / "r", installed.AGENT_UNIT_FILE)
    assert unit == install.MADE + installed.unit_text(sys.executable)
    assert "RemoveIPC=no" in text_of(tmp_path / "r", installed.LOGIN_FILE)
    assert "memlock unlimited" in text_of(tmp_path / "r", installed.LIMITS_FILE)
    assert (tmp_path / "r" / installed.AGENT_STATE.lstrip("/")).stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize(
    "change", [{"url": "https://d.example.org"}, {"node": "train-01"}, {"agent": {"cores": 4}}]
)
def test_another_word_for_the_agent_starts_it_anew(tmp_path: Path, change: dict[str, Any]) -> None:
    put(tmp_path / "r")
    assert put(tmp_path / "r", **change) == Changed(agent=True, login=False)


def test_its_config_is_one_that_the_agent_takes(tmp_path: Path) -> None:
    put(tmp_path / "r", agent={"min_uid": 2000})
    path = tmp_path / "r" / installed.AGENT_CONFIG.lstrip("/")
    made = config.load(str(path))
    assert (made.node, made.join, made.ca, made.min_uid) == ("", "aws", installed.CA_FILE, 2000)
    assert made.gpus.emulate == "never"


def test_where_the_systems_authorities_are_trusted_none_is_named(tmp_path: Path) -> None:
    put(tmp_path / "r", ca_sha256="")
    assert json.loads(text_of(tmp_path / "r", installed.AGENT_CONFIG))["ca"] == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", "{"])
def test_a_boot_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "boot.json").write_text(text)
    with pytest.raises(InstallError, match=r"boot\.json: "):
        install.install(str(tmp_path / "boot.json"), str(tmp_path))


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "etc").write_text("in the way")
    with pytest.raises(InstallError, match="etc/gangline"):
        put(tmp_path)
