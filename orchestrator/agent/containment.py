"""How a unit's processes are kept together, so that all of them can be found, killed and proved gone.

Comes in: folders and marks of the plan's `Box`. Goes out: a `Containment` with one contract. Called by: boxes (opens
one for shepherd and mop), supervisor (what this node offers, and what is left of units that the agent does not know).

`systemd`: see scope. `cgroup2`: the unit is a control group; nothing without root can leave it. `process-tree`: the
shepherd is the subreaper of all that its ranks leave behind, so that "no child left" is the proof; when the shepherd
was killed, its processes are found by GANGLINE_UNIT in their environment, by the groups of the ranks, and by descent.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import Protocol

from orchestrator.agent import hierarchies, procfs
from orchestrator.agent.procfs import Traces
from orchestrator.model.ids import AttemptId, parse_unit

TRIES = 5
ROOT_GROUP = "gangline"  # all agents' control groups lie below one folder


class Containment(Protocol):
    """The contract of a unit's box."""

    def create(self) -> None:
        """Make it, before any process exists."""

    def enter(self) -> None:
        """Move the calling process in, so that what it starts is born inside."""

    def leave(self) -> None:
        """Move the calling process out again."""

    def members(self) -> list[int]:
        """Living processes inside."""

    def kill(self) -> None:
        """SIGKILL to all inside."""

    def remove(self) -> bool:
        """Take it away; False while something is inside."""

    def starved(self) -> bool:
        """Whether the kernel has killed one inside because the unit reached its bound of memory."""


class CgroupBox:
    """A control group (version 2) of its own."""

    def __init__(self, path: str, home: str) -> None:
        self._path = path
        self._home = home

    def create(self) -> None:
        os.makedirs(self._path, exist_ok=True)

    def enter(self) -> None:
        for _ in range(TRIES):
            try:
                _write(os.path.join(self._path, "cgroup.procs"), b"0")
                return
            except (
                OSError
            ) as error:  # an agent that starts takes empty groups away, and this one was still empty
                if error.errno not in (errno.ENOENT, errno.ENODEV):
                    raise
            self.create()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._path)

    def leave(self) -> None:
        _write(os.path.join(self._home, "cgroup.procs"), b"0")

    def members(self) -> list[int]:
        found: list[int] = []
        for folder in _tree(self._path):
            found += _pids_in(folder)
        return sorted(found)

    def kill(self) -> None:
        try:
            _write(os.path.join(self._path, "cgroup.kill"), b"1")
        except FileNotFoundError:  # before Linux 5.14, or the group is gone
            for pid in self.members():
                _kill(pid)

    def remove(self) -> bool:
        try:
            os.rmdir(self._path)
        except FileNotFoundError:
            return True
        except OSError:
            return self._remove_nested()
        return True

    def starved(self) -> bool:
        """It has no bound."""
        return False

    def _remove_nested(self) -> bool:
        """Groups that the job made inside its own hold the folder although nothing lives there."""
        if self.members():
            return False
        try:
            for folder in reversed(_tree(self._path)):
                os.rmdir(folder)
        except FileNotFoundError:
            return not os.path.exists(self._path)
        except OSError:
            return False
        return True


class TreeBox:
    """No control group: the children of the shepherd, or what can be recognised when it is gone."""

    def __init__(self, mark: str, traces: Traces, shepherd: int) -> None:
        self._mark = f"GANGLINE_UNIT={mark}"
        self._traces = traces
        self._shepherd = shepherd  # this very process as subreaper, or 0

    def create(self) -> None:
        """Nothing to make: the mark is in the environment of the ranks."""

    def enter(self) -> None:
        """Children belong to it by birth."""

    def leave(self) -> None:
        """See `enter`."""

    def members(self) -> list[int]:
        if self._shepherd:
            return procfs.descendants(self._shepherd)
        return procfs.family(self._mark, self._traces)

    def kill(self) -> None:
        for pid in self.members():
            _kill(pid)

    def remove(self) -> bool:
        """For the shepherd, which is the subreaper, having no child is the proof, and it asks that before this."""
        return True if self._shepherd else not self.members()

    def starved(self) -> bool:
        """It has no bound."""
        return False


# --- what this node offers -------------------------------------------------------------------------------------


def own_group() -> str:
    """The folder of the control group (version 2) that this process is in, or empty."""
    group = hierarchies.groups_of("self").get(hierarchies.UNIFIED, "")
    return hierarchies.folder_of(hierarchies.UNIFIED, group) if group else ""


def find_base(place: str) -> str:
    """Make the folder for this agent's units and prove that a process can be put there; empty if not."""
    home = own_group()
    if not home:
        return ""
    base = os.path.join(home, ROOT_GROUP, place)
    probe = os.path.join(base, f"probe-{os.getpid()}")
    try:
        os.makedirs(probe)
        _prove(probe)
        os.rmdir(probe)
    except OSError:
        return ""
    return base


def drop_base(base: str) -> None:
    """Leave no empty folder behind when the agent ends and nothing runs. The one above belongs to other agents too."""
    try:
        if base:
            os.rmdir(base)
    except OSError:
        pass  # units live


def _prove(folder: str) -> None:
    """A child of ours enters the group and ends; OSError if it may not."""
    pid = os.fork()
    if pid == 0:
        try:
            _write(os.path.join(folder, "cgroup.procs"), b"0")
            os._exit(0)
        except OSError:
            os._exit(1)
    if os.waitpid(pid, 0)[1] != 0:
        os.rmdir(folder)
        raise PermissionError(folder)


def units_on_node(base: str, place: str) -> list[AttemptId]:
    """Attempts of this agent that have something on the node, whatever the records say."""
    names = _busy_groups(base) if base else _marked_names(place)
    return sorted(parse_unit(name) for name in names if name.startswith("gangline-"))


def _busy_groups(base: str) -> list[str]:
    """Those that something lives in; empty ones are taken away."""
    try:
        names = os.listdir(base)
    except OSError:
        return []
    return [name for name in names if not CgroupBox(os.path.join(base, name), "").remove()]


def _marked_names(place: str) -> set[str]:
    """From GANGLINE_UNIT=UNIT@PLACE in the environment of processes."""
    values = procfs.values_of(b"GANGLINE_UNIT=")
    return {unit for unit, _, where in (value.partition("@") for value in values) if where == place}


def _tree(top: str) -> list[str]:
    """`top` and every group below it, parents first."""
    return [folder for folder, _, _ in os.walk(top)]


def _pids_in(folder: str) -> list[int]:
    try:
        with open(os.path.join(folder, "cgroup.procs"), encoding="ascii") as file:
            return [int(line) for line in file]
    except OSError:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
