"""`waste.costs` and `waste.renew` again, as loops that numba compiles: the same integers, row by row.

Comes in: what waste takes. Goes out: the same costs. Called by: kernel, which imports this module only when compiled
code is asked for; it needs numba. Whatever changes here changes in waste too (tests/scheduler/test_kernel.py).

Indexes are held inside the tables, since compiled code reads memory unchecked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger import ask as _ask
from orchestrator.ledger.ask import Ask
from orchestrator.scheduler import mix, waste
from orchestrator.scheduler.mix import Ints, Narrow, Tables
from orchestrator.scheduler.waste import Arrays, Free, Ready, Stale, ready

F = TypeVar("F", bound=Callable[..., Any])
Costs = NDArray[np.int32]
ALL = np.empty(0, dtype=np.int64)

# Compiled code keeps the values that it met, and what is kept on disk is compiled again only when this very file has
# changed. So these stand here once more, and the module refuses to load where they are not those of the others.
DEVICE, MILLI_IN_TENTH, SHIFT, MIB_BITS = 1000, 100, 16, 20
NO_FIT = (1 << 31) - 1
if (
    *(_ask.DEVICE, waste.MILLI_IN_TENTH, mix.SHIFT, mix.MIB_BITS),
    waste.NO_FIT,
) != (DEVICE, MILLI_IN_TENTH, SHIFT, MIB_BITS, NO_FIT):
    raise ImportError("the constants of compiled.py are not those of waste, mix and ask")


def compiled(function: F) -> F:
    """Compiled at the first call, and kept on disk where there is a place for it."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # no folder that can be written
        return cast(F, numba.njit(nogil=True)(function))


def inlined(function: F) -> F:
    """Becomes a part of its caller: a call counts the references of each array, which costs more than the sums."""
    return cast(F, numba.njit(inline="always")(function))


def costs(tables: Tables, arrays: Arrays, ask: Ask, rows: Ints | None = None) -> Ints:
    """As waste.costs."""
    known = ready(tables, ask)
    out = np.empty(len(arrays.rank) if rows is None else len(rows), dtype=np.int64)
    _score(
        out,
        ALL if rows is None else rows,
        known,
        (tables.spare, tables.spare_of, tables.core_bins, tables.usable, tables.usable_many),
        (arrays.model, arrays.gpus, arrays.whole, arrays.rank),
        (arrays.milli, arrays.device_bytes),
        (arrays.free_cores, arrays.free_memory),
    )
    return out


def renew(tables: Tables, arrays: Free, ask: Ask, found: Costs, stale: Stale) -> None:
    """As waste.renew."""
    _renew(
        found,
        ready(tables, ask),
        (tables.spare, tables.spare_of, tables.core_bins, tables.usable, tables.usable_many),
        (arrays.model, arrays.gpus, arrays.whole, arrays.rank),
        (arrays.milli, arrays.device_bytes),
        (arrays.free_cores, arrays.free_memory),
        (arrays.touched, stale.since, arrays.open, stale.eligible),
        ALL if stale.more is None else stale.more,
    )


@compiled
def _score(
    out: Ints,
    rows: Ints,
    known: Ready,
    tables: tuple[Narrow, Ints, Ints, Narrow, Narrow],
    small: tuple[NDArray[np.int16], NDArray[np.int16], NDArray[np.int16], NDArray[np.int32]],
    slots: tuple[Narrow, Ints],
    free: tuple[Ints, Ints],
) -> None:
    numbers, model_cost = known.numbers, known.model_cost
    spare, spare_of, bins, usable, many = tables
    gpus, milli, cores_asked, memory_asked = numbers[0], numbers[1], numbers[3], numbers[4]
    fragment, fill, rank_step = numbers[9], numbers[10], numbers[11]
    asked = gpus * DEVICE + milli
    for k in range(len(out)):
        row = rows[k] if len(rows) else k
        cores, memory, whole = free[0][row], free[1][row], small[2][row]
        model = min(small[0][row] + 1, len(model_cost) - 1)
        cost = model_cost[model]
        out[k] = NO_FIT
        if cores < cores_asked or memory < memory_asked or cost >= NO_FIT:
            continue
        if gpus and not _has_whole(slots, row, whole, numbers):
            continue
        after = _bin(bins, cores - cores_asked) if fragment else 0
        if milli:
            cost += _best_slot(slots, row, known.taken, usable, many, (model, after, whole), numbers)
            if cost >= NO_FIT:
                continue
        idle = 0
        for slot in range(slots[0].shape[1]):
            idle += slots[0][row, slot]
        cost += small[3][row] * rank_step >> SHIFT
        place = spare_of[model]
        cost += _waste(numbers, spare, place, idle - asked, cores - cores_asked, memory - memory_asked)
        cost -= _waste(numbers, spare, place, idle, cores, memory)
        if fill:
            cost += (idle - asked) * fill // max(small[1][row], 1)
        if fragment:
            cost -= asked * fragment
            cost += _lost(slots[0], row, usable, many, (model, _bin(bins, cores), after, whole, gpus))
        out[k] = cost if cost <= NO_FIT // 2 else NO_FIT


@compiled
def _renew(
    found: Costs,
    known: Ready,
    tables: tuple[Narrow, Ints, Ints, Narrow, Narrow],
    small: tuple[NDArray[np.int16], NDArray[np.int16], NDArray[np.int16], NDArray[np.int32]],
    slots: tuple[Narrow, Ints],
    free: tuple[Ints, Ints],
    stale: tuple[Ints, int, NDArray[np.bool_], NDArray[np.bool_]],
    more: Ints,
) -> None:
    touched, since, is_open, eligible = stale
    rows = np.empty(len(found), dtype=np.int64)
    count = 0
    for row in range(len(found)):
        rows[count] = row
        count += touched[row] > since and eligible[row]
    if not count:
        return
    out = np.empty(count, dtype=np.int64)
    _score(out, rows[:count], known, tables, small, slots, free)
    for k in range(count):
        row = rows[k]
        cost = out[k] if is_open[row] else NO_FIT
        found[row] = min(cost + more[row], NO_FIT) if len(more) else cost


@inlined
def _has_whole(slots: tuple[Narrow, Ints], row: int, whole: int, numbers: Ints) -> bool:
    gpus: int = numbers[0]
    bytes_asked: int = numbers[2]
    if not bytes_asked:
        return whole >= gpus
    count = 0
    for slot in range(slots[0].shape[1]):
        if slots[0][row, slot] == DEVICE and slots[1][row, slot] >= bytes_asked:
            count += 1
    return count >= gpus


@inlined
def _waste(numbers: Ints, spare: Narrow, place: int, idle: int, cores: int, memory: int) -> int:
    served = cores * numbers[6]
    if numbers[7]:
        served = min(served, (memory >> MIB_BITS) * numbers[7])
    waste: int = max(idle * numbers[5] - (served >> SHIFT), 0)
    _, tenths, cells = spare.shape
    if cells > 1:
        waste += spare[place, min(idle // MILLI_IN_TENTH, tenths - 1), min(cores >> numbers[8], cells - 1)]
    return waste


@inlined
def _bin(bins: Ints, cores: int) -> int:
    """How many of the ascending numbers are no larger."""
    low, high = 0, len(bins)
    while low < high:
        middle = (low + high) >> 1
        if bins[middle] <= cores:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _lost(milli: Narrow, row: int, usable: Narrow, many: Narrow, at: tuple[int, int, int, int, int]) -> int:
    """Usable parts before less those after; a share's own device is left for `_best_slot`."""
    model, before, after, whole, gpus = at
    top = many.shape[2] - 1
    lost: int = many[model, before, min(whole, top)] - many[model, after, min(max(whole - gpus, 0), top)]
    if before != after:
        for slot in range(milli.shape[1]):
            lost += usable[model, before, milli[row, slot]] - usable[model, after, milli[row, slot]]
    lost += gpus * usable[model, after, DEVICE]
    return lost


@inlined
def _best_slot(
    slots: tuple[Narrow, Ints],
    row: int,
    taken: Ints,
    usable: Narrow,
    many: Narrow,
    at: tuple[int, int, int],
    numbers: Ints,
) -> int:
    milli, bytes_asked, fragment = numbers[1], numbers[2], numbers[9]
    model, after, whole = at
    best = NO_FIT
    for slot in range(slots[0].shape[1]):
        free = slots[0][row, slot]
        cost = taken[free]
        if cost >= NO_FIT or (bytes_asked and slots[1][row, slot] < bytes_asked):
            continue
        if fragment:
            cost += usable[model, after, free] - usable[model, after, free - milli]
            if free == DEVICE:
                top = many.shape[2] - 1
                cost += many[model, after, min(whole, top)] - many[model, after, min(max(whole - 1, 0), top)]
        best = min(best, cost)
    return best
