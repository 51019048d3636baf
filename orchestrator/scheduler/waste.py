"""What placing one unit on each node would waste, and which devices it should take there.

Comes in: tables of the mix, the cluster's arrays, an ask, rows. Goes out: a cost for each row in micro-GPU, or the
slots of the chosen row. Called by: place, benchmarks. This is the reference in numpy; compiled has the same as loops.

The waste of a node is what it has of idle devices without cores or memory for them, of cores that nothing of the mix
could use, and of idle devices that the mix cannot use. A cost is how much the ask adds to that, what it takes from the
worth of its device's remainder, the scarcity of the model if it would take any, the share of the node that stays idle,
and the node's place in the order of nodes. Everything is an integer: numpy and compiled code decide alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.ask import DEVICE, Ask
from orchestrator.scheduler.mix import MIB_BITS, SHIFT, TENTHS, Ints, Narrow, Tables

NO_FIT = (1 << 31) - 1  # the cost where it does not fit; all others are below half of it, so they are int32
MOST_ASKS = 4096  # that a set of tables remembers, 8 KB each at most
MILLI_IN_TENTH = DEVICE // TENTHS


class Arrays(Protocol):
    """The free part of N nodes, row by row; D device slots at most."""

    @property
    def model(self) -> NDArray[np.int16]:
        """[N] number of the GPU model; -1: none."""

    @property
    def gpus(self) -> NDArray[np.int16]:
        """[N] devices present."""

    @property
    def whole(self) -> NDArray[np.int16]:
        """[N] devices that are free entirely."""

    @property
    def milli(self) -> NDArray[np.int32]:
        """[N, D] free milli of each slot; 0 for one that is absent."""

    @property
    def device_bytes(self) -> NDArray[np.int64]:
        """[N, D] free memory of each device."""

    @property
    def free_cores(self) -> Ints:
        """[N] in the unit of the asks."""

    @property
    def free_memory(self) -> Ints:
        """[N] bytes."""

    @property
    def rank(self) -> NDArray[np.int32]:
        """[N] a fixed permutation of 0..N-1 that mixes kinds of nodes."""


class Free(Arrays, Protocol):
    """The same with what tells of changes."""

    @property
    def open(self) -> NDArray[np.bool_]:
        """[N] whether the node may be given work."""

    @property
    def touched(self) -> Ints:
        """[N] the number of the last touch of the row."""


class Stale(NamedTuple):
    """Which costs are to be renewed: of these rows those that were touched since there were so many touches."""

    since: int
    eligible: NDArray[np.bool_]  # [N]
    more: Ints | None = None  # [N] what a row costs beside its waste


class Costs(Protocol):
    """`costs` below, or the compiled one."""

    def __call__(self, tables: Tables, arrays: Arrays, ask: Ask, rows: Ints | None = None) -> Ints:
        """The cost on each row (all rows, if none are given)."""


class Renew(Protocol):
    """`renew` below, or the compiled one."""

    def __call__(
        self, tables: Tables, arrays: Free, ask: Ask, found: NDArray[np.int32], stale: Stale
    ) -> None:
        """Renew costs in place."""


class Rows(NamedTuple):
    """The rows in question; pairs are before and after."""

    model: Ints  # [K] number + 1
    milli: NDArray[np.int32]  # [D, K]
    whole: NDArray[np.int16]  # [K]
    cores: Ints  # [2, K]
    memory: Ints  # [2, K]
    idle: Ints  # [2, K] milli of devices


class Ready(NamedTuple):
    """What an ask means under a set of tables."""

    model_cost: Ints  # [models + 1] scarcity; NO_FIT for a model that it does not take
    taken: Ints  # [1001], [0] if no share: what it takes from a device with r milli free; NO_FIT if too much
    numbers: Ints  # of ask and tables, for compiled code: `_numbers`


def ready(tables: Tables, ask: Ask) -> Ready:
    """From memory, or made."""
    found: Ready | None = tables.memo.get(ask)
    if found is None:
        if len(tables.memo) >= MOST_ASKS:
            tables.memo.clear()
        found = Ready(_model_cost(tables, ask), _taken(tables, ask.milli), _numbers(tables, ask))
        tables.memo[ask] = found
    return found


def _numbers(tables: Tables, ask: Ask) -> Ints:
    asked = (ask.gpus, ask.milli, ask.device_bytes, ask.cores, ask.memory)
    known = (tables.strand, tables.per_core, tables.per_mib, tables.core_bits)
    return np.array([*asked, *known, tables.fragment, tables.fill, tables.rank_step], dtype=np.int64)


def _model_cost(tables: Tables, ask: Ask) -> Ints:
    takes = np.array([not ask.models or model in ask.models for model in range(-1, tables.models)])
    if not ask.device_milli:
        return np.zeros(tables.models + 1, dtype=np.int64)
    cost = tables.scarcity * ask.device_milli // DEVICE if takes[1:].all() else np.zeros_like(tables.scarcity)
    result: Ints = np.where(takes, cost, NO_FIT)
    return result


def _taken(tables: Tables, milli: int) -> Ints:
    if not milli:
        return np.empty(0, dtype=np.int64)
    taken = np.full(DEVICE + 1, NO_FIT, dtype=np.int64)
    taken[milli:] = tables.worth[milli:] - tables.worth[: DEVICE + 1 - milli]
    return taken


def costs(tables: Tables, arrays: Arrays, ask: Ask, rows: Ints | None = None) -> Ints:
    """int64[K]: what one unit of the ask costs on each row (all rows, if none are given), in micro-GPU; NO_FIT where it
    does not fit. The tables must know every model and size of node in the arrays."""
    if rows is None:
        rows = np.arange(len(arrays.rank), dtype=np.int64)
    known = ready(tables, ask)
    at = _rows(arrays, ask, rows)
    cost = arrays.rank.take(rows) * np.int64(tables.rank_step)
    cost >>= SHIFT
    cost += known.model_cost.take(at.model)
    waste = _waste(tables, at)
    cost += waste[1]
    cost -= waste[0]
    if tables.fill:
        cost += at.idle[1] * tables.fill // np.maximum(arrays.gpus.take(rows), 1)
    inside = _usable_inside(tables, at) if tables.fragment else None
    free_bytes = _columns(arrays.device_bytes, rows) if ask.device_bytes else None
    if ask.milli:
        cost += _by_slot(tables, ask, at, free_bytes, inside).min(axis=0, initial=NO_FIT)
    else:
        if ask.gpus:
            cost[_too_few_whole(ask, at, free_bytes)] = NO_FIT
        if inside is not None:
            cost += _fragment_whole(tables, ask, at, inside)
    cost[((at.cores[1] | at.memory[1]) < 0) | (cost > NO_FIT // 2)] = NO_FIT
    return cost


def renew(tables: Tables, arrays: Free, ask: Ask, found: NDArray[np.int32], stale: Stale) -> None:
    """Renew, in place, int32[N] costs of one unit on rows that have changed; NO_FIT also where the node is closed."""
    rows = ((arrays.touched[: len(found)] > stale.since) & stale.eligible).nonzero()[0]
    if not len(rows):
        return
    able = _able(arrays, ask, rows)
    if len(able) < len(rows):
        found[rows] = NO_FIT
        rows = able
        if not len(rows):
            return
    cost = costs(tables, arrays, ask, rows)
    if stale.more is not None:
        cost += stale.more[rows]
        np.minimum(cost, NO_FIT, out=cost)
    found[rows] = cost


def _able(arrays: Free, ask: Ask, rows: Ints) -> Ints:
    """Those of the rows that are open and may have the devices: most of a full cluster have not."""
    able = arrays.open.take(rows)
    if ask.gpus:
        able &= arrays.whole.take(rows) >= ask.gpus
    elif ask.milli:
        able &= (arrays.milli.take(rows, axis=0) >= ask.milli).any(axis=1)
    return rows[able]


def _columns(table: NDArray[Any], rows: Ints) -> NDArray[Any]:
    """[D, K]: devices first, since numpy adds up along the first axis much faster than along a short last one."""
    return np.ascontiguousarray(table.take(rows, axis=0).T)


def _rows(arrays: Arrays, ask: Ask, rows: Ints) -> Rows:
    milli = _columns(arrays.milli, rows)
    pairs = np.empty((3, 2, len(rows)), dtype=np.int64)
    cores, memory, idle = pairs
    arrays.free_cores.take(rows, out=cores[0], mode="clip")
    arrays.free_memory.take(rows, out=memory[0], mode="clip")
    np.add.reduce(milli, axis=0, dtype=np.int64, out=idle[0])
    np.subtract(cores[0], ask.cores, out=cores[1])
    np.subtract(memory[0], ask.memory, out=memory[1])
    np.subtract(idle[0], ask.device_milli, out=idle[1])
    model = arrays.model.take(rows) + np.int64(1)
    return Rows(model, milli, arrays.whole.take(rows), cores, memory, idle)


def _waste(tables: Tables, at: Rows) -> Ints:
    """[2, K]: idle devices without cores or memory, and cores that no combination uses."""
    served = at.cores * tables.per_core
    if tables.per_mib:
        by_memory = at.memory >> MIB_BITS
        by_memory *= tables.per_mib
        np.minimum(served, by_memory, out=served)
    served >>= SHIFT
    waste = at.idle * tables.strand
    waste -= served
    np.maximum(waste, 0, out=waste)
    _, tenths, cells = tables.spare.shape
    if cells > 1:
        index = at.idle // MILLI_IN_TENTH
        index += tables.spare_of.take(at.model) * tenths
        index *= cells
        index += np.minimum(at.cores >> tables.core_bits, cells - 1)
        waste += tables.spare.take(index, mode="clip")
    return waste


class Inside(NamedTuple):
    """What the mix could use of the idle devices; pairs are of the cores before and after."""

    first: Ints  # [2, K] where a device with nothing free stands in `usable`
    slots: Narrow  # [2, D, K]
    many: Ints  # [2, K] where a node with no whole device stands in `usable_many`


def _usable_inside(tables: Tables, at: Rows) -> Inside:
    _, steps, states = tables.usable.shape
    row = tables.core_bins.searchsorted(at.cores, side="right")
    row += at.model * steps
    first = row * states
    slots = tables.usable.take(first[:, None, :] + at.milli, mode="clip")
    row *= tables.usable_many.shape[2]
    return Inside(first, slots, row)


def _fragment_whole(tables: Tables, ask: Ask, at: Rows, inside: Inside) -> Ints:
    """[K]: idle devices that the mix cannot use, after less before, for whole devices or none."""
    used = np.add.reduce(inside.slots, axis=1, dtype=np.int64)
    many = inside.many
    many += at.whole
    if ask.gpus:
        many[1] -= np.minimum(at.whole, ask.gpus)
    used += tables.usable_many.take(many, mode="clip")
    grown: Ints = used[0] - used[1]
    if ask.gpus:
        grown -= ask.device_milli * tables.fragment
        grown += tables.usable.take(inside.first[1] + DEVICE, mode="clip") * np.int64(ask.gpus)
    return grown


def _many(tables: Tables, first: Ints, whole: NDArray[np.int16], less: int) -> Narrow:
    """[K]: what work with several devices could use, with so many whole ones fewer."""
    usable: Narrow = tables.usable_many.take(first + np.maximum(whole - np.int64(less), 0), mode="clip")
    return usable


def _by_slot(tables: Tables, ask: Ask, at: Rows, free_bytes: Ints | None, inside: Inside | None) -> Ints:
    """[D, K]: for a share, what the choice of the device adds; NO_FIT or more for one that cannot take it."""
    cost = ready(tables, ask).taken.take(at.milli)
    if inside is not None:
        cost += inside.slots[1]
        cost -= tables.usable.take(inside.first[1] + np.maximum(at.milli - ask.milli, 0), mode="clip")
        before = _many(tables, inside.many[1], at.whole, 0)
        broken = before - _many(tables, inside.many[1], at.whole, 1)
        cost += np.where(at.milli == DEVICE, broken, 0)
        used = inside.slots.sum(axis=1)
        used[0] += _many(tables, inside.many[0], at.whole, 0)
        used[1] += before
        cost += used[0] - used[1] - ask.milli * tables.fragment
    if free_bytes is not None:
        cost[free_bytes < ask.device_bytes] = NO_FIT
    return cost


def _too_few_whole(ask: Ask, at: Rows, free_bytes: Ints | None) -> NDArray[np.bool_]:
    if free_bytes is None:
        return at.whole < ask.gpus
    fits = ((at.milli == DEVICE) & (free_bytes >= ask.device_bytes)).sum(axis=0)
    few: NDArray[np.bool_] = fits < ask.gpus
    return few


def slots(tables: Tables, arrays: Arrays, ask: Ask, row: int) -> tuple[int, ...]:
    """The devices that a unit takes on a row where it fits: for a share, the one that costs least there (the fuller
    one, then the lower slot, if several do); for whole devices the lowest free ones."""
    milli: list[int] = arrays.milli[row].tolist()
    enough = arrays.device_bytes[row].tolist() if ask.device_bytes else None
    able = [
        slot
        for slot, free in enumerate(milli)
        if (free == DEVICE if ask.gpus else free >= ask.milli)
        and (enough is None or enough[slot] >= ask.device_bytes)
    ]
    if ask.gpus:
        return tuple(able[: ask.gpus])
    if not ask.milli or not able:
        return ()
    if len(able) > 1:
        cost = _by_free(tables, arrays, ask, row, sorted({milli[slot] for slot in able}))
        able.sort(key=lambda slot: (cost[milli[slot]], milli[slot], slot))
    return (able[0],)


def _by_free(tables: Tables, arrays: Arrays, ask: Ask, row: int, states: list[int]) -> dict[int, int]:
    """What a device of the row costs by its free milli: `_by_slot` without what is the same for all devices."""
    taken = ready(tables, ask).taken
    cost = {free: int(taken[free]) for free in states}
    if tables.fragment:
        model, whole = int(arrays.model[row]) + 1, int(arrays.whole[row])
        cores = int(arrays.free_cores[row]) - ask.cores
        at = int(np.searchsorted(tables.core_bins, cores, side="right"))
        usable, many = tables.usable[model, at], tables.usable_many[model, at]
        for free in states:
            cost[free] += int(usable[free]) - int(usable[free - ask.milli])
        if DEVICE in cost:
            cost[DEVICE] += int(many[whole]) - int(many[max(whole - 1, 0)])
    return cost
