"""Quantities as people write them: the texts of integers in base units.

Comes in: seconds, bytes, watts, micro-dollars, per mille, minutes, days, node names. Goes out: what a file would say.
Called by: wire (writes documents; reads the same texts), planning (shows changes in the units of the file).
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
SIZE_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}

_LARGEST_NUMBER = 9  # digits of a number that a node pattern can hold


def seconds_text(total: int) -> str:
    """5400 -> `"1h30m"`; without weeks."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, total = divmod(total, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def size_text(total: int) -> str:
    """A size in bytes in the largest unit that divides it: `"960GiB"`, `"80GB"`."""
    for letter, power in reversed(SIZE_POWERS.items()):
        for base, tail in ((1024, "iB"), (1000, "B")):
            step = base**power
            if power and total and total % step == 0:
                return f"{total // step}{letter}{tail}"
    return f"{total}B"


def unscaled(whole: int, scale: int) -> int | float:
    """180000 of scale 1000000 -> 0.18, as a document writes it."""
    exact = Decimal(whole) / scale
    return int(exact) if exact == int(exact) else float(exact)


def scaled_text(whole: int, scale: int) -> str:
    """The same as a text without an exponent: 44500 of scale 1000 -> `"44.5"`."""
    return f"{(Decimal(whole) / scale).normalize():f}"


def day_time_text(total: int) -> str:
    """Minutes from midnight: 1020 -> `"17:00"`."""
    return f"{total // 60:02}:{total % 60:02}"


def days_text(days: Iterable[int]) -> str:
    """(0, 1, 2) -> `"mon,tue,wed"`."""
    return ",".join(DAYS[day] for day in days)


def fold(names: list[str]) -> str:
    """Many node names shortly: n01, n02, n03, x -> `n[01-03],x`. Names keep their order."""
    runs: list[tuple[str, str, str]] = []
    for name in names:
        prefix, number = _tail(name)
        if runs and number and _follows(runs[-1], prefix, number):
            runs[-1] = (prefix, runs[-1][1], number)
        else:
            runs.append((prefix, number, number))
    return ",".join(_written(run) for run in _grouped(runs))


def counted(names: Iterable[str]) -> list[str]:
    """Names as people count them, each once: by what stands before their last number, then by that number."""

    def place(name: str) -> tuple[str, int, str]:
        prefix, number = _tail(name)
        return prefix, int(number) if number else -1, name

    return sorted(set(names), key=place)


def _tail(name: str) -> tuple[str, str]:
    """A name and the number at its end; numbers too long for a pattern stay part of the name."""
    prefix = name.rstrip("0123456789")
    number = name[len(prefix) :]
    return (prefix, number) if len(number) <= _LARGEST_NUMBER else (name, "")


def _follows(run: tuple[str, str, str], prefix: str, number: str) -> bool:
    """Whether `number` is the next of a run, written as a pattern would write it."""
    if run[0] != prefix or not run[2] or int(run[2]) + 1 != int(number):
        return False
    padded = run[1][0] == "0" and run[1] != "0"
    return len(number) == len(run[1]) if padded else number[0] != "0"


def _grouped(runs: list[tuple[str, str, str]]) -> list[tuple[str, list[str]]]:
    groups: list[tuple[str, list[str]]] = []
    for prefix, low, high in runs:
        piece = low if low == high else f"{low}-{high}"
        if groups and low and groups[-1][0] == prefix and groups[-1][1] != [""]:
            groups[-1][1].append(piece)
        else:
            groups.append((prefix, [piece]))
    return groups


def _written(group: tuple[str, list[str]]) -> str:
    prefix, pieces = group
    if len(pieces) == 1 and "-" not in pieces[0]:
        return prefix + pieces[0]
    return f"{prefix}[{','.join(pieces)}]"
