"""The status file of a worker: JSON lines that survive a torn end, and the notice that there is a new one.

Comes in: records. Goes out: lines in a file, short lines in the agent's notice pipe. Called by: workers (write),
the daemon (reads). Record kinds, by key `k`: `worker`, `refused`, `prepared`, `ranks`, `exit`, `failed`, `fenced`,
`stopped`, `lost`, `stuck`, `ended`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable
from typing import Any

Record = dict[str, Any]

# Seconds between attempts to write a record while the disk is full. Nothing is given up: the record is the result.
FULL_DISK_PAUSE_S = 1.0


class StatusWriter:
    """Appends records to an open file; a record is whole or, while the disk is full, not there yet."""

    def __init__(self, fd: int, notices: str, unit: str) -> None:
        self._fd = fd
        self._good = os.lseek(fd, 0, os.SEEK_END)
        self._notices = notices
        self._unit = unit

    def add(self, record: Record, *, durable: bool = False, hurry: bool = True) -> None:
        """Append and tell the agent; fsync what is `durable` if no agent hears of it, for one that does has it in its
        own journal within milliseconds. Waits as long as the disk is full."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        while not self._try(lambda: self._write(line)):
            time.sleep(FULL_DISK_PAUSE_S)
        if poke(self._notices, self._unit, hurry) or not durable:
            return
        while not self._try(lambda: os.fdatasync(self._fd)):
            time.sleep(FULL_DISK_PAUSE_S)

    def close(self) -> None:
        """Let go of the file, and of its lock."""
        os.close(self._fd)

    def _write(self, line: bytes) -> None:
        if os.pwrite(self._fd, line, self._good) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._good += len(line)

    @staticmethod
    def _try(step: Callable[[], None]) -> bool:
        """Take the step; False if the disk is full."""
        try:
            step()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return False
        return True


def claim(path: str, first: Record, notices: str, unit: str) -> StatusWriter | None:
    """Make the status file with its first record, or None if another worker ever did.

    The file appears whole and locked: written under another name, locked, then linked to its own.
    """
    draft = f"{path}.{os.getpid()}"
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        writer = StatusWriter(fd, notices="", unit=unit)
        writer.add(first)
        os.link(draft, path)
    except FileExistsError:
        os.close(fd)
        return None
    finally:
        os.unlink(draft)
    return StatusWriter(fd, notices, unit)


def reopen(path: str, notices: str, unit: str) -> StatusWriter | None:
    """Go on with the status file of a worker that is gone; None if one is alive and holds it."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    os.ftruncate(fd, read_records(path)[1])  # a torn end, or what a bad disk made unreadable
    return StatusWriter(fd, notices, unit)


def read_records(path: str, offset: int = 0) -> tuple[list[tuple[int, Record]], int]:
    """Records from `offset`, each with the offset after it; and the offset to go on from: before what is not whole
    or can't be read. No file: nothing yet."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    records: list[tuple[int, Record]] = []
    for line in data.splitlines(keepends=True):
        record = _parse(line)
        if record is None:
            break
        offset += len(line)
        records.append((offset, record))
    return records, offset


def _parse(line: bytes) -> Record | None:
    try:
        record: Record | None = json.loads(line) if line.endswith(b"\n") else None
        return record
    except ValueError:
        return None


def poke(notices: str, unit: str, hurry: bool) -> bool:
    """Tell the agent that `unit` has a new record; whether one listens. Best effort: the agent looks by itself too."""
    if not notices:
        return False
    try:
        fd = os.open(notices, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.write(fd, f"{'!' if hurry else '.'}{unit}\n".encode())
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
