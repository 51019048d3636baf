"""What the host is: its boot, its cores, its memory, its names.

Comes in: /proc, /etc, the process's own rights. Goes out: plain values. Called by: facts.
"""

from __future__ import annotations

import os
import pwd
import socket


def boot_id() -> str:
    """The kernel's name for this boot: another one means that every process of before is gone."""
    return _read("/proc/sys/kernel/random/boot_id")


def machine_id() -> str:
    """The installation's own id; empty where there is none."""
    return _read("/etc/machine-id")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Memory of the machine as the kernel counts it."""
    for line in _read("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * 1024  # the file says kB and means KiB
    return 0


def user_name() -> str:
    """The name of this process's user, or its number where it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def hostname() -> str:
    """As the kernel has it."""
    return socket.gethostname()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
