"""What queues keep back of their guarantees: GPUs that stay free for them, whoever else waits.

Comes in: the queues of the file, the limit tree's scopes, capacity. Goes out: how many milli-GPU a start in some queue
may still take in a dimension (`gpus@POOL`, `gpus~MODEL`), and whom others make room for. Called by: limits (binds),
scheduler.lent (masks whole lines), scheduler.waits and refuse (the same over copies).

A queue with a guarantee of 8 and a lending limit of 3 *keeps* 5. What it keeps and does not use counts as used for
everybody outside of it; so a start in it that stays within them adds nothing, as in Kueue's cohorts. Queues may lie in
queues: what a queue keeps covers what those below it keep.

    counted(queue) = max(keeps, used by its own jobs + counted of the queues below it)
    a start fits where counted(cluster) stays within the GPUs that there are, or does not grow

There are: devices of the pools that nodes have reported, less those free on nodes that are closed; of pools that grow,
what they may grow to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from orchestrator.ledger.capacity import WHOLE, Capacity, Rows
from orchestrator.ledger.scopes import queue_scope, share_dimension
from orchestrator.model.cluster import ClusterSpec, Pool, Queue

UsedIn = Callable[[str], Mapping[str, int]]  # a scope's name -> what is used there by dimension


@dataclass(frozen=True, slots=True)
class Lent:
    """What others may not have. `left`: milli-GPU that a start may still take, less than 0 where more is taken than
    there is; `kept`: what `queues` keep and do not use."""

    left: int
    there: int
    kept: int
    queues: tuple[str, ...]


@dataclass(slots=True)
class Keeping:
    """One dimension in which queues keep something. `pools` have the nodes that the file names, `grown` is what those
    may have that grow; `below` has the scopes of queues, or of the root, under which somebody keeps."""

    dimension: str
    root: str
    pools: tuple[str, ...]
    grown: int
    most: int  # milli-GPU of all of them at their full size
    keeps: dict[str, int] = field(default_factory=dict)
    below: dict[str, list[str]] = field(default_factory=dict)
    _closed: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    _total: int = 0
    _as_of: tuple[int, int] = (-1, -1)

    def keep(self, line: tuple[str, ...], milli: int) -> None:
        """A queue keeps so much; `line` is its scope and those above it up to the root."""
        self.keeps[line[0]] = milli
        for lower, upper in pairwise(line):
            children = self.below.setdefault(upper, [])
            if lower not in children:
                children.append(lower)

    def there(self, capacity: Capacity) -> int:
        """Milli-GPU of its pools that can be had or are held."""
        self._look(capacity)
        lost = int(capacity.milli[self._closed].sum()) if len(self._closed) else 0
        return self.grown + self._total - lost

    def there_when_empty(self, capacity: Capacity) -> int:
        """The same if nothing ran."""
        self._look(capacity)
        return self.grown + self._total - int(capacity.gpus[self._closed].sum()) * WHOLE

    def there_when_open(self, capacity: Capacity) -> int:
        """The same if no node were closed, either."""
        self._look(capacity)
        return self.grown + self._total

    def _look(self, capacity: Capacity) -> None:
        """Once for as long as nodes stay what they are."""
        if self._as_of != (capacity.version, capacity.turns):
            rows = np.array([row for pool in self.pools for row in capacity.pools.get(pool, ())], np.int64)
            self._as_of = (capacity.version, capacity.turns)
            self._total = int(capacity.gpus[rows].sum()) * WHOLE
            self._closed = rows[~capacity.open[rows]]

    def unused(self, scope: str, used: UsedIn) -> int:
        """What the queue, or those below it, keep and do not use."""
        below = sum(self.unused(child, used) for child in self.below.get(scope, ()))
        keeps = self.keeps.get(scope, 0)
        return max(keeps - used(scope).get(self.dimension, 0), below) if keeps else below

    def lent(self, path: tuple[str, ...], used: UsedIn, there: int) -> Lent:
        """What a start with this path of scopes (inside out) may take.

        `most` is the largest of what the root has left and of what each queue on the path keeps for itself, counted
        with all that others keep around it."""
        dimension = self.dimension
        most = there - used(self.root).get(dimension, 0)
        others: list[str] = []
        at = self.root
        for scope in reversed(path[:-1]):
            others += [one for one in self.below.get(at, ()) if one != scope]
            if scope in self.keeps:
                kept = sum(self.unused(one, used) for one in others)
                most = max(most, self.keeps[scope] - used(scope).get(dimension, 0) + kept)
            at = scope
        others += self.below.get(at, ())
        kept = sum(self.unused(one, used) for one in others)
        queues = tuple(one for one in others if self.unused(one, used))
        return Lent(most - kept, there, kept, queues)


class Lending:
    """All dimensions in which some queue keeps something; usually none."""

    __slots__ = ("by_dimension", "capacity")

    def __init__(self, capacity: Capacity, keepings: Iterable[Keeping] = ()) -> None:
        self.capacity = capacity
        self.by_dimension = {one.dimension: one for one in keepings}

    def there(self) -> dict[str, int]:
        """For each dimension, what is there now."""
        return {name: one.there(self.capacity) for name, one in self.by_dimension.items()}

    def there_when_empty(self) -> dict[str, int]:
        """For each dimension, what would be there if nothing ran."""
        return {name: one.there_when_empty(self.capacity) for name, one in self.by_dimension.items()}

    def there_when_open(self) -> dict[str, int]:
        """The same if no node were closed, either."""
        return {name: one.there_when_open(self.capacity) for name, one in self.by_dimension.items()}

    def most(self) -> dict[str, int]:
        """For each dimension, what its pools have when they are as large as the file lets them be."""
        return {name: one.most for name, one in self.by_dimension.items()}

    def scopes(self) -> Iterable[str]:
        """The scopes whose use matters."""
        return dict.fromkeys(
            name for one in self.by_dimension.values() for name in (one.root, *one.keeps)
        ).keys()


def lending_of(cluster: ClusterSpec, counted: Mapping[str, tuple[str, ...]], capacity: Capacity) -> Lending:
    """As the file says. `counted`: pool -> the dimensions that its GPUs count in."""
    queues = {queue.name: queue for queue in cluster.queues}
    found: dict[str, Keeping] = {}
    for queue in cluster.queues:
        lends = {share_dimension(share): share.gpus for share in queue.lending_limit}
        for share in queue.guarantee:
            dimension = share_dimension(share)
            kept = share.gpus - lends.get(dimension, share.gpus)
            pools = [pool for pool in cluster.pools if dimension in counted.get(pool.name, ())]
            if kept > 0 and pools:
                keeping = found.setdefault(dimension, _keeping(dimension, pools))
                keeping.keep(_line(queues, queue), kept * WHOLE)
    return Lending(capacity, found.values())


def _keeping(dimension: str, pools: list[Pool]) -> Keeping:
    grown = sum(pool.most_nodes() * pool.gpu.count for pool in pools if pool.size is not None and pool.gpu)
    fixed = tuple(pool.name for pool in pools if pool.size is None)
    most = sum(pool.most_nodes() * pool.gpu.count for pool in pools if pool.gpu)
    return Keeping(dimension, queue_scope(""), fixed, grown * WHOLE, most * WHOLE)


def _line(queues: Mapping[str, Queue], queue: Queue) -> tuple[str, ...]:
    found = [queue_scope(queue.name)]
    while queue.parent in queues:
        queue = queues[queue.parent]
        found.append(queue_scope(queue.name))
    return (*found, queue_scope(""))
