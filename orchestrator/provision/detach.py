"""A program that becomes another one, in a session of its own, after writing down who it is.

Comes in: RECORD LOG FOLDER COMMAND ARGUMENT… Goes out: RECORD with its process id, then COMMAND in this very process,
with its output in LOG. Called by: `daemons` (as `python3 -I -S detach.py …`); standard library only.

The record is there before the program is: whoever is killed while starting something can find it again.
"""

from __future__ import annotations

import json
import os
import sys


def main(argv: list[str]) -> None:
    """Never returns."""
    record, log, folder, *command = argv
    os.setsid()
    os.umask(
        0o077
    )  # whatever it was where the person typed: tokens and jobs' variables lie in what it writes
    os.chdir(folder)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.closerange(3, 64)
    draft = f"{record}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:  # noqa: PTH123 - this program starts in milliseconds, pathlib costs some
        json.dump({"pid": os.getpid(), "start": start_ticks(), "boot": boot_id(), "argv": command}, file)
    os.replace(draft, record)  # noqa: PTH105
    try:
        os.execv(command[0], command)  # noqa: S606 - becoming that program is what this one is for
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(127)


def start_ticks(pid: str | int = "self") -> int:
    """When the process started, in clock ticks since boot: with its id this names a process for ever (proc(5))."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return int(file.read().rpartition(")")[2].split()[19])


def boot_id() -> str:
    """Which boot of the machine this is."""
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:  # noqa: PTH123
        return file.read().strip()


if __name__ == "__main__":
    main(sys.argv[1:])
