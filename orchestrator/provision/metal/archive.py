"""The agent as one file: a zip archive that a host's own Python 3.10 or newer runs.

Comes in: this very installation's code. Goes out: the archive's bytes, the same from every checkout of the same
version, and their SHA-256, by which a host is compared. Called by: render (writes it beside the playbook), whoever
plans (`Resolved.archive_sha256`).

In it: `agent/`, `telemetry/`, `model/` and the package's own file, and pynvml, so that GPUs are seen without anything
else on the host. `python3 gangline-agent.pyz --config FILE` runs it. Nothing is compressed, since libraries for that
differ between machines in the bytes that they make. It is one release of pynvml for all who apply with this version of
Gangline, whatever is installed where: with another one each would undo what the other did.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator import __version__
from orchestrator.model.errors import NotFound

NAME = "gangline-agent.pyz"
ROOMS = ("agent", "telemetry", "model")  # DESIGN section 6: they keep to 3.10 and to the standard library
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip archive can hold: a build leaves no time behind
MODE = 0o100644 << 16
PYNVML = "13.615.71"  # release of nvidia-ml-py; the extra `metal` asks for exactly this one
PYNVML_SHA256 = "2828e66b483bec218f461314f6da96c1e56330ed4b297a20b3444b4c43cdd14e"  # of its one file
INTERPRETER = b"#!/usr/bin/env python3\n"

MAIN = '''"""The start of the agent from its archive."""

import sys

if sys.version_info < (3, 10):
    sys.exit("gangline agent: Python 3.10 or newer is needed, this is " + sys.version.split()[0])

from orchestrator.agent.__main__ import main

sys.exit(main(sys.argv[1:]))
'''


@dataclass(frozen=True, slots=True)
class Archive:
    """`data` is the file; `sha256` its digest in hexadecimal digits."""

    data: bytes
    sha256: str


@cache
def agent_archive() -> Archive:
    """The agent of this installation."""
    return build(Path(__file__).resolve().parents[2], _pynvml())


def build(package: Path, pynvml: Path) -> Archive:
    """The agent of the package `orchestrator` that lies at `package`, with the file of pynvml."""
    return zipped(dict(_members(package, pynvml)))


def zipped(members: Mapping[str, bytes]) -> Archive:
    """An archive that Python runs, of these files by their path in it; equal files give equal bytes."""
    buffer = io.BytesIO()
    buffer.write(INTERPRETER)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(members.items()):
            archive.writestr(_entry(name), data)
    data = buffer.getvalue()
    return Archive(data, hashlib.sha256(data).hexdigest())


def _members(package: Path, pynvml: Path) -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", MAIN.encode()
    yield "VERSION", f"{__version__}\n".encode()
    yield "orchestrator/__init__.py", (package / "__init__.py").read_bytes()
    for room in ROOMS:
        for path in (package / room).rglob("*.py"):
            yield f"orchestrator/{path.relative_to(package).as_posix()}", path.read_bytes()
    yield "pynvml.py", pynvml.read_bytes()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.create_system = 3  # Unix, wherever it is built
    entry.external_attr = MODE
    return entry


def _pynvml() -> Path:
    """The one file of nvidia-ml-py; NotFound where it is missing or of another release."""
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise NotFound(
            "archive.no-pynvml",
            "the agent's archive needs the Python package nvidia-ml-py, which is not installed here",
            "pip install 'gangline[metal]'",
        )
    path = Path(found.origin)
    if hashlib.sha256(path.read_bytes()).hexdigest() != PYNVML_SHA256:
        raise NotFound(
            "archive.other-pynvml",
            f"the agents of this version of Gangline carry nvidia-ml-py {PYNVML}, and {path} is of another release",
            f"pip install 'nvidia-ml-py=={PYNVML}'",
        )
    return path
