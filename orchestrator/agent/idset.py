"""Every attempt id that was ever started here, in 8 bytes each.

Comes in: attempt ids. Goes out: membership; a packed file that only grows. Called by: the journal.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, insort

from orchestrator.model.ids import AttemptId

_NUMBER_BITS = 24


class IdSet:
    """A sorted array; ids come nearly in order, so adding is nearly always appending."""

    def __init__(self, keys: array[int] | None = None) -> None:
        self._keys = keys if keys is not None else array("Q")

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, attempt: AttemptId) -> bool:
        key = pack(attempt)
        at = bisect_left(self._keys, key)
        return at < len(self._keys) and self._keys[at] == key

    def add(self, attempt: AttemptId) -> None:
        """Once or again."""
        key = pack(attempt)
        if not self._keys or key > self._keys[-1]:
            self._keys.append(key)
        elif attempt not in self:
            insort(self._keys, key)


def pack(attempt: AttemptId) -> int:
    """One integer in the order of (job, number)."""
    return attempt.job << _NUMBER_BITS | attempt.number


def load(path: str) -> IdSet:
    """From the file; a torn end is cut off. No file: empty."""
    keys: array[int] = array("Q")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return IdSet()
    keys.frombytes(data[: len(data) - len(data) % keys.itemsize])
    return IdSet(array("Q", sorted(set(keys))))


def append(path: str, attempts: list[AttemptId]) -> None:
    """Add to the file and fsync. Ids that are already there do no harm."""
    keys = array("Q", [pack(attempt) for attempt in attempts])
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        whole = os.fstat(fd).st_size // keys.itemsize * keys.itemsize
        os.pwrite(fd, keys.tobytes(), whole)
        os.fdatasync(fd)
    finally:
        os.close(fd)
