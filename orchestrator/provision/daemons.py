"""Processes that outlive the command that started them: found again by id and start time, never by name.

Comes in: a folder for records, commands to run. Goes out: processes in sessions of their own; whether they live; their
end. Called by: local.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.model.errors import Unavailable
from orchestrator.provision import detach
from orchestrator.provision.files import private_folder

LARGEST_LOG = 16 << 20  # bytes; a log that has grown beyond is set aside at the next start
TICK_S = 0.05  # between two looks at a file that a starting process will write
RECORD_S = 20.0  # for a process to write its record: it is a Python that imports next to nothing


@dataclass(frozen=True, slots=True)
class Daemon:
    """One process that was started here."""

    name: str
    pid: int
    start: int
    boot: str

    def alive(self) -> bool:
        """Whether this very process runs; a dead one that nobody has waited for does not count."""
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(errors="replace")
            return (
                detach.boot_id() == self.boot
                and int(text.rpartition(")")[2].split()[19]) == self.start
                and text.rpartition(")")[2].split()[0] not in "ZX"
            )
        except (FileNotFoundError, ProcessLookupError):
            return False


class Daemons:
    """The processes of one cluster on this machine; `folder` has a record for each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """All that were ever started and not taken down."""
        return sorted(path.stem for path in self._folder.glob("*.json"))

    def get(self, name: str) -> Daemon | None:
        """The process of that name if it runs."""
        found = self._read(name)
        return found if found is not None and found.alive() else None

    def _read(self, name: str) -> Daemon | None:
        try:
            plain = json.loads(self._record(name).read_text())
            return Daemon(name, int(plain["pid"]), int(plain["start"]), str(plain["boot"]))
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def _record(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def start(self, name: str, argv: Sequence[str], log: Path, folder: Path) -> Daemon:
        """Start it; it runs on when this process ends. Unavailable if it can't be started."""
        for path in (self._folder, log.parent, folder):
            private_folder(path)
        _set_aside(log)
        self._record(name).unlink(missing_ok=True)
        starter = [
            sys.executable,
            "-I",
            "-S",
            detach.__file__,
            str(self._record(name)),
            str(log),
            str(folder),
            *argv,
        ]
        pid = os.posix_spawn(sys.executable, starter, _environment())
        deadline = time.monotonic() + RECORD_S
        while (found := self._read(name)) is None or found.pid != pid:
            if _gone(pid) or time.monotonic() > deadline:
                raise Unavailable(
                    "local.not-started", f"{name} could not be started", _last_words(log), str(log)
                )
            time.sleep(0.005)
        return found

    def stop(self, name: str, grace_s: float) -> bool:
        """SIGTERM, and SIGKILL after the grace; forget it. True if it ended by itself or was not there."""
        found = self.get(name)
        gentle = found is None or _end(found, grace_s)
        self._record(name).unlink(missing_ok=True)
        return gentle


def wait_for(daemon: Daemon, ready: Callable[[], bool], patience_s: float) -> bool:
    """Until `ready` says so. False when the process dies first or the patience runs out."""
    deadline = time.monotonic() + patience_s
    while not ready():
        if not daemon.alive() or time.monotonic() > deadline:
            return ready()
        time.sleep(TICK_S)
    return True


def last_lines(log: Path, count: int = 8) -> str:
    """The end of a log, to show why something did not work."""
    with suppress(OSError):
        return "\n".join(log.read_bytes()[-8192:].decode("utf-8", "replace").splitlines()[-count:])
    return ""


def _last_words(log: Path) -> str:
    found = last_lines(log, 1)
    return f"its last words: {found}" if found else f"see {log}"


def _end(daemon: Daemon, grace_s: float) -> bool:
    """Through a pidfd, so that no later process of that id is ever hit."""
    try:
        handle = os.pidfd_open(daemon.pid)
    except ProcessLookupError:
        return True
    try:
        if not daemon.alive():
            return True
        for sign, patience in ((signal.SIGTERM, grace_s), (signal.SIGKILL, RECORD_S)):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, sign)
            if _dies_within(handle, patience):
                daemon.alive()  # takes it off the process table if it was our own child
                return sign is signal.SIGTERM
        return False
    finally:
        os.close(handle)


def _dies_within(handle: int, seconds: float) -> bool:
    """Whether the process of a pidfd ends. By poll: select takes no descriptor beyond 1023."""
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def _gone(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _set_aside(log: Path) -> None:
    with suppress(FileNotFoundError):
        if log.stat().st_size > LARGEST_LOG:
            log.replace(log.with_name(log.name + ".1"))


def _environment() -> dict[str, str]:
    """What the caller has, without what was meant for this one command."""
    mine = ("GANGLINE_TOKEN", "GANGLINE_SERVER", "GANGLINE_CONTEXT", "GANGLINE_DEBUG")
    return {name: value for name, value in os.environ.items() if name not in mine}
