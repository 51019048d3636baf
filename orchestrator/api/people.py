"""POSIX users of the controller's host: names, numbers, groups.

Comes in: names and uids. Goes out: `Person`, or None for one that the host does not know. Called by: access.

A name service may be a directory server that is slow today: look-ups run in a thread of their own, and answers are kept
for a minute (unknown ones for a few seconds).
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.model.clock import SECOND, Clock
from orchestrator.model.job import Owner

K = TypeVar("K")
V = TypeVar("V")

KNOWN_S = 60
UNKNOWN_S = 5
MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Person:
    """A user: as whom jobs run, and the names of the groups."""

    owner: Owner
    groups: tuple[str, ...] = ()


def look_up(name: str) -> Person | None:
    """Ask the host's name service; None if it knows no such user."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: a NUL inside
        return None
    numbers = tuple(sorted(os.getgrouplist(entry.pw_name, entry.pw_gid)))
    owner = Owner(entry.pw_name, entry.pw_uid, entry.pw_gid, numbers)
    return Person(owner, tuple(filter(None, map(_group_name, numbers))))


def name_of(uid: int) -> str:
    """The name of a uid, or empty."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


class People:
    """Look-ups with a memory. `look` and `name` are replaced in tests."""

    def __init__(
        self,
        clock: Clock,
        look: Callable[[str], Person | None] = look_up,
        name: Callable[[int], str] = name_of,
    ) -> None:
        self._clock = clock
        self._look = look
        self._name = name
        self._people: dict[str, tuple[int, Person | None]] = {}
        self._names: dict[int, tuple[int, str]] = {}
        self._thread = ThreadPoolExecutor(1, "names")

    def close(self) -> None:
        """Let the thread end; a look-up that hangs is left behind."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def person(self, name: str) -> Person | None:
        """The user of that name, or None."""
        kept = self._people.get(name)
        if kept is not None and kept[0] > self._clock.monotonic_us():
            return kept[1]
        found = await asyncio.get_running_loop().run_in_executor(self._thread, self._look, name)
        _keep(self._people, name, (self._until(found is not None), found))
        return found

    async def name_of(self, uid: int) -> str:
        """The name of a uid, or empty."""
        kept = self._names.get(uid)
        if kept is not None and kept[0] > self._clock.monotonic_us():
            return kept[1]
        found = await asyncio.get_running_loop().run_in_executor(self._thread, self._name, uid)
        _keep(self._names, uid, (self._until(bool(found)), found))
        return found

    def _until(self, known: bool) -> int:
        return self._clock.monotonic_us() + (KNOWN_S if known else UNKNOWN_S) * SECOND


def _keep(table: dict[K, V], key: K, value: V) -> None:
    if len(table) >= MOST_KEPT:
        table.clear()
    table[key] = value
