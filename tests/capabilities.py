"""What a machine may lack and a test may need: root, the freezer, a tmpfs, data, old Pythons, programs, hosts, Pulumi.

In come capability names (from `@pytest.mark.needs("root")` or the variable GANGLINE_REQUIRE); out goes None where the
machine has them, else a reason in words. tests/conftest.py turns a reason into a skip, or into a failure where
GANGLINE_REQUIRE names the capability: CI says what its machine must have, so that nothing is skipped there unseen.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.aws import engine

_CGROUP = Path("/sys/fs/cgroup")
_ADMIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _root() -> str | None:
    return None if os.geteuid() == 0 else "needs root"


def freezer_parent() -> Path | None:
    """Return the cgroup folder below which a test may make and freeze a cgroup of its own, or None.

    Version 1 hierarchies have `freezer.state` in their children, version 2 ones `cgroup.freeze`.
    """
    for parent, knob in ((_CGROUP / "freezer", "freezer.state"), (_CGROUP, "cgroup.freeze")):
        probe = parent / f"gangline-probe-{os.getpid()}"
        try:
            probe.mkdir()
        except OSError:
            continue
        try:
            if (probe / knob).exists():
                return parent
        finally:
            probe.rmdir()
    return None


def _freezer() -> str | None:
    return (
        None
        if freezer_parent()
        else "needs a cgroup freezer that can be written (root, and no read-only cgroups)"
    )


def _tmpfs() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode != 0:
            return f"needs to mount a tmpfs: {mounted.stderr.strip()}"
        subprocess.run(["umount", folder], check=True)
    return None


def data_dir() -> Path | None:
    """Return the folder of public data sets that GANGLINE_DATA names, or None where there is none."""
    named = os.environ.get("GANGLINE_DATA", "")
    return Path(named) if named and Path(named).is_dir() else None


def _data() -> str | None:
    return None if data_dir() else "needs the data sets: GANGLINE_DATA names no folder"


def python310() -> Path | None:
    """Return a Python 3.10 that runs, from PATH or pyenv, or None."""
    found = shutil.which("python3.10")
    candidates = [Path(found)] if found else []
    candidates += sorted(Path.home().glob(".pyenv/versions/3.10.*/bin/python3"))
    for candidate in candidates:
        asked = [str(candidate), "-c", "import sys; print(*sys.version_info[:2])"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        if answer.stdout.strip() == "3 10":
            return candidate
    return None


def _python310() -> str | None:
    return None if python310() else "needs a Python 3.10 (python3.10 on PATH, or pyenv's)"


def _program(name: str, package: str) -> Callable[[], str | None]:
    return lambda: None if shutil.which(name) else f"needs the program '{name}' (Debian package {package})"


def sshd() -> Path | None:
    """Return OpenSSH's server, which is outside a person's PATH, or None."""
    found = shutil.which("sshd", path=_ADMIN_PATH)
    return Path(found) if found else None


def _sshd() -> str | None:
    return None if sshd() else "needs the program 'sshd' (Debian package openssh-server)"


def _testbed() -> str | None:
    """Real hosts need root, programs, control groups of their own, an overlay and a bridge; no host is booted here."""
    wanting = [
        name
        for name in ("ip", "nft", "systemd-nspawn", "debootstrap", "nsenter", "ssh", "ssh-keygen", "mount")
        if shutil.which(name, path=_ADMIN_PATH) is None
    ]
    if wanting or _root():
        return f"real hosts need {', '.join(wanting) or 'root'}"
    return _overlay() or _bridge()


def _overlay() -> str | None:
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "real hosts need the overlay file system"
    return None if freezer_parent() else "real hosts need control groups that can be written"


def _bridge() -> str | None:
    name = f"gbt{os.getpid()}"
    made = subprocess.run(
        ["ip", "link", "add", name, "type", "bridge"], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        return f"real hosts need to make a bridge: {made.stderr.strip()}"
    subprocess.run(["ip", "link", "del", name], check=True)
    return None


PROBES: dict[str, Callable[[], str | None]] = {
    "root": _root,
    "freezer": _freezer,
    "tmpfs": _tmpfs,
    "data": _data,
    "python3.10": _python310,
    "git": _program("git", "git"),
    "make": _program("make", "make"),
    "ip": _program("ip", "iproute2"),
    "ps": _program("ps", "procps"),
    "ssh": _program("ssh", "openssh-client"),
    "sshd": _sshd,
    "testbed": _testbed,
    "pulumi": engine.absence,
}


@functools.cache
def absence(name: str) -> str | None:
    """Say why this machine lacks the capability, or None. Raises KeyError for a name that is not in PROBES."""
    return PROBES[name]()


def required() -> frozenset[str]:
    """Return the capabilities that GANGLINE_REQUIRE (a comma list) says this machine must have."""
    return frozenset(
        filter(None, (name.strip() for name in os.environ.get("GANGLINE_REQUIRE", "").split(",")))
    )


def verdict(needs: Iterable[str], must_have: frozenset[str]) -> tuple[str, str] | None:
    """Decide a test by what it needs: None to run it, else ('skip' or 'fail', reason)."""
    absent = {name: reason for name in needs if (reason := absence(name))}
    if not absent:
        return None
    if broken := sorted(absent.keys() & must_have):
        return "fail", "; ".join(f"GANGLINE_REQUIRE names '{name}', but: {absent[name]}" for name in broken)
    return "skip", "; ".join(absent.values())
