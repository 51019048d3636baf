"""What a remainder of a device is worth, by the dual of a cutting-stock program.

Comes in: the shares of a device that a mix asks for, with weights. Goes out: a table of worths. Called by: mix.

The program: the fewest whole devices that hold all shares, each device cut by some pattern. Its dual gives every size a
worth, such that no pattern is worth more than a device; a remainder is worth the best pattern that fits in it. It is
solved by column generation with the simplex method in whole numbers (fraction-free pivots over a common determinant,
ties by the lexicographic rule, which cannot cycle), so every machine finds the same vertex.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod

from orchestrator.ledger.ask import DEVICE

MICRO = 1_000_000
MOST_SIZES = 24  # more would take seconds; the lightest are counted with the next larger one
_Row = list[int]


def worths(demand: Mapping[int, int]) -> list[int]:
    """Worth in micro-GPU of a device with r milli free, for r = 0..1000; a whole one is worth at most 1,000,000.

    `demand` has a weight for each share in milli (1 to 999). Without any, only a whole device is worth something.
    """
    kept = _fewer(demand)
    if not kept:
        return [0] * DEVICE + [MICRO]
    step = gcd(*kept)
    sizes = [size // step for size in kept]
    room = DEVICE // step
    duals, whole = _duals(sizes, list(kept.values()), room)
    best, _ = _fill(sizes, duals, room)
    return [best[free // step] * MICRO // whole for free in range(DEVICE + 1)]


def _fewer(demand: Mapping[int, int]) -> dict[int, int]:
    """The heaviest sizes, ascending; each other one is counted with the next larger that is kept, or not at all."""
    wanted = sorted((size for size, weight in demand.items() if weight > 0), key=lambda s: (-demand[s], s))
    kept = dict.fromkeys(sorted(wanted[:MOST_SIZES]), 0)
    for size in wanted:
        larger = next((other for other in kept if other >= size), None)
        if larger is not None:
            kept[larger] += demand[size]
    return kept


def _duals(sizes: _Row, weights: _Row, room: int) -> tuple[_Row, int]:
    """Worth of each size and of a whole device, as whole numbers on one scale."""
    counts = [room // size for size in sizes]
    scale = prod(counts)
    rows = [
        [0] * (len(sizes) + 1) for _ in sizes
    ]  # per pattern of the basis: how often it is cut, its inverse
    for i, count in enumerate(counts):
        rows[i][0] = scale // count * weights[i]
        rows[i][i + 1] = scale // count
    duals = [sum(row[0] for row in rows), *(scale // count for count in counts)]
    while True:
        column, gain = _entering(sizes, duals[1:], room, scale)
        if gain <= 0:
            return duals[1:], scale
        scale = _pivot(rows, duals, column, gain, scale)


def _entering(sizes: _Row, duals: _Row, room: int, scale: int) -> tuple[_Row, int]:
    """The pattern that saves most, or the surplus of a size that is worth less than nothing; its gain."""
    column = [0] * len(sizes)
    least = min(range(len(sizes)), key=lambda i: (duals[i], i))
    if duals[least] < 0:
        column[least] = -1
        return column, -duals[least]
    best, last = _fill(sizes, duals, room)
    at = room
    while at > 0:
        if last[at] < 0:
            at -= 1
        else:
            column[last[at]] += 1
            at -= sizes[last[at]]
    return column, best[room] - scale


def _fill(sizes: _Row, duals: _Row, room: int) -> tuple[_Row, _Row]:
    """Best total worth of sizes in each room up to the whole, and the size put in last (-1: the best of one less)."""
    best, last = [0] * (room + 1), [-1] * (room + 1)
    for at in range(1, room + 1):
        top, choice = best[at - 1], -1
        for i, size in enumerate(sizes):  # ascending
            if size > at:
                break
            value = best[at - size] + duals[i]
            if value > top:
                top, choice = value, i
        best[at], last[at] = top, choice
    return best, last


def _pivot(rows: list[_Row], duals: _Row, column: _Row, gain: int, scale: int) -> int:
    """Bring a column into the basis; the divisions are exact (Edmonds). Returns the new scale."""
    amounts = [sum(a * c for a, c in zip(row[1:], column, strict=True)) for row in rows]
    out = _leaving(rows, amounts)
    pivot, gone = amounts[out], rows[out]
    for i, row in enumerate(rows):
        if i != out:
            rows[i] = [(a * pivot - amounts[i] * b) // scale for a, b in zip(row, gone, strict=True)]
    duals[:] = [(a * pivot - gain * b) // scale for a, b in zip(duals, gone, strict=True)]
    return pivot


def _leaving(rows: list[_Row], amounts: _Row) -> int:
    """The row with the lexicographically least ratio: of the rows that the column draws on."""
    out = -1
    for i, amount in enumerate(amounts):
        if amount > 0 and (out < 0 or [a * amounts[out] for a in rows[i]] < [b * amount for b in rows[out]]):
            out = i
    return out
