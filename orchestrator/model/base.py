"""The base of Gangline's enums, the same on Python 3.10 and later.

Comes in: nothing. Goes out: `Word`, an enum whose members are their own text. Called by: every module of the
model that names a closed set of words.
"""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """A closed set of words; a member prints, compares and encodes as its text (3.11's StrEnum, for 3.10)."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(str(self.value), spec)
