"""Arrays: many jobs from one submit, alike but for their index.

Comes in: texts such as `0-99:2`. Goes out: `Array`, its indices in order, and which place an index has. Called by: wire
(reads), ledger (makes the jobs), agent (their environment), every room that shows one.

The jobs of an array have consecutive ids in the order of their indices; the first of them is the array's own id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

MOST_TASKS = 100_000  # of one array; each is a job of its own in memory
HIGHEST_INDEX = 999_999_999
LONGEST_TEXT = 1000  # characters: the text is kept with each job's record
_PIECE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?", re.ASCII)


class Range(NamedTuple):
    """Indices from `first` to `last`, each `step` after the one before."""

    first: int
    last: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Array:
    """The indices, as ranges that rise and don't meet; at most `at_most` of its tasks have an attempt at a time (0:
    any number)."""

    tasks: tuple[Range, ...]
    at_most: int = 0

    def count(self) -> int:
        """How many tasks it has."""
        return sum(_count(each) for each in self.tasks)

    def indices(self) -> Iterator[int]:
        """All indices, rising."""
        for each in self.tasks:
            yield from range(each.first, each.last + 1, each.step)

    def place_of(self, index: int) -> int | None:
        """How many tasks come before the one with that index; None if there is none."""
        before = 0
        for each in self.tasks:
            if each.first <= index <= each.last and not (index - each.first) % each.step:
                return before + (index - each.first) // each.step
            before += _count(each)
        return None

    def text(self) -> str:
        """`0-8:2,11`, as `read_tasks` reads it."""
        return ",".join(_text(each) for each in self.tasks)


def _count(each: Range) -> int:
    return (each.last - each.first) // each.step + 1


def _text(each: Range) -> str:
    if each.first == each.last:
        return str(each.first)
    return f"{each.first}-{each.last}" + (f":{each.step}" if each.step != 1 else "")


def read_tasks(text: str) -> tuple[Range, ...]:
    """`0-99:2`, `1,5,7-9`; an index that is named twice is one task. ValueError with what is wrong, for people."""
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"it has {len(text)} characters, and at most {LONGEST_TEXT} are taken")
    ranges = [_range(piece.strip()) for piece in text.split(",")]
    total = sum(_count(each) for each in ranges)
    if total > MOST_TASKS:
        raise ValueError(f"it names {total} tasks, and an array has at most {MOST_TASKS}")
    ranges.sort()
    if all(one.last < other.first for one, other in pairwise(ranges)):
        return tuple(ranges)
    return _merged(ranges)


def _range(piece: str) -> Range:
    found = _PIECE.fullmatch(piece)
    if found is None:
        raise ValueError(f"'{piece[:40]}' is no index and no range of them")
    first = int(found[1])
    last = int(found[2]) if found[2] is not None else first
    step = int(found[3]) if found[3] is not None else 1
    if last < first:
        raise ValueError(f"'{piece}' ends before it begins")
    if step == 0:
        raise ValueError(f"'{piece}' has a step of 0")
    last -= (last - first) % step
    return Range(first, last, step if last > first else 1)


def _merged(ranges: list[Range]) -> tuple[Range, ...]:
    """The same indices, each once, in as few runs of one step as a walk finds."""
    indices = sorted({index for each in ranges for index in range(each.first, each.last + 1, each.step)})
    runs: list[Range] = []
    at = 0
    while at < len(indices):
        end = at + 1
        step = indices[end] - indices[at] if end < len(indices) else 1
        while end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        if end - at == 2 and step != 1:  # two that lie apart are no run: the second may begin a better one
            end = at + 1
        runs.append(Range(indices[at], indices[end - 1], step if end - at > 1 else 1))
        at = end
    return tuple(runs)
