"""A unit as a transient scope of systemd: limits, devices and a name that `systemctl` knows.

Comes in: a `Box` with the unit's name and limits. Goes out: a `Containment`; for the agent, whether this node can have
such units and which limits have force here. Called by: boxes (open), supervisor (what the node offers).

In the scope are the shepherd and its ranks. While it is inside, the shepherd hears `systemctl stop` itself. It goes
back to where it came from when nothing else is left, or before all that is left is killed by one write; then systemd
takes the empty scope away. Each move of a process between groups waits for all processors: there are two and no more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import socket

from orchestrator.agent import device_nodes, hierarchies, properties, systemd
from orchestrator.agent.containment import CgroupBox
from orchestrator.agent.plan import Box, Limits

SUFFIX = ".scope"
SPARED = b"-900"  # oom_score_adj of the shepherd: the kernel ends a rank before it
USUAL = b"0"  # of ranks, whatever the agent's own unit has
PROBE_MEMORY = 64 << 20
_PROBED = {"memory": "memory", "pids": "tasks", "cpu": "cores"}
METADATA = "metadata"  # the word for it in a node's facts
_DENIED = (errno.EPERM, errno.EACCES, errno.ECONNREFUSED)
DISCARD = 9  # the port of a service that throws all away (RFC 863)
_DEVICE, _ADDRESS = 1, 2  # what the probe's process can do and should not
# Nodes that root can often open and that are not in the table of shared ones.
_FOREIGN = (
    "/dev/kmsg",
    "/dev/loop-control",
    "/dev/vhost-net",
    "/dev/cpu_dma_latency",
    "/dev/hwrng",
    "/dev/port",
)


class ScopeBox:
    """`shepherd`: this very process, which is to be in the scope; 0 for what is looked at from outside."""

    def __init__(self, box: Box, what: str, shepherd: int) -> None:
        self._box = box
        self._what = what
        self._shepherd = shepherd
        self._before: dict[str, str] = {}  # where to go back to; empty while it is not inside
        self._memory = ""  # the file that counts those whom the kernel killed for memory
        self._group = CgroupBox(box.path, "")

    def create(self) -> None:
        """The scope with this process in it. OSError with systemd's reason."""
        before = hierarchies.groups_of("self")
        limits = self._box.limits
        devices = device_nodes.allowed(limits.minors, limits.devices)
        systemd.start_scope(
            self._box.unit,
            properties.of_unit(limits, self._shepherd, self._what, devices),
            lambda: own_unit() == self._box.unit,
        )
        self._before = before
        self._memory = _memory_file() if limits.memory else ""

    def enter(self) -> None:
        """It is inside; ranks are born with the usual score."""
        _set_oom(USUAL)

    def leave(self) -> None:
        """It stays inside."""
        _set_oom(SPARED)

    def members(self) -> list[int]:
        return [pid for pid in self._group.members() if pid != self._shepherd]

    def kill(self) -> None:
        if self._go_back():
            self._group.kill()
            return
        for pid in self.members():  # the nursery's group is gone with it: one by one, and never this process
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> bool:
        """The empty scope is systemd's to take away. Where the nursery is gone, this process ends soon itself."""
        if self.members():
            return False
        self._go_back()
        return True

    def _go_back(self) -> bool:
        """Whether this process is outside."""
        if self._before and hierarchies.go_back(self._before):
            self._before = {}
        return not self._before

    def starved(self) -> bool:
        """Whether the kernel has killed a process in it because MemoryMax was reached."""
        try:
            with open(self._memory, encoding="ascii") as file:
                counts = dict(line.split() for line in file)
        except (OSError, ValueError):
            return False
        return counts.get("oom_kill", "0") != "0"


def _memory_file() -> str:
    """Of the group that this process is in now."""
    groups = hierarchies.groups_of("self")
    tree = next((name for name in groups if "memory" in name.split(",")), hierarchies.UNIFIED)
    folder = hierarchies.folder_of(tree, groups.get(tree, ""))
    return os.path.join(folder, "memory.oom_control" if tree else "memory.events")


def _set_oom(value: bytes) -> None:
    with contextlib.suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(fd, value)
        finally:
            os.close(fd)


def own_unit() -> str:
    """The systemd unit that this process is in, by its group of version 2."""
    return _unit_of(hierarchies.groups_of("self").get(hierarchies.UNIFIED, ""))


def _unit_of(group: str) -> str:
    return next((part for part in group.split("/") if part.endswith((SUFFIX, ".service"))), "")


def adopt_nursery(pid: int, suffix: str) -> None:
    """Put the nursery into a unit of its own: then nothing that happens to the agent's unit reaches what it forks."""
    name = f"gangline-shepherds{suffix}-{pid}{SUFFIX}"
    systemd.start_scope(
        name,
        properties.of_shepherds(pid),
        lambda: _unit_of(hierarchies.groups_of(pid).get(hierarchies.UNIFIED, "")) == name,
    )


def units_in(base: str, suffix: str) -> list[str]:
    """Names of attempts' units, without what follows them, in which something lives."""
    wanted = re.compile(r"(gangline-[1-9]\d*-[1-9]\d*)" + re.escape(suffix + SUFFIX))
    try:
        found = [match[1] for match in map(wanted.fullmatch, os.listdir(base)) if match]
    except OSError:
        return []
    return [name for name in found if CgroupBox(os.path.join(base, name + suffix + SUFFIX), "").members()]


# --- what this node offers -------------------------------------------------------------------------------------


def probe(closed: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
    """Make a unit for a moment: the folder in which units lie, and the limits that have no force on this node;
    `metadata` among them if its processes reach one of the addresses in `closed`.

    OSError with the reason if that can't be done.
    """
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os._exit(_try(ready, closed))
    os.close(ready)
    try:
        folder, missing = _probe(pid, closed)
    finally:
        os.close(go)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code & _DEVICE:
        missing = (*missing, "devices")
    if code & _ADDRESS:
        missing = (*missing, METADATA)
    return os.path.dirname(folder), missing


def _probe(pid: int, closed: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    name = f"gangline-probe-{pid}{SUFFIX}"

    def inside() -> bool:
        return _unit_of(hierarchies.groups_of(pid).get(hierarchies.UNIFIED, "")) == name

    wanted = Limits(memory=PROBE_MEMORY, cores=1, closed=closed)
    systemd.start_scope(
        name, properties.of_unit(wanted, pid, "Gangline looks at what units can do", ()), inside
    )
    groups = hierarchies.groups_of(pid)
    if not inside():
        raise OSError(0, "a unit of systemd has no control group of version 2 here", name)
    folder = hierarchies.folder_of(hierarchies.UNIFIED, groups[hierarchies.UNIFIED])
    with open(os.path.join(folder, "cgroup.controllers"), encoding="ascii") as file:
        forced = set(file.read().split())
    for tree, group in groups.items():
        if tree and _unit_of(group) == name:
            forced |= set(tree.split(","))
    return folder, tuple(word for controller, word in _PROBED.items() if controller not in forced)


def _try(ready: int, closed: tuple[str, ...]) -> int:
    """In the probe's process: whether it can open a node that its unit does not allow, or reach a closed address."""
    mine = next((path for path in _FOREIGN if _opens(path)), "")
    os.read(ready, 1)  # until the unit is there
    device = _DEVICE if mine and _opens(mine) else 0
    return device | (_ADDRESS if any(reaches(address) for address in closed) else 0)


def reaches(address: str) -> bool:
    """Whether this process may send to an address, or may be able to later: only a refusal counts, or that there is no
    IPv6 at all. A datagram says so at once, whoever is there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", (address, DISCARD))
    except OSError as error:
        return error.errno not in _DENIED and family == socket.AF_INET
    return True


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
