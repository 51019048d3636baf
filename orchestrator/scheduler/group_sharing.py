"""Which nodes of one pool go to which of the groups that want them: each node to one group at most.

Comes in: for each group the rows that take units of it, and how many units it wants. Goes out: rows for each, or None.
Called by: groups.

Groups are served one after the other, in every order, each as close together and as cheaply as if it were alone. Where
no order serves all, rows that take the same of every group are counted as one kind, and every way to deal out the kinds
is tried. So None means that there is no way, as long as the steps that are given last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, permutations

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import Rows
from orchestrator.ledger.topology import Domains
from orchestrator.scheduler.domains import Candidates, choose

MOST_ORDERS = 24  # all of four groups
MOST_KINDS = 256  # the search goes as deep as there are kinds
Units = tuple[int, ...]  # of each group
Found = tuple[Candidates, ...]  # by group


@dataclass(slots=True)
class Steps:
    """How much may still be tried; when nothing is left, None proves nothing."""

    left: int

    def take(self) -> bool:
        """Whether one more step may be taken."""
        self.left -= 1
        return self.left >= 0

    @property
    def out(self) -> bool:
        """Whether something was left untried."""
        return self.left < 0


def share(found: Found, wanted: Units, levels: tuple[Domains, ...], steps: Steps) -> Found | None:
    """Rows for so many units of each group, no row for two. `levels`: those inside the domain, from the inside out."""
    if len(found) == 1:
        return _alone(found[0], wanted[0], levels, steps)
    tightest = sorted(range(len(found)), key=lambda group: int(found[group].units.sum()) / wanted[group])
    for order in islice(permutations(tightest), MOST_ORDERS):
        if not steps.take():
            return None
        chosen = _in_turn(found, wanted, levels, order)
        if chosen is not None:
            return chosen
    return _deal(found, wanted, steps)


def _alone(found: Candidates, wanted: int, levels: tuple[Domains, ...], steps: Steps) -> Found | None:
    chosen = choose(found, wanted, levels, len(levels), len(levels)) if steps.take() else None
    return (chosen,) if chosen is not None else None


def _in_turn(
    found: Found, wanted: Units, levels: tuple[Domains, ...], order: tuple[int, ...]
) -> Found | None:
    chosen: dict[int, Candidates] = {}
    taken: Rows = np.zeros(0, np.int64)
    for group in order:
        left = found[group].of(~np.isin(found[group].rows, taken))
        one = choose(left, wanted[group], levels, len(levels), len(levels)) if len(left.rows) else None
        if one is None:
            return None
        chosen[group] = one
        taken = np.append(taken, one.rows)
    return tuple(chosen[group] for group in range(len(found)))


# --- every way ------------------------------------------------------------------------------------------------


def _deal(found: Found, wanted: Units, steps: Steps) -> Found | None:
    rows: Rows = np.unique(np.concatenate([one.rows for one in found]))
    units: NDArray[np.int64] = np.zeros((len(found), len(rows)), np.int64)
    for group, one in enumerate(found):
        units[group, np.searchsorted(rows, one.rows)] = one.units
    columns, kind_of, counts = np.unique(units, axis=1, return_inverse=True, return_counts=True)
    kinds = [tuple(column) for column in columns.T.tolist()]
    if len(kinds) > MOST_KINDS:
        steps.left = -1
        return None
    order = sorted(range(len(kinds)), key=lambda kind: sum(most > 0 for most in kinds[kind]))
    search = _Search([kinds[kind] for kind in order], [int(counts[kind]) for kind in order], steps)
    splits = search.split(0, wanted)
    if splits is None:
        return None
    dealt: list[list[int]] = [[] for _ in found]
    for kind, split in zip(order, splits, strict=False):
        places = np.flatnonzero(kind_of.reshape(-1) == kind).tolist()
        for group, count in enumerate(split):
            dealt[group] += places[:count]
            places = places[count:]
    return tuple(
        _exactly(found[group], rows[sorted(dealt[group])], wanted[group]) for group in range(len(found))
    )


def _exactly(found: Candidates, rows: Rows, wanted: int) -> Candidates:
    """So many units of these rows: the last of them gives what is left, and rows that nothing is left for go."""
    chosen = found.of(np.isin(found.rows, rows))
    before = np.cumsum(chosen.units) - chosen.units
    chosen = chosen.of(before < wanted)
    units = np.minimum(chosen.units, wanted - before[before < wanted])
    return Candidates(chosen.rows, units, chosen.costs)


class _Search:
    """Deals out kinds of rows, one kind after the other; those that only one group wants come first."""

    def __init__(self, kinds: list[Units], counts: list[int], steps: Steps) -> None:
        self._kinds = kinds
        self._counts = counts
        self._steps = steps
        self._failed: dict[tuple[int, Units], bool] = {}
        left = [0] * len(kinds[0])
        self._left = [tuple(left)]  # what this kind and those after it give each group at most
        for kind, count in zip(reversed(kinds), reversed(counts), strict=True):
            left = [most + each * count for most, each in zip(left, kind, strict=True)]
            self._left.insert(0, tuple(left))

    def split(self, at: int, needs: Units) -> tuple[Units, ...] | None:
        """How many rows of each kind from there on go to each group; None if that can't be."""
        if not any(needs):
            return ()
        if (at, needs) in self._failed or any(
            need > most for need, most in zip(needs, self._left[at], strict=True)
        ):
            return None
        if not self._steps.take():
            return None
        kind = self._kinds[at]
        for counts in _splits(self._counts[at], needs, kind):
            given = zip(needs, counts, kind, strict=True)
            rest = self.split(at + 1, tuple(max(need - count * each, 0) for need, count, each in given))
            if rest is not None:
                return (counts, *rest)
        self._failed[at, needs] = True
        return None


def _splits(count: int, needs: Units, kind: Units) -> Iterator[Units]:
    """Every way to deal out so many rows of a kind of which none is worse than another one: a group gets no more than
    it needs, and the last one all that is left."""
    most = [-(-need // each) if each else 0 for need, each in zip(needs, kind, strict=True)]
    wanting = [group for group, rows in enumerate(most) if rows]

    def deal(at: int, left: int, counts: Units) -> Iterator[Units]:
        if at == len(wanting):
            yield counts
            return
        group = wanting[at]
        high = min(most[group], left)
        low = high if at == len(wanting) - 1 else 0
        for rows in range(high, low - 1, -1):
            yield from deal(at + 1, left - rows, (*counts[:group], rows, *counts[group + 1 :]))

    yield from deal(0, count, (0,) * len(needs))
