"""What a run of Kueue's work was: checked against what must hold, and counted.

Comes in: spans of jobs on devices as the emulated agents saw them, what was submitted when, what the API tells of the
jobs. Goes out: waits, use, turnarounds; Failed if a device was given twice or work is missing. Called by: kueue.

A *turnaround* is the time from the end of a job on a device to the start of the next one there, by the agents' clock,
and counts where the next one could have had it at once:

- it was waiting (acknowledged) when the last of its devices became free: `ready`, the latest end over all its devices;
- nobody of a higher priority waited in the cohort at that time. Devices are kept for who comes first while it lacks
  others, and whoever gets them in the end has waited for a decision, not for the controller. In a schedule without any
  delay all that is counted is 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tests.bench.common import Failed

Device = tuple[str, int]  # node, slot


@dataclass(frozen=True, slots=True)
class Asked:
    """What a job asked for; `since_ns`: when it was acknowledged, by the agents' clock."""

    devices: int
    cohort: str
    priority: int
    since_ns: int


@dataclass(slots=True)
class Ran:
    """A job: when it had each device, in nanoseconds of the agents' clock. Its parts end one by one."""

    devices: dict[Device, tuple[int, int]]
    count: int

    @property
    def begun_ns(self) -> int:
        """When the last part began."""
        return max(begun for begun, _ in self.devices.values())


def by_job(spans: Iterable[tuple[int, str, list[int], int, int]]) -> dict[int, Ran]:
    """Spans by node into jobs."""
    found: dict[int, Ran] = {}
    for job, node, slots, begun, ended in spans:
        ran = found.setdefault(job, Ran({}, 0))
        ran.devices.update(((node, slot), (begun, ended)) for slot in slots)
        ran.count += len(slots)
    return found


def check(ran: dict[int, Ran], asked: dict[int, Asked]) -> None:
    """Failed unless each job had as many different devices as it asked for, and no device two jobs at once."""
    if ran.keys() != asked.keys():
        raise Failed(f"{len(asked)} jobs were submitted, and {len(ran)} ran")
    for job, ask in asked.items():
        if len(ran[job].devices) != ask.devices or ran[job].count != ask.devices:
            raise Failed(f"job {job} asked for {ask.devices} devices, and ran on {ran[job].count}")
    for device, jobs in _in_turn(ran).items():
        for before, after in pairwise(jobs):
            if ran[after].devices[device][0] < ran[before].devices[device][1]:
                raise Failed(f"device {device[1]} of {device[0]} had jobs {before} and {after} at once")


def turnarounds_ns(ran: dict[int, Ran], asked: dict[int, Asked]) -> list[int]:
    """One for each job that waited for a device which nobody else had a claim on. See the module."""
    ready: dict[int, int] = {}
    for device, jobs in _in_turn(ran).items():
        for before, after in pairwise(jobs):
            ready[after] = max(ready.get(after, 0), ran[before].devices[device][1])
    queues: dict[str, list[int]] = defaultdict(list)
    for job, ask in asked.items():
        queues[ask.cohort].append(job)
    found: list[int] = []
    for jobs in queues.values():
        waiting = _Waiting(ran, asked, jobs)
        for job in sorted((job for job in jobs if job in ready), key=ready.__getitem__):
            at = ready[job]
            if asked[job].since_ns <= at and waiting.highest(at) <= asked[job].priority:
                found.append(ran[job].begun_ns - at)
    return found


class _Waiting:
    """The priorities of those who wait in a cohort, asked for at times that only grow."""

    def __init__(self, ran: dict[int, Ran], asked: dict[int, Asked], jobs: list[int]) -> None:
        comes = [(asked[job].since_ns, asked[job].priority, 1) for job in jobs]
        goes = [(max(ran[job].begun_ns, asked[job].since_ns), asked[job].priority, -1) for job in jobs]
        self._changes = sorted([*comes, *goes])
        self._next = 0
        self._counts: Counter[int] = Counter()

    def highest(self, at_ns: int) -> int:
        """The highest priority of who came by then and has not begun by then."""
        while self._next < len(self._changes) and self._changes[self._next][0] <= at_ns:
            _, priority, count = self._changes[self._next]
            self._counts[priority] += count
            self._next += 1
        return max((priority for priority, count in self._counts.items() if count > 0), default=0)


def _in_turn(ran: dict[int, Ran]) -> dict[Device, list[int]]:
    """The jobs of each device, in the order in which they ran."""
    found: dict[Device, list[tuple[int, int]]] = defaultdict(list)
    for job, each in ran.items():
        for device, (begun, _) in each.devices.items():
            found[device].append((begun, job))
    return {device: [job for _, job in sorted(jobs)] for device, jobs in found.items()}
