"""The control group trees of this machine: where each is mounted and where a process stands in it.

Comes in: /proc. Goes out: folders. Called by: containment (version 2), scope (all trees: a process that leaves a
systemd unit must leave it in each).

A machine has one tree of version 2 (unified), or several of version 1 with their controllers and perhaps one of
version 2 beside them for tracking alone (hybrid). Trees are named as in /proc/PID/cgroup: by controllers,
`name=systemd`, or empty for version 2.
"""

from __future__ import annotations

import os
from functools import lru_cache

UNIFIED = ""


@lru_cache(maxsize=1)
def mounts() -> dict[str, tuple[str, str]]:
    """By tree: the folder where it is mounted, and which of its groups lies there."""
    found: dict[str, tuple[str, str]] = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            head, _, tail = line.partition(" - ")
            kind = tail.split(" ", 1)[0]
            if kind not in ("cgroup", "cgroup2"):
                continue
            words = head.split(" ")
            place = (words[4].replace("\\040", " "), words[3])
            for name in [UNIFIED] if kind == "cgroup2" else tail.split(" ")[2].strip().split(","):
                found.setdefault(name, place)
    return found


def folder_of(tree: str, group: str) -> str:
    """The folder of a group as /proc/PID/cgroup names it; empty where its tree is not mounted."""
    place = mounts().get(tree.partition(",")[0])
    if place is None:
        return ""
    mount, root = place
    inside = group[len(root) :] if root != "/" and group.startswith(root) else group
    return os.path.join(mount, inside.lstrip("/")).rstrip("/")


def groups_of(pid: int | str) -> dict[str, str]:
    """The group of a process in each tree; none if the process is gone."""
    found: dict[str, str] = {}
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
            for line in file:
                _, tree, group = line.rstrip("\n").split(":", 2)
                found[tree] = group
    except OSError:
        pass
    return found


def go_back(before: dict[str, str]) -> bool:
    """Move the calling process to the groups of `before`, wherever it is in others now; False if one of them is gone.

    Version 2 comes last: by it systemd sees that a unit is empty.
    """
    now = groups_of("self")
    moved = True
    for tree in sorted(before, reverse=True):
        folder = folder_of(tree, before[tree])
        if before[tree] == now.get(tree) or not folder:
            continue
        try:
            with open(os.path.join(folder, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write("0")
        except OSError:
            moved = False
    return moved
