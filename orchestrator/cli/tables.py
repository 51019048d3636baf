"""Tables: upper-case headers, numbers to the right, two spaces between columns, nothing around them.

Comes in: columns and rows of texts. Goes out: lines that fit the terminal, or everything where there is none. Called
by: output (listings), commands that show a small table inside a text.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from orchestrator.cli.text import middle, safe, width

GAP = "  "
LEAST = 6  # columns that a cut name keeps


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and how it is to be painted: `ok`, `wait`, `bad`, `over`, or nothing."""

    text: str
    mood: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """A column's header. `right`: numbers. `cut`: a name, which a narrow terminal may shorten in its middle."""

    title: str
    right: bool = False
    cut: bool = False


_PAINT = {"ok": "32", "wait": "33", "bad": "31", "over": "2"}
GLYPHS = {"ok": "●", "wait": "○", "bad": "✗", "over": "·"}


def paint(text: str, mood: str, colors: bool) -> str:
    """The text in its colour."""
    return f"\x1b[{_PAINT[mood]}m{text}\x1b[0m" if colors and mood else text


def with_glyph(cell: Cell, glyphs: bool) -> str:
    """The text with a sign before it, so that colour is never the only difference."""
    return f"{GLYPHS[cell.mood]} {cell.text}" if glyphs and cell.mood else cell.text


def room(stream: TextIO) -> int:
    """Columns that a table may take; 0: as many as it likes, since nobody looks at a terminal."""
    return shutil.get_terminal_size((100, 24)).columns if stream.isatty() else 0


def takes_glyphs(stream: TextIO) -> bool:
    """Whether the signs before states can be shown: on a terminal that knows them."""
    encoding = (getattr(stream, "encoding", "") or "").lower().replace("-", "")
    return stream.isatty() and encoding.startswith("utf")


def render(
    heads: Sequence[Head],
    rows: Sequence[Sequence[Cell]],
    *,
    most: int = 0,
    colors: bool = False,
    glyphs: bool = False,
    headers: bool = True,
) -> list[str]:
    """The table's lines. `most` 0: no cell is ever cut."""
    texts = [[safe(with_glyph(cell, glyphs)) for cell in row] for row in rows]
    widths = _widths(heads, texts, headers)
    if most:
        _shrink(heads, widths, most)
    lines = [_line(heads, [head.title for head in heads], widths)] if headers else []
    for row, shown in zip(rows, texts, strict=True):
        cut = [
            middle(text, size) if head.cut else text
            for head, text, size in zip(heads, shown, widths, strict=True)
        ]
        lines.append(_line(heads, cut, widths, [cell.mood for cell in row] if colors else None))
    return lines


def _widths(heads: Sequence[Head], texts: Sequence[Sequence[str]], headers: bool) -> list[int]:
    widths = [len(head.title) if headers else 0 for head in heads]
    for row in texts:
        for index, text in enumerate(row):
            widths[index] = max(widths[index], width(text))
    return widths


def _shrink(heads: Sequence[Head], widths: list[int], most: int) -> None:
    """Take columns from the widest names until the table fits, or no name can give more."""
    over = sum(widths) + len(GAP) * (len(widths) - 1) - most
    while over > 0:
        index = max((i for i, head in enumerate(heads) if head.cut), key=lambda i: widths[i], default=-1)
        if index < 0 or widths[index] <= LEAST:
            return
        widths[index] -= 1
        over -= 1


def _line(
    heads: Sequence[Head], texts: Sequence[str], widths: Sequence[int], moods: Sequence[str] | None = None
) -> str:
    parts = []
    for index, (head, text, size) in enumerate(zip(heads, texts, widths, strict=True)):
        gap = " " * (size - width(text))
        shown = paint(text, moods[index], True) if moods else text
        parts.append(gap + shown if head.right else shown + gap)
    return GAP.join(parts).rstrip()
