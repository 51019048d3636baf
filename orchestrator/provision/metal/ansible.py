"""Run the playbooks of a rendered folder, in a process of their own, and tell live how every host does.

Comes in: a folder that `render.py` has written, which playbook, hosts and roles, and secrets that must not be seen.
Goes out: a `Progress` per host and task as it happens, and a `HostRun` per host. Called by: apply, `up`.

Ansible sees nothing of the caller's own: no ansible.cfg, no ssh config, no ANSIBLE_ variable. When the caller dies or
cancels, Ansible ends with it (see ansible_child.py); what a host was doing then is found by the next look at it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.model.base import Word
from orchestrator.model.errors import NotFound, Unavailable
from orchestrator.provision.metal import ansible_child

OUTER_ROLES = ("base", "agent", "acceptance", "controller")  # the others are what these are made of
PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "SSH_AUTH_SOCK", "PYTHONPATH", "VIRTUAL_ENV")
FAREWELL_S = 10.0  # for Ansible to end when it is told to
LONGEST_LINE = 16 << 20  # bytes of one event
MOST_WORDS = 400  # characters of a message


class Doing(Word):
    """How a task of a host goes."""

    STARTED = "started"
    OK = "ok"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Progress:
    """One task of one host has begun or ended. `role` is the one that was asked for; `message` is for people."""

    host: str
    role: str
    task: str
    doing: Doing
    message: str = ""


@dataclass(frozen=True, slots=True)
class HostRun:
    """How a host came out. `changes` in words, `changed` how many; `error` names what failed, empty if nothing did;
    `seconds` of its tasks.

    `acceptance`: what the role acceptance has found, if it ran.
    """

    host: str
    ok: bool = True
    reached: bool = True
    changed: int = 0
    seconds: float = 0.0
    role: str = ""
    task: str = ""
    error: str = ""
    changes: tuple[str, ...] = ()
    acceptance: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Play:
    """What to run. `hosts` empty: all of the inventory; `roles` empty: all of the playbook. `secret_vars` reach Ansible
    by a file of mode 0600 that is gone afterwards."""

    folder: Path
    playbook: str = "site.yml"
    hosts: Sequence[str] = ()
    roles: Sequence[str] = ()
    check: bool = False
    forks: int = 32
    secret_vars: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """What is known so far, by host."""

    results: dict[str, HostRun] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    code: int | None = None


async def play(wanted: Play, tell: Callable[[Progress], None]) -> dict[str, HostRun]:
    """Run it; results by host, those of `hosts` that Ansible never came to included.

    NotFound if Ansible is not installed; Unavailable if it could not run at all: a host's failure is no error here.
    """
    _require_ansible()
    private = Path(tempfile.mkdtemp(prefix="gl-"))  # mode 0700, and short: sockets of ssh lie in it
    try:
        tally = await _run(wanted, private, tell)
    finally:
        shutil.rmtree(private, ignore_errors=True)
    if not tally.results and tally.code != 0:
        raise Unavailable("ansible.failed", "Ansible could not run", _last_words(tally))
    for host in wanted.hosts:
        tally.results.setdefault(
            host,
            HostRun(host, ok=False, error=f"Ansible never came to it: {_last_words(tally) or 'no reason'}"),
        )
    return tally.results


async def _run(wanted: Play, private: Path, tell: Callable[[Progress], None]) -> Tally:
    tally = Tally()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        ansible_child.__name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(wanted.folder, private),
        cwd=wanted.folder,
        limit=LONGEST_LINE,
        start_new_session=True,  # Ctrl-C reaches us alone: we end it
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    complaints = asyncio.create_task(child.stderr.read())
    try:
        child.stdin.write(_job(wanted, private))
        await child.stdin.drain()
        async for line in child.stdout:
            take(json.loads(line), tally, tell)
        await child.wait()
        tally.said += (await complaints).decode(errors="replace").splitlines()
    finally:
        await _end(child)
        complaints.cancel()
    return tally


async def _end(child: asyncio.subprocess.Process) -> None:
    """Close its stdin, which ends it and all that it has started; kill it if it does not end."""
    assert child.stdin is not None
    child.stdin.close()
    if child.returncode is None:
        with suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), FAREWELL_S)
    if child.returncode is None:
        child.kill()
        await child.wait()


def _job(wanted: Play, private: Path) -> bytes:
    options = ["--check", "--diff"] if wanted.check else []
    if wanted.hosts:
        options += ["--limit", f"@{_private_file(private, 'hosts', chr(10).join(wanted.hosts))}"]
    if wanted.secret_vars:
        options += ["-e", f"@{_private_file(private, 'secrets.json', json.dumps(wanted.secret_vars))}"]
    job = {
        "private": str(private),
        "folder": str(wanted.folder),
        "inventory": str(wanted.folder / "inventory.yml"),
        "playbook": str(wanted.folder / wanted.playbook),
        "options": " ".join(options),
        "tags": ",".join(wanted.roles),
        "forks": wanted.forks,
    }
    return json.dumps(job).encode() + b"\n"


def _private_file(private: Path, name: str, text: str) -> Path:
    path = private / name
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    return path


def _environment(folder: Path, private: Path) -> dict[str, str]:
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    own = str(Path(sys.executable).parent)  # ansible-playbook lies beside the interpreter that has Ansible
    return {
        **passed,
        "PATH": f"{own}:{passed.get('PATH', '/usr/bin:/bin')}",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(private / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(private / "tmp"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(private / "cp"),
        "ANSIBLE_NOCOLOR": "1",
        ansible_child.MARK: secrets.token_hex(8),
    }


def _require_ansible() -> None:
    from importlib.util import find_spec

    if find_spec("ansible") is None or find_spec("ansible_runner") is None:
        raise NotFound(
            "ansible.absent", "Ansible is not installed beside Gangline", "pip install 'gangline[metal]'"
        )


# --- events ----------------------------------------------------------------------------------------------------------

_ENDS = {
    "runner_on_ok": Doing.OK,
    "runner_on_skipped": Doing.SKIPPED,
    "runner_on_failed": Doing.FAILED,
    "runner_on_unreachable": Doing.UNREACHABLE,
}


def take(event: Mapping[str, Any], tally: Tally, tell: Callable[[Progress], None]) -> None:
    """Count one event of the child, and tell of it."""
    if "end" in event:
        tally.code = event["end"]
    elif event["event"] == "said":
        tally.said.append(event["text"])
    elif event["event"] == "runner_on_start" and event.get("host"):
        role = _role_of(event, tally)
        tell(Progress(event["host"], role, event.get("task", ""), Doing.STARTED))
    elif event["event"] in _ENDS:
        _take_end(event, tally, tell)


def _take_end(event: Mapping[str, Any], tally: Tally, tell: Callable[[Progress], None]) -> None:
    host, task, role = event["host"], event.get("task", ""), _role_of(event, tally)
    result = event["result"]
    doing = _ENDS[event["event"]]
    if doing is Doing.OK and result.get("changed"):
        doing = Doing.CHANGED
    if doing is Doing.FAILED and event.get("ignore_errors"):
        doing = Doing.OK
    words = _words(result) if doing in (Doing.FAILED, Doing.UNREACHABLE) else _done(result)
    before = tally.results.get(host) or HostRun(host)
    after = replace(before, seconds=before.seconds + float(event.get("duration") or 0.0))
    if doing is Doing.CHANGED:
        changes = tuple(result.get("changes") or [f"file {result['dest']}" if result.get("dest") else task])
        after = replace(after, changed=after.changed + len(changes), changes=(*after.changes, *changes))
    if result.get("acceptance") is not None:
        after = replace(after, acceptance=result["acceptance"])
    if doing in (Doing.FAILED, Doing.UNREACHABLE):
        reached = doing is Doing.FAILED
        after = replace(after, ok=False, reached=reached, role=role, task=task, error=words)
    tally.results[host] = after
    tell(Progress(host, role, task, doing, words))


def _role_of(event: Mapping[str, Any], tally: Tally) -> str:
    """The role that was asked for: what it includes belongs to it."""
    role = str(event.get("role", ""))
    if role in OUTER_ROLES:
        tally.roles[event["host"]] = role
    return tally.roles.get(event["host"], role)


def _done(result: Mapping[str, Any]) -> str:
    words = [*result.get("changes", ()), *result.get("notes", ())]
    return _short("; ".join(words))


def _words(result: Mapping[str, Any]) -> str:
    """Why a task failed: its own message, and where a module broke, the last line of what it said."""
    broken = [each for each in result.get("results", ()) if isinstance(each, dict) and each.get("failed")]
    if broken:  # of a loop: the first item that failed
        return _words(broken[0])
    if "censored" in result:
        return "it failed, and what it said holds a secret; run it by hand on the rendered folder to see more"
    message = str(result.get("msg", "")).strip()
    said = str(result.get("module_stderr") or result.get("stderr") or "").strip()
    if said and (not message or message.startswith("MODULE FAILURE")):
        return _short(said.splitlines()[-1])
    return _short(message or "no message")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_WORDS else line[: MOST_WORDS - 1] + "…"


def _last_words(tally: Tally) -> str:
    lines = [line for line in "\n".join(tally.said).splitlines() if line.strip()]
    return _short(" ".join(lines[-3:]))
