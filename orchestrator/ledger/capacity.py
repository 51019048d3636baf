"""What is free on every node, as arrays: a row is a node, a column of a matrix is a device slot.

Comes in: nodes with their devices, what attempts take and give back. Goes out: free devices, milli and bytes of each
device, cores, memory, and when each row was last touched. Called by: Statement and apply (change it),
scheduler (scores whole arrays), everybody else (asks for one node with `at`).

Milli are thousandths of a device, memory is in bytes. A node is *open* while it may be given work. Devices are known by
their slots, and sets of whole ones are integer masks by slot. What somebody holds stays held while the node does not
report the device.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.nearness import Groups, groups_of, nearest
from orchestrator.ledger.slices import Slices
from orchestrator.model.attempt import Placement, Use
from orchestrator.model.node import Device

WHOLE = 1000  # milli of a whole device
# Equal parts of a gang, on average: from so many on one step for all of them is quicker than one each.
FEW = 2
FAR = 1 << 62  # microseconds: the end of work without a time limit

Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]
Packages = tuple[tuple[str, str], ...]  # names with versions, sorted


class Room(NamedTuple):
    """The free part of one node: masks of devices that it has and of those that nobody holds, cores, bytes."""

    total: int
    free: int
    cores: int
    memory: int
    free_cores: int
    free_memory: int
    open: bool


class Saved(NamedTuple):
    """What was held of every node after so many touches."""

    touches: int
    arrays: dict[str, NDArray[Any]]
    masks: dict[str, list[int]]
    slices: Slices
    alone: dict[int, tuple[int, int]]


class Capacity:
    """All nodes; `rows` of them are in use, in the order in which they were added, which is the last tie rule."""

    def __init__(self) -> None:
        self.rows = 0
        self.version = 0  # another one: rows have come, or a row has other devices, cores or memory in all
        self.names: list[str] = []
        self.index: dict[str, int] = {}
        self.pools: dict[str, list[int]] = {}  # pool -> its rows
        self.kinds: dict[
            str, dict[tuple[int, int], int]
        ] = {}  # pool -> how many nodes have so many cores and bytes
        self.models: list[str] = []  # names by number
        self.softwares: dict[Packages, int] = {(): 0}  # numbers of sets of software
        self._rank = np.zeros(0, np.int32)
        self._ranked = -1
        self.closed = 0  # how many nodes are closed
        self.turns = 0  # how often any node has opened or closed
        self.touches = 0  # how often any row was touched
        self.timings = 0  # how often the end of what was taken was moved
        self.pool_of: list[str] = []
        self.present: list[int] = []  # masks of devices that the node has
        self.full: list[int] = []  # masks of devices that somebody holds whole
        self.taken: list[int] = []  # masks of devices of which anything is held
        self.free: list[int] = []  # masks of devices that are there and that nobody holds
        self.groups: list[Groups] = []  # which devices are close to each other
        # rows that are one attempt's alone -> cores and bytes that they have come to have besides
        self._alone: dict[int, tuple[int, int]] = {}
        self.slices = Slices()  # what MIG instances hold, which count as shares of their devices besides
        self._make(64, 8)

    def _make(self, rows: int, slots: int) -> None:
        self.open: Flags = np.zeros(rows, bool)
        self.model = np.full(rows, -1, np.int16)
        self.gpus = np.zeros(rows, np.int16)
        self.whole = np.zeros(rows, np.int16)  # devices that nobody holds
        self.software = np.zeros(rows, np.int32)  # number of the set that the node has
        self.parts = np.zeros(rows, np.int32)  # parts of gangs that hold anything there
        self.touched = np.zeros(rows, np.int64)  # the number of the last touch of the row
        self.timed = np.zeros(rows, np.int64)  # the number of the last timing of the row
        self.used = np.zeros((rows, slots), np.int32)  # milli that shares hold, also of devices that are gone
        self.milli = np.zeros((rows, slots), np.int32)  # milli that are free
        self.there: Flags = np.zeros((rows, slots), bool)  # slots with a device
        self.device_memory = np.zeros((rows, slots), np.int64)
        self.device_bytes = np.zeros(
            (rows, slots), np.int64
        )  # that shares have left; of no use where no milli is
        self.used_bytes = np.zeros((rows, slots), np.int64)  # that shares hold
        self.until_us = np.zeros((rows, slots), np.int64)  # when what holds the device ends at the latest
        self.cores = np.zeros(rows, np.int64)
        self.free_cores = np.zeros(rows, np.int64)
        # what work without GPUs may still have, were it free: all but what is kept for each GPU and what such work has
        self.plain_cores = np.zeros(rows, np.int64)
        self.plain_memory = np.zeros(rows, np.int64)
        self.most_plain_cores = np.zeros(rows, np.int64)  # the same of an empty node
        self.most_plain_memory = np.zeros(rows, np.int64)
        self.memory = np.zeros(rows, np.int64)
        self.free_memory = np.zeros(rows, np.int64)

    _COLUMNS = (
        *("open", "model", "software", "gpus", "whole", "parts", "touched", "timed"),
        *("cores", "free_cores", "memory", "free_memory"),
        *("plain_cores", "plain_memory", "most_plain_cores", "most_plain_memory"),
    )
    _MATRICES = ("there", "used", "milli", "device_memory", "device_bytes", "used_bytes", "until_us")

    def _grow(self, rows: int, slots: int) -> None:
        """Room for so many rows and slots; what is there stays."""
        kept = {name: getattr(self, name) for name in (*self._COLUMNS, *self._MATRICES)}
        have_rows, have_slots = self.used.shape
        self._make(max(rows, have_rows), max(slots, have_slots))
        for name in self._COLUMNS:
            getattr(self, name)[:have_rows] = kept[name]
        for name in self._MATRICES:
            getattr(self, name)[:have_rows, :have_slots] = kept[name]

    # --- nodes ----------------------------------------------------------------------------------------------

    def add(self, name: str, pool: str) -> int:
        """A new node at the end, closed and without devices; its row."""
        row = self.rows
        if row == len(self.open):
            self._grow(2 * row, 0)
        self.rows += 1
        self.closed += 1
        self.version += 1
        self.names.append(name)
        self.index[name] = row
        self.pool_of.append(pool)
        self.pools.setdefault(pool, []).append(row)
        self._count_kind(row, 1)
        self.present.append(0)
        self.full.append(0)
        self.taken.append(0)
        self.free.append(0)
        self.groups.append(())
        return row

    def set_open(self, name: str, is_open: bool) -> None:
        """Whether the node may be given work from now on."""
        row = self.index[name]
        if bool(self.open[row]) != is_open:
            self.open[row] = is_open
            self.closed += -1 if is_open else 1
            self.turns += 1
            self._touch(row)

    def set_software(self, name: str, packages: Packages) -> None:
        """The node has these packages by name and version; nothing said is a set as well."""
        row, number = self.index[name], self.softwares.setdefault(packages, len(self.softwares))
        if self.software[row] != number:
            self.software[row] = number
            self.version += 1
            self._touch(row)

    def resize(
        self,
        name: str,
        devices: tuple[Device, ...],
        cores: int,
        memory: int,
        keep_cores: int = 0,
        keep_memory: int = 0,
    ) -> None:
        """The node turned out to have these devices, cores and bytes, of which it keeps so much for each device from
        work without any; what is taken stays taken."""
        row = self.index[name]
        if devices:
            self._fit_slots(1 + max(device.slot for device in devices))
            self.model[row] = self._model(devices[0].model)
        self.present[row] = mask_of(tuple(device.slot for device in devices))
        self.groups[row] = groups_of(devices)
        self.gpus[row] = len(devices)
        self.device_memory[row] = 0
        self.there[row] = False
        for device in devices:
            self.there[row, device.slot] = True
            self.device_memory[row, device.slot] = device.memory
        self.free_cores[row] += cores - self.cores[row]
        self.free_memory[row] += memory - self.memory[row]
        self._set_apart(row)
        self._count_kind(row, -1)
        self.cores[row], self.memory[row] = cores, memory
        plain_cores = max(cores - keep_cores * len(devices), 0)
        plain_memory = max(memory - keep_memory * len(devices), 0)
        self.plain_cores[row] += plain_cores - self.most_plain_cores[row]
        self.plain_memory[row] += plain_memory - self.most_plain_memory[row]
        self.most_plain_cores[row], self.most_plain_memory[row] = plain_cores, plain_memory
        self._count_kind(row, 1)
        self._recount(row)
        self.version += 1
        self._touch(row)

    def _count_kind(self, row: int, change: int) -> None:
        kinds = self.kinds.setdefault(self.pool_of[row], {})
        kind = int(self.cores[row]), int(self.memory[row])
        kinds[kind] = kinds.get(kind, 0) + change
        if not kinds[kind]:
            del kinds[kind]

    def _fit_slots(self, slots: int) -> None:
        if slots > self.used.shape[1]:
            self._grow(0, slots)

    def _model(self, name: str) -> int:
        if name not in self.models:
            self.models.append(name)
        return self.models.index(name)

    @property
    def rank(self) -> NDArray[np.int32]:
        """[rows] places in an order that mixes kinds of nodes in proportion; nodes of one kind stay as they came."""
        if self._ranked != self.version:
            self._ranked = self.version
            order = sorted(self._places())
            self._rank = np.zeros(len(self.open), np.int32)
            self._rank[[row for _, row in order]] = np.arange(self.rows, dtype=np.int32)
        return self._rank

    def _places(self) -> list[tuple[int, int]]:
        """For each row how far it is through the nodes of its kind, in parts of 2 ** 32, and the row."""
        columns = (self.model, self.gpus, self.cores, self.memory)
        kinds = list(zip(*(column[: self.rows].tolist() for column in columns), strict=True))
        count, seen = Counter(kinds), Counter[tuple[int, ...]]()
        found: list[tuple[int, int]] = []
        for row, kind in enumerate(kinds):
            found.append((((2 * seen[kind] + 1) << 31) // count[kind], row))
            seen[kind] += 1
        return found

    def at(self, name: str) -> Room:
        """One node's free part; KeyError for an unknown one."""
        row = self.index[name]
        return Room(
            self.present[row],
            self.free[row],
            int(self.cores[row]),
            int(self.memory[row]),
            int(self.free_cores[row]),
            int(self.free_memory[row]),
            bool(self.open[row]),
        )

    def shares_of(self, name: str) -> tuple[int, ...]:
        """Milli held of each slot of a node."""
        row = self.index[name]
        shares = enumerate(self.used[row].tolist())
        return tuple(WHOLE if self.full[row] >> slot & 1 else milli for slot, milli in shares)

    def slices_of(self, name: str) -> tuple[tuple[int, int], ...]:
        """Slots of a node on which MIG instances stand, with masks of the slices that they hold."""
        if not self.slices.held.size:
            return ()
        masks = self.slices.of(np.array([self.index[name]], np.int64), self.used.shape[1])[0]
        return tuple((slot, mask) for slot, mask in enumerate(masks.tolist()) if mask)

    def nearest(self, row: int, each: int, units: int = 1) -> tuple[int, ...]:
        """Free slots for so many units of `each` devices (as many there are), those of one unit close to each other."""
        groups = self.groups[row]
        if not groups:
            return lowest(self.free[row], each * units)
        return slots_of(nearest(self.free[row], each, units, groups))

    def is_empty(self, name: str) -> bool:
        """Whether nobody holds anything of the node."""
        return not self.parts[self.index[name]]

    def is_alone(self, name: str) -> bool:
        """Whether somebody has the node for itself."""
        return self.index[name] in self._alone

    def all_of(self, part: Placement) -> Placement:
        """The part as that of a node which is nobody else's: it holds all that the node has, and uses what it asks."""
        row = self.index[part.node]
        return replace(
            part,
            slots=slots_of(self.present[row]),
            cores=int(self.cores[row]),
            memory=int(self.memory[row]),
            milli=(),
            device_bytes=(),
            instances=(),
            alone=Use(part.slots, part.cores, part.memory, part.milli, part.device_bytes, part.instances),
        )

    # --- taking and giving back -----------------------------------------------------------------------------

    def take(self, part: Placement, until_us: int = FAR) -> None:
        """Take a gang's part on a node; ValueError, and nothing changed, if a device has not that much free, or if the
        node would be two attempts' of which one wants it alone."""
        row = self.index[part.node]
        if (part.alone is not None and self.parts[row]) or (row in self._alone and takes(part)):
            raise ValueError(f"node {part.node}: somebody has it, and one of the two wants it alone")
        if part.milli:
            for slot, milli in zip(part.slots, part.milli, strict=True):
                if not self.present[row] >> slot & 1 or self._held(row, slot) + milli > WHOLE:
                    raise ValueError(f"node {part.node}: device {slot} has not {milli} milli free")
            self._check_slices(row, part)
        else:
            mask = mask_of(part.slots)
            if mask & ~self.free[row]:
                raise _not_free(part.node, mask & ~self.free[row])
        self._put(row, part, until_us)

    def take_all(self, parts: tuple[Placement, ...], until_us: int = FAR) -> None:
        """Take all parts of a gang, equal ones in one step; ValueError or KeyError, and nothing changed, as `take`."""
        rows = [self.index[part.node] for part in parts]
        special = self._alone or any(part.milli or part.alone is not None for part in parts)
        if special or len(dict.fromkeys(rows)) < len(rows):
            self._take_one_by_one(parts, until_us)
            return
        groups: dict[tuple[tuple[int, ...], int, int], list[int]] = {}
        for row, part in zip(rows, parts, strict=True):
            groups.setdefault((part.slots, part.cores, part.memory), []).append(row)
        for (slots, _, _), alike in groups.items():
            mask = mask_of(slots)
            for row in alike:
                if mask & ~self.free[row]:
                    raise _not_free(self.names[row], mask & ~self.free[row])
        if len(rows) < FEW * len(groups):
            for row, part in zip(rows, parts, strict=True):
                self._put(row, part, until_us)
            return
        for (slots, cores, memory), alike in groups.items():
            self._put_alike(np.array(alike, np.int64), slots, cores, memory, until_us)

    def _take_one_by_one(self, parts: tuple[Placement, ...], until_us: int) -> None:
        for at, part in enumerate(parts):
            try:
                self.take(part, until_us)
            except (KeyError, ValueError):
                for taken in parts[:at]:
                    self.release(taken)
                raise

    def _put_alike(self, rows: Rows, slots: tuple[int, ...], cores: int, memory: int, until_us: int) -> None:
        """The same share, of whole devices that are free, on each of these rows."""
        if slots:
            mask, columns = mask_of(slots), list(slots)
            for row in rows.tolist():
                self.full[row] |= mask
                self.taken[row] |= mask
                self.free[row] &= ~mask
            self.milli[rows[:, None], columns] = 0
            self.until_us[rows[:, None], columns] = until_us
            self.whole[rows] -= len(slots)
        else:
            self.plain_cores[rows] -= cores
            self.plain_memory[rows] -= memory
        self.parts[rows] += 1
        self.free_cores[rows] -= cores
        self.free_memory[rows] -= memory
        self.touches += 1
        self.touched[rows] = self.touches

    def hold(self, part: Placement, until_us: int = FAR) -> None:
        """Take for work that runs already, also devices that the node does not report; ValueError if one is held."""
        self.check_hold(part)
        self._put(self.index[part.node], part, until_us)

    def check_hold(self, part: Placement) -> None:
        """ValueError if `hold` would refuse the part."""
        row = self.index[part.node]
        if part.slots:
            self._fit_slots(1 + max(part.slots))
        for slot, milli in zip(part.slots, part.milli or (WHOLE,) * len(part.slots), strict=True):
            if self._held(row, slot) + milli > WHOLE:
                raise ValueError(f"node {part.node}: device {slot} is held already")
        self._check_slices(row, part)

    def release(self, part: Placement) -> None:
        """Give back; ValueError, and nothing changed, if nobody held that. Devices that are gone stay gone."""
        row, slots = self.index[part.node], part.slots
        extra = self._alone.get(row, (0, 0)) if part.alone is not None else (0, 0)
        if part.milli:
            for slot, milli in zip(slots, part.milli, strict=True):
                if slot >= self.used.shape[1] or self.used[row, slot] < milli:
                    raise ValueError(f"node {part.node}: device {slot} was not held")
            if (lacking := self.slices.lacking(row, part)) is not None:
                raise ValueError(f"node {part.node}: instance {lacking} was not held")
            self._change_shares(row, part, -1)
            self.slices.free(row, part)
        elif slots:
            mask = mask_of(slots)
            if mask & ~self.full[row]:
                raise ValueError(
                    f"node {part.node}: device {lowest(mask & ~self.full[row], 1)[0]} was not held"
                )
            self.full[row] &= ~mask
            self.taken[row] &= ~mask
            there = mask & self.present[row]
            self.free[row] |= there
            self.whole[row] += there.bit_count()
            if there:
                self.milli[row, _columns(slots if there == mask else slots_of(there))] = WHOLE
        self.parts[row] -= 1
        if not slots:
            self.plain_cores[row] += part.cores
            self.plain_memory[row] += part.memory
        self.free_cores[row] += part.cores + extra[0]
        self.free_memory[row] += part.memory + extra[1]
        if part.alone is not None:
            del self._alone[row]
            self._recount(row)
        self._touch(row)

    # what taking and giving back changes
    _HELD = (
        *("whole", "parts", "free_cores", "free_memory", "plain_cores", "plain_memory", "used", "milli"),
        *("device_bytes", "used_bytes", "until_us"),
    )
    _MASKS = ("full", "taken", "free")

    def save(self) -> Saved:
        """What is held now, as copies."""
        arrays = {name: getattr(self, name)[: self.rows].copy() for name in self._HELD}
        masks = {name: list(getattr(self, name)) for name in self._MASKS}
        return Saved(self.touches, arrays, masks, self.slices.copy(), dict(self._alone))

    def restore(self, saved: Saved) -> None:
        """Held again is what was held then, on all rows that were touched since: no node has come or changed."""
        rows = np.flatnonzero(self.touched > saved.touches)
        for name, column in saved.arrays.items():
            getattr(self, name)[rows] = column[rows]
        for name, masks in saved.masks.items():
            getattr(self, name)[:] = masks
        self.slices = saved.slices.copy()
        self._alone = dict(saved.alone)
        self.touches += 1
        self.touched[rows] = self.touches

    def set_until(self, part: Placement, until_us: int) -> None:
        """What was taken there ends at another time than was said."""
        if part.slots and not part.milli:
            row = self.index[part.node]
            self.until_us[row, _columns(part.slots)] = until_us
            self.timings += 1
            self.timed[row] = self.timings

    def _put(self, row: int, part: Placement, until_us: int) -> None:
        slots = part.slots
        if part.milli:
            self._change_shares(row, part, 1)
            self.slices.hold(row, part)
            self.until_us[row, list(slots)] = FAR  # when the last of those who share it ends is not kept
        elif slots:
            mask, columns = mask_of(slots), _columns(slots)
            self.milli[row, columns] = 0
            self.until_us[row, columns] = until_us
            self.full[row] |= mask
            self.taken[row] |= mask
            self.whole[row] -= (self.free[row] & mask).bit_count()
            self.free[row] &= ~mask
        self.parts[row] += 1
        if not slots:
            self.plain_cores[row] -= part.cores
            self.plain_memory[row] -= part.memory
        self.free_cores[row] -= part.cores
        self.free_memory[row] -= part.memory
        if part.alone is not None:
            self._alone[row] = (0, 0)
            self._set_apart(row)
            self._recount(row)
        self._touch(row)

    def _set_apart(self, row: int) -> None:
        """What a row that is somebody's alone has free is nobody's to take."""
        if row in self._alone:
            cores, memory = self._alone[row]
            self._alone[row] = cores + int(self.free_cores[row]), memory + int(self.free_memory[row])
            self.free_cores[row] = self.free_memory[row] = 0

    def _check_slices(self, row: int, part: Placement) -> None:
        if part.instances and (taken := self.slices.overlap(row, part)) is not None:
            raise ValueError(f"node {part.node}: the slices of instance {taken} are not free")

    def _held(self, row: int, slot: int) -> int:
        """Milli of a device that anybody holds."""
        return WHOLE if self.full[row] >> slot & 1 else int(self.used[row, slot])

    def _change_shares(self, row: int, part: Placement, sign: int) -> None:
        """Milli and bytes of single devices, one by one: several tasks of a gang may share one."""
        for slot, milli in zip(part.slots, part.milli, strict=True):
            left = int(self.used[row, slot]) + sign * milli
            self.used[row, slot] = left
            if left:
                self.taken[row] |= 1 << slot
            else:
                self.taken[row] &= ~(1 << slot)
        for slot, size in zip(part.slots, part.device_bytes, strict=False):
            self.used_bytes[row, slot] += sign * size
        self._recount(row)

    def _recount(self, row: int) -> None:
        """What follows from devices that are there and what is held of them."""
        present = 0 if row in self._alone else self.present[row]
        self.free[row] = present & ~self.taken[row]
        self.whole[row] = self.free[row].bit_count()
        left = self.device_memory[row] - self.used_bytes[row]
        self.device_bytes[row] = np.maximum(left, 0)
        for slot in range(self.used.shape[1]):
            there = present >> slot & 1
            self.milli[row, slot] = WHOLE - self._held(row, slot) if there else 0

    def _touch(self, row: int) -> None:
        self.touches += 1
        self.touched[row] = self.touches

    def since(self, touches: int) -> Flags:
        """Flags of the rows that were touched since there were so many touches."""
        return self.touched > touches


def takes(part: Placement) -> bool:
    """Whether it takes anything at all: what is kept of a full node is nothing."""
    return bool(part.slots or part.cores or part.memory)


def _not_free(node: str, mask: int) -> ValueError:
    return ValueError(f"node {node}: devices {mask:#b} are not free")


def _columns(slots: tuple[int, ...]) -> int | list[int]:
    """As numpy is quickest with them."""
    return slots[0] if len(slots) == 1 else list(slots)


def mask_of(slots: tuple[int, ...]) -> int:
    """Slots -> mask."""
    mask = 0
    for slot in slots:
        mask |= 1 << slot
    return mask


def slots_of(mask: int) -> tuple[int, ...]:
    """Mask -> slots, lowest first."""
    if mask < len(_SLOTS_OF):
        return _SLOTS_OF[mask]
    return tuple(slot for slot in range(mask.bit_length()) if mask >> slot & 1)


def lowest(mask: int, count: int) -> tuple[int, ...]:
    """The `count` lowest set slots of a mask (which has at least as many)."""
    return slots_of(mask)[:count]


_SLOTS_OF = tuple(tuple(slot for slot in range(8) if mask >> slot & 1) for mask in range(256))
