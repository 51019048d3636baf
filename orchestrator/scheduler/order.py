"""Who comes next: the waiting jobs as lines of people in queues, and the fair order over them.

Comes in: State's classes, shapes, limits. Goes out: the next line and cell to try. Called by: memory (keeps the lines),
cycle (asks who is next).

A *line* is the jobs of one scope (a person in a queue, or a throttled array of theirs). It has a cell for each shape,
with the order key of its first job there; equal jobs stand behind it in their class. The first of a line that may start
is one masked minimum over its cells: nobody walks the jobs. Over lines and queues lazy heaps hold the order: keys only
grow within a pass, so an entry is looked at again when it comes up.
"""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.capacity import WHOLE, Flags
from orchestrator.ledger.hours import HOURS
from orchestrator.ledger.limits import Scope
from orchestrator.ledger.scopes import ROOT, queue_scope, share_dimension
from orchestrator.ledger.spending import USD
from orchestrator.ledger.state import JobClass, Place, State
from orchestrator.model.cluster import FairShare, Queue
from orchestrator.scheduler.lent import LentBound, lent_bounds
from orchestrator.scheduler.policy import Policy
from orchestrator.scheduler.shapes import Shape

NEVER: Final = (1 << 63) - 1
ANY_POOL: Final = -1
HORIZON_S: Final = (
    3600  # what is held counts as if it were held so long: else one pass would give all to one queue
)
_JOBS: Final = 1 << 40  # ids are below this; priorities stand above them in a key
_FEW: Final = 16  # cells: of so many each is looked at, which is quicker than one step over arrays
Counted = dict[str, tuple[int, ...]]  # dimension -> the numbers of the pools whose GPUs count in it
Key = tuple[int, int, int]  # what the three are depends on who compares


def order_key(place: Place) -> int:
    """A job's place in one integer: lower comes first."""
    return place.rank * _JOBS + place.job


class Bound(NamedTuple):
    """A ceiling or a guarantee that a line looks at: of gangs that go to these pools alone, or (none) of all."""

    scope: Scope
    dimension: str
    pools: tuple[int, ...]
    most: int

    def left(self) -> int:
        """How much of it nobody has taken."""
        return self.most - self.scope.used.get(self.dimension, 0)

    def lets(self, ask: int, pool: int) -> bool:
        """Whether one more gang that asks for so much, and can only go to that pool, may start for all that it says."""
        if self.dimension == "jobs":
            return self.left() >= 1
        return (bool(self.pools) and pool not in self.pools) or ask <= max(self.left(), 0)


class Line:
    """The waiting jobs of one scope. The columns have an entry for each cell."""

    __slots__ = (
        "_few",
        "_open",
        "_open_of",
        "asks",
        "best",
        "bounds",
        "branch",
        "cells",
        "classes",
        "coming",
        "count",
        "dirty",
        "hours",
        "keys",
        "limited",
        "live",
        "money",
        "numbers",
        "past",
        "path",
        "person",
        "pools",
        "scope",
        "shapes",
        "stopped",
        "taken",
        "under",
        "within",
    )

    def __init__(
        self, scope: str, path: tuple[Scope, ...], branch: Branch, counted: Counted, array: int = 0
    ) -> None:
        self.scope = scope
        self.path = path
        self.person = path[1] if array else path[0]
        self.branch = branch
        self.bounds: list[Bound | LentBound] = [b for each in path for b in _ceilings(each, counted)]
        self.limited = tuple(each for each in path if each.ceilings)
        self.money = tuple(each for each in path if USD in each.ceilings)
        self.hours = any(HOURS in each.ceilings for each in path)
        self.live = 0  # cells in which somebody waits
        self.cells: dict[int, int] = {}  # number of a shape -> its cell
        self.count = 0
        self.keys = np.zeros(0, np.int64)
        self.asks = np.zeros(0, np.int64)  # milli-GPU of a gang
        self.pools = np.zeros(0, np.int64)  # the only pool of a shape
        self.numbers = np.zeros(0, np.int64)  # of shapes
        self.stopped = np.zeros(0, bool)  # to be left alone for the rest of a pass
        # key, ask, pool and number of cells that the columns do not have yet
        self.coming: list[tuple[int, int, int, int]] = []
        self.shapes: list[Shape] = []
        self.classes: list[JobClass] = []
        self.taken: dict[int, int] = {}  # cell -> jobs that this pass has started
        self.past = 0  # milli-GPU-seconds used of late
        self.best = -1  # the cell that is first, if not dirty; -1: none
        self.dirty = True
        # Ask, pool and number of each cell, if they are few.
        self._few: list[tuple[int, int, int]] | None = None
        self._look_at_pools()
        self._open = self.keys  # NEVER for cells that may not start
        self._open_of: Flags | None = None  # the flags of closed shapes for which it is kept up to date

    def put(self, found: JobClass, shape: Shape, pool: int) -> bool:
        """The class waits here, its first job is another one now, or it has none any more; whether that is news: who
        stands behind the first does not matter to a pass that starts nobody."""
        key = order_key(found.waiting[0]) if found.waiting else NEVER
        cell = self.cells.get(shape.number)
        if cell is None:
            cell = self.cells[shape.number] = self.count
            self.count += 1
            self.coming.append((key, shape.milli, pool, shape.number))
            self.shapes.append(shape)
            self.classes.append(found)
            self.live += key != NEVER
            return True
        if cell >= len(self.keys):
            self.build()
        self.classes[cell] = found
        before = int(self.keys[cell])
        self.live += (key != NEVER) - (before != NEVER)
        self.keys[cell] = key
        return key != before

    def build(self) -> None:
        """Cells that have come since the columns were last made get their entries."""
        if self.coming:
            new = zip(*self.coming, strict=True)
            for name, column in zip(("keys", "asks", "pools", "numbers"), new, strict=True):
                setattr(self, name, np.concatenate([getattr(self, name), np.array(column, np.int64)]))
            self.stopped = np.zeros(self.count, bool)
            self.coming = []
            self._few = None
            if self.count <= _FEW:
                asks, pools, numbers = self.asks.tolist(), self.pools.tolist(), self.numbers.tolist()
                self._few = list(zip(asks, pools, numbers, strict=True))
            self._look_at_pools()

    def _look_at_pools(self) -> None:
        """Which cells each bound can bind by their pools, and which each guarantee of its queue can hold. Every pass
        asks, and only new cells change it."""
        self.under: list[Flags] = [np.isin(self.pools, bound.pools) for bound in self.bounds]
        self.within: list[Flags] = [
            np.isin(self.pools, (*bound.pools, ANY_POOL)) & (self.asks > 0)
            for bound in self.branch.guarantee()
        ]

    def first(self, closed: Flags, guaranteed: bool) -> int:
        """The cell of the first job that limits let start and whose shape is not closed; -1 if there is none."""
        if not self.dirty and (self.best < 0 or self._may(self.best, closed, guaranteed)):
            return self.best
        if self._few is not None and (self.bounds or guaranteed):  # else one mask serves the whole round
            self.best = self._first_of_few(self._few, closed, guaranteed)
            self.dirty = False
            return self.best
        if self._open_of is not closed:
            self._mask(closed, guaranteed)
        cell = int(self._open.argmin())
        if not self._may(cell, closed, guaranteed):  # since they were masked
            self._mask(closed, guaranteed)
            cell = int(self._open.argmin())
        self.best = cell if self._open[cell] != NEVER else -1
        self.dirty = False
        return self.best

    def _first_of_few(self, few: list[tuple[int, int, int]], closed: Flags, guaranteed: bool) -> int:
        best, least = -1, NEVER
        for cell, key in enumerate(self.keys.tolist()):
            if key < least and not self.stopped[cell]:
                ask, pool, number = few[cell]
                if not closed[number] and self._lets(ask, pool, guaranteed):
                    best, least = cell, key
        return best

    def _mask(self, closed: Flags, guaranteed: bool) -> None:
        """Make the keys of the cells that may start, NEVER for the others. They are kept for the round: ever less is
        open, and limits leave ever less, so that whoever comes first is looked at again, and nobody else."""
        out = self.stopped | closed[self.numbers]
        if self.bounds:
            self._mask_bounds(out)
        if guaranteed:
            out |= ~self._within_guarantee()
        self._open = np.where(out, NEVER, self.keys)
        self._open_of = closed

    def _may(self, cell: int, closed: Flags, guaranteed: bool) -> bool:
        """Whether the cell may start still: others of its queue may have taken what was left of a limit."""
        if closed[self.numbers[cell]]:
            return False
        if not self.bounds and not guaranteed:
            return True
        return self._lets(int(self.asks[cell]), int(self.pools[cell]), guaranteed)

    def _lets(self, ask: int, pool: int, guaranteed: bool) -> bool:
        """Whether a gang that asks for so much and can only go to that pool may start, as `_mask` says it of all."""
        for bound in self.bounds:
            if not bound.lets(ask, pool):
                return False
        return not guaranteed or any(
            (pool in bound.pools or pool == ANY_POOL) and 0 < ask <= bound.left()
            for bound in self.branch.guarantee()
        )

    def _mask_bounds(self, out: Flags) -> None:
        """Cells whose gangs would pass a ceiling whatever they did."""
        asks = self.asks[: self.count]
        for bound, under in zip(self.bounds, self.under, strict=True):
            left = bound.left()
            if bound.dimension == "jobs":
                if left < 1:
                    out[:] = True
            elif not bound.pools:
                out |= asks > max(left, 0)  # who asks for nothing of it never minds
            else:
                out |= (asks > max(left, 0)) & under

    def _within_guarantee(self) -> Flags:
        """Cells whose gangs stay within what their queue is guaranteed in some pool that they can go to."""
        asks = self.asks[: self.count]
        inside: Flags = np.zeros(self.count, bool)
        for bound, within in zip(self.branch.guarantee(), self.within, strict=True):
            inside |= within & (asks <= bound.left())
        return inside

    def start(self, cell: int) -> None:
        """Its first job has started in this pass: the next one is first."""
        taken = self.taken[cell] = self.taken.get(cell, 0) + 1
        waiting = self.classes[cell].waiting
        self.keys[cell] = order_key(waiting[taken]) if taken < len(waiting) else NEVER
        if self._open_of is not None:
            self._open[cell] = self.keys[cell]
        self.dirty = True

    def job(self, cell: int) -> int:
        """The id of the first job of a cell."""
        return self.classes[cell].waiting[self.taken.get(cell, 0)].job

    def stop(self, cell: int) -> None:
        """Leave a cell alone for the rest of this pass."""
        self.stopped[cell] = True
        if self._open_of is not None:
            self._open[cell] = NEVER
        self.dirty = True

    def begin(self) -> None:
        """Nothing is known of who is first: called before a round, when all that was remembered may have changed."""
        self.build()
        self._open_of = None
        self.dirty = True

    def reset(self) -> None:
        """After a pass: as State has it."""
        for cell in self.taken:
            waiting = self.classes[cell].waiting
            self.keys[cell] = order_key(waiting[0]) if waiting else NEVER
        self.taken.clear()
        self.stopped[: self.count] = False
        self.dirty = True

    def share(self) -> int:
        """What its person holds in the queue, and has used there of late, in milli-GPU-seconds."""
        return self.past + self.person.used.get("gpus", 0) * HORIZON_S

    def left(self) -> bool:
        """Whether somebody waits in it whom this pass has not started."""
        return bool((self.keys[: self.count] < NEVER).any())


def _ceilings(scope: Scope, counted: Counted) -> list[Bound]:
    """A scope's ceilings; those of pools and models that are gone bind nobody."""
    found: list[Bound] = []
    for dimension, most in scope.ceilings.items():
        pools = () if dimension in ("jobs", "gpus") else counted.get(dimension)
        if pools is not None:
            found.append(Bound(scope, dimension, pools, most))
    return found


class Branch:
    """A queue: its own lines, and the queues below it."""

    def __init__(self, scope: Scope, queue: Queue | None, above: Branch | None, counted: Counted) -> None:
        self.scope = scope
        self.weight = max(queue.weight, 1) if queue else 1
        self.above = above
        self.lines: list[Line] = []
        self.branches: list[Branch] = []
        self.past = 0  # milli-GPU-seconds used of late
        self.heap: list[tuple[Key, int, Line | Branch]] = []
        self.called = False  # whether it stands in the heap above it
        self._guarantee = [
            Bound(scope, dimension, counted[dimension], share.gpus * WHOLE)
            for share in (queue.guarantee if queue else ())
            if (dimension := share_dimension(share)) in counted
        ]

    def guarantee(self) -> list[Bound]:
        """Its own guarantee, or the nearest one above it."""
        if self._guarantee or self.above is None:
            return self._guarantee
        return self.above.guarantee()

    def share(self) -> int:
        """What it holds and has used of late for each unit of weight, in micro-GPU-seconds; work without GPUs counts by
        its jobs, far below any GPU."""
        used = self.scope.used
        milli = self.past + used.get("gpus", 0) * HORIZON_S
        return (milli * WHOLE + used.get("jobs", 0)) // self.weight


class Lines:
    """All lines, and the tree of queues over them."""

    def __init__(self, state: State) -> None:
        self.pools = {name: number for number, name in enumerate(state.capacity.pools)}
        self._counted: Counted = {}
        for name, number in self.pools.items():
            for dimension in state.dimensions.get(name, ())[1:]:
                self._counted[dimension] = (*self._counted.get(dimension, ()), number)
        self.lines: dict[str, Line] = {}  # by scope
        self.waiting: dict[str, Line] = {}  # those in which somebody waits
        self._owned: dict[tuple[str, str, int], Line] = {}  # by queue, person and throttled array
        self.branches: dict[str, Branch] = {}
        self.root = self._branch(state, "")
        for queue in state.cluster.queues if state.cluster else ():
            self._branch(state, queue.name)
        self.guarantees = any(branch.guarantee() for branch in self.branches.values())

    def _branch(self, state: State, name: str) -> Branch:
        known = self.branches.get(name)
        if known is not None:
            return known
        queue = state.queue(name) if name else None
        above = self._branch(state, queue.parent if queue else "") if name else None
        scope = state.limits.path(queue_scope(name) if name else ROOT)[0]
        branch = self.branches[name] = Branch(scope, queue, above, self._counted)
        if above is not None:
            above.branches.append(branch)
        return branch

    def put(self, state: State, found: JobClass, shape: Shape) -> bool:
        """The class waits, or waits otherwise than before; whether it has another first job now."""
        key = found.key
        owner = key.queue, key.owner, key.array
        line = self._owned.get(owner)
        if line is None and not found.waiting:
            return False
        if line is None:
            scope = state.scope_of(key)
            branch = self._branch(state, key.queue)
            path = state.limits.path(scope)
            line = self._owned[owner] = Line(scope, path, branch, self._counted, key.array)
            line.bounds += lent_bounds(state.limits, scope, self._counted)
            self.lines[scope] = line
            branch.lines.append(line)
        news = line.put(found, shape, self.pools.get(shape.only_pool, ANY_POOL))
        if line.live:
            self.waiting[line.scope] = line
            return news
        self.waiting.pop(line.scope, None)
        if key.array:  # people come back, arrays go for good
            del self._owned[owner]
            line.branch.lines.remove(self.lines.pop(line.scope))
        return news

    def recall(self, state: State, now_us: int) -> None:
        """What everybody has used of late, where the file shares by that."""
        half_life_s = state.half_life_s
        if half_life_s:
            known = state.used
            for line in self.waiting.values():
                name = line.person.name
                line.past = known[name].at(now_us, half_life_s) if name in known else 0
            for branch in self.branches.values():
                name = branch.scope.name
                branch.past = known[name].at(now_us, half_life_s) if name in known else 0

    def reset(self) -> None:
        """After a pass: as State has it."""
        for line in self.waiting.values():
            line.reset()

    def left(self) -> bool:
        """Whether somebody waits whom this pass has not started."""
        return any(line.left() for line in self.waiting.values())


class Turn:
    """The order of one round of a pass. `closed` has a flag for each shape's number; `guaranteed`: only what stays
    within its queue's guarantee."""

    def __init__(self, lines: Lines, policy: Policy, closed: NDArray[np.bool_], guaranteed: bool) -> None:
        self.closed = closed
        self._fair = policy.fair_share is not FairShare.OFF
        self._guaranteed = guaranteed
        self._root = lines.root
        for branch in lines.branches.values():
            branch.called = False
        self._root.heap = []
        called: list[Branch] = []
        for number, line in enumerate(lines.waiting.values()):
            line.begin()
            self._call(line, number, line.branch, called)
        for branch in called:
            heapq.heapify(branch.heap)

    def _call(self, child: Line | Branch, number: int, branch: Branch, called: list[Branch]) -> None:
        """Put it into the heap of its queue, and that queue into the one above it. Numbers only tell equal keys apart:
        a queue has that of its first line."""
        if not branch.called:
            branch.called = True
            branch.heap = []
            called.append(branch)
            if branch.above is not None:
                self._call(branch, number, branch.above, called)
        branch.heap.append((self._least(child), number, child))

    def _least(self, child: Line | Branch) -> Key:
        """No more than its key can be: whoever comes to the top is looked at closely, and nobody else."""
        return (child.share(), -NEVER, 0) if self._fair and isinstance(child, Branch) else (-NEVER, 0, 0)

    def next(self) -> tuple[Line, int] | None:
        """The line and the cell whose job comes next; None when nobody is left."""
        found = self._first(self._root)
        return found[1:] if found is not None else None

    def _first(self, branch: Branch) -> tuple[int, Line, int] | None:
        """The order key, line and cell of the branch's first job. Entries that have grown since are put back."""
        heap = branch.heap
        while heap:
            known, number, child = heap[0]
            found = self._first(child) if isinstance(child, Branch) else self._of_line(child)
            if found is None:
                heapq.heappop(heap)
                continue
            key = self._key(child, found[0])
            if key == known:
                return found
            heapq.heapreplace(heap, (key, number, child))
        return None

    def _of_line(self, line: Line) -> tuple[int, Line, int] | None:
        cell = line.first(self.closed, self._guaranteed)
        return (int(line.keys[cell]), line, cell) if cell >= 0 else None

    def _key(self, child: Line | Branch, order: int) -> Key:
        """Between queues the share decides, then the order of their first jobs; between people of one queue priority,
        then the share, then submit order."""
        if not self._fair:
            return (0, order, 0)
        if isinstance(child, Branch):
            return (child.share(), order, 0)
        return (order // _JOBS, child.share(), order)
