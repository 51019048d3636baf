"""Imports go downwards only, and the base install (command and SDK) needs no server package.

The arrows are data in pyproject.toml; tests/rooms_contract.py is what `make arch` checks them with. The first tests
prove on small packages that a wrong arrow is refused, the later ones hold the tree to it at import time too.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rooms_contract import breach_reason, parse_arrows, parse_exceptions

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACT: dict[str, Any] = PROJECT["tool"]["importlinter"]["contracts"][0]
ARROWS = parse_arrows(CONTRACT["arrows"])
EXCEPTIONS = parse_exceptions(CONTRACT["exceptions"])

BASE_ROOMS = ("model", "bundled", "wire", "client", "spec", "cli", "catalog")
STDLIB_ROOMS = ("model", "agent", "telemetry", "bundled")
PURE_ROOMS = ("ledger", "scheduler", "autoscale", "planning")
# What the agent's archive carries with it; telemetry does without where it is missing.
VENDORED = {"telemetry": {"pynvml"}}
# Import name, where it is not the distribution's own name in lower case.
IMPORT_NAMES = {"pyyaml": "yaml", "nvidia-ml-py": "pynvml"}
# Modules that use an extra when they are called: those of base rooms say so where it is not installed, the compiled
# code of the scheduler is asked for by `kernel`, which does without.
WITH_EXTRA = {"catalog/refresh.py": {"boto3", "botocore"}, "scheduler/compiled.py": {"numba"}}
# What a declared package re-exports and its users name directly.
COMPANIONS = {
    "pydantic": {"pydantic_core", "annotated_types"},
    "fastapi": {"starlette"},
    "sqlalchemy": set[str](),
    "boto3": {"botocore"},
    "pulumi": {"semver"},
}


def test_tree_keeps_the_arrows() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as run; run()",
            "--no-cache",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Imports go downwards only KEPT" in done.stdout


PROJECT_OF_TWO_ROOMS = """
[tool.importlinter]
root_package = "orchestrator"
contract_types = ["rooms: tests.rooms_contract.RoomsContract"]
[[tool.importlinter.contracts]]
name = "Imports go downwards only"
type = "rooms"
arrows = ["model ->", "ledger -> model", "client ->"]
exceptions = ["orchestrator.client.door -> ledger"]
"""


@pytest.mark.parametrize(
    ("module", "text", "kept"),
    [
        ("ledger/state.py", "from orchestrator.model import job\n", True),
        ("model/job.py", "from orchestrator.ledger import state\n", False),
        ("model/job.py", "def late():\n    import orchestrator.ledger.state\n", False),
        ("client/http.py", "from orchestrator.model import job\n", False),
        ("client/door.py", "from orchestrator.ledger import state\n", True),
        ("model/job.py", "from orchestrator import __version__\n", True),
        ("unknown/new.py", "", False),
    ],
)
def test_lint_imports_judges_one_import(tmp_path: Path, module: str, text: str, kept: bool) -> None:
    for room, file in (
        ("model", "job.py"),
        ("ledger", "state.py"),
        ("client", "door.py"),
        ("", "__init__.py"),
    ):
        path = tmp_path / "orchestrator" / room / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("__version__ = '0'\n")
        (path.parent / "__init__.py").touch()
    (tmp_path / "orchestrator" / module).parent.mkdir(exist_ok=True)
    (tmp_path / "orchestrator" / module).write_text(text)
    (tmp_path / "orchestrator" / module).with_name("__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(PROJECT_OF_TWO_ROOMS)
    script = (
        f"import sys; sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}]; sys.path.insert(0, {str(tmp_path)!r});"
        f"sys.path.append({str(ROOT)!r}); from importlinter.cli import lint_imports_command as run; run()"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode == 0) is kept, done.stdout + done.stderr
    assert ("KEPT" if kept else "BROKEN") in done.stdout


@pytest.mark.parametrize("line", ["ledger -> model", "ledger", "-> model", "model -> model"])
def test_arrow_that_points_up_or_nowhere_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)):
        parse_arrows([line])


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("cli.main", "client.http", True),
        ("cli.main", "controller.loop", False),
        ("cli.main", "ledger.state", False),
        ("client.http", "spec.load", False),
        ("spec.load", "wire.cluster", True),
        ("spec.load", "store.sqlite", False),
        ("controller.loop", "scheduler.cycle", True),
        ("scheduler.cycle", "ledger.statement", True),
        ("scheduler.cycle", "catalog.load", False),
        ("ledger.state", "scheduler.cycle", False),
        ("ledger.state", "bundled", False),
        ("agent.daemon", "ledger.events", False),
        ("api.app", "controller.loop", True),
        ("controller.loop", "api.app", False),
        ("simulate.run", "controller.loop", False),
    ],
)
def test_arrows_say_what_the_design_says(importer: str, imported: str, allowed: bool) -> None:
    reason = breach_reason(f"orchestrator.{importer}", f"orchestrator.{imported}", ARROWS, EXCEPTIONS)

    assert (reason is None) is allowed, reason


def test_every_exception_is_used() -> None:
    modules = {name: ROOT / (name.replace(".", "/") + ".py") for name in EXCEPTIONS}
    unused = {
        f"{name} -> {room}"
        for name, path in modules.items()
        for room in EXCEPTIONS[name]
        if path.is_file()
        and room not in {target.split(".")[1] for target in _imports(path) if target.count(".")}
    }

    assert unused == set()


def test_exceptions_import_lazily() -> None:
    """A server room is imported inside the function that starts it, never when the command loads."""
    early = {
        name: eager
        for name, rooms in EXCEPTIONS.items()
        if (path := ROOT / (name.replace(".", "/") + ".py")).is_file()
        for eager in _imports(path, top_level_only=True)
        if eager.startswith(tuple(f"orchestrator.{room}" for room in rooms))
    }

    assert early == {}


def _imports(path: Path, top_level_only: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "orchestrator":
                yield from (f"orchestrator.{alias.name}" for alias in node.names)
            else:
                yield node.module


def _declared(requirements: list[str]) -> set[str]:
    names = {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in requirements}
    found = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names}
    return found.union(*(COMPANIONS.get(name, set()) for name in names))


BASE_PACKAGES = _declared(PROJECT["project"]["dependencies"])
EXTRA_PACKAGES = {
    name
    for extra, lines in PROJECT["project"]["optional-dependencies"].items()
    if extra != "dev"
    for name in _declared(lines)
}


def _room_of(path: Path) -> str:
    return path.relative_to(ROOT / "orchestrator").parts[0].removesuffix(".py")


def _packages_allowed(room: str) -> set[str]:
    if room in STDLIB_ROOMS:
        return VENDORED.get(room, set())
    if room in PURE_ROOMS:
        return {"numpy"} & (BASE_PACKAGES | EXTRA_PACKAGES)
    return BASE_PACKAGES if room in BASE_ROOMS else BASE_PACKAGES | EXTRA_PACKAGES


def _with_extra(path: Path) -> set[str]:
    return WITH_EXTRA.get(str(path.relative_to(ROOT / "orchestrator")), set())


def test_rooms_import_only_the_packages_that_their_install_brings() -> None:
    known = sys.stdlib_module_names - {"tomllib"} | {
        "orchestrator"
    }  # tomllib came with 3.11, the agent has 3.10
    wrong = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in sorted((ROOT / "orchestrator").rglob("*.py"))
        for target in _imports(path)
        if (top := target.split(".")[0]) not in known | _packages_allowed(_room_of(path)) | _with_extra(path)
        and not (top == "tomllib" and _room_of(path) not in STDLIB_ROOMS)
    ]

    assert wrong == []


LOAD_BASE = """
import importlib, importlib.abc, json, pathlib, pkgutil, sys

allowed = set(json.loads(sys.argv[1]))

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in allowed:
            raise ModuleNotFoundError('not in the base install: ' + name, name=name)

sys.meta_path.insert(0, Refuse())
import orchestrator
loaded = []
for room in json.loads(sys.argv[2]):
    try:
        package = importlib.import_module('orchestrator.' + room)
    except ModuleNotFoundError as error:
        if error.name != 'orchestrator.' + room:
            raise
        continue
    for module in pkgutil.walk_packages(getattr(package, '__path__', []), package.__name__ + '.'):
        if not module.name.endswith('__main__'):
            importlib.import_module(module.name)
            loaded.append(module.name)
print(json.dumps([sorted(loaded), sorted(name for name in sys.modules if name.startswith('orchestrator.'))]))
"""


def test_base_rooms_load_without_server_packages_and_rooms() -> None:
    """Every module of the command and SDK is imported in a Python that refuses the server's packages."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            LOAD_BASE,
            json.dumps(sorted(EXTRA_PACKAGES - BASE_PACKAGES)),
            json.dumps(BASE_ROOMS),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    loaded, modules = json.loads(done.stdout)
    assert any(name.startswith("orchestrator.model.") for name in loaded)
    assert sorted({name.split(".")[1] for name in modules} - set(BASE_ROOMS)) == []


def test_contributing_draws_every_room_of_the_table() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()

    assert [room for room in ARROWS if not re.search(rf"\b{room}\b", text)] == []


def test_exceptions_in_contributing_are_those_of_the_table() -> None:
    named = set(re.findall(r"`(cli/\w+)\.py`", (ROOT / "CONTRIBUTING.md").read_text()))

    assert {f"orchestrator.{path.replace('/', '.')}" for path in named} == set(EXCEPTIONS)
