"""The controller's archive: equal bytes, libraries fetched once and only as pinned, a folder that is put right."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.model.errors import Unavailable
from orchestrator.provision.metal import controller_archive, unpack_host
from orchestrator.provision.metal.controller_archive import LIBRARY, START, ControllerArchive
from orchestrator.provision.metal.wheels import Target, needed, pinned, wheels_for

HERE = Target(f"{sys.version_info.major}.{sys.version_info.minor}", "x86_64")


class Pip:
    """Plays pip: puts two wheels where it is told to, or fails."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.calls: list[list[str]] = []
        self.wanted = ""

    def __call__(self, argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.calls.append(argv)
        self.wanted = Path(argv[argv.index("--requirement") + 1]).read_text()
        folder = Path(argv[argv.index("--dest") + 1])
        for name in ("two", "one"):
            with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as made:
                made.writestr(f"{name}/__init__.py", f"NAME = {name!r}\n")
                made.writestr(f"{name}/speed.pyx", "for compilers\n")
                made.writestr(f"{name}-1.0.data/scripts/{name}", "for people\n")
                made.writestr(f"{name}-1.0.dist-info/METADATA", "Version: 1.0\n")
        return subprocess.CompletedProcess(argv, 1 if self.fails else 0, "", self.fails)


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    made = Pip()
    monkeypatch.setattr(subprocess, "run", made)
    return made


def make(cache: Path) -> ControllerArchive:
    return controller_archive.controller_archive(HERE, cache, lambda _: None)


def test_two_caches_give_the_same_bytes_and_one_is_asked_for_once(tmp_path: Path, pip: Pip) -> None:
    first, second, again = make(tmp_path / "a"), make(tmp_path / "b"), make(tmp_path / "a")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert (first.sha256, again) == (second.sha256, first)
    assert len(pip.calls) == 2


def test_it_holds_this_installation_and_what_the_libraries_install(tmp_path: Path, pip: Pip) -> None:
    names = set(zipfile.ZipFile(make(tmp_path).path).namelist())
    assert {
        "__main__.py",
        START,
        f"{LIBRARY}/one/__init__.py",
        f"{LIBRARY}/two-1.0.dist-info/METADATA",
    } <= names
    assert {f"{LIBRARY}/orchestrator/api/serve.py", f"{LIBRARY}/orchestrator/store/open.py"} <= names
    assert f"{LIBRARY}/orchestrator/_bundled/constraints/server.txt" in names
    assert [
        name for name in names if "__pycache__" in name or name.endswith(".pyx") or ".data/" in name
    ] == []


def test_old_archives_make_room(tmp_path: Path, pip: Pip) -> None:
    kept = tmp_path / "controller"
    kept.mkdir()
    for number in range(9):
        (kept / f"old-{number}.pyz").write_text("x")
        os.utime(kept / f"old-{number}.pyz", (number, number))
    made = make(tmp_path)
    assert made.path.exists()
    assert len(list(kept.iterdir())) == controller_archive.KEPT + 1


# --- wheels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 100, -1])
def test_what_a_power_cut_has_torn_is_made_again(tmp_path: Path, pip: Pip, left: int) -> None:
    good = make(tmp_path)
    data = good.path.read_bytes()
    good.path.write_bytes(data[:left])
    assert make(tmp_path) == good
    assert good.path.read_bytes() == data
    assert len(pip.calls) == 1

    good.path.unlink()
    for wheel in (tmp_path / "wheels").rglob("one*.whl"):
        wheel.write_bytes(wheel.read_bytes()[:left])
    assert make(tmp_path) == good
    assert len(pip.calls) == 2


def test_pip_is_asked_for_pinned_files_for_the_hosts_python(tmp_path: Path, pip: Pip) -> None:
    found = wheels_for(Target("3.13", "aarch64"), tmp_path, lambda _: None)
    (argv,) = pip.calls
    assert [path.name for path in found] == ["one-1.0-py3-none-any.whl", "two-1.0-py3-none-any.whl"]
    assert {"--require-hashes", "--only-binary=:all:", "--no-deps"} <= set(argv)
    assert argv[argv.index("--python-version") + 1] == "3.13"
    assert "manylinux_2_17_aarch64" in argv
    assert "cp313" in argv
    assert all(
        re.fullmatch(r"[a-z0-9-]+==\S+( --hash=sha256:[0-9a-f]{64})+", line)
        for line in pip.wanted.splitlines()
    )


def test_an_index_that_does_not_answer_is_a_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", Pip("WARNING: x\nERROR: No matching distribution for uvloop==1\n"))
    with pytest.raises(Unavailable) as caught:
        wheels_for(HERE, tmp_path, lambda _: None)
    assert f"for {HERE} can't be fetched: No matching distribution" in caught.value.message
    assert "the host needs none" in caught.value.hint
    assert list((tmp_path / "wheels").iterdir()) == []


def test_only_what_holds_for_the_target_is_taken() -> None:
    pins = (
        "# head\n"
        "a==1 ; python_full_version < '3.12' \\\n    --hash=sha256:aa \\\n    --hash=sha256:ab\n"
        "b==2 ; sys_platform == 'win32' \\\n    --hash=sha256:bb\n"
        "c==3 \\\n    --hash=sha256:cc\n"
    )
    assert (
        needed(pins, Target("3.11", "x86_64"))
        == "a==1 --hash=sha256:aa --hash=sha256:ab\nc==3 --hash=sha256:cc\n"
    )
    assert needed(pins, Target("3.13", "x86_64")) == "c==3 --hash=sha256:cc\n"


def test_the_list_that_ships_is_the_one_that_this_installation_was_tested_with() -> None:
    locked = (Path(__file__).resolve().parents[3] / "constraints" / "locked.txt").read_text()
    entries = {line.split()[0] for line in pinned().splitlines() if "==" in line}
    assert entries <= {line.split()[0] for line in locked.splitlines() if "==" in line}, (
        "`make lock` writes both"
    )
    assert {"cryptography", "fastapi", "pydantic-core", "sqlalchemy", "uvloop"} <= {
        entry.partition("==")[0] for entry in entries
    }


# --- on the host -----------------------------------------------------------------------------------------------------


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A small archive that unpacks itself."""
    made = tmp_path / "controller.pyz"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("__main__.py", Path(unpack_host.__file__).read_text())
        archive.writestr("gangline.py", "print('hello')\n")
        archive.writestr("lib/a/b.py", "B = 1\n")
    return made


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


WHOLE = {"gangline.py": "print('hello')\n", "lib/a/b.py": "B = 1\n"}


def test_it_makes_the_folder_and_then_finds_nothing_to_do(packed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    assert sorted(unpack_host.unpack(str(packed), str(folder))) == sorted(WHOLE)
    assert tree(folder) == WHOLE
    before = (folder / "gangline.py").stat().st_ino
    assert unpack_host.unpack(str(packed), str(folder)) == []
    assert (folder / "gangline.py").stat().st_ino == before


def into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def into_link(path: Path, target: str) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize(
    "sabotage",
    [
        lambda folder: (folder / "lib/a/b.py").write_text("B = 2\n"),
        lambda folder: (folder / "lib/a/b.py").chmod(0o666),
        lambda folder: (folder / "lib/a/b.py").unlink(),
        lambda folder: (folder / "lib/evil.py").write_text("x"),
        lambda folder: (folder / "lib/a/__pycache__").mkdir(),
        lambda folder: (folder / "gangline.py.new").write_text("a start that was killed"),
        lambda folder: shutil.rmtree(folder / "lib"),
        lambda folder: into_folder(folder / "gangline.py"),
        lambda folder: into_link(folder / "gangline.py", "/etc/passwd"),
        lambda folder: into_link(folder / "lib/a", ".."),
    ],
)
def test_whatever_was_done_to_it_is_put_right(
    packed: Path, tmp_path: Path, sabotage: Callable[[Path], object]
) -> None:
    folder = tmp_path / "code"
    unpack_host.unpack(str(packed), str(folder))
    sabotage(folder)
    assert unpack_host.unpack(str(packed), str(folder)) != []
    assert tree(folder) == WHOLE
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in folder.rglob("*") if path.is_file())
    assert unpack_host.unpack(str(packed), str(folder)) == []
    assert Path("/etc/passwd").stat().st_size > 0


@pytest.mark.system
def test_the_archive_starts_by_itself_and_a_torn_one_says_so(packed: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-I", str(packed), "--unpack", str(tmp_path / "code")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 files were not as in the archive" in done.stdout
    data = packed.read_bytes()
    packed.write_bytes(data.replace(b"B = 1", b"B = 2", 1))
    torn = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (torn.returncode, "could not be unpacked" in torn.stderr) == (1, True)
    assert "Traceback" not in torn.stderr
