"""What /proc says of processes: who descends from whom, who carries a mark, in which state one is.

Comes in: process ids, marks. Goes out: process ids and words for people. Called by: containment, the gate, the
daemon (identity of a worker).
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/PID/stat that matter here. `start` is in clock ticks since boot: with pid an identity."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    start: int

    @property
    def alive(self) -> bool:
        """Whether it can still do something: a zombie only waits to be read."""
        return self.state not in "ZX"


def stat(pid: int) -> Stat | None:
    """What the kernel says of `pid`, or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")
    words = tail.split()
    name = head.partition("(")[2]
    return Stat(pid, name, words[0], int(words[1]), int(words[2]), int(words[3]), int(words[19]))


def start_of(pid: int) -> int:
    """When `pid` started, in ticks since boot; 0 if there is none."""
    found = stat(pid)
    return found.start if found else 0


def all_stats() -> list[Stat]:
    """Every process that can be seen, zombies left out."""
    found = (stat(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return [each for each in found if each is not None and each.alive]


def environment(pid: int) -> list[bytes]:
    """The variables that `pid` was started with, NAME=VALUE; none where they can't be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def values_of(prefix: bytes) -> set[str]:
    """The values of one variable over all living processes; `prefix` is its name and the equals sign."""
    return {
        line[len(prefix) :].decode(errors="replace")
        for each in all_stats()
        for line in environment(each.pid)
        if line.startswith(prefix)
    }


@dataclass(frozen=True, slots=True)
class Traces:
    """By what the processes of a dead shepherd can be recognised, besides their mark.

    `roots`: its ranks. `since` (ticks since boot) keeps a process apart that got the number of an old one. `heir`:
    the subreaper that inherits what a shepherd leaves; what lives there and is none of `siblings` was left by one.
    """

    roots: frozenset[int] = frozenset()
    since: int = 0
    heir: int = 0
    siblings: frozenset[int] = frozenset()


def family(mark: str, traces: Traces) -> list[int]:
    """Processes with the mark, those in a group or session led by a root, those that the heir got, and all that
    descend from them."""
    me = os.getpid()
    my_start = start_of(me)
    stats = all_stats()
    wanted = mark.encode()
    found = {each.pid for each in stats if wanted in environment(each.pid)}
    young = [each for each in stats if each.start >= traces.since]
    found |= {each.pid for each in young if {each.pid, each.group, each.session} & traces.roots}
    if traces.heir > 1:  # what is younger than this process may be a new worker of the heir
        found |= {
            each.pid for each in young if each.parent == traces.heir and each.start < my_start
        } - traces.siblings
    found.discard(me)
    size = -1
    while size != len(found):
        size = len(found)
        found |= {each.pid for each in young if each.parent in found and each.pid != me}
    return sorted(found)


def descendants(root: int) -> list[int]:
    """All living processes below `root`."""
    children: dict[int, list[int]] = {}
    for each in all_stats():
        children.setdefault(each.parent, []).append(each.pid)
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return sorted(found)


def describe(pids: list[int]) -> str:
    """Pids with their names, states and where they wait in the kernel, for an error that people read."""
    return ", ".join(_describe(pid) for pid in pids)


def _describe(pid: int) -> str:
    found = stat(pid)
    if found is None:
        return f"{pid} (gone)"
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii") as file:
            where = file.read().strip()
    except OSError:
        where = ""
    waiting = f" in {where}" if where and where != "0" else ""
    return f"{pid} ({found.name}) state {found.state}{waiting}"
