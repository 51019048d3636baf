"""The roles as files: each validates, documents what it takes, and passes the linter; playbooks name what exists."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
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


def test_every_kind_of_item_has_its_tasks() -> None:
    made = {kind for kind in map(str, ItemKind) if kind != "host"}

    assert {path.stem for path in (ROOT / "roles/items/tasks").glob("*.yml")} - {"main"} == made
    assert {*check_host.LOOKERS, "unit"} == made


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
