"""Why the rest waits: one dominant reason for a class, made when somebody asks, from what the pass has left.

Comes in: the end of a pass: what is free, what is kept for whom, what limits are used. Goes out: `Waits`, which answers
with `Reason`s. Called by: cycle (makes it), controller and simulate (ask, also from other threads: nothing here changes
any more).

The order is that of what people can do about it: a limit that binds comes first, whatever is free; then nodes; then
those for whom nodes are kept. So a reason is true in the counterfactual: without what it names, the job starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from orchestrator.ledger.capacity import WHOLE, Flags
from orchestrator.ledger.hours import HOURS
from orchestrator.ledger.limits import Amounts, Binding, Scope, kept_back, limit_reason
from orchestrator.ledger.power import Headroom, Power
from orchestrator.ledger.scopes import scope_queue
from orchestrator.ledger.spending import USD, Spending
from orchestrator.ledger.state import ClassKey, State
from orchestrator.model.capacity import NEVER_US
from orchestrator.model.reasons import Reason, reason
from orchestrator.scheduler import hours, why_groups
from orchestrator.scheduler.grouped import Grouped
from orchestrator.scheduler.memory import Snapshot
from orchestrator.scheduler.one_pass import Kept, Pass
from orchestrator.scheduler.order import Line
from orchestrator.scheduler.shapes import Shape
from orchestrator.scheduler.spend import Money
from orchestrator.scheduler.why import (
    Whereabouts,
    capacity_reason,
    could_hold,
    fits,
    power_reason,
    power_when_empty,
    too_dear,
)


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing at all may start, for one reason; or, without one, nobody waits."""

    why: Reason | None = None
    left_over: bool = False
    wake_us: int = NEVER_US

    def get(self, key: ClassKey) -> Reason | None:
        """The one reason."""
        return self.why


NOBODY = Stopped()


class Waits:
    """As one pass has left things."""

    def __init__(self, run: Pass) -> None:
        """Called while all that the pass has decided and kept is still taken."""
        state, memory, kept = run.state, run.memory, run.kept
        assert memory.after is not None
        self.left_over = run.left_over
        self._told = run.told
        self._kept = kept
        self._hours = hours.of_waiting(run) if state.hours is not None else {}
        self.wake_us = hours.opens_us(run) if state.hours is not None else NEVER_US
        self._shapes = memory.shapes
        self._where = Whereabouts(state, memory)
        self._free = memory.after  # but for what is kept
        self._all: Snapshot | None = None if kept else memory.after
        self._used = {scope.name: dict(scope.used) for scope in state.limits.limited()}
        self._settled = _without_kept(self._used, kept, state)
        self._paid = memory.paid(state)
        self._lending = state.limits.lending
        self._there = self._lending.there() if self._lending is not None else {}
        self._there_when_empty = self._lending.there_when_empty() if self._lending is not None else {}
        self._there_when_open = self._lending.there_when_open() if self._lending is not None else {}
        self._power = state.power
        self._room = memory.watts  # of power; but for what is kept
        self._settled_room = _power_without_kept(state.power, kept)
        self._lines = memory.lines.lines
        self._scope_of = state.scope_of
        self._amounts = state.gang_amounts
        self._mixed = state.mixed_amounts
        self._pool_of = state.capacity.pool_of
        jobs = (state.jobs[one.job] for one in kept)
        self._names = {job.id: job.label if job.array else job.id for job in jobs}

    def get(self, key: ClassKey) -> Reason | None:
        """Why the class waits; None for a class that the pass has not seen."""
        shape = self._shapes.get(key.shape)
        if key in self._told or shape is None:
            return self._told.get(key)
        line = self._lines.get(self._scope_of(key))
        asks = {pool: self._asks(key, shape, pool) for pool in shape.pools}
        money = self._money(line, self._settled)
        bound = {
            pool: self._binding(line, self._settled, ask) or self._unpaid(money, shape, pool)
            for pool, ask in asks.items()
        }
        pools = [pool for pool, over in bound.items() if over is None]
        if len(pools) < len(shape.pools):  # a pool that could never hold it is no way out
            able = [pool for pool in shape.pools if self._could_hold(shape, pool)] or shape.pools
            pools = [pool for pool in pools if pool in able]
            if not pools:
                over = next(over for pool, over in bound.items() if over is not None and pool in able)
                also = self._lack(line, shape, {pool: asks[pool] for pool in shape.pools})
                return replace(limit_reason(over), also=also)
        lack = self._lack(line, shape, {pool: asks[pool] for pool in pools})
        if lack is not None:
            return lack
        dear = self._too_dear(self._with_kept(), shape, pools, money, self._settled_room)
        if dear is not None:
            return limit_reason(dear)
        free = [pool for pool in pools if not self._binding(line, self._used, asks[pool])]
        if self._kept and not self._fits(self._free, shape, free, self._room):
            return self._behind(shape, pools)
        left = self._money(line, self._used)
        if self._kept and self._too_dear(self._free, shape, free, left, self._room) is not None:
            return self._behind(shape, pools)
        return reason("wait.next-pass")

    # --- money ----------------------------------------------------------------------------------------------

    def _money(self, line: Line | None, used_in: dict[str, dict[str, int]]) -> Money | None:
        """What the budgets of the line had left; None where there are none."""
        if line is None or not line.money or self._paid is None:
            return None
        return self._paid.money(line.money, lambda name: used_in[name].get(USD, 0))

    def _unpaid(self, money: Money | None, shape: Shape, pool: str) -> Binding | None:
        """The budget that does not take the gang even on the cheapest nodes of the pool."""
        if money is None:
            return None
        return money.binding(money.least(shape, self._where.memory.totals, self._where.memory.rows(), pool))

    def _too_dear(
        self, free: Snapshot, shape: Shape, pools: list[str], money: Money | None, room: Headroom | None
    ) -> Binding | None:
        """The budget that does not take the gang on what is free, where that would hold it."""
        if money is None or (isinstance(shape, Grouped) and not pools):
            return None
        if isinstance(shape, Grouped):
            return why_groups.too_dear(free, self._where, shape, pools, money, room)
        return too_dear(free, self._where, shape, pools, money, room)

    def _binding(
        self, line: Line | None, used_in: dict[str, dict[str, int]], amounts: Amounts
    ) -> Binding | None:
        """The limit that these amounts would pass, or what other queues keep of them."""
        if line is None:
            return None
        found = _binding(line.limited, used_in, amounts)
        if found is None and self._lending is not None:
            path = tuple(scope.name for scope in line.path)
            return kept_back(self._lending, path, amounts, used_in.__getitem__, self._there)
        return found

    def _kept_anyway(self, line: Line | None, shape: Shape, asks: dict[str, Amounts]) -> Reason | None:
        """Who would keep these amounts back if nothing ran: the end of work would help others then. So on open nodes,
        or on all where those would not hold it."""
        if line is None or self._lending is None:
            return None
        able, there = self._able(shape, list(asks), self._free.open), self._there_when_empty
        if not able:
            able, there = self._able(shape, list(asks), None), self._there_when_open
        path = tuple(scope.name for scope in line.path)
        found = [kept_back(self._lending, path, asks[pool], lambda _: {}, there) for pool in able]
        binding = [one for one in found if one is not None]
        return limit_reason(binding[0]) if binding and len(binding) == len(found) else None

    def _able(self, shape: Shape, pools: list[str], opened: Flags | None) -> list[str]:
        """The pools that would hold it if nothing ran there, all with the same software if none does as they are."""
        found = [pool for pool in pools if self._could_hold(shape, pool, opened)]
        if found or isinstance(shape, Grouped):
            return found
        return [pool for pool in pools if could_hold(self._where, shape, pool, opened, alike=False)]

    def _asks(self, key: ClassKey, shape: Shape, pool: str) -> Amounts:
        """What it takes of limits in that pool, or of a gang of groups in that way."""
        seconds = self._hours.get(key, 0)
        more = ((HOURS, shape.milli_in(pool) * seconds),) if seconds else ()
        if isinstance(shape, Grouped):
            return self._mixed(shape.shares(pool)) + more
        return self._amounts(shape.milli_in(pool), pool) + more

    def _could_hold(self, shape: Shape, pool: str, opened: Flags | None = None) -> bool:
        if isinstance(shape, Grouped):
            return why_groups.could_hold(self._where, shape, [pool], opened)
        return could_hold(self._where, shape, pool, opened)

    def _fits(self, free: Snapshot, shape: Shape, pools: list[str], room: Headroom | None = None) -> bool:
        if isinstance(shape, Grouped):
            return why_groups.fits(free, self._where, shape, pools, room)
        return fits(free, self._where, shape, pools, room)

    def _lack(self, line: Line | None, shape: Shape, asks: dict[str, Amounts]) -> Reason | None:
        """What these pools lack for the gang, whoever nodes are kept for: nodes, then watts."""
        everything, pools = self._with_kept(), list(asks)
        if not self._fits(everything, shape, pools):
            also = self._dark_anyway(shape, pools)
            kept = self._kept_anyway(line, shape, asks)
            also = replace(kept, also=also) if kept is not None else also
            if isinstance(shape, Grouped):
                return replace(why_groups.capacity_reason(everything, self._where, shape, pools), also=also)
            return replace(capacity_reason(everything, self._where, shape, pools), also=also)
        power, room = self._power, self._settled_room
        if power is None or room is None or self._fits(everything, shape, pools, room):
            return None
        if isinstance(shape, Grouped):
            return why_groups.power_reason(everything, self._where, shape, pools, power, room)
        return power_reason(everything, self._where, shape, pools, power, room)

    def _dark_anyway(self, shape: Shape, pools: list[str]) -> Reason | None:
        """The power domain that would not carry the gang if nothing ran: on open nodes, or on all where those would not
        hold it."""
        opened = self._free.open
        if self._power is None:
            return None
        if isinstance(shape, Grouped):
            if not why_groups.could_hold(self._where, shape, pools, opened):
                opened = np.ones_like(opened)
            return why_groups.power_when_empty(self._where, shape, pools, self._power, opened)
        if not any(could_hold(self._where, shape, pool, opened, alike=False) for pool in pools):
            opened = np.ones_like(opened)
        return power_when_empty(self._where, shape, pools, self._power, opened)

    def _with_kept(self) -> Snapshot:
        """What would be free if nothing were kept; made once, and the same whoever makes it."""
        if self._all is None:
            after = self._free
            whole, parts, milli = after.whole.copy(), after.parts.copy(), after.milli.copy()
            cores, memory = after.free_cores.copy(), after.free_memory.copy()
            plain_cores, plain_memory = after.plain_cores.copy(), after.plain_memory.copy()
            for one in self._kept:
                for row, part in zip(one.rows, one.parts, strict=True):
                    for slot, left in zip(part.slots, part.milli or (WHOLE,) * len(part.slots), strict=True):
                        milli[row, slot] += left
                        whole[row] += left == WHOLE
                    parts[row] -= 1
                    cores[row] += part.cores
                    memory[row] += part.memory
                    if not part.slots:
                        plain_cores[row] += part.cores
                        plain_memory[row] += part.memory
            self._all = replace(
                after,
                whole=whole,
                parts=parts,
                milli=milli,
                free_cores=cores,
                free_memory=memory,
                plain_cores=plain_cores,
                plain_memory=plain_memory,
            )
        return self._all

    def _behind(self, shape: Shape, pools: list[str]) -> Reason:
        """Nodes would take it, and they, or its limits, are kept for a job before it: the first in one of its pools."""
        mine = [name for way in pools for name in shape.ways[way]] if isinstance(shape, Grouped) else pools
        rows = [(one, row) for one in self._kept for row in one.rows]
        here = ((one, row) for one, row in rows if self._pool_of[row] in mine)
        one, row = next(here, rows[0])
        return reason("wait.order", pool=self._pool_of[row], ahead=self._names[one.job])


def _power_without_kept(power: Power | None, kept: list[Kept]) -> Headroom | None:
    """What would be left of power if nothing were kept. All of that is as before when this returns."""
    if power is None:
        return None
    parts = [part for one in kept for part in one.parts]
    for part in parts:
        power.release(part)
    found = power.room.copy()
    for part in parts:
        power.take(part)
    return found


def _without_kept(
    used: dict[str, dict[str, int]], kept: list[Kept], state: State
) -> dict[str, dict[str, int]]:
    """What is used of limits if nothing were kept."""
    found = {name: dict(amounts) for name, amounts in used.items()}
    for one in kept:
        for scope in state.limits.path(one.scope):
            for dimension, amount in one.amounts if scope.name in found else ():
                found[scope.name][dimension] -= amount
    if state.spending is not None:
        for name, amount in _spent_without_kept(state.spending, kept, state).items():
            if name in found:
                found[name][USD] = amount
    return found


def _spent_without_kept(spending: Spending, kept: list[Kept], state: State) -> dict[str, int]:
    """What would be committed of money if nothing were kept. All of that is as before when this returns."""
    version = state.limits.version
    for one in kept:
        spending.release_all(one.parts, scope_queue(one.scope))
    found = {scope.name: scope.used.get(USD, 0) for scope in state.limits.limited()}
    for one in kept:
        spending.take_all(one.parts, scope_queue(one.scope))
    state.limits.version = version
    return found


def _binding(path: tuple[Scope, ...], used_in: dict[str, dict[str, int]], amounts: Amounts) -> Binding | None:
    """As `LimitTree.binding`, over what was used when the pass ended."""
    for scope in path:
        for dimension, amount in amounts:
            ceiling = scope.ceilings.get(dimension)
            used = used_in.get(scope.name, {}).get(dimension, 0)
            if ceiling is not None and amount > 0 and used + amount > ceiling:
                return Binding(scope.name, dimension, ceiling, used, used + amount - ceiling)
    return None
