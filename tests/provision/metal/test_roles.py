"""The roles as files: each validates, documents what it takes, and passes the linter; playbooks name what exists."""

from __future__ import annotations

import ast
import grp
import importlib.util
import os
import pwd
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from orchestrator.model.host import ItemKind
from orchestrator.provision.metal import check_host

ROOT = Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
HOST_CODE = [*sorted((ROOT / "roles").rglob("*.py")), ROOT / "orchestrator/provision/metal/check_host.py"]
BIN = Path(sys.executable).parent


def read(*parts: str) -> Any:
    return yaml.safe_load(ROOT.joinpath("roles", *parts).read_text())


@pytest.mark.parametrize("role", ROLES)
def test_a_role_says_what_it_takes_once_and_the_same_everywhere(role: str) -> None:
    options = read(role, "meta", "argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read(role, "defaults", "main.yml")
    readme = (ROOT / "roles" / role / "README.md").read_text()

    assert {
        name: option.get("default") for name, option in options.items() if not option.get("required")
    }.keys() == defaults.keys()
    assert [name for name in options if f"`{name}`" not in readme] == []
    for name, value in defaults.items():
        if name != "gangline_accept_free_bytes":  # its default has a number that a comment explains
            assert options[name]["default"] == value, name


@pytest.mark.parametrize("role", [role for role in ROLES if role != "items"])
def test_a_role_validates_before_it_does_anything(role: str) -> None:
    first = read(role, "tasks", "main.yml")[0]

    assert first["ansible.builtin.import_tasks"] == "validate.yml"
    for task in read(role, "tasks", "validate.yml"):
        assert len(task["ansible.builtin.assert"]["fail_msg"].split()) > 8, "a sentence that says what to do"


def healer() -> Any:
    path = ROOT / "roles/items/module_utils/gangline_heal.py"
    spec = importlib.util.spec_from_file_location("gangline_heal", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_kind_of_item_is_looked_at_and_healed() -> None:
    made = {kind for kind in map(str, ItemKind) if kind != "host"}

    assert {*check_host.LOOKERS, "unit"} == made
    assert {*healer().HEALERS, "archive"} == made, "an archive is copied by the role"


def file_item(path: Path, content: str | None, mode: str = "0640") -> dict[str, Any]:
    values = {
        "mode": mode,
        "owner": pwd.getpwuid(os.geteuid()).pw_name,
        "group": grp.getgrgid(os.getegid()).gr_name,
    }
    return {
        "kind": "file",
        "name": str(path),
        "values": values | ({} if content is None else {"content": content}),
    }


def heal(*items: dict[str, Any]) -> None:
    """As the module does it: with the checker's own eyes before and after."""

    def look() -> list[dict[str, Any]]:
        payload = {"node": "n1", "address": "", "roles": [{"role": "base", "items": list(items)}]}
        drift: list[dict[str, Any]] = check_host.look(payload)["drift"]
        return drift

    healer().heal_all(list(items), look(), look)


def test_files_are_healed_whatever_stands_in_their_place(tmp_path: Path) -> None:
    link, folder, file = tmp_path / "link", tmp_path / "folder", tmp_path / "file"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("stays")
    link.symlink_to(elsewhere)
    (folder / "with").mkdir(parents=True)
    file.write_text("here")

    heal(
        file_item(link, "new"),
        file_item(folder, "new"),
        file_item(file, None, "0750"),
        file_item(tmp_path / "a/b", "x"),
    )

    assert (link.read_text(), link.is_symlink(), elsewhere.read_text()) == ("new", False, "stays")
    assert folder.read_text() == "new"
    assert (tmp_path / "folder.set-aside-by-gangline" / "with").is_dir(), "nothing of anybody's is deleted"
    assert file.is_dir()
    assert (tmp_path / "file.set-aside-by-gangline").read_text() == "here"
    assert (tmp_path / "a/b").read_text() == "x"
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".gangline-")} == set()


class Module:
    """What the module gangline_items needs of Ansible."""

    check_mode = False

    def __init__(self, do: str, *items: dict[str, Any]) -> None:
        self.params = {"role": "base", "items": list(items), "node": "n1", "address": "", "do": do}
        self.warned: list[str] = []

    def warn(self, text: str) -> None:
        self.warned.append(text)


def called(monkeypatch: pytest.MonkeyPatch, do: str, *items: dict[str, Any]) -> tuple[dict[str, Any], Module]:
    """The module's result, and what it was called with."""
    basic = ModuleType("basic")
    basic.AnsibleModule = Module  # type: ignore[attr-defined]
    for name, found in (("basic", basic), ("check_host", check_host), ("gangline_heal", healer())):
        monkeypatch.setitem(sys.modules, f"ansible.module_utils.{name}", found)
    code = runpy.run_path(str(ROOT / "roles/items/library/gangline_items.py"))
    module = Module(do, *items)
    return code["run"](module), module


def test_looking_and_healing_is_one_call_where_nothing_has_to_be_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call costs a start of Python on the host; an archive that differs is brought to it first."""
    item = file_item(tmp_path / "f", "x")
    archive = {"kind": "archive", "name": str(tmp_path / "a.pyz"), "values": {"sha256": "aa" * 32}}

    waits, _ = called(monkeypatch, "begin", item, archive)
    assert (waits["changed"], waits["archives"]) == (False, [archive["name"]])
    assert not (tmp_path / "f").exists(), "what reads the archive at its start would be started too early"

    done, _ = called(monkeypatch, "begin", item)
    assert (done["changed"], len(done["changes"]), done["archives"]) == (True, 1, [])
    assert (tmp_path / "f").read_text() == "x"
    assert called(monkeypatch, "begin", item)[0]["changed"] is False


def test_what_a_host_can_not_do_is_told_beside_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {"drift": [], "notes": ["a container can't set it"], "digest": "", "facts": {}}
    monkeypatch.setattr(check_host, "look", lambda _: seen)

    found, module = called(monkeypatch, "begin")

    assert (found["notes"], module.warned) == (seen["notes"], ["n1: a container can't set it"])


def test_what_can_not_be_healed_is_told_in_words(tmp_path: Path) -> None:
    item = file_item(tmp_path / "f", "x")
    item["values"]["owner"] = "nobody-of-that-name"

    with pytest.raises(Exception, match="the owner is unknown on this host"):
        heal(item)


def test_what_is_wanted_no_more_goes_and_the_rest_stays(tmp_path: Path) -> None:
    file, full, empty = tmp_path / "f", tmp_path / "full", tmp_path / "empty"
    file.write_text("x")
    (full / "with").mkdir(parents=True)
    empty.mkdir()
    items = [
        file_item(file, "x"),
        file_item(full, None),
        file_item(empty, None),
        file_item(tmp_path / "gone", "x"),
    ]

    would = healer().let_go(items, True)
    assert file.exists()
    did = healer().let_go(items, False)

    assert would == did == [f"file {file}: removed", f"file {empty}: removed"]
    assert (file.exists(), full.exists(), empty.exists()) == (False, True, False)
    assert healer().let_go(items, False) == []


@pytest.mark.parametrize("name", ["root", "daemon", "nobody"])
def test_an_account_of_the_systems_is_never_a_persons(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A user `root` of the file would get another number, and go with its line."""
    code = healer()
    called: list[Any] = []
    monkeypatch.setattr(code, "call", lambda argv, *_: called.append(argv))
    monkeypatch.setattr(code, "rewrite_entry", lambda *given: called.append(given))
    values = {"groups": "", "home": f"/home/{name}", "shell": "/bin/bash", "system": "no", "uid": "20001"}
    item = {"kind": "user", "name": name, "values": values}
    for value in ("uid", "home", "group", "shell"):
        with pytest.raises(code.Failed, match=f"user {name}: this host's system has an account"):
            code.heal_users([item], [{"kind": "user", "name": name, "value": value}])
    assert code.let_go([item], dry=False) == []
    assert called == []


def test_a_group_of_the_systems_keeps_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    code = healer()
    called: list[Any] = []
    monkeypatch.setattr(code, "call", lambda argv, *_: called.append(argv))
    item = {"kind": "group", "name": "tty", "values": {"gid": "20100"}}
    with pytest.raises(code.Failed, match="group tty: this host's system has a group of that name"):
        code.heal_groups([item], [{"kind": "group", "name": "tty", "value": "gid"}])
    with pytest.raises(code.Failed, match="group tty"):
        code._mend_own_group("tty", {"uid": "20100", "system": "no"})
    assert called == []
    new = {"kind": "group", "name": "gangline-none", "values": {"gid": "20100"}}
    code.heal_groups([new], [{"kind": "group", "name": "gangline-none", "value": "present"}])
    assert called == [["groupadd", "--gid", "20100", "gangline-none"]]


def test_an_entry_is_rewritten_and_the_others_stay_byte_by_byte(tmp_path: Path) -> None:
    passwd = tmp_path / "passwd"
    before = b"root:x:0:0::/root:/bin/sh\n+nis\nal:x:7:7:\xe4:/srv:/bin/sh\nalice:x:9:7::/a:/bin/sh\n"
    passwd.write_bytes(before)
    code = healer()

    code.rewrite_entry("al", {code.UID: "8", code.HOME: "/home/al"}, str(passwd))

    assert passwd.read_bytes() == before.replace(b"al:x:7:7:\xe4:/srv", b"al:x:8:7:\xe4:/home/al")
    with pytest.raises(Exception, match="user al: the number 9 is alice's"):
        code.rewrite_entry("al", {code.UID: "9"}, str(passwd))


@pytest.mark.parametrize("path", HOST_CODE, ids=lambda path: path.name)
def test_what_runs_on_a_host_is_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_the_checker_is_one_file_of_the_standard_library() -> None:
    tree = ast.parse(HOST_CODE[-1].read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.mark.system
def test_linter() -> None:
    config = ROOT / "stacks" / "metal" / ".ansible-lint"
    done = subprocess.run(
        [str(BIN / "ansible-lint"), "-q", "--offline", "-c", str(config), "--nocolor", "../../roles", "."],
        cwd=config.parent, capture_output=True, text=True, check=False,
        env={"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": os.environ["HOME"]},
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.system
@pytest.mark.parametrize("playbook", ["site.yml", "accept.yml", "drain.yml"])
def test_playbooks_are_valid(playbook: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(BIN / "ansible-playbook"), "--syntax-check", "-i", "localhost,", playbook],
        cwd=ROOT / "stacks" / "metal", capture_output=True, text=True, check=False,
        env={"PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_HOME": str(tmp_path), "HOME": str(tmp_path)},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
