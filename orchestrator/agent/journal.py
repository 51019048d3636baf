"""The agent's memory: an fsynced, append-only journal of intents and events, folded into what is held and unsent.

Comes in: entries. Goes out: the fold: records of attempts, the outbox, the highest epoch, ids that must never start
(again). Called by: the daemon, which writes here before it does or says anything.

Files: journal.jsonl (one checked JSON line an entry; a torn last line is cut off), and, moved out of it when it is
written anew, started.ids (every id for ever) and history.jsonl (attempts that ended, for a restored controller).
A commit is one write and one fdatasync; when it fails, the file is cut back and nothing of it has happened. A crash in
the middle of it leaves its first entries, none in part: intents without their deeds, or events before their followers.
"""

from __future__ import annotations

import json
import os
from binascii import crc32
from collections.abc import Iterable, Sequence
from typing import Any

from orchestrator.agent import idset, log
from orchestrator.agent.history import History
from orchestrator.agent.records import Entry, Memory
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import EventKind

REWRITE_BYTES = 1 << 20  # the journal is written anew when it has grown by so much since the last time


class JournalError(Exception):
    """It could not be read or written; of a commit that fails nothing has happened."""


class Journal:
    """One writer, in one folder that is locked by the agent."""

    def __init__(self, folder: str, history: History) -> None:
        self._path = os.path.join(folder, "journal.jsonl")
        self._ids_path = os.path.join(folder, "started.ids")
        self._history = history
        self._folder = folder
        self.memory = Memory(idset.load(self._ids_path))
        self.rewrites = 0
        self._lazy: list[Entry] = []
        self._broken = False
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._size = self._load()
        self._rewrite_at = self._size + REWRITE_BYTES
        if not self.memory.outbox:
            self.commit([{"k": "head", "outbox": os.urandom(8).hex(), "epoch": 0, "next": 1, "acked": 0}])
            _sync_folder(folder)

    def commit(self, entries: Sequence[Entry]) -> None:
        """All of them durable, in order, or JournalError and none of them."""
        done = list(entries)
        self.memory.number(done)
        try:
            if self._broken:
                self._rewrite()
            self._append([*self._lazy, *done])
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from None
        self._lazy.clear()
        for entry in done:
            self.memory.fold(entry)
        self._tidy()

    def acked(self, n: int) -> None:
        """The controller has the events up to `n`. Written with the next commit: asking again does no harm."""
        if n <= self.memory.acked:
            return
        entry: Entry = {"k": "acked", "n": min(n, self.memory.next_n - 1)}
        self.memory.fold(entry)
        self._lazy.append(entry)

    def close(self) -> None:
        """Give the file back, with the acknowledgements that came last."""
        try:
            if self._lazy:
                self.commit([])
        except JournalError as error:
            log.error(str(error))
        os.close(self._fd)

    # --- reading ---------------------------------------------------------------------------------------------------

    def _load(self) -> int:
        data = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        good = 0
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            entry = _parse(line)
            if entry is None:
                if good + len(line) < len(data):
                    raise JournalError(
                        f"{self._path}: damaged at byte {good}: restore the file, or move it away and lose what it says"
                    )
                break
            self.memory.fold(entry)
            good += len(line)
        os.ftruncate(self._fd, good)
        return good

    # --- writing ---------------------------------------------------------------------------------------------------

    def _append(self, entries: Iterable[Entry]) -> None:
        data = b"".join(map(_line, entries))
        try:
            if os.pwrite(self._fd, data, self._size) != len(data):
                raise OSError(28, os.strerror(28))  # a short write: the disk is full
            try:
                os.fdatasync(self._fd)
            except OSError:
                self._broken = True  # what the kernel kept of the file is unknown now: write another one
                raise
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def _tidy(self) -> None:
        if self._size < self._rewrite_at:
            return
        try:
            self._rewrite()
        except OSError as error:
            self._rewrite_at = self._size + REWRITE_BYTES
            log.error(f"{self._path}: could not be written anew: {error.strerror}; it goes on growing")

    def _rewrite(self) -> None:
        """A new file with what is still needed; what has ended and is known to the controller moves out first."""
        ended = self.memory.settled()
        if ended:
            self._history.add(ended)
            idset.append(self._ids_path, [record.attempt for record in ended])
        draft = self._path + ".new"
        leave = {record.attempt for record in ended}
        data = b"".join(map(_line, self.memory.entries(without=leave)))
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(fd, data)
            os.fdatasync(fd)
            os.rename(draft, self._path)
        except OSError:
            os.close(fd)
            raise
        _sync_folder(self._folder)
        os.close(self._fd)
        self._fd, self._size, self._broken = fd, len(data), False
        self._rewrite_at = self._size + REWRITE_BYTES
        self.rewrites += 1
        self._lazy.clear()
        self.memory.drop(leave)

    # --- for a controller that has forgotten -----------------------------------------------------------------------

    def inventory(self) -> list[dict[str, Any]]:
        """Holdings in their plain form: what is held now, and what ended here within the time that is kept.

        Not what could not be set up: a controller that still wants it is told again by the outbox.
        """
        newer = [record.holding() for record in self.memory.records.values() if not record.refused]
        known = {tuple(each["attempt"]) for each in newer}
        older = [each for each in self._history.holdings() if tuple(each["attempt"]) not in known]
        return [each for each in older if each["ended"]["kind"] == EventKind.ENDED.value] + newer

    def final_event(self, attempt: AttemptId) -> dict[str, Any] | None:
        """How an attempt ended here, as it was reported; None if that is no longer kept."""
        record = self.memory.records.get(attempt)
        if record is not None and record.final is not None:
            return record.final
        return next(
            (each["ended"] for each in self._history.holdings() if tuple(each["attempt"]) == attempt), None
        )


def _line(entry: Entry) -> bytes:
    body = json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(body), body)


def _parse(line: bytes) -> Entry | None:
    """The entry of one line, None if it is damaged."""
    try:
        if int(line[:8], 16) != crc32(line[9:-1]):
            return None
        entry: Entry = json.loads(line[9:])
        return entry
    except ValueError:
        return None


def _write_all(fd: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.write(fd, data[written:])


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
