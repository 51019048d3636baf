"""MIG: what instances a GPU can be divided into, and where in it each may stand.

Comes in: nothing. Goes out: `MigLayout` with its `MigProfile`s, `MigInstance`. Called by: cluster_pools (a pool in MIG
mode carries the layout of its GPUs), attempt (a placement names its instances), ledger, scheduler, agent.

A GPU in MIG mode has memory slices, eight on most models, and an instance takes some of them in a row, from one of the
starts that the hardware allows its profile. Two instances never share a slice. The compute slices of instances that do
not overlap are never more than the GPU has (tests/scheduler/test_mig.py tries all): slices of memory decide alone.

The layout stands in the cluster's model, not in code or in an argument of passes: it is a fact of the day on which the
file was read, so that a ledger folds and replays alike whatever a later catalog says.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One size of instance: `compute` slices, `size` memory slices with `memory` bytes, legal first slices `starts`,
    which are so far apart that instances of one profile never meet."""

    name: str
    compute: int
    size: int
    memory: int
    starts: tuple[int, ...]

    def bits(self, start: int) -> int:
        """The memory slices that it takes from there, as a mask."""
        return ((1 << self.size) - 1) << start

    def count(self, held: int) -> int:
        """How many of it fit beside slices that are held (a mask)."""
        return sum(1 for start in self.starts if not held & self.bits(start))

    def places(self) -> str:
        """The slices of its legal places, for people: `0-3 or 4-7`."""
        last = self.size - 1
        words = [f"{start}-{start + last}" if last else str(start) for start in self.starts]
        return " or ".join((", ".join(words[:-1]), words[-1]) if len(words) > 1 else words)


@dataclass(frozen=True, slots=True)
class MigLayout:
    """What GPUs of one model can be divided into: `slices` of memory, and the profiles, smallest first."""

    slices: int
    profiles: tuple[MigProfile, ...]

    def find(self, name: str) -> MigProfile | None:
        """The profile of that name, or None."""
        return next((one for one in self.profiles if one.name == name), None)

    def milli(self, profile: MigProfile) -> int:
        """What an instance counts for, in thousandths of a GPU: its part of the memory slices."""
        return profile.size * 1000 // self.slices

    def names(self) -> tuple[str, ...]:
        """The names of its profiles."""
        return tuple(one.name for one in self.profiles)


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One instance: the slot of its GPU, its profile, and the memory slices that it takes, `size` from `start`."""

    slot: int
    profile: str
    start: int
    size: int

    @property
    def bits(self) -> int:
        """Its memory slices as a mask."""
        return ((1 << self.size) - 1) << self.start

    def __str__(self) -> str:
        """`2:3g.40gb@4`: slot, profile, first slice."""
        return f"{self.slot}:{self.profile}@{self.start}"
