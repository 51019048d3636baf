"""The libraries that a controller needs, as wheels for the Python and the processor of another host.

Comes in: which host (`Target`), the pinned list that ships with Gangline (`constraints/server.txt`), a cache folder.
Goes out: the wheels' files. Called by: controller_archive.

pip fetches them with the person's own configuration (index, proxy, certificates), and takes a file only if its SHA-256
is in the list: so every installation of one version of Gangline brings the same bytes. What was fetched once is kept
under a name made from the list and the target, and nothing is asked for it again.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from orchestrator import bundled
from orchestrator.model.errors import NotFound, Unavailable

LIST = "server.txt"
LIMIT_S = 900  # for all of them; pip has limits of its own for each connection
# Wheels that run with the glibc of the oldest host: 2.35 on Ubuntu 22.04, 2.36 on Debian 12. Newest first.
GLIBC = range(35, 16, -1)
OLD_NAMES = ("manylinux2014", "manylinux2010", "manylinux1")


@dataclass(frozen=True, slots=True)
class Target:
    """A host's Python as `3.13`, and its processor as `uname -m` says it."""

    python: str
    arch: str

    def __str__(self) -> str:
        return f"Python {self.python} on {self.arch}"

    @property
    def platforms(self) -> list[str]:
        """Tags of wheels that run there (PEP 600 and the names before it)."""
        return [f"manylinux_2_{minor}_{self.arch}" for minor in GLIBC] + [
            f"{old}_{self.arch}" for old in OLD_NAMES
        ]


def pinned() -> str:
    """The list, as `make lock` has written it."""
    return bundled.find("constraints", LIST).read_text()


def key_of(target: Target) -> str:
    """Names what `wheels_for` gives."""
    return hashlib.sha256(f"{target}\n{pinned()}".encode()).hexdigest()[:16]


def wheels_for(target: Target, cache: Path, tell: Callable[[str], None]) -> list[Path]:
    """All wheels, by name. Unavailable if they are not there and can't be fetched; NotFound without pip."""
    folder = cache / "wheels" / key_of(target)
    if folder.is_dir() and not all(map(_whole, folder.glob("*.whl"))):
        shutil.rmtree(folder)
    if not folder.is_dir():
        tell(f"the controller's libraries for {target} are fetched, once")
        _fetch(target, folder)
    return sorted(folder.glob("*.whl"))


def _whole(wheel: Path) -> bool:
    """Whether all of it can be read: after a power cut a file may be shorter than it was."""
    try:
        with zipfile.ZipFile(wheel) as packed:
            return packed.testzip() is None
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error):
        return False


def _fetch(target: Target, folder: Path) -> None:
    """Into a folder that has its name only when it is complete."""
    if find_spec("pip") is None:
        raise NotFound(
            "controller.no-pip",
            "the controller's libraries are fetched by pip, which is not installed beside Gangline",
            f"{sys.executable} -m ensurepip",
        )
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".fetching-", dir=folder.parent))
    try:
        wanted = draft / "wanted"
        wanted.write_text(needed(pinned(), target))
        _download(target, wanted, draft)
        wanted.unlink()
        draft.replace(folder)
    except OSError as error:
        if not folder.is_dir():  # else another command was faster
            raise Unavailable("controller.cache", f"{error.filename or folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _download(target: Target, wanted: Path, folder: Path) -> None:
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    argv += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", str(wanted)]
    argv += ["--dest", str(folder), "--implementation", "cp", "--python-version", target.python]
    abis = (f"cp{target.python.replace('.', '')}", "abi3", "none")
    argv += [word for abi in abis for word in ("--abi", abi)]
    argv += [word for platform in target.platforms for word in ("--platform", platform)]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise _unfetched(target, f"pip took longer than {LIMIT_S} s") from None
    if done.returncode != 0:
        raise _unfetched(target, _reason(done.stderr))


def _unfetched(target: Target, reason: str) -> Unavailable:
    return Unavailable(
        "controller.no-wheels",
        f"the controller's libraries for {target} can't be fetched: {reason}",
        "this machine needs them once, from the package index that `pip config list` names; the host needs none",
    )


def _reason(said: str) -> str:
    """The first error of pip's, without its advice."""
    errors = [line.partition("ERROR:")[2].strip() for line in said.splitlines() if "ERROR:" in line]
    if errors and "from versions: none" in errors[0]:  # pip says no more of an index that it could not ask
        return f"the index does not answer, or does not have them: {errors[0][:300]}"
    return errors[0][:300] if errors else (said.strip().splitlines() or ["no reason"])[-1][:300]


def needed(pins: str, target: Target) -> str:
    """The entries of a list that hold on Linux with that Python; each goes on over lines that end with a backslash."""
    from packaging.markers import Marker

    here = {
        "python_version": target.python,
        "python_full_version": f"{target.python}.0",
        "platform_machine": target.arch,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    kept: list[str] = []
    text = "\n".join(line for line in pins.splitlines() if not line.startswith("#"))
    for entry in text.replace("\\\n", " ").splitlines():
        requirement, *hashes = entry.split(" --hash=")
        name, _, marker = requirement.partition(";")
        if name.strip() and (not marker.strip() or Marker(marker.strip()).evaluate(here)):
            kept.append(" ".join([name.strip(), *(f"--hash={one.strip()}" for one in hashes)]))
    return "\n".join(kept) + "\n"
