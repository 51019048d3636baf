"""The controller as one file: this installation's code and all libraries that it needs, for one kind of host.

Comes in: this very installation, wheels for the target. Goes out: the archive's file in a cache folder, and its
SHA-256, by which the host is compared. Called by: cli hosting. `unpack_host.py` makes a folder of it on the host.

Equal code and equal wheels give equal bytes on every machine. A host needs neither an index nor pip, only Python.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator import bundled
from orchestrator.provision.files import private_folder, write_whole
from orchestrator.provision.metal.archive import zipped
from orchestrator.provision.metal.wheels import LIST, Target, key_of, wheels_for

NAME = "gangline-controller.pyz"
LIBRARY = "lib"  # the folder in the archive that Python imports from
START = "gangline.py"
SOURCES = (".c", ".h", ".pxd", ".pyi", ".pyx")  # what compilers and editors read
KEPT = 3  # archives of older versions and other hosts that the cache keeps
BUNDLED: tuple[bundled.Kind, ...] = ("inventories", "schemas", "roles", "stacks", "constraints")

START_TEXT = '''"""The command `gangline` from the folder that the controller's archive was unpacked to."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.argv[0] = "gangline"

from orchestrator.cli.main import main

sys.exit(main())
'''


@dataclass(frozen=True, slots=True)
class ControllerArchive:
    """Where it lies on this machine, and what it is."""

    path: Path
    sha256: str


def controller_archive(target: Target, cache: Path, tell: Callable[[str], None]) -> ControllerArchive:
    """That of this installation for a host, made once. Unavailable as in `wheels_for`."""
    own = dict(own_code())
    folder = cache / "controller"
    key = _key(own, target)
    for path in folder.glob(f"{key}-*.pyz"):
        sha256 = path.stem.rpartition("-")[2]
        if hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            path.touch()
            return ControllerArchive(path, sha256)
        path.unlink()  # torn, as after a power cut
    wheels = wheels_for(target, cache, tell)
    made = zipped(own | dict(_libraries(wheels)))
    path = folder / f"{key}-{made.sha256}.pyz"
    _keep(path, made.data)
    return ControllerArchive(path, made.sha256)


def _key(own: dict[str, bytes], target: Target) -> str:
    digest = hashlib.sha256(key_of(target).encode())
    for name, data in sorted(own.items()):
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:16]


def own_code() -> Iterator[tuple[str, bytes]]:
    """The package, the files that ship beside it, and what starts both."""
    package = Path(__file__).resolve().parents[2]
    yield "__main__.py", Path(__file__).with_name("unpack_host.py").read_bytes()
    yield START, START_TEXT.encode()
    for inner, data in _files(package):
        if not inner.startswith("_bundled/"):
            yield f"{LIBRARY}/{package.name}/{inner}", data
    for kind in BUNDLED:
        for inner, data in _files(bundled.find(kind)):
            if kind != "constraints" or inner == LIST:
                yield f"{LIBRARY}/{package.name}/_bundled/{kind}/{inner}", data


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """What belongs to an installation, by its path in the folder; not what tools leave beside it."""
    for path in folder.rglob("*"):
        inner = path.relative_to(folder)
        if path.is_file() and not any(part == "__pycache__" or part.startswith(".") for part in inner.parts):
            yield inner.as_posix(), path.read_bytes()


def _libraries(wheels: list[Path]) -> Iterator[tuple[str, bytes]]:
    """What the wheels install for Python; scripts and headers are left out."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as packed:
            for name in packed.namelist():
                useless = name.endswith(("/", *SOURCES)) or ".data" in name.partition("/")[0]
                if not useless:
                    yield f"{LIBRARY}/{name}", packed.read(name)


def _keep(path: Path, data: bytes) -> None:
    """In the cache, whole or not at all; the oldest make room."""
    private_folder(path.parent)
    write_whole(path, data)
    others = sorted(path.parent.glob("*.pyz"), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in others[KEPT + 1 :]:
        old.unlink(missing_ok=True)
