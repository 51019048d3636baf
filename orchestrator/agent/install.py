"""Puts the agent of a bought node in place: what a role does on hosts of metal sites.

Comes in: the boot file that the node's user-data has written, this very archive, the authority's certificate. Goes out:
config, unit and settings on disk, the unit enabled and running. Called by: __main__ (`--install FILE`), which the first
step of the user-data starts at each boot (provision/aws/boot.py).

What is there already stays as it is, and the agent is started anew only when something of it has changed; jobs run on.

    {"url": "https://…", "ca_sha256": "…", "site": "use1", "pool": "burst", "node": "", "agent": {…}}

`agent` is what the config of its agents says beyond the usual.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from orchestrator.model import installed

MADE = "# Written by Gangline at the start of this machine.\n"
COMMAND_S = 90


class InstallError(Exception):
    """The agent can't be put in place; the text is for people."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What is another than before: of the agent, of the settings for logins."""

    agent: bool
    login: bool


def install(boot_file: str, root: str = "/") -> Changed:
    """Everything in place. `root`: where the files go, for tests. InstallError."""
    try:
        with open(boot_file, encoding="utf-8") as file:
            boot = json.load(file)
        config = json.dumps(config_of(boot), indent=2, sort_keys=True) + "\n"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InstallError(f"{boot_file}: {error}") from None
    try:
        for path, mode in installed.FOLDERS:
            os.makedirs(_in(root, path), exist_ok=True)
            os.chmod(_in(root, path), int(mode, 8))
        put(_in(root, installed.LIMITS_FILE), MADE + installed.MEMLOCK)
        login = put(_in(root, installed.LOGIN_FILE), MADE + installed.LOGIN)
        unit = MADE + installed.unit_text(sys.executable or installed.PYTHON)
        agent = [
            put(_in(root, installed.AGENT_CONFIG), config),
            put(_in(root, installed.AGENT_UNIT_FILE), unit),
        ]
        return Changed(any(agent), login)
    except OSError as error:
        raise InstallError(f"{error.filename}: {error.strerror}") from None


def config_of(boot: dict[str, Any]) -> dict[str, Any]:
    """What `agent.config` reads."""
    return {
        "url": boot["url"],
        "node": boot.get("node", ""),
        "ca": installed.CA_FILE if boot.get("ca_sha256") else "",
        "join": "aws",
        "state_dir": installed.AGENT_STATE,
        "gpus": {"emulate": "never"},
        **boot.get("agent", {}),
    }


def put(path: str, text: str) -> bool:
    """The file has that text, in one step; whether it had another."""
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return False
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draft = path + ".new"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(draft, 0o644)
    os.rename(draft, path)
    return True


def _in(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def start(*, anew: bool, login: bool) -> None:
    """The unit is enabled and runs; `anew`: with what is on disk now. InstallError with systemd's words."""
    _systemctl("daemon-reload")
    if login:
        _systemctl("try-restart", installed.LOGIN_UNIT)
    _systemctl("enable", installed.AGENT_UNIT)
    _systemctl("restart" if anew else "start", installed.AGENT_UNIT)


def _systemctl(*words: str) -> None:
    try:
        done = subprocess.run(
            ["systemctl", *words], capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"systemctl {words[0]}: {error}") from None
    if done.returncode != 0:
        raise InstallError(f"systemctl {' '.join(words)}: {done.stderr.strip()[:400]}")


def main(boot_file: str, *, anew: bool) -> int:
    """0; 1 with the reason on stderr. `anew`: the archive is another one than before."""
    try:
        changed = install(boot_file)
        start(anew=anew or changed.agent, login=changed.login)
    except InstallError as error:
        sys.stderr.write(f"gangline: {error}\n")
        return 1
    return 0
