"""Ansible in its own process: what it tells live, what a host comes to, and that it ends with its caller.

The hosts here are this very machine; the tests of the roles have real ones.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.errors import Unavailable
from orchestrator.provision.metal import ansible
from orchestrator.provision.metal.ansible import Doing, HostRun, Progress, Tally

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60.0


def event(name: str, host: str = "n1", role: str = "base", task: str = "T", **result: Any) -> dict[str, Any]:
    return {"event": name, "host": host, "role": role, "task": task, "duration": 0.5, "result": result}


def taken(*events: dict[str, Any]) -> tuple[Tally, list[Progress]]:
    tally, told = Tally(), list[Progress]()
    for each in events:
        ansible.take(each, tally, told.append)
    return tally, told


# --- events ----------------------------------------------------------------------------------------------------------


def test_a_host_is_told_of_task_by_task_and_summed_up() -> None:
    tally, told = taken(
        event("runner_on_start"),
        event(
            "runner_on_ok",
            changed=True,
            changes=["package jq: present absent -> yes", "package jq: held no -> yes"],
        ),
        event("runner_on_ok", role="items", task="U", changed=False),
        event("runner_on_skipped", role="items"),
    )

    assert [(each.role, each.task, each.doing) for each in told] == [
        ("base", "T", Doing.STARTED),
        ("base", "T", Doing.CHANGED),
        ("base", "U", Doing.OK),
        ("base", "T", Doing.SKIPPED),
    ]
    assert told[1].message == "package jq: present absent -> yes; package jq: held no -> yes"
    result = tally.results["n1"]
    assert (result.ok, result.changed, result.seconds) == (True, 2, 1.5)


def test_what_a_role_includes_is_told_as_the_roles_own_and_hosts_do_not_mix() -> None:
    _, told = taken(
        event("runner_on_start", host="n1", role="agent"),
        event("runner_on_start", host="n2", role="base"),
        event("runner_on_start", host="n1", role="items"),
        event("runner_on_start", host="n2", role="items"),
    )

    assert [(each.host, each.role) for each in told] == [
        ("n1", "agent"),
        ("n2", "base"),
        ("n1", "agent"),
        ("n2", "base"),
    ]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"msg": "still not as wanted: unit x"}, "still not as wanted: unit x"),
        (
            {"msg": "MODULE FAILURE: see stdout", "module_stderr": "Traceback\n  x\nKeyError: 'k'"},
            "KeyError: 'k'",
        ),
        ({"msg": "", "stderr": "E: no such package\n"}, "E: no such package"),
        ({}, "no message"),
        ({"msg": "x" * 900}, "x" * 399 + "…"),
        ({"msg": "two\nlines"}, "two lines"),
    ],
)
def test_the_failing_task_in_words(result: dict[str, Any], words: str) -> None:
    tally, told = taken(event("runner_on_failed", task="Packages", **result))

    found = tally.results["n1"]
    assert (found.ok, found.reached, found.role, found.task, found.error) == (
        False,
        True,
        "base",
        "Packages",
        words,
    )
    assert told[-1] == Progress("n1", "base", "Packages", Doing.FAILED, words)


def test_a_failure_that_is_hidden_for_a_secret_says_so() -> None:
    tally, _ = taken(event("runner_on_failed", censored="the output has been hidden"))

    assert "secret" in tally.results["n1"].error


def test_an_ignored_failure_is_none() -> None:
    tally, told = taken({**event("runner_on_failed", msg="x"), "ignore_errors": True})

    assert tally.results["n1"].ok
    assert told[-1].doing is Doing.OK


def test_an_unreachable_host_was_not_reached() -> None:
    tally, _ = taken(event("runner_on_unreachable", msg="Failed to connect to the host via ssh: no route"))

    found = tally.results["n1"]
    assert (found.ok, found.reached) == (False, False)
    assert "no route" in found.error


def test_what_acceptance_found_comes_along_with_its_failure() -> None:
    tally, _ = taken(
        event("runner_on_failed", role="acceptance", msg="not accepted", acceptance={"ok": False})
    )

    assert tally.results["n1"].acceptance == {"ok": False}


# --- the process -----------------------------------------------------------------------------------------------------

PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
"""


def folder_with(tmp_path: Path, tasks: str, hosts: str = "n1 n2") -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    names = "".join(f"    {name}: {{ansible_connection: local}}\n" for name in hosts.split())
    python = f"  vars: {{ansible_python_interpreter: {sys.executable}}}\n"
    (folder / "inventory.yml").write_text(f"all:\n{python}  hosts:\n{names}")
    (folder / "site.yml").write_text(PLAYBOOK + tasks)
    (folder / "ansible.cfg").write_text("[defaults]\ninventory = inventory.yml\n")
    return folder


def run(folder: Path, **more: Any) -> tuple[dict[str, HostRun], list[Progress]]:
    told: list[Progress] = []
    return asyncio.run(ansible.play(ansible.Play(folder, **more), told.append)), told


THREE_TASKS = """
    - name: one
      ansible.builtin.copy:
        content: "{{ secret[inventory_hostname] }}"
        dest: FOLDER/{{ inventory_hostname }}
        mode: "0600"
      no_log: true
      tags: [base]
    - name: two
      ansible.builtin.fail: {msg: "the disk of {{ inventory_hostname }} is full"}
      when: inventory_hostname == 'n2'
      tags: [base]
    - name: three
      ansible.builtin.command: touch FOLDER/not-asked-for
      tags: [agent]
"""


@pytest.mark.system
def test_hosts_roles_secrets_and_a_failure(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, THREE_TASKS.replace("FOLDER", str(tmp_path)))

    results, told = run(
        folder,
        hosts=("n1", "n2", "absent"),
        roles=("base",),
        secret_vars={"secret": {"n1": "s1", "n2": "s2"}},
    )

    assert (tmp_path / "n1").read_text() == "s1"
    assert not (tmp_path / "not-asked-for").exists()
    assert {name: (each.ok, each.task, each.error) for name, each in results.items() if name != "absent"} == {
        "n1": (True, "", ""),
        "n2": (False, "two", "the disk of n2 is full"),
    }
    assert not results["absent"].ok
    assert "never came to it" in results["absent"].error
    assert Progress("n2", "", "two", Doing.FAILED, "the disk of n2 is full") in told
    assert "s1" not in repr(told)


@pytest.mark.system
def test_nothing_of_the_callers_own_settings_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The person's ansible.cfg would make each run end at once, and so would the variable."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".ansible.cfg").write_text("[defaults]\nstrategy = absent\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANSIBLE_STRATEGY", "absent")

    results, _ = run(folder_with(tmp_path, "    - ansible.builtin.command: 'true'\n", "n1"))

    assert results["n1"].ok
    assert not (tmp_path / "home" / ".ansible").exists(), "and nothing is left there"


@pytest.mark.system
def test_what_keeps_ansible_from_running_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        run(folder_with(tmp_path, "    - no_such_module_at_all: {}\n", "n1"))

    assert "no_such_module_at_all" in caught.value.hint


SLEEPER = """
    - name: long
      ansible.builtin.shell: "echo $$ > %s/pid-{{ inventory_hostname }}; exec sleep 600"
"""
CALLER = """
import asyncio, sys
from pathlib import Path
from orchestrator.provision.metal import ansible
asyncio.run(ansible.play(ansible.Play(Path(sys.argv[1])), lambda progress: None))
"""


def until(ready: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + DEADLINE_S
    while not (found := ready()):
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.02)
    return found


def living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """All that descend from it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, todo = [], [pid]
    while todo:
        above = todo.pop()
        below = [each for each, parent in parents.items() if parent == above]
        found += below
        todo += below
    return found


def sleeping(tmp_path: Path) -> list[int] | None:
    """The process of each host's task, once both run."""
    paths = [tmp_path / f"pid-{name}" for name in ("n1", "n2")]
    texts = [path.read_text().strip() if path.exists() else "" for path in paths]
    return [int(text) for text in texts] if all(texts) else None


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_caller_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    folder = folder_with(tmp_path, SLEEPER % tmp_path)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    caller = subprocess.Popen([sys.executable, "-c", CALLER, str(folder)], cwd=ROOT, env=environment)
    try:
        pids = until(lambda: sleeping(tmp_path), "both hosts are at it")
        below = children(caller.pid)
        assert set(pids) <= set(below)
        caller.send_signal(number)
        caller.wait(DEADLINE_S)
        until(lambda: not any(map(living, below)), "all of it is gone")
    finally:
        caller.kill()


@pytest.mark.system
def test_a_cancelled_run_is_over_when_the_cancelling_returns(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, SLEEPER % tmp_path)

    async def cancel_when_running() -> list[int]:
        task = asyncio.create_task(ansible.play(ansible.Play(folder), lambda _: None))
        while not (pids := sleeping(tmp_path)):
            assert not task.done()
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pids

    pids = asyncio.run(asyncio.wait_for(cancel_when_running(), DEADLINE_S))

    until(lambda: not any(map(living, pids)), "the tasks' processes are gone")
