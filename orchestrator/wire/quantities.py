"""Quantities as people write them, in integers: durations, sizes, watts, dollars, times of day.

Comes in: texts and numbers of a document. Goes out: seconds, bytes, watts, micro-dollars, per mille, minutes; or None
if the text is no such quantity (the leaf that asked names the fault). The way back is `model.units`. Called by: the
leaves of `wire`, cli arguments.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from orchestrator.model.units import (
    DAYS,
    SIZE_POWERS,
    day_time_text,
    days_text,
    seconds_text,
    size_text,
    unscaled,
)

__all__ = [  # what is read here is written there
    "DAYS",
    "DAYS_PATTERN",
    "DURATION_PATTERN",
    "MOST_BYTES",
    "MOST_SECONDS",
    "SIZE_PATTERN",
    "TIME_PATTERN",
    "day_time_text",
    "days_of_week",
    "days_text",
    "minutes_of_day",
    "scaled",
    "seconds",
    "seconds_text",
    "size_bytes",
    "size_text",
    "unscaled",
]

LONGEST_TEXT = 64  # characters of a quantity; longer ones are no quantity
MOST_SECONDS = 100 * 366 * 86400  # a century; keeps every sum of times far inside 64 bits
MOST_BYTES = 2**60

_UNITS_S = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(
    r"(?:(\d{1,9})w)?(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII
)
_SIZE = re.compile(r"(\d{1,19})(B|[kKMGTP]B|[KMGTP]iB)", re.ASCII)
_DAY_TIME = re.compile(r"([01]\d|2[0-4]):([0-5]\d)", re.ASCII)

DURATION_PATTERN = r"^(?=.)([0-9]{1,9}w)?([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?$"
SPAN_PATTERN = DURATION_PATTERN.replace("(?=.)", "(?=.*[1-9])")  # at least a second
SIZE_PATTERN = r"^[0-9]{1,19}(B|[kKMGTP]B|[KMGTP]iB)$"
TIME_PATTERN = r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"
_DAY = "(mon|tue|wed|thu|fri|sat|sun)"
DAYS_PATTERN = f"^{_DAY}(-{_DAY})?(, *{_DAY}(-{_DAY})?)*$"


def seconds(text: str) -> int | None:
    """`"1h30m"` -> 5400. Units w, d, h, m, s in that order, each at most once."""
    found = _DURATION.fullmatch(text) if 0 < len(text) <= LONGEST_TEXT else None
    if not found:
        return None
    total = sum(
        int(count) * size for count, size in zip(found.groups(), _UNITS_S.values(), strict=True) if count
    )
    return total if total <= MOST_SECONDS else None


def size_bytes(text: str) -> int | None:
    """`"960GiB"` -> 960 * 2**30; `"80GB"` -> 80 * 10**9."""
    found = _SIZE.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if not found:
        return None
    number, unit = int(found.group(1)), found.group(2)
    base = 1024 if unit.endswith("iB") else 1000
    total = number * int(base ** SIZE_POWERS[unit.rstrip("iB").upper()])
    return total if total <= MOST_BYTES else None


def scaled(number: int | float, scale: int) -> int | None:
    """`number * scale` if that is a whole number as written: 0.18 dollars -> 180000 micro-dollars.

    None for infinities, NaN and digits beyond the scale (0.0000001 dollars).
    """
    try:
        exact = Decimal(str(number)) * scale
        whole = int(exact)
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return whole if whole == exact else None


def minutes_of_day(text: str) -> int | None:
    """`"17:00"` -> 1020; `"24:00"` -> 1440."""
    found = _DAY_TIME.fullmatch(text)
    if not found:
        return None
    total = int(found.group(1)) * 60 + int(found.group(2))
    return total if total <= 1440 else None


def days_of_week(text: str) -> tuple[int, ...] | None:
    """`"mon-fri"` -> (0, 1, 2, 3, 4); `"sat,mon"` -> (0, 5); ranges may pass Sunday (`fri-mon`)."""
    if len(text) > LONGEST_TEXT or not re.fullmatch(DAYS_PATTERN, text) or text.endswith("\n"):
        return None
    days: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        start, end = DAYS.index(first), DAYS.index(last if dash else first)
        days |= {(start + step) % 7 for step in range((end - start) % 7 + 1)}
    return tuple(sorted(days))
