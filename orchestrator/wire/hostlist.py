"""Patterns of node names: `h100-[01-32]`, `n[1-4,7]`, `r[1-2]n[01-16]`, commas between them.

Comes in: a text. Goes out: the names in the order written, with the width of numbers kept; or `HostlistError` with
the reason. Called by: the documents of pools, units and power domains; cli (to print many nodes shortly).
"""

from __future__ import annotations

import re
from itertools import product

from orchestrator.model.units import fold

__all__ = ["LONGEST_NAME", "MOST_NODES", "TOO_MANY", "HostlistError", "expand", "fold"]

MOST_NODES = 100_000  # of one pattern; a slip such as [0-999999999] must be an error, not a full memory
TOO_MANY = f"it stands for more than {MOST_NODES} nodes"
LONGEST_PATTERN = 1_000_000
LONGEST_NAME = 253  # RFC 1035, section 2.3.4

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_LITERAL = re.compile(r"[^\[\]]*")


class HostlistError(ValueError):
    """A text is no pattern of node names; the message says why."""


def expand(text: str) -> list[str]:
    """`"n[01-03,7]"` -> n01, n02, n03, n7. HostlistError if malformed, larger than MOST_NODES or with a repetition."""
    if len(text) > LONGEST_PATTERN:
        raise HostlistError(f"it is longer than {LONGEST_PATTERN} characters")
    names: list[str] = []
    for part in _split(text):
        names += _expand_part(part, MOST_NODES - len(names))
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise HostlistError(f"{name} is in it twice")
        seen.add(name)
    return names


def _split(text: str) -> list[str]:
    """The parts between the commas that stand outside brackets."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in (0, 1):
            raise HostlistError(f"the bracket at character {index + 1} does not match")
        if char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    if depth:
        raise HostlistError("a bracket is not closed")
    parts.append(text[start:].strip())
    if not all(parts):
        raise HostlistError("a name is missing" if text.strip() else "it is empty")
    return parts


def _expand_part(part: str, most: int) -> list[str]:
    pieces: list[list[str]] = []
    count, position = 1, 0
    while position < len(part):
        if part[position] == "[":
            end = part.index("]", position)
            pieces.append(_numbers(part[position + 1 : end], most))
            position = end + 1
        else:
            found = _LITERAL.match(part, position)
            pieces.append([found.group() if found else ""])
            position = found.end() if found else len(part)
        count *= len(pieces[-1])
        if count > most:
            raise HostlistError(TOO_MANY)
    names = ["".join(chosen) for chosen in product(*pieces)]
    _check_name(names[0])
    _check_name(names[-1])
    return names


def _check_name(name: str) -> None:
    """One name of a pattern stands for all: they differ in digits only."""
    if len(name) > LONGEST_NAME:
        raise HostlistError(f"a name has more than {LONGEST_NAME} characters")
    if not _NAME.fullmatch(name):
        raise HostlistError("names are made of letters, digits, '.', '-' and '_'")


def _numbers(inside: str, most: int) -> list[str]:
    """The texts that one pair of brackets stands for."""
    done: list[str] = []
    for item in inside.split(","):
        found = _RANGE.fullmatch(item.strip())
        if not found:
            raise HostlistError(f"[{inside[:40]}] is not made of numbers and ranges such as 01-32")
        low, high = found.group(1), found.group(2) or found.group(1)
        done += _range(low, high, most - len(done))
    return done


def _range(low: str, high: str, most: int) -> list[str]:
    if len(high) != len(low) and (high[0] == "0" or len(high) < len(low)):
        raise HostlistError(f"{low}-{high} mixes widths")
    first, last = int(low), int(high)
    if last < first:
        raise HostlistError(f"{low}-{high} runs backwards")
    if last - first >= most:
        raise HostlistError(TOO_MANY)
    width = len(low) if low[0] == "0" else 0
    return [str(number).zfill(width) for number in range(first, last + 1)]
