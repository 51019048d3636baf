"""The cells of a table and what they may hold: numbers, sizes, words, each with the place of its fault.

Comes in: lines of text. Goes out: `Row`s whose values are read by type. Called by: trace_csv, trace_openb, trace_swf.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeVar

from orchestrator.simulate.faults import SHOWN, Faults, TraceFault

SECOND = 1_000_000
LONGEST_S = 10**10  # three hundred years: no time in a trace is longer
LARGEST = 1 << 50  # of counts and bytes
_SIZE = re.compile(r"(\d+)\s*(KiB|MiB|GiB|TiB|KB|MB|GB|TB)?")
_UNITS = {
    "": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}

T = TypeVar("T")


@dataclass(slots=True)
class Row:
    """One line by the names of its columns."""

    line: int
    text: str
    values: list[str]
    columns: dict[str, int]
    faults: Faults
    absent: frozenset[str] = (
        frozenset()
    )  # columns that are needed and not there: that is told once, for the file

    def get(self, name: str) -> str:
        """The cell's text without blanks around it; empty if there is no such column."""
        at = self.columns.get(name)
        return self.values[at].strip() if at is not None and at < len(self.values) else ""

    def wrong(self, name: str, code: str, message: str, hint: str = "") -> None:
        """The cell of that column has a fault."""
        column, length = self._place(name)
        self.faults.add(TraceFault(self.line, column, name, code, message, hint, self.text[:SHOWN], length))

    def _place(self, name: str) -> tuple[int, int]:
        at = self.columns.get(name)
        if at is None or '"' in self.text or at >= len(self.values):
            return 1, max(len(self.text.rstrip()), 1)
        before = sum(len(value) + 1 for value in self.values[:at])
        cell = self.values[at]
        return before + 1 + len(cell) - len(cell.lstrip()), max(len(cell.strip()), 1)

    def read(self, name: str, parse: Callable[[str], T], what: str, default: T) -> T:
        """The cell by `parse` (ValueError: it has a fault); the default if it is empty."""
        text = self.get(name)
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.wrong(name, "trace.bad-value", f"{name}: '{text[:40]}' is no {what}", str(error))
            return default

    def needed(self, name: str, parse: Callable[[str], T], what: str, default: T) -> T:
        """The same of a cell that may not be empty."""
        if name in self.absent:
            return default
        if not self.get(name):
            self.wrong(name, "trace.missing-value", f"{name} is empty", f"it takes a {what}")
            return default
        return self.read(name, parse, what, default)


def table(lines: Iterator[str], faults: Faults) -> Iterator[tuple[int, str, list[str]]]:
    """Lines of a comma-separated file with their numbers, without empty ones and comments (#). A quoted cell may not
    go on in the next line."""
    for number, raw in enumerate(lines, start=1):
        text = raw.rstrip("\r\n")
        if not text.strip() or text.startswith("#"):
            continue
        if '"' not in text:
            yield number, text, text.split(",")
            continue
        try:
            yield number, text, next(csv.reader([text], strict=True))
        except csv.Error as error:
            faults.add(
                TraceFault(
                    number, 1, "", "trace.bad-line", f"this line can't be read: {error}", "", text[:SHOWN]
                )
            )


# --- what cells hold ------------------------------------------------------------------------------------------------


def microseconds(text: str) -> int:
    """Seconds, with up to six decimals."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        raise ValueError("write seconds, as in 90 or 0.5") from None
    if not found.is_finite() or found < 0:
        raise ValueError("it must be 0 or more")
    if found > LONGEST_S:
        raise ValueError(f"it must be at most {LONGEST_S}")
    return int((found * SECOND).to_integral_value())


def count(text: str) -> int:
    """A whole number from 0."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("write a whole number from 0")
    if int(text) > LARGEST:
        raise ValueError(f"it must be at most {LARGEST}")
    return int(text)


def flag(text: str) -> bool:
    """1 or 0."""
    if text not in ("0", "1"):
        raise ValueError("write 0 or 1")
    return text == "1"


def segment(text: str) -> tuple[int, str]:
    """`4:unit` -> (4, "unit")."""
    nodes, _, level = text.partition(":")
    if not level or not count(nodes):
        raise ValueError("write NODES:LEVEL, as in 4:unit")
    return count(nodes), level


def whole(text: str) -> int:
    """A whole number with or without a sign."""
    return -count(text[1:]) if text.startswith("-") else count(text)


def size(text: str) -> int:
    """Bytes: a whole number, with a unit or without."""
    found = _SIZE.fullmatch(text)
    if found is None or int(found[1]) * _UNITS[found[2] or ""] > LARGEST:
        raise ValueError("write bytes, or a number with a unit, as in 960GiB")
    return int(found[1]) * _UNITS[found[2] or ""]
