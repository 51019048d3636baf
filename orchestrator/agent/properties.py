"""PURE: from an allocation's limits to the properties of its systemd unit.

Comes in: `Limits`, the device nodes that may be opened. Goes out: properties as D-Bus wants them, each with its type.
Called by: scope.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable
from typing import Any

from orchestrator.agent.plan import Limits

Property = tuple[str, tuple[str, Any]]

SLICE = "gangline.slice"
USECS = 1_000_000

# A whole node of data loaders has some ten thousand threads (192 cores, 8 ranks, 16 workers each). systemd's own
# default is 15 % of what the kernel allows, which can be less on a small pid_max. A fork bomb still meets a bound.
TASKS_MAX = 1 << 17
# CPUWeight goes from 1 to 10,000 (kernel: cgroup-v2, cpu.weight). Ten a core: a node of 1,000 cores still fits.
WEIGHT_PER_CORE = 10
MOST_WEIGHT = 10_000
# What `systemctl stop` and a shutdown send. Ranks ignore it, and only the shepherd acts: by the job's own stop signal
# and grace.
STOP_SIGNAL = signal.SIGCONT
SLACK_S = 15  # beyond the job's grace, before systemd kills what is left itself


def of_unit(limits: Limits, pid: int, what: str, devices: Iterable[str]) -> list[Property]:
    """All properties of the unit in which the process `pid` is to be.

    Cores are a share, not a set: an allocation names how many it has and not which, so jobs may use idle cores and
    get their part where all are busy. Memory has a hard end and no MemoryHigh below it: a job that needs a little more
    than it asked for should die with a clear reason, not crawl through reclaim with eight GPUs waiting. What may be
    locked in memory has no bound (the shepherd sets that).
    """
    found: list[Property] = [
        ("Description", ("s", what)),
        ("Slice", ("s", SLICE)),
        ("PIDs", ("au", [pid])),
        ("Delegate", ("b", True)),  # groups that a job makes below it are none of systemd's business
        ("CollectMode", ("s", "inactive-or-failed")),
        ("KillMode", ("s", "control-group")),
        ("KillSignal", ("i", int(STOP_SIGNAL))),
        ("TimeoutStopUSec", ("t", (limits.stop_s + SLACK_S) * USECS)),
        ("After", ("as", ["remote-fs.target"])),  # a shutdown stops it before its folders go
        ("TasksMax", ("t", TASKS_MAX)),
        ("DevicePolicy", ("s", "closed")),
        ("DeviceAllow", ("a(ss)", [(path, "rw") for path in devices])),
    ]
    if limits.closed:
        found.append(("IPAddressDeny", ("a(iayu)", [_whole(address) for address in limits.closed])))
    if limits.cores:
        found.append(("CPUWeight", ("t", max(1, min(MOST_WEIGHT, limits.cores * WEIGHT_PER_CORE)))))
    if limits.memory:
        found += [("MemoryMax", ("t", limits.memory)), ("MemorySwapMax", ("t", 0))]
    return found


def _whole(address: str) -> tuple[int, bytes, int]:
    """One address as systemd has it: family, bytes, length of the prefix."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    return int(family), packed, len(packed) * 8


def of_shepherds(pid: int) -> list[Property]:
    """Of the unit that holds the nursery and idle shepherds, so that none of them is in the agent's own unit."""
    return [
        ("Description", ("s", "Gangline's nursery of shepherds")),
        ("Slice", ("s", SLICE)),
        ("PIDs", ("au", [pid])),
        ("CollectMode", ("s", "inactive-or-failed")),
        ("TasksMax", ("t", TASKS_MAX)),
    ]
