"""Reads a file that a person named: bounded, never blocking, and only if it is text.

Comes in: a path. Goes out: its text, or one problem with the place of the first bad byte. Called by: `load`,
`inventory`.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from pathlib import Path

from orchestrator.wire.faults import Problem, plain, problem

LARGEST_FILE = 8 * 1024 * 1024  # bytes; an inventory of 10,000 one-line hosts is about 2 MB
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Unreadable(Exception):
    """There is no text to look at. Line and column are 0 where the fault is not inside the file."""

    def __init__(self, found: Problem, line: int = 0, column: int = 0) -> None:
        super().__init__(found.message)
        self.problem = found
        self.line = line
        self.column = column


def read_text(path: str, base: str = "the current folder") -> str:
    """The text of the file at `path`, which people understand from `base`. Raises Unreadable; never waits for a pipe
    and never reads more than it may."""
    try:
        data = _read_bytes(path)
    except OSError as error:
        raise Unreadable(_why(path, error, base)) from None
    except ValueError:  # a NUL in the name
        raise Unreadable(problem("spec.file-not-found", file=shown_path(path), base=base)) from None
    return text_of_bytes(data)


def _read_bytes(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            what = next((name for test, name in _KINDS if test(mode)), "something else")
            raise Unreadable(problem("spec.not-a-file", file=shown_path(path), what=what))
        with os.fdopen(handle, "rb", closefd=False) as stream:
            return stream.read(LARGEST_FILE + 1)
    finally:
        os.close(handle)


def _why(path: str, error: OSError, base: str) -> Problem:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return problem("spec.file-not-found", file=shown_path(path), base=base)
    if error.errno == errno.ENXIO:
        return problem("spec.not-a-file", file=shown_path(path), what="a socket or a pipe")
    return problem("spec.file-unreadable", file=shown_path(path), reason=error.strerror or "unknown reason")


def text_of_bytes(data: bytes) -> str:
    """UTF-8 text without its byte order mark. Raises Unreadable at the first byte that is none, or if too large."""
    if len(data) > LARGEST_FILE:
        raise Unreadable(problem("spec.too-large", limit=f"{LARGEST_FILE // 2**20} MiB"))
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + 1
        raise Unreadable(problem("spec.not-utf8", byte=data[error.start]), line, column) from None


def shown_path(path: str) -> str:
    """A path as messages write it."""
    return plain(str(path), 200)


def beside(path: str, name: str) -> str:
    """`name` seen from the folder in which the file `path` lies, written as the person wrote `path`."""
    return str(Path(path).parent / name)
