"""What jobs have asked for of late: the mix that placement weighs nodes by.

Comes in: each submitted job. Goes out: `Demand`, a record of State. Called by: apply_jobs (adds), scheduler (reads the
mix).

The mix that passes go by changes rarely, since all that they know about nodes changes with it: when four times as many
jobs were submitted as at the last weighing, and at the latest after LATEST of them. Older jobs count half at each
weighing, so that the mix follows what people do now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from orchestrator.model.job import JobSpec
from orchestrator.model.need import gangs_of, models_of, need_of

FIRST: Final = 16  # jobs before anything is weighed
GROWTH: Final = 4
LATEST: Final = 4096
MOVED_PER_MILLE: Final = 100
MOST_UNITS: Final = 64  # of one gang that are counted


class Wish(NamedTuple):
    """One unit of a job, with the names of the models that it takes (none: any)."""

    gpus: int
    milli: int
    device_bytes: int
    cores: int
    memory: int
    models: tuple[str, ...]
    mig: str = ""  # `gpus` are instances of that profile


@dataclass(slots=True)
class Demand:
    """`counts`: units by wish since the beginning, faded; `mix`: as they were when last weighed, most first."""

    counts: dict[Wish, int] = field(default_factory=dict)
    seen: int = 0
    weighed: int = 0  # `seen` at the last weighing
    version: int = 0  # another one with each other mix
    mix: tuple[tuple[Wish, int], ...] = ()

    def add(self, spec: JobSpec, jobs: int = 1) -> None:
        """So many jobs of the kind were submitted."""
        for gang in gangs_of(spec):
            need = need_of(gang)
            wish = Wish(
                need.gpus, need.milli, need.device_bytes, need.cores, need.memory, models_of(gang), need.mig
            )
            self.counts[wish] = self.counts.get(wish, 0) + jobs * min(need.units, MOST_UNITS)
        self.seen += jobs
        if self.seen >= min(max(self.weighed * GROWTH, FIRST), self.weighed + LATEST):
            self._weigh()

    def _weigh(self) -> None:
        """The order is that of the counts, then of the wishes: nothing hangs on who came first. A mix that is much like
        the last one is not taken: all that passes know about nodes would change for nothing."""
        self.weighed = self.seen
        if self._moved() >= MOVED_PER_MILLE:
            self.mix = tuple(sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0])))
            self.version += 1
        if self.seen > LATEST:
            self.counts = {wish: count // 2 for wish, count in sorted(self.counts.items()) if count > 1}

    def _moved(self) -> int:
        """How much of what is asked for of devices is asked for otherwise than in the mix, in thousandths."""
        before, now = _by_devices(dict(self.mix)), _by_devices(self.counts)
        all_before, all_now = sum(before.values()) or 1, sum(now.values()) or 1
        kinds = dict.fromkeys([*before, *now])
        apart = sum(abs(before.get(k, 0) * all_now - now.get(k, 0) * all_before) for k in kinds)
        return apart * 500 // (all_before * all_now) if self.mix else 1000


def _by_devices(counts: dict[Wish, int]) -> dict[tuple[int, int, tuple[str, ...], str], int]:
    found: dict[tuple[int, int, tuple[str, ...], str], int] = {}
    for wish, count in counts.items():
        kind = (wish.gpus, wish.milli, wish.models, wish.mig)
        found[kind] = found.get(kind, 0) + count
    return found


def to_plain(demand: Demand) -> dict[str, Any]:
    """For a snapshot; empty before the first job."""
    if not demand.seen:
        return {}
    return {
        "counts": [_row(*pair) for pair in demand.counts.items()],
        "seen": demand.seen,
        "weighed": demand.weighed,
        "version": demand.version,
        "mix": [_row(*pair) for pair in demand.mix],
    }


def _row(wish: Wish, count: int) -> list[Any]:
    """The profile comes last, and only where there is one: rows without are older than profiles."""
    row = [*wish[:5], list(wish.models), count]
    return [*row, wish.mig] if wish.mig else row


def from_plain(plain: dict[str, Any]) -> Demand:
    """What `to_plain` described."""
    if not plain:
        return Demand()
    counts = dict(_pair(row) for row in plain["counts"])
    mix = tuple(_pair(row) for row in plain["mix"])
    return Demand(counts, plain["seen"], plain["weighed"], plain["version"], mix)


def _pair(row: list[Any]) -> tuple[Wish, int]:
    gpus, milli, device_bytes, cores, memory, models, count, *mig = row
    return Wish(gpus, milli, device_bytes, cores, memory, tuple(models), *mig), count
