"""Errors as people and programs see them: one record for each fault, as JSON or as text with the line and a caret.

Comes in: faults with their places. Goes out: `SpecError` records, their text, and `InvalidDocument` for documents
that a client sent. Called by: `load` (makes them), cli (prints them), api (puts them into its problem documents).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.model.errors import InputError
from orchestrator.wire.faults import plain, visible

WIDEST = 110  # columns of a source line that are shown
TAB = 4
MOST_ERRORS = 1000  # that are told; whoever has more has one cause


@dataclass(frozen=True, slots=True)
class SpecError:
    """One fault. Line and column count from 1; 0 means that the fault has no place in a file.

    `length` is what the caret underlines, in characters; `source` the line in the file, or the part of it that starts
    after `cut` characters.
    """

    file: str
    line: int
    column: int
    path: str
    code: str
    message: str
    hint: str = ""
    length: int = 1
    source: str = ""
    cut: int = 0

    def to_json(self) -> dict[str, Any]:
        """The record that `validate -o json` and the API give out."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "path": self.path,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
        }


class InvalidDocument(InputError):
    """A document has faults: `errors` has all of them, the exception's own fields tell the first."""

    def __init__(self, errors: tuple[SpecError, ...]) -> None:
        first = errors[0]
        more = len(errors) - 1
        tail = f" (and {more} more)" if more else ""
        super().__init__(first.code, first.message + tail, first.hint, first.path)
        self.errors = errors


def render(errors: Iterable[SpecError]) -> str:
    """The text of all errors, each with its line, a caret under the fault and a hint."""
    return "\n".join(line for error in errors for line in _lines(error))


def _lines(error: SpecError) -> list[str]:
    place = f"{plain(error.file, 200)}:"
    if error.line:
        place += f"{error.line}:{error.column}:"
    path = f" {error.path}:" if error.path else ""
    lines = [f"{place}{path} {error.message} [{error.code}]".lstrip(": ")]
    if error.line and error.source.strip():
        number = str(error.line)
        text, start, width = _excerpt(error)
        lines.append(f"  {number} | {text}")
        lines.append(f"  {' ' * len(number)} | {' ' * start}{'^' * width}")
    if error.hint:
        lines.append(f"  hint: {error.hint}")
    return lines


def _excerpt(error: SpecError) -> tuple[str, int, int]:
    """The part of a line around the fault as a terminal may show it; where the caret starts, and how wide it is."""
    source, start = error.source, error.column - 1 - error.cut
    end = start + error.length
    first = _first(source, start, end)
    lead = "…" if first or error.cut else ""
    before = _shown(source[first:start], WIDEST)
    marked = _shown(source[start:end], WIDEST - _columns(before)) or " "
    after = _shown(source[end:], WIDEST - _columns(before) - _columns(marked))
    return (lead + before + marked + after).rstrip(), _columns(lead + before), max(1, _columns(marked))


def _first(source: str, start: int, end: int) -> int:
    """The first character to show, so that the fault at `start` is in view with something before it."""
    if sum(_columns(_piece(char)) for char in source[:end]) <= WIDEST:
        return 0
    first, left = start, WIDEST // 3
    while first and (left := left - _columns(_piece(source[first - 1]))) >= 0:
        first -= 1
    return first


def _piece(char: str) -> str:
    """A character as a terminal may show it: a tab as spaces, nothing that acts on it."""
    return " " * TAB if char == "\t" else visible(char)


def _shown(text: str, most: int) -> str:
    """`text` as a terminal may show it, at most `most` columns wide."""
    parts: list[str] = []
    left = most
    for char in text:
        piece = _piece(char)
        left -= _columns(piece)
        if left < 0:
            return "".join(parts) + "…"
        parts.append(piece)
    return "".join(parts)


def _columns(text: str) -> int:
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    """Columns that a terminal gives a character: wide East Asian ones two, marks that join the one before none."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
