"""A node on paper: what is left of it, and how many units of a gang it takes, by trying every device for every unit.

Comes in: what nodes report, parts of gangs, a job. Goes out: `Ask`, `Left`. Called by: exhaustive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import NamedTuple

from orchestrator.model.attempt import Placement
from orchestrator.model.job import JobSpec, LaunchKind
from orchestrator.model.mig import MigInstance, MigLayout, MigProfile

WHOLE = 1000


class Ask(NamedTuple):
    """One unit of a gang, and how many there are."""

    units: int
    spread: bool
    gpus: int
    milli: int
    device_bytes: int
    cores: int
    memory: int
    exclusive: bool = False
    mig: str = ""  # `gpus` are instances of that profile

    @property
    def shares(self) -> bool:
        return not self.gpus and bool(self.milli or self.device_bytes)


def ask_of(spec: JobSpec) -> Ask:
    """As docs say: without GPUs a task takes a core at least."""
    request = spec.request
    share = request.per_node if request.nodes else request.per_task
    ranks = request.tasks_per_node if request.nodes and spec.launch is LaunchKind.RANKS else 1
    plain = not (share.gpus or share.gpu_milli or share.gpu_memory)
    cores = share.cores or (ranks if plain else 0)
    return Ask(
        request.nodes or request.tasks,
        bool(request.nodes),
        share.gpus,
        share.gpu_milli,
        share.gpu_memory,
        cores,
        share.memory,
        request.exclusive,
        share.mig,
    )


class Slot(NamedTuple):
    """A device: milli and bytes that nobody holds, bytes in all."""

    milli: int
    free_bytes: int
    size: int


@dataclass
class Left:
    """What is left of a node."""

    pool: str
    open: bool
    slots: dict[int, Slot]
    cores: int
    memory: int
    parts: int = 0  # of gangs that hold anything there
    plain_cores: int = 0  # that work without GPUs may still have, and bytes
    plain_memory: int = 0
    software: str = ""
    layout: MigLayout | None = None  # of its GPUs, if they are divided
    masks: dict[int, int] = field(default_factory=dict)  # slot -> memory slices that instances hold

    def take(self, part: Placement, sign: int = 1) -> None:
        """Take a part of a gang, device by device, or give it back."""
        for at, slot in enumerate(part.slots):
            if slot in self.slots:
                one = self.slots[slot]
                milli = part.milli[at] if part.milli else WHOLE
                held = part.device_bytes[at] if part.device_bytes else 0
                self.slots[slot] = Slot(one.milli - sign * milli, one.free_bytes - sign * held, one.size)
        for each in part.usable.instances:
            self._hold(each, sign)
        self.cores -= sign * part.cores
        self.memory -= sign * part.memory
        self.parts += sign
        if not part.slots:
            self.plain_cores -= sign * part.cores
            self.plain_memory -= sign * part.memory

    def _hold(self, one: MigInstance, sign: int) -> None:
        profile = self.layout.find(one.profile) if self.layout is not None else None
        assert profile is not None, f"{one} stands where no such instance can be"
        assert (one.size, one.start in profile.starts) == (profile.size, True), (
            f"{one} stands at no legal place"
        )
        mask = self.masks.get(one.slot, 0)
        assert not (mask & one.bits if sign > 0 else ~mask & one.bits), f"{one} stands on another instance"
        self.masks[one.slot] = mask ^ one.bits

    def places(self, mig: str) -> dict[int, int]:
        """By slot, the most instances of a profile that still go there, in whatever order."""
        profile = self.layout.find(mig) if self.layout is not None else None
        if profile is None or self.layout is None:
            return dict.fromkeys(self.slots, 0)
        each = profile.size * WHOLE // self.layout.slices
        return {
            slot: min(_packed(profile, self.masks.get(slot, 0)), one.milli // each)
            for slot, one in self.slots.items()
        }

    def units(self, ask: Ask, *, kept: bool = True) -> int:
        """The most units that it takes now; not `kept`: as if nothing were kept for GPUs."""
        if not self.open or self.cores < 0 or self.memory < 0 or (ask.exclusive and self.parts):
            return 0
        most = 1 if ask.spread else ask.units
        cores, memory = self.cores, self.memory
        if kept and not (ask.gpus or ask.shares):
            cores, memory = min(cores, self.plain_cores), min(memory, self.plain_memory)
        if ask.mig:
            most = min(most, sum(self.places(ask.mig).values()) // ask.gpus)
            ask = ask._replace(gpus=0)
        return _most(tuple(sorted(self.slots.values())), cores, memory, ask, most)


@cache
def _packed(profile: MigProfile, held: int) -> int:
    free = [start for start in profile.starts if not held & profile.bits(start)]
    return max((1 + _packed(profile, held | profile.bits(start)) for start in free), default=0)


@cache
def _most(slots: tuple[Slot, ...], cores: int, memory: int, ask: Ask, left: int) -> int:
    if not left or cores < ask.cores or memory < ask.memory:
        return 0
    after = _ways(slots, ask)
    return max(
        (1 + _most(one, cores - ask.cores, memory - ask.memory, ask, left - 1) for one in after), default=0
    )


def _ways(slots: tuple[Slot, ...], ask: Ask) -> set[tuple[Slot, ...]]:
    """Each way to give one unit its devices: what is left then."""
    if ask.gpus:
        whole = [slot for slot in slots if slot.milli == WHOLE and slot.size >= ask.device_bytes]
        return {_without(slots, chosen, WHOLE, 0) for chosen in combinations(whole, ask.gpus)}
    if not ask.shares:
        return {slots}
    least = ask.milli or 1  # a share by memory counts for its part of the memory, or for what is left
    takes = [slot for slot in slots if slot.milli >= least and slot.free_bytes >= ask.device_bytes]
    return {_without(slots, (slot,), least, ask.device_bytes) for slot in takes}


def _without(slots: tuple[Slot, ...], chosen: tuple[Slot, ...], milli: int, held: int) -> tuple[Slot, ...]:
    found = list(slots)
    for slot in chosen:
        found.remove(slot)
        found.append(Slot(slot.milli - milli, slot.free_bytes - held, slot.size))
    return tuple(sorted(found))
