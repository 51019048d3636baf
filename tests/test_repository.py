"""The repository keeps its own rules: sizes, docstrings, Python 3.10 for the agent, clean lock files, a whole wheel.

Each test reads the files that git knows or would add; the wheel test builds one and installs it into an empty
environment.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import __version__
from tests import capabilities

ROOT = Path(__file__).resolve().parent.parent
# Rooms that run on a node's own Python 3.10, from the standard library alone.
NODE_ROOMS = ("model", "agent", "telemetry")
MOST_LINES_OF_A_FUNCTION = 100
BUNDLED = ("inventories", "schemas", "roles", "stacks")

# Download addresses stay out of every file: who installs decides where from. In pieces, so that this file is clean too.
HOSTS = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "registry.npm" + "js.org",
    "registry.yarn" + "pkg.com",
    "crates" + ".io",
    "proxy.go" + "lang.org",
    "repo.maven" + ".apache.org",
    "repo1.maven" + ".org",
    "deb.deb" + "ian.org",
    "security.deb" + "ian.org",
    "snapshot.deb" + "ian.org",
    "archive.ubu" + "ntu.com",
    "/wo" + "rk/main",
    "/wo" + "rk/shared",
]
LOCK_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "--trusted-host", "://")


@functools.cache
def repository_files() -> tuple[Path, ...]:
    """Return the files that are committed or would be: outside a git checkout (an unpacked archive), all but .venv."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        named = [ROOT / name for name in done.stdout.split("\0") if name]
    else:
        named = [
            path for path in ROOT.rglob("*") if ".venv" not in path.parts and "__pycache__" not in path.parts
        ]
    return tuple(sorted(path for path in named if path.is_file()))


def python_files(folder: str = "") -> list[Path]:
    return [
        path for path in repository_files() if path.suffix == ".py" and path.is_relative_to(ROOT / folder)
    ]


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_git_sees_the_files() -> None:
    assert ROOT / "pyproject.toml" in repository_files()
    assert len(python_files("orchestrator")) > 10


def test_no_file_names_a_download_host_or_a_workplace() -> None:
    found = [
        f"{_named(path)}: {host}"
        for path in repository_files()
        for text in [path.read_bytes().decode("utf-8", "replace")]
        for host in HOSTS
        if host in text
    ]

    assert found == []


@pytest.mark.parametrize("name", ["locked.txt", "server.txt"])
def test_lock_has_names_versions_and_hashes_only(name: str) -> None:
    lines = (ROOT / "constraints" / name).read_text().splitlines()
    package = re.compile(r"[a-z0-9.-]+==[^ ;]+( ; [^\\]+)? \\")
    digest = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")

    assert [
        line
        for line in lines
        if not line.startswith("#") and not (package.fullmatch(line) or digest.fullmatch(line))
    ] == []
    assert [line for line in lines for option in LOCK_OPTIONS if option in line] == []


def test_lock_holds_every_declared_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    names = {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in wanted}
    locked = set(
        re.findall(r"^([a-z0-9.-]+)==", (ROOT / "constraints" / "locked.txt").read_text(), re.MULTILINE)
    )

    assert sorted(names - locked) == []  # `make lock` writes it again


@functools.cache
def statements(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(module: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Every function: name, line, lines. Expressions hold none, and are most of a tree."""
    left: list[ast.AST] = [module]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1
        for inside in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, inside, ())


def test_no_function_is_longer_than_a_person_reads() -> None:
    long = [
        f"{_named(path)}:{line}: {name} has {length} lines"
        for path in python_files()
        for name, line, length in functions(statements(path))
        if length > MOST_LINES_OF_A_FUNCTION
    ]

    assert long == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        _named(path)
        for path in python_files()
        if statements(path).body and not ast.get_docstring(statements(path))
    ]

    assert silent == []


def node_files() -> list[Path]:
    return [path for room in NODE_ROOMS for path in python_files(f"orchestrator/{room}")]


@pytest.mark.parametrize("path", node_files(), ids=_named)
def test_node_room_is_written_in_python_310(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


IMPORT_ALL = """
import importlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root))
for room in sys.argv[2:]:
    for path in sorted((root / 'orchestrator' / room).rglob('*.py')):
        parts = path.relative_to(root).with_suffix('').parts
        if parts[-1] != '__main__':
            importlib.import_module('.'.join(parts[:-1] if parts[-1] == '__init__' else parts))
"""


@pytest.mark.needs("python3.10")
def test_node_rooms_load_on_python_310_alone(tmp_path: Path) -> None:
    """The interpreter is isolated (-I) and without site packages (-S): only the standard library is there."""
    python = capabilities.python310()
    asked = [
        str(python),
        "-I",
        "-S",
        "-X",
        f"pycache_prefix={tmp_path}",
        "-c",
        IMPORT_ALL,
        str(ROOT),
        *NODE_ROOMS,
    ]

    done = subprocess.run(asked, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_every_benchmark_has_its_target_and_every_target_its_benchmark() -> None:
    targets = set(re.findall(r"^bench-([a-z-]+): .*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    modules = {
        path.stem.replace("_", "-")
        for path in python_files("tests/bench")
        if '__name__ == "__main__"' in path.read_text()
    }

    assert targets >= {"rate", "cli", "agents"}
    assert targets == modules


@pytest.mark.needs("make")
def test_bench_options_are_make_variables() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "bench-rate", "JOBS=10", "CASE=it's one"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    command = " ".join(done.stdout.splitlines()[-1].split())
    assert "BENCH_JOBS='10'" in command
    assert "BENCH_CASE='it'\\''s one'" in command
    assert command.endswith("-m tests.bench.rate")


@pytest.mark.needs("make")
def test_help_names_every_task() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert sorted(set(re.findall(r"make ([a-z-]+) ", done.stdout))) == sorted(" ".join(phony).split())


ASK_WHEEL = """
import json, sys
from orchestrator import __version__, bundled
kinds = sys.argv[1:]
print(json.dumps([__version__, bundled.__file__, {kind: str(bundled.find(kind)) for kind in kinds}]))
"""


@pytest.mark.system
def test_wheel_in_an_empty_environment_finds_its_bundled_files(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "empty")], check=True)
    python = str(tmp_path / "empty" / "bin" / "python")
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    kinds = [kind for kind in BUNDLED if any(path.is_relative_to(ROOT / kind) for path in repository_files())]

    done = subprocess.run(
        [python, "-I", "-c", ASK_WHEEL, *kinds, "constraints"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )

    version, module, found = json.loads(done.stdout)
    assert version == __version__
    assert Path(module).is_relative_to(tmp_path / "empty")
    for kind in kinds:
        inside = {
            str(path.relative_to(found[kind]))
            for path in Path(found[kind]).rglob("*")
            if path.is_file() and path.suffix != ".pyc"  # pip compiles what it installs, modules of roles too
        }
        outside = {
            str(path.relative_to(ROOT / kind))
            for path in repository_files()
            if path.is_relative_to(ROOT / kind)
        }
        assert inside == outside
    shipped = Path(found["constraints"]) / "server.txt"  # and not the whole lock: it is for those who build
    assert [path.read_text() for path in shipped.parent.iterdir()] == [
        (ROOT / "constraints" / "server.txt").read_text()
    ]
    names = zipfile.ZipFile(wheel).namelist()
    assert [
        name for name in names if name.split("/")[0] != "orchestrator" and ".dist-info/" not in name
    ] == []
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def _fake_python(folder: Path, refuses: str) -> Path:
    """Write a `python` that fails where its code mentions a word, and claims to have done all else."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *{refuses}*) exit 1;; esac\n')
    python.chmod(0o755)
    return python


@pytest.mark.needs("make")
@pytest.mark.parametrize(
    ("refuses", "says"),
    [
        ("ensurepip", "On Debian: apt-get install python3-venv make git"),
        (
            "version_info",
            "is not Python 3.11 or newer. On Debian 12: apt-get install python3 python3-venv make git",
        ),
    ],
)
def test_setup_names_the_packages_that_a_bare_machine_lacks(tmp_path: Path, refuses: str, says: str) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints/locked.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    python = _fake_python(tmp_path, refuses)

    done = subprocess.run(
        ["make", "setup", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    assert says in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_ci_requires_only_what_probes_know() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    named = {name for group in re.findall(r"require\+?=\(([^)]*)\)", text) for name in group.split()}

    assert named >= {"root", "freezer", "tmpfs", "data", "git", "python3.10", "pulumi"}
    assert sorted(named - capabilities.PROBES.keys()) == []
    assert text.rstrip().endswith("\nmake test")
