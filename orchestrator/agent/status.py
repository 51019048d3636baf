"""The status file of a worker: JSON lines that survive a torn end, and the notice that there is a new one.

Comes in: records. Goes out: lines in a file, short lines in the agent's notice pipe. Called by: workers (write),
the daemon (reads). Record kinds, by key `k`: `worker`, `refused`, `prepared`, `ranks`, `exit`, `failed`, `fenced`,
`lost`, `stuck`, `ended`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
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
        """Append, fsync if `durable`, tell the agent. Waits as long as the disk is full."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        while not self._try(line, durable):
            time.sleep(FULL_DISK_PAUSE_S)
        poke(self._notices, self._unit, hurry)

    def close(self) -> None:
        """Let go of the file, and of its lock."""
        os.close(self._fd)

    def _try(self, line: bytes, durable: bool) -> bool:
        try:
            if os.pwrite(self._fd, line, self._good) != len(line):
                return False
            if durable:
                os.fdatasync(self._fd)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return False
        self._good += len(line)
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
    os.ftruncate(fd, _whole_lines(fd))
    return StatusWriter(fd, notices, unit)


def _whole_lines(fd: int) -> int:
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    return data.rfind(b"\n") + 1


def read_records(path: str, offset: int = 0) -> tuple[list[tuple[int, Record]], int]:
    """Records from `offset`, each with the offset after it; and the offset to go on from. No file: nothing yet."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    records: list[tuple[int, Record]] = []
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        offset += len(line)
        records.append((offset, json.loads(line)))
    return records, offset


def poke(notices: str, unit: str, hurry: bool) -> None:
    """Tell the agent, if one listens, that `unit` has a new record. Best effort: the agent looks by itself too."""
    if not notices:
        return
    try:
        fd = os.open(notices, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        os.write(fd, f"{'!' if hurry else '.'}{unit}\n".encode())
    except OSError:
        pass
    finally:
        os.close(fd)
