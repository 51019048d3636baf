"""What runs on this machine that the testbed started: one folder with a record per bed, so that later runs can tidy up.

Comes in: beds that come and go. Goes out: `Record`s, whose owner is dead or not; a lock over all beds. Called by: bed.
A bed whose owner is dead is swept; one made by hand has no owner and stays until `down`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.testbed import base


@dataclass(slots=True)
class Record:
    """`owner`: `pid.start` of the process whose bed it is, or empty; `before`: kernel settings before any bed."""

    name: str
    number: int
    owner: str
    boot: str
    before: dict[str, int]
    hosts: dict[str, tuple[int, str]] = field(default_factory=dict)  # name -> index, release

    @property
    def folder(self) -> Path:
        """Disks, keys and console logs of the bed."""
        return beds() / self.name

    def write(self) -> None:
        """Replace the record at once."""
        draft = self.folder / f".bed.json.{os.getpid()}"
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(self.folder / "bed.json")

    def abandoned(self) -> bool:
        """Whether nobody can use it any more: its owner is dead, or this machine has booted since."""
        if self.boot != boot_id():
            return True
        return bool(self.owner) and self.owner != process_mark(int(self.owner.partition(".")[0]))


def beds() -> Path:
    """The folder of all beds of this machine."""
    return base.cache() / "beds"


def read(name: str) -> Record | None:
    """The record of a bed, or None; one that another version of the testbed wrote is left alone too."""
    with suppress(FileNotFoundError, KeyError, TypeError, ValueError):
        plain = json.loads((beds() / name / "bed.json").read_text())
        plain["hosts"] = {
            host: (int(index), str(release)) for host, (index, release) in plain["hosts"].items()
        }
        return Record(**plain)
    return None


def everyone() -> list[Record]:
    """All beds that have a record, by name."""
    found = [read(path.parent.name) for path in sorted(beds().glob("*/bed.json"))]
    return [record for record in found if record is not None]


@contextmanager
def locked() -> Iterator[None]:
    """Alone among all runs on this machine: to make, sweep or end a bed."""
    beds().mkdir(parents=True, exist_ok=True)
    with (beds() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def boot_id() -> str:
    """What changes when this machine boots."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def process_mark(pid: int) -> str:
    """`pid.start`, which no later process of that id has; empty if there is none or it is a zombie."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if words[0] not in "ZX":
            return f"{pid}.{words[19]}"
    return ""
