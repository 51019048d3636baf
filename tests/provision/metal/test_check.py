"""The check of a host: what counts as a difference, how it is told, and that a host that fails hides no other."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import pwd
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.clock import ManualClock
from orchestrator.model.host import Desired, Drift, Item, ItemKind, RoleState, Step
from orchestrator.provision.metal import check, check_host
from orchestrator.provision.metal.diagnosis import Unreached
from tests import capabilities


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: bytes = b""
    stderr: bytes = b""


def payload(*items: dict[str, Any]) -> dict[str, Any]:
    return {"node": "n1", "address": "10.0.0.1", "roles": [{"role": "base", "items": list(items)}]}


def file_item(path: Path, content: str | None, mode: str = "0644", **more: Any) -> dict[str, Any]:
    values = {"mode": mode, "owner": pwd_name(), "group": group_name()}
    if content is not None:
        values["content"] = content
    return {"kind": "file", "name": str(path), "values": values, **more}


def pwd_name() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def group_name() -> str:
    return grp.getgrgid(os.getegid()).gr_name


def drift_of(*items: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = check_host.look(payload(*items))["drift"]
    return [(each["value"], each["wanted"], each["found"]) for each in found]


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_as_wanted_is_no_drift(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("on n1 at 10.0.0.1\n")
    path.chmod(0o644)

    assert drift_of(file_item(path, "on @NODE@ at @ADDRESS@\n")) == []


def test_each_way_in_which_a_file_differs(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("one\ntoo\n")
    path.chmod(0o644)
    assert drift_of(file_item(path, "one\ntwo\n")) == [("content", "line 2: two", "line 2: too")]
    assert drift_of(file_item(path, "one\n")) == [("content", "line 2: (ends before)", "line 2: too")]
    assert drift_of(file_item(path, "one\ntoo")) == [("content", "its ends of lines", "others")]
    path.chmod(0o4755)
    assert drift_of(file_item(path, "one\ntoo\n")) == [("mode", "0644", "4755")]
    assert drift_of(file_item(tmp_path / "g", "x")) == [("present", "yes", "")]
    assert drift_of(file_item(path / "below", "x")) == [("present", "yes", "")]


def test_what_not_all_may_read_is_never_quoted(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("password hunter2\n")
    path.chmod(0o600)

    ((key, wanted, found),) = drift_of(file_item(path, "password other\n", "0600"))

    assert key == "content"
    assert "hunter2" not in found
    assert wanted.startswith("sha256:")
    assert found.startswith("sha256:")


def test_a_link_or_a_folder_is_no_file(tmp_path: Path) -> None:
    path, link = tmp_path / "f", tmp_path / "l"
    path.write_text("same\n")
    link.symlink_to(path)

    assert drift_of(file_item(link, "same\n")) == [("type", "file", f"link to {path}")]
    assert drift_of(file_item(tmp_path, "same\n")) == [("type", "file", "folder")]
    assert drift_of(file_item(path, None, "0755")) == [("type", "folder", "file")]
    tmp_path.chmod(0o755)
    assert drift_of(file_item(tmp_path, None, "0755")) == []


def test_the_digest_tells_whether_anything_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("one\n")
    item = file_item(path, "one\n")

    first, again = (check_host.look(payload(item))["digest"] for _ in range(2))
    path.write_text("two\n")

    assert first == again
    assert check_host.look(payload(item))["digest"] != first


# --- units -----------------------------------------------------------------------------------------------------------

ON = {"active": "yes", "enabled": "yes", "masked": "no"}
SEEN = {**ON, "overrides": "", "runs": "what is on disk"}


@pytest.mark.parametrize(
    ("wanted", "found", "drift"),
    [
        (ON, SEEN, []),
        (ON, None, [("present", "yes", "")]),
        ({"active": "no", "enabled": "no", "masked": "no"}, None, []),
        ({"active": "no", "masked": "yes"}, None, [("masked", "yes", "no")]),
        (ON, {**SEEN, "active": "failed"}, [("active", "yes", "failed")]),
        (ON, {**SEEN, "active": "activating"}, [("active", "yes", "activating")]),
        (ON, {**SEEN, "enabled": "no"}, [("enabled", "yes", "no")]),
        (
            ON,
            {**SEEN, "active": "inactive", "enabled": "no", "masked": "yes"},
            [("active", "yes", "inactive"), ("masked", "no", "yes")],
        ),
        ({"active": "no"}, {**SEEN, "active": "inactive"}, []),
        ({"active": "no"}, SEEN, [("active", "no", "yes")]),
        (ON, {**SEEN, "overrides": "/etc/x.conf"}, [("overrides", "", "/etc/x.conf")]),
        (ON, {**SEEN, "runs": "an older /etc/x"}, [("runs", "what is on disk", "an older /etc/x")]),
        (ON, {**SEEN, "active": "inactive", "runs": "an older /etc/x"}, [("active", "yes", "inactive")]),
        ({"masked": "yes", "enabled": "no"}, {**SEEN, "active": "inactive", "enabled": "yes", "masked": "yes"}, []),
    ],
)  # fmt: skip
def test_units(
    wanted: dict[str, str], found: dict[str, str] | None, drift: list[tuple[str, str, str]]
) -> None:
    assert check_host.compare_unit(wanted, found) == drift


def test_drop_ins_of_packages_and_of_gangline_are_no_overrides() -> None:
    block = {
        "DropInPaths": "/usr/lib/systemd/system/a.service.d/x.conf /etc/systemd/system/a.service.d/ours.conf "
        "/etc/systemd/system/a.service.d/theirs.conf /run/systemd/system/service.d/all.conf"
    }

    ours = {"/etc/systemd/system/a.service.d/ours.conf"}
    assert check_host.overrides(block, ours) == ["/etc/systemd/system/a.service.d/theirs.conf"]


def test_a_unit_is_late_when_its_file_is_younger_than_its_process() -> None:
    block = {
        "NeedDaemonReload": "no",
        "ExecMainStartTimestampMonotonic": str(int((time.monotonic() - 100) * 1e6)),
        "ActiveEnterTimestampMonotonic": "0",
    }
    now = time.time()

    assert check_host._runs(block, [(now - 200, "/etc/a")]) == "what is on disk"
    assert check_host._runs(block, [(now - 50, "/etc/a"), (now - 300, "/etc/b")]) == "an older /etc/a"
    assert check_host._runs(block, [(now + 900, "/etc/a")]) == "what is on disk", (
        "a time to come tells nothing"
    )
    assert check_host._runs({**block, "NeedDaemonReload": "yes"}, []) == "an older unit file"


# --- the rest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("net.core.somaxconn", "/proc/sys/net/core/somaxconn"),
        ("net/ipv4/conf/eth0.1/rp_filter", "/proc/sys/net/ipv4/conf/eth0.1/rp_filter"),
        ("net.ipv4.conf.eth0/1.rp_filter", "/proc/sys/net/ipv4/conf/eth0.1/rp_filter"),
    ],
)
def test_sysctl_paths(name: str, path: str) -> None:
    assert check_host.sysctl_path(name) == path


@pytest.mark.parametrize(
    ("kind", "key", "wanted", "found", "same"),
    [
        ("sysctl", "value", "4096 87380  6291456", "4096\t87380\t6291456", True),
        ("sysctl", "value", "1", "0", False),
        ("file", "mode", "644", "0644", True),
        ("user", "groups", "video,render", "render,video", True),
        ("user", "groups", "", "sudo", False),
        ("user", "uid", "", "1234", True),
        ("package", "version", "", "1.2-3", True),
        ("package", "version", "1.2-3", "1.2-4", False),
    ],
)
def test_what_is_the_same(kind: str, key: str, wanted: str, found: str, same: bool) -> None:
    assert check_host._same(kind, key, wanted, found) is same


def test_a_pending_reboot_is_a_fact_and_a_note_and_no_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_text("x\n")
    path.chmod(0o644)
    monkeypatch.setattr(check_host, "kernel_reasons", lambda: ["kernel 1 runs, 2 is installed"])
    monkeypatch.setattr(check_host, "in_container", lambda: False)

    quiet = check_host.look(payload(file_item(path, "x\n")))
    late = check_host.look(payload(file_item(path, "x\n", reboots=True)))

    assert (quiet["drift"], quiet["facts"]["reboot_needed"]) == ([], True)
    assert "kernel 1 runs, 2 is installed" in quiet["notes"][-1]
    assert f"file {path} has changed since the boot" in late["notes"][-1]


def test_gpus_are_read_from_the_bus(tmp_path: Path) -> None:
    for address, kind, vendor in (("0000:1b:00.0", "0x030200", "0x10de"), ("0000:00:02.0", "0x030000", "0x8086"),
                                  ("0000:1b:00.1", "0x040300", "0x10de")):  # fmt: skip
        folder = tmp_path / address
        folder.mkdir()
        for name, text in (("class", kind), ("vendor", vendor), ("device", "0x2330")):
            (folder / name).write_text(text + "\n")

    assert check_host.gpus(str(tmp_path)) == ["0000:1b:00.0 10de:2330"]


# --- over SSH --------------------------------------------------------------------------------------------------------

WANTED = Desired((RoleState("base", (Item(ItemKind.SYSCTL, "k", (("value", "1"),)),)),))
FACTS = {"machine_id": "m", "boot_id": "b", "now_us": 0}
ANSWER = {
    "drift": [{"role": "base", "kind": "sysctl", "name": "k", "value": "value", "wanted": "1", "found": "0"}],
    "notes": ["a note"],
    "digest": "d",
    "facts": FACTS,
}


def checked(**answers: Ran | Exception) -> dict[str, check.Checked]:
    async def run(host: str, argv: list[str], stdin: bytes) -> Ran:
        assert b"def look(" in stdin, "the checker goes along each time"
        assert argv == list(check.AS_ROOT)
        answer = answers[host]
        if isinstance(answer, Exception):
            raise answer
        return answer

    targets = [check.Target(host, WANTED) for host in answers]
    return {each.sight.host: each for each in asyncio.run(check.check(targets, run, ManualClock()))}


def test_a_host_that_answers_is_a_whole_sight() -> None:
    found = checked(n1=Ran(0, json.dumps(ANSWER).encode()))["n1"]

    assert found.sight.checked
    assert found.sight.drift == (Drift("base", ItemKind.SYSCTL, "k", "value", "1", "0"),)
    assert (found.digest, found.notes) == ("d", ("a note",))


@pytest.mark.parametrize(
    ("answer", "step", "word"),
    [
        (Unreached(Step.AUTH, "n1", "permission denied", "check the key"), Step.AUTH, "permission denied"),
        (Ran(1, b"", b"sudo: a password is required\n"), Step.SUDO, "a password is required"),
        (Ran(127, b"", b"sh: 1: exec: python3: not found\n"), Step.PYTHON, "not found"),
        (Ran(1, b"", b"Traceback (most recent call last):\nKeyError: 'x'\n"), Step.SYSTEM, "KeyError"),
        (Ran(0, b"Welcome!\n", b""), Step.SYSTEM, "no answer"),
    ],
)
def test_a_host_that_fails_says_how_far_it_came_and_hides_no_other(
    answer: Ran | Exception, step: Step, word: str
) -> None:
    found = checked(n1=answer, n2=Ran(0, json.dumps(ANSWER).encode()))

    assert found["n1"].sight.reached is step
    assert word in found["n1"].sight.error
    assert found["n1"].sight.hint
    assert not found["n1"].sight.checked
    assert found["n2"].sight.checked


LIE: dict[str, Any] = {"facts": dict(FACTS), "drift": [], "digest": "", "notes": []}


@pytest.mark.parametrize(
    "said",
    [
        b"[]",
        b"null",
        b'{"facts": null}',
        b"[" * 100_000,
        b"\xff",
        *(
            json.dumps(one).encode()
            for one in (
                {**LIE, "facts": {**LIE["facts"], "now_us": None}},
                {**LIE, "facts": {**LIE["facts"], "now_us": float("inf")}},
                {**LIE, "facts": {**LIE["facts"], "now_us": 10**30}},
                {**LIE, "facts": {**LIE["facts"], "hostname": "\ud800"}},
                {**LIE, "drift": 3},
                {**LIE, "notes": [{"a": 1}]},
            )
        ),
    ],
)
def test_a_host_that_says_anything_at_all_is_not_believed_and_hides_no_other(said: bytes) -> None:
    found = checked(n1=Ran(0, said), n2=Ran(0, json.dumps(ANSWER).encode()))
    assert (found["n1"].sight.reached, found["n1"].sight.checked) == (Step.SYSTEM, False)
    assert found["n2"].sight.checked


@pytest.mark.parametrize(("at", "skew"), [(5, -5), (10, 0), (15, 0), (20, 0), (27, 7)])
def test_clock_skew_is_what_the_way_there_and_back_can_not_explain(at: int, skew: int) -> None:
    assert check.outside(at, 10, 20) == skew


@pytest.mark.system
@pytest.mark.needs("python3.10")
def test_the_script_runs_as_it_is_sent_on_an_old_python(tmp_path: Path) -> None:
    path = tmp_path / 'it\'s "quoted" \\ é'
    path.write_text("x\n")
    values = (("content", "y\n"), ("group", group_name()), ("mode", "0644"), ("owner", pwd_name()))
    wanted = Desired((RoleState("base", (Item(ItemKind.FILE, str(path), values),)),))
    path.chmod(0o644)

    done = subprocess.run(
        [str(capabilities.python310()), "-I", "-"],
        input=check.script(check.Target("n1", wanted)),
        capture_output=True,
        check=False,
    )

    assert done.stderr == b""
    answer = json.loads(done.stdout)
    (drift,) = answer["drift"]
    assert (drift["name"], drift["found"]) == (str(path), "line 1: x")
    assert answer["facts"]["boot_id"]


def test_cards_of_a_bond_are_known_by_their_own_addresses(tmp_path: Path) -> None:
    cards = {"lo": "00:00:00:00:00:00", "eth0": "02:00:00:00:00:AA", "eth1": "02:00:00:00:00:aa", "tun0": ""}
    for name, address in cards.items():
        (tmp_path / "net" / name).mkdir(parents=True)
        (tmp_path / "net" / name / "address").write_text(f"{address}\n")
    (tmp_path / "bonds").mkdir()
    (tmp_path / "bonds" / "bond0").write_text(
        "Slave Interface: eth0\nPermanent HW addr: 02:00:00:00:00:AA\nSlave queue ID: 0\n"
        "Slave Interface: eth1\nPermanent HW addr: 02:00:00:00:00:bb\n"
    )
    found = check_host.macs(str(tmp_path / "net"), str(tmp_path / "bonds"))
    assert found == ["02:00:00:00:00:aa", "02:00:00:00:00:bb"]
    assert check_host.macs(str(tmp_path / "none"), str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("config", "enabled", "url"),
    [
        ('{"url": "https://c:7443", "node": "h1"}', True, "https://c:7443"),
        ('{"url": "https://c:7443", "node": "h1"}', False, ""),
        ("{", True, ""),
        ("[]", True, ""),
        ("", True, ""),
    ],
)
def test_an_agent_that_was_let_go_is_nobodys(tmp_path: Path, config: str, enabled: bool, url: str) -> None:
    (tmp_path / "agent.json").write_text(config)
    if enabled:
        (tmp_path / "wants").symlink_to("/lib/systemd/system/gangline-agent.service")
    assert check_host.agent_url(str(tmp_path / "agent.json"), str(tmp_path / "wants")) == url
