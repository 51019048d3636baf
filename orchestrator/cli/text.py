"""How numbers, times and names look to people.

Comes in: base units (seconds, bytes, times in UTC) and texts of others. Goes out: short words, with whatever could
drive a terminal made visible. Called by: every command that prints.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime

from orchestrator.model import units

# DEL and C1 controls, and what Unicode calls formats (category Cf) and separators of lines: they reorder text, hide in
# it, or move a cursor. JSON and YAML may hold them as they are.
LOUD = (
    "\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f"
)
_UNSAFE = re.compile(f"[\x00-\x1f{LOUD}]")


def safe(text: str) -> str:
    """The text on one line, with control characters written as escapes."""
    return _UNSAFE.sub(_escape, text)


def safe_lines(text: str) -> str:
    """Like `safe`, but lines stay lines and tabs stay tabs."""
    return "\n".join("\t".join(safe(part) for part in line.split("\t")) for line in text.split("\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    short = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    return short or (f"\\x{code:02x}" if code < 0x100 else escape(found))


def escape(found: re.Match[str]) -> str:
    """One character as YAML and Python write it in a quoted text."""
    code = ord(found.group())
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def width(text: str) -> int:
    """Columns that the text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def middle(text: str, most: int) -> str:
    """The text cut in its middle to at most `most` columns: `pretrain…v7`."""
    if width(text) <= most:
        return text
    if most < 3:
        return _take(text, most)
    tail = (most - 1) // 2
    head = most - 1 - tail
    return _take(text, head) + "…" + _take(text[::-1], tail)[::-1]


def _take(text: str, most: int) -> str:
    used = 0
    for index, char in enumerate(text):
        used += _columns(char)
        if used > most:
            return text[:index]
    return text


def span(seconds: float) -> str:
    """A length of time in at most two units: `8s`, `3m05s`, `2h10m`, `3d4h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def ago(then: datetime | None, now: datetime) -> str:
    """How long ago, or `-` for what has not happened."""
    return span((now - then).total_seconds()) if then is not None else "-"


def left(then: datetime | None, now: datetime) -> str:
    """How long until then, or `-`."""
    return span((then - now).total_seconds()) if then is not None else "-"


def instant(then: datetime | None) -> str:
    """UTC, ISO 8601, to the second; `-` for what has not happened."""
    return then.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if then is not None else "-"


def now() -> datetime:
    """The time of this machine, with its zone."""
    return datetime.now(UTC)


_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: int) -> str:
    """Bytes in the unit that a person would use: `960GiB`, `1.5TiB`, `-` for none."""
    if count <= 0:
        return "-"
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    shown = f"{value:.1f}".removesuffix(".0") if value < 100 else f"{value:.0f}"
    return f"{shown}{_SIZES[unit]}"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 node`, `4 nodes`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


LINE = 96  # columns of running text


def wrap(text: str, following: str = "  ", most: int = LINE) -> str:
    """Running text in lines that fit a terminal; those after the first begin with `following`."""
    from textwrap import fill

    return fill(text, most, subsequent_indent=following, break_long_words=False, break_on_hyphens=False)


def fitted(text: str, most: int) -> str:
    """Lines that stand in columns, each broken between words where it is too wide, and what follows deeper than it
    begins; as they are where `most` is 0, which is no terminal."""
    if not most:
        return text
    lines = []
    for line in text.split("\n"):
        deep = " " * (len(line) - len(line.lstrip()) + 6)
        lines.append(wrap(line, deep, most) if width(line) > most else line)
    return "\n".join(lines)


def indent(text: str, by: str = "  ") -> str:
    """Each line of the text moved to the right."""
    return "\n".join(by + line for line in text.splitlines())


def thousandths(milli: int) -> str:
    """`2.5` for 2500; a whole number where it is one."""
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")


def fold(numbers: list[int]) -> str:
    """Whole numbers as ranges: [0, 1, 2, 5] -> `0-2,5`."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    start = 0
    for index, number in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != number + 1:
            first = ordered[start]
            parts.append(str(first) if first == number else f"{first}-{number}")
            start = index + 1
    return ",".join(parts)


def fold_names(names: Iterable[str]) -> str:
    """Names of nodes shortly, whatever their order: `node-3, node-1, node-2` -> `node-[1-3]`."""
    return units.fold(units.counted(names))


def fold_models(devices: list[tuple[str, bool]]) -> str:
    """GPU models, each once, with `emulated` before those that exist on paper only."""
    names = dict.fromkeys(
        f"emulated {model}" if emulated and model != "emulated" else model for model, emulated in devices
    )
    return ", ".join(names)
