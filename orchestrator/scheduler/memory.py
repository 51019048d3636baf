"""What the scheduler keeps between passes, so that a pass costs what has changed.

Comes in: State. Goes out: `Memory`: the shapes that wait, the lines of waiting jobs, which shapes are closed. Called
by: cycle.

All of it is derived from State. A shape is *closed* when a pass could not place it and nothing has grown since on a row
that would take a unit of it: trying it again would fail again. It is *hopeless* when it would not fit even if nothing
ran on the nodes that are open now. So a pass with this memory decides what one without it decides (a property test
holds the two equal), and it is dropped whenever in doubt: `State.rebuild` does so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.ask import Ask
from orchestrator.ledger.capacity import WHOLE, Capacity, Flags, Rows
from orchestrator.ledger.power import Headroom
from orchestrator.ledger.slices import Slices
from orchestrator.ledger.state import JobClass, ShapeKey, State
from orchestrator.ledger.topology import Topology
from orchestrator.model.cluster import Preset as PresetWord
from orchestrator.scheduler import kernel, waste
from orchestrator.scheduler.ends import Ends
from orchestrator.scheduler.grouped import Grouped
from orchestrator.scheduler.mig import Weights, weights_of
from orchestrator.scheduler.mix import Kind, Tables, tables, typical
from orchestrator.scheduler.order import Lines
from orchestrator.scheduler.policy import Policy
from orchestrator.scheduler.presets import FILLING, STANDARD
from orchestrator.scheduler.shapes import Scale, Shape
from orchestrator.scheduler.spend import Paid

MANY_ROWS = 256
PRESETS = {PresetWord.STANDARD: STANDARD, PresetWord.FILLING: FILLING}
SPARE_SHAPES = 512  # shapes that nobody asks for any more and that are kept all the same


@dataclass(frozen=True, slots=True)
class Whole:
    """What the nodes have in all, as copies."""

    gpus: NDArray[np.int16]
    device_memory: NDArray[np.int64]
    cores: NDArray[np.int64]
    memory: NDArray[np.int64]
    most_plain_cores: NDArray[np.int64]
    most_plain_memory: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was free at one moment, as copies that nobody changes; the names are those of `Capacity`."""

    open: Flags
    whole: NDArray[np.int16]
    parts: NDArray[np.int32]
    milli: NDArray[np.int32]
    device_bytes: NDArray[np.int64]
    free_cores: NDArray[np.int64]
    free_memory: NDArray[np.int64]
    plain_cores: NDArray[np.int64]
    plain_memory: NDArray[np.int64]
    slices: Slices
    touches: int = 0  # how often any row had been touched

    @staticmethod
    def of(capacity: Capacity) -> Snapshot:
        """As things are now."""
        count = capacity.rows
        return Snapshot(
            capacity.open[:count].copy(),
            capacity.whole[:count].copy(),
            capacity.parts[:count].copy(),
            capacity.milli[:count].copy(),
            capacity.device_bytes[:count].copy(),
            capacity.free_cores[:count].copy(),
            capacity.free_memory[:count].copy(),
            capacity.plain_cores[:count].copy(),
            capacity.plain_memory[:count].copy(),
            capacity.slices.copy(),
            capacity.touches,
        )

    def grown(self, capacity: Capacity) -> Rows:
        """Open rows where anything is more than it was here."""
        rows = np.flatnonzero(capacity.touched[: capacity.rows] > self.touches)
        rows = rows[capacity.open[rows]]
        more = (
            ~self.open[rows]
            | (capacity.whole[rows] > self.whole[rows])
            | (capacity.free_cores[rows] > self.free_cores[rows])
            | (capacity.free_memory[rows] > self.free_memory[rows])
            | ((capacity.parts[rows] == 0) & (self.parts[rows] > 0))
        )
        more |= (capacity.milli[rows] > self.milli[rows]).any(axis=1)
        more |= (capacity.device_bytes[rows] > self.device_bytes[rows]).any(axis=1)
        if self.slices.held.size:
            more |= self.slices.freed(capacity.slices, rows)
        found: Rows = rows[more]
        return found


class Memory:
    """One for a State, until something comes that it can't follow."""

    def __init__(self, state: State, policy: Policy) -> None:
        self.version = state.capacity.version
        self.cluster = state.cluster
        count = state.capacity.rows
        self.totals = Whole(
            state.capacity.gpus[:count].copy(),
            state.capacity.device_memory[:count].copy(),
            state.capacity.cores[:count].copy(),
            state.capacity.memory[:count].copy(),
            state.capacity.most_plain_cores[:count].copy(),
            state.capacity.most_plain_memory[:count].copy(),
        )
        self.software = state.capacity.software[:count].copy()
        self.ends = Ends(state.capacity)
        self.topology = Topology(state.cluster, state.capacity)
        self.shapes: dict[ShapeKey, Shape] = {}
        self._by_state: dict[int, Shape] = {}  # by the number that State has for it
        self.closed: Flags = np.zeros(64, bool)  # by number of a shape
        self.hopeless: Flags = np.zeros(64, bool)
        self._asks = np.zeros((5, 64), np.int64)  # of a unit: devices, milli and bytes of one, cores, memory
        self._gangs = np.zeros((4, 64), np.int64)  # units, whether spread, the level, the pools as a mask
        self._alone: Flags = np.zeros(64, bool)  # whether its nodes must be nobody else's
        self._plain: Flags = np.zeros(64, bool)  # whether it may not have what is kept for GPUs
        self._suits = np.zeros(64, np.int64)  # the place among these of the rows that are eligible
        self._eligible: list[Flags] = []
        self._harder: dict[int, tuple[int, Rows]] = {}  # by number of a shape: of how many shapes, and which
        self._known: dict[bytes, int] = {}  # their places by what they hold
        self._kinds = _kinds(state.capacity)
        self._weighed = (state.demand.version, policy.placement)
        self.scale = Scale(
            self._tables(state, policy),
            *_code(policy, state.capacity.rows),
            policy.models_ranked,
            _profiles(state),
        )
        self.lines = Lines(state)
        self.watts: Headroom | None = None  # what it left of power, with all that it has kept for jobs
        self.after: Snapshot | None = None  # what the last pass left, with all that it has kept for jobs
        # shapes that were closed when the last pass ended: they fit nowhere but where more is free than then
        self.asleep: Flags = np.zeros(64, bool)
        self._grown: Rows = np.zeros(0, np.int64)  # the rows where it is, as the pass begins
        self._grown_of: dict[int, Rows] = {}  # the same that suit, by the place of their flags
        self.quiet: tuple[int, int, Policy] | None = (
            None  # places in the logs where a pass has left no question open
        )
        self._woken = False  # whether this pass has looked at what has grown
        self._turns = -1  # how often nodes had opened or closed when hope was last looked at
        self._paid: Paid | None = None
        self._rows = {pool: np.array(rows, np.int64) for pool, rows in state.capacity.pools.items()}
        for found in state.classes.values():
            self._follow(state, found)
        state.stirred.clear()

    def rows_of(self, pool: str) -> Rows:
        """The rows of a pool as an array."""
        return self._rows[pool]

    def paid(self, state: State) -> Paid | None:
        """What is known of prices; None where no budget is of dollars an hour."""
        if state.spending is None:
            return None
        rates = state.spending.rates(state.capacity)
        if self._paid is None or self._paid.rates is not rates:
            self._paid = Paid(rates, self.totals.device_memory)
        return self._paid

    def rows(self) -> dict[str, Rows]:
        """The same of all pools."""
        return self._rows

    def follow(self, state: State) -> bool:
        """Take in what has changed since the last pass; False if this memory is of no use any more."""
        if self.version != state.capacity.version or self.cluster is not state.cluster:
            return False
        if len(self.shapes) > 2 * len(state.classes) + SPARE_SHAPES:
            return False
        if state.stirred:
            for found in state.stirred:
                if self._follow(state, found):
                    self.quiet = None
            state.stirred.clear()
        return True

    def _follow(self, state: State, found: JobClass) -> bool:
        """Whether a pass may decide otherwise now."""
        found.stirred = False
        shape = self._by_state.get(found.shape)
        if shape is None:
            if not found.waiting:
                return False
            shape = self._by_state[found.shape] = self._shape(state, found)
        return self.lines.put(state, found, shape)

    def _shape(self, state: State, found: JobClass) -> Shape:
        spec = state.jobs[found.waiting[0].job].spec
        number = len(self.shapes)
        kind = Grouped if spec.request.groups else Shape
        shape = self.shapes[found.key.shape] = kind(
            number, found.key.shape, spec, state, self.topology, self._rows, self.scale
        )
        if number == len(self.closed):
            for name in ("closed", "asleep", "hopeless", "_asks", "_gangs", "_alone", "_plain", "_suits"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)], axis=-1))
        need = shape.need
        self._asks[:, number] = (
            shape.whole,
            min(shape.unit_milli, WHOLE),
            shape.share_bytes,
            need.cores,
            need.memory,
        )
        level = self.topology.number(shape.key.topology.required)
        self._gangs[:, number] = (need.units, need.spread, level, shape.pool_mask(state))
        self._alone[number] = need.exclusive
        self._plain[number] = shape.plain
        self._suits[number] = self._place_of(shape)
        return shape

    def _place_of(self, shape: Shape) -> int:
        """Many shapes suit the same rows: they share one array of flags."""
        place = self._known.setdefault(shape.eligible.tobytes(), len(self._eligible))
        if place == len(self._eligible):
            self._eligible.append(shape.eligible)
        shape.eligible = self._eligible[place]
        return place

    # --- the mix --------------------------------------------------------------------------------------------

    def weigh(self, state: State, policy: Policy) -> None:
        """Go by the present mix; after another one, every cost is another."""
        now = (state.demand.version, policy.placement)
        if now != self._weighed:
            self._weighed = now
            self.scale.tables, self.scale.mig = self._tables(state, policy), _profiles(state)
            for shape in self.shapes.values():
                shape.forget()

    def _tables(self, state: State, policy: Policy) -> Tables:
        """Work that no model of the cluster suits is no part of the mix, nor are MIG instances: they have their own."""
        numbers = {name: number for number, name in enumerate(state.capacity.models)}
        counts: dict[Ask, int] = {}
        for wish, count in state.demand.mix:
            models = tuple(numbers[name] for name in wish.models if name in numbers)
            if (models or not wish.models) and not wish.mig:
                ask = Ask(wish.gpus, wish.milli, wish.device_bytes, wish.cores, wish.memory, models)
                counts[ask] = counts.get(ask, 0) + count
        return tables(typical(counts), self._kinds, PRESETS[policy.placement])

    # --- from pass to pass ----------------------------------------------------------------------------------

    def nothing_new(self, state: State, policy: Policy) -> bool:
        """Whether the last pass left nothing to do, and nothing has changed since."""
        return self.quiet == (state.capacity.touches, state.limits.version, policy)

    def doubt_hopeless(self, state: State) -> None:
        """Nodes that have opened may give hope."""
        if self._turns != state.capacity.turns:
            self._turns = state.capacity.turns
            self.hopeless[:] = False

    def begin(self, state: State) -> None:
        """Find where more is free than the last pass left. Called when nothing of the pass is taken yet."""
        self._grown_of = {}
        if self.after is None:
            return  # nothing is closed, and nothing asleep
        self._grown = self.after.grown(state.capacity)
        if state.power is not None and self.watts is not None:
            powered = state.power.room.grown(self.watts)
            self._grown = np.union1d(self._grown, powered[state.capacity.open[powered]])
            # Whoever lights a GPU in this pass gives room there to shares.
            self.asleep[self._sharing()] = False

    def grown(self, shape: Shape) -> Rows:
        """The rows that suit the shape and have more free than the last pass left, or had when this one began."""
        place = int(self._suits[shape.number])
        found = self._grown_of.get(place)
        if found is None:
            found = self._grown_of[place] = self._grown[shape.eligible[self._grown]]
        return found

    def wake(self, state: State) -> None:
        """Open the closed shapes of which a unit fits on a row that has more than the last pass left it with."""
        self._woken = True
        if self.after is None:
            return
        if state.power is not None:
            self.closed[self._sharing()] = False
        closed = np.flatnonzero(self.closed)
        if len(self._grown) and len(closed):
            self.closed[closed[self._fits(state.capacity, closed, self._grown).any(axis=1)]] = False

    def _sharing(self) -> Flags:
        """The shapes of which a unit is less than a whole device."""
        whole, milli, size = self._asks[:3]
        found: Flags = (whole == 0) & ((milli > 0) | (size > 0))
        return found

    def _fits(self, capacity: Capacity, numbers: Rows, rows: Rows) -> Flags:
        """For each of these shapes and open rows, whether a unit may fit; of shares it says so a little too often."""
        have = (
            capacity.whole[rows],
            capacity.milli[rows].max(axis=1),
            capacity.device_bytes[rows].max(axis=1),
            capacity.free_cores[rows],
            capacity.free_memory[rows],
        )
        fits: Flags = np.array([flags[rows] for flags in self._eligible])[self._suits[numbers]]
        for asks, here in zip(self._asks[:, numbers], have, strict=True):
            fits &= here >= asks[:, None]
        return fits

    def no_easier(self, shape: Shape) -> Rows:
        """The numbers of the shapes that fit nowhere if this one does not: they ask for no less, in no other pools, and
        are no easier to hold together. It is found once, until there are more shapes."""
        count, number = len(self.shapes), shape.number
        known = self._harder.get(number)
        if known is None or known[0] != count:
            known = self._harder[number] = (
                count,
                np.flatnonzero(self._no_easier(shape, count)).astype(np.int32),
            )
        return known[1]

    def _no_easier(self, shape: Shape, count: int) -> Flags:
        number = shape.number
        asks = self._asks[:, :count]
        of_units, of_spread, of_level, of_pools = self._gangs[:, :count]
        units, spread, level, pools = self._gangs[:, number].tolist()
        harder: Flags = np.logical_and.reduce(asks >= asks[:, number, None], axis=0)
        harder &= (of_units >= units) & ((of_pools & ~pools) == 0)
        if spread and units > 1:
            harder &= of_spread == 1
        if level:
            harder &= of_level == level
        if shape.need.exclusive:
            harder &= self._alone[:count]
        if shape.plain:
            harder &= self._plain[:count]
        if shape.narrow:
            harder[:] = False
        harder[number] = True
        return harder

    def leave(self, state: State) -> bool:
        """Called while all that the pass has decided and kept is still taken; whether anybody is left. If not, there is
        nothing to remember: whoever comes is tried."""
        if self.lines.left():
            if not self._woken:  # what has grown since the last pass is forgotten with what that has left
                self.wake(state)
            self._woken = False
            self.after = Snapshot.of(state.capacity)
            self.watts = state.power.room.copy() if state.power is not None else None
            self.asleep = self.closed.copy()
            return True
        self._woken, self.after = False, None
        self.closed[:] = self.asleep[:] = False
        return False

    def settle(self, state: State, policy: Policy, idle: bool) -> None:
        """Called when State is as before the pass. `idle`: it would decide nothing again."""
        self.lines.reset()
        self.quiet = (state.capacity.touches, state.limits.version, policy) if idle else None


def memory_of(state: State, policy: Policy) -> Memory:
    """The State's memory, made anew if it can't follow."""
    memory: Memory | None = state.memory
    if memory is None or not memory.follow(state):
        memory = state.memory = Memory(state, policy)
    memory.weigh(state, policy)
    return memory


def _profiles(state: State) -> Weights:
    """How many instances of each MIG profile were asked for of late."""
    counts: dict[str, int] = {}
    for wish, count in state.demand.mix:
        if wish.mig:
            counts[wish.mig] = counts.get(wish.mig, 0) + wish.gpus * count
    return weights_of(counts)


def _kinds(capacity: Capacity) -> list[Kind]:
    """The nodes by what they are, in the order in which each kind came first."""
    count = capacity.rows
    columns = (capacity.model[:count], capacity.gpus[:count], capacity.cores[:count], capacity.memory[:count])
    model, gpus, cores, memory = (column.tolist() for column in columns)
    found = Counter(zip(model, gpus, cores, memory, strict=True))
    return [Kind(*kind, nodes=nodes) for kind, nodes in found.items()]


def _code(policy: Policy, rows: int) -> tuple[waste.Costs, waste.Renew]:
    """Compiled code pays where there are many nodes to look at."""
    compiled = policy.compiled and rows >= MANY_ROWS
    return kernel.best(compiled), kernel.renewing(compiled)
