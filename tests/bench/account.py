"""Processor time of a benchmark and all that it starts, living or dead: short processes leave no other trace.

Comes in: the right to make a control group (root, as a rule). Goes out: processor seconds, or None where there is no
such right. Called by: rate, which starts thousands of processes that end within milliseconds.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from tests.bench.common import REMOVE_TRIES, TICK_S, busy_s

GROUPS = Path("/sys/fs/cgroup")


class Account:
    """A control group that this process enters, and its children with it; a context manager that leaves it again."""

    def __init__(self) -> None:
        self._home = _home()
        self._folder: Path | None = None

    def __enter__(self) -> Account:
        if self._home is not None:
            folder = self._home / f"gangline-bench-{os.getpid()}"
            with suppress(OSError):
                folder.mkdir()
                (folder / "cgroup.procs").write_text(str(os.getpid()))
                self._folder = folder
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None and self._home is not None:
            with suppress(OSError):
                (self._home / "cgroup.procs").write_text(str(os.getpid()))
            _remove(self._folder)

    def used_s(self) -> float | None:
        """Processor seconds since it was entered; None if it could not be made."""
        if self._folder is None:
            return None
        old = self._folder / "cpuacct.usage"
        if old.exists():
            return int(old.read_text()) / 1e9
        usage = (self._folder / "cpu.stat").read_text().split()
        return int(usage[usage.index("usage_usec") + 1]) / 1e6


class Meter:
    """What has been used since it was made."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._ours_s = account.used_s()
        self._busy_s = busy_s()
        self._begun_s = time.monotonic()

    def read(self) -> tuple[float | None, float | None]:
        """Processor seconds of the benchmark, and how many cores all else has kept busy."""
        used_s, wall_s = self._account.used_s(), time.monotonic() - self._begun_s
        if used_s is None or self._ours_s is None:
            return None, None
        ours_s = used_s - self._ours_s
        return ours_s, (busy_s() - self._busy_s - ours_s) / wall_s


def _home() -> Path | None:
    """The group of this process: of version 1's cpuacct if there is one, since nobody else here uses that."""
    mine = [text.split(":", 2) for text in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, path in mine:
        if "cpuacct" in controllers.split(",") and (GROUPS / "cpuacct").is_dir():
            return GROUPS / "cpuacct" / path.lstrip("/")
    for _, controllers, path in mine:
        if not controllers and (GROUPS / "cgroup.controllers").exists():
            return GROUPS / path.lstrip("/")
    return None


def _remove(folder: Path) -> None:
    """The group and what agents have made in it, from the inside out, once the last process has left it."""
    for _ in range(REMOVE_TRIES):
        for each in sorted((folder, *folder.rglob("*/")), key=lambda path: -len(path.parts)):
            with suppress(OSError):
                each.rmdir()
        if not folder.exists():
            return
        time.sleep(TICK_S)
