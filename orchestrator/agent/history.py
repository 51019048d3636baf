"""Attempts that ended here, kept for a controller that was restored from an old backup.

Comes in: records that the journal lets go. Goes out: holdings in their plain form. Called by: the journal.

A file of JSON lines that only grows until it is cut to the newest entries that are still to be kept. It is read when
it is asked for and held in no memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.agent.records import Record
from orchestrator.model.clock import SECOND, Clock


class History:
    """Bounded by age (seconds) and count; cut when it holds a quarter more than that."""

    def __init__(self, folder: str, keep_s: int, keep_count: int, clock: Clock) -> None:
        self._path = os.path.join(folder, "history.jsonl")
        self._keep_us = keep_s * SECOND
        self._keep_count = keep_count
        self._clock = clock
        self._count = sum(1 for _ in self._lines())

    def add(self, records: Sequence[Record]) -> None:
        """Append and fsync. The same record again does no harm: the last one of an attempt counts."""
        data = b"".join(_line({"t": self._clock.now_us(), **record.holding()}) for record in records)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data  # a crash left half a line: it must not spoil the next
            if os.write(fd, data) != len(data):
                os.ftruncate(fd, size)
                raise OSError(28, os.strerror(28))  # a short write: the disk is full
            os.fdatasync(fd)
        finally:
            os.close(fd)
        self._count += len(records)
        if self._count > self._keep_count * 5 // 4:
            self._cut()

    def holdings(self) -> list[dict[str, Any]]:
        """What is kept, oldest first, each attempt once."""
        oldest = self._clock.now_us() - self._keep_us
        found: dict[tuple[int, ...], dict[str, Any]] = {}
        for plain in self._lines():
            if plain.pop("t") >= oldest:
                found[tuple(plain["attempt"])] = plain
        return list(found.values())[-self._keep_count :]

    def _cut(self) -> None:
        oldest = self._clock.now_us() - self._keep_us
        kept = [plain for plain in self._lines() if plain["t"] >= oldest][-self._keep_count :]
        draft = self._path + ".new"
        with open(draft, "wb") as file:
            file.writelines(map(_line, kept))
            file.flush()
            os.fdatasync(file.fileno())
        os.rename(draft, self._path)
        self._count = len(kept)

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Whole lines; a torn one (a crash while it was written) is no loss, the journal still has it."""
        try:
            with open(self._path, "rb") as file:
                for line in file:
                    try:
                        yield json.loads(line)
                    except ValueError:
                        continue
        except FileNotFoundError:
            return


def _line(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode() + b"\n"
