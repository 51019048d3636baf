"""Control groups of a bed: each host sits in one of its own in every hierarchy, so that hosts never meet in one.

Comes in: a path such as `gangline-bed-t1/h1`. Goes out: the shell lines that enter it, its processes, their end, the
freezer, memory in use. Called by: machine, bed.

systemd-nspawn alone would put all hosts into one group `/payload`, where one host's systemd ends another one's units,
and would leave limits without force. Whatever a host runs stays below its group: nothing is ever found by name.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

# cpuset of version 1 stays out: a new group there has no processor until somebody gives it one.
SKIPPED = frozenset({"cpuset"})
GONE_S = 20.0
FROZEN_S = 5.0
TICK_S = 0.01


@cache
def hierarchies() -> dict[str, Path]:
    """Mount points by controller (`memory`, `freezer`, `name=systemd`); version 2 as ``."""
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(maxsplit=2)
        place = Path(left.split()[4])
        if kind == "cgroup2":
            found[""] = place
        elif kind == "cgroup":
            names = [name for name in options.split(",") if name not in ("rw", "ro", "xattr")]
            found.update(dict.fromkeys((name for name in names if name not in SKIPPED), place))
    return found


class Group:
    """One group, in all hierarchies alike."""

    def __init__(self, path: str) -> None:
        self.path = path

    def folders(self) -> list[Path]:
        """Its folder in each hierarchy."""
        return [place / self.path for place in dict.fromkeys(hierarchies().values())]

    def make(self) -> None:
        """Make it everywhere; in a version 2 tree, hand its parents' controllers down."""
        for folder in self.folders():
            folder.mkdir(parents=True, exist_ok=True)
        if "" in hierarchies():
            _hand_down(hierarchies()[""], Path(self.path))

    def enter(self) -> str:
        """Shell lines by which a shell or a subshell enters it."""
        return "\n".join(f"echo 0 > '{folder}/cgroup.procs'" for folder in self.folders())

    def pids(self) -> set[int]:
        """Every process in it and below; they come and go."""
        return {pid for folder in self.folders() for pid in _pids(folder)}

    def kill(self) -> None:
        """End every process in it, at once and for sure; the group itself goes too.

        They stand still until each has its signal: as with a power cut, none sees another one's end.
        """
        end = time.monotonic() + GONE_S
        self._stand_still()
        while found := self.pids():
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.freeze(False)
            if time.monotonic() > end:
                raise TimeoutError(f"processes {sorted(found)} of {self.path} outlive SIGKILL")
            time.sleep(TICK_S)
        for folder in self.folders():
            _remove(folder, end)

    def freeze(self, on: bool) -> None:
        """Stop all its processes where they are, or let them go on."""
        knob, _ = self._freezer()
        word = str(int(on)) if knob.name == "cgroup.freeze" else ("FROZEN" if on else "THAWED")
        with suppress(FileNotFoundError):
            knob.write_text(word)

    def _freezer(self) -> tuple[Path, str]:
        """The file that freezes, and what is told once all of it is frozen."""
        places = hierarchies()
        if "freezer" in places:
            return places["freezer"] / self.path / "freezer.state", "FROZEN"
        return places.get("", Path("/nonexistent")) / self.path / "cgroup.freeze", "frozen 1"

    def _stand_still(self) -> None:
        """Freeze, and wait until all are. One that the kernel holds up can't see another one's end meanwhile either."""
        self.freeze(True)
        end = time.monotonic() + FROZEN_S
        while not self._frozen() and time.monotonic() < end:
            time.sleep(TICK_S)

    def _frozen(self) -> bool:
        knob, on = self._freezer()
        told = knob.with_name("cgroup.events") if knob.name == "cgroup.freeze" else knob
        with suppress(FileNotFoundError):
            return on in told.read_text()
        return True

    def memory(self) -> int:
        """Bytes in use, page cache included; 0 where no hierarchy counts them."""
        places = hierarchies()
        for name, file in (("memory", "memory.usage_in_bytes"), ("", "memory.current")):
            if name in places and (path := places[name] / self.path / file).exists():
                return int(path.read_text())
        return 0


def _pids(folder: Path) -> set[int]:
    found: set[int] = set()
    for place, _, _ in os.walk(folder):
        with suppress(OSError):
            found.update(int(word) for word in Path(place, "cgroup.procs").read_text().split())
    return found


def _hand_down(top: Path, path: Path) -> None:
    folder = top
    for part in path.parts:
        with suppress(OSError):
            names = (folder / "cgroup.controllers").read_text().split()
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in names))
        folder /= part


def _remove(folder: Path, end: float) -> None:
    """Remove it with all below. A group whose last process has just died may be busy for a moment."""
    while folder.exists():
        for place, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(place).rmdir()
        if folder.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"control group {folder} does not go away")
            time.sleep(TICK_S)
