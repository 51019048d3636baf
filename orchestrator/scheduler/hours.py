"""GPU-hours of a month in a pass: what the first job of a cell would be committed for.

Comes in: the pass, whose turn it is. Goes out: amounts for the limit tree; for reasons, how long the first job of each
class may run this month. Called by: starting, keeping, waits. Nothing is asked where no queue of a line has such
a limit.

Of the jobs of one class the first speaks for all: one that is too long for what is left is not passed by those behind
it, which are the same person's and ask for the same.
"""

from __future__ import annotations

from orchestrator.ledger.hours import HOURS
from orchestrator.ledger.limits import Amounts
from orchestrator.ledger.state import ClassKey
from orchestrator.model.capacity import NEVER_US
from orchestrator.model.clock import SECOND
from orchestrator.scheduler.one_pass import Pass
from orchestrator.scheduler.order import Line
from orchestrator.scheduler.shapes import Shape


def asked(run: Pass, line: Line, cell: int, milli: int) -> Amounts:
    """What the first job of the cell would be committed for on so many thousandths of GPUs."""
    return ((HOURS, milli * _seconds(run, line, cell)),) if line.hours and milli else ()


def within(run: Pass, line: Line, cell: int, shape: Shape, pools: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the pools, or ways of groups, in which its queues have as much left."""
    if not line.hours:
        return pools
    seconds, limits = _seconds(run, line, cell), run.state.limits
    asks = {pool: ((HOURS, shape.milli_in(pool) * seconds),) for pool in pools}
    return tuple(pool for pool, ask in asks.items() if limits.binding(line.scope, ask) is None)


def of_waiting(run: Pass) -> dict[ClassKey, int]:
    """For how many seconds of the month the first job of each class would be committed, where that matters."""
    found: dict[ClassKey, int] = {}
    for line in run.memory.lines.lines.values():
        for cell, one in enumerate(line.classes) if line.hours else ():
            if line.taken.get(cell, 0) < len(one.waiting):
                found[one.key] = _seconds(run, line, cell)
    return found


def opens_us(run: Pass) -> int:
    """When the month has so little left that the first job of some class that waits for GPU-hours may have them. Till
    then it asks for ever less, if it would run past the month's end."""
    hours, found = run.state.hours, NEVER_US
    for line in run.memory.lines.lines.values() if hours is not None else ():
        for cell, one in enumerate(line.classes) if line.hours else ():
            shape = line.shapes[cell]
            milli = min((shape.milli_in(pool) for pool in shape.pools), default=0)
            if hours is not None and milli and line.taken.get(cell, 0) < len(one.waiting):
                left = min(
                    each.ceilings[HOURS] - each.used.get(HOURS, 0)
                    for each in line.path
                    if HOURS in each.ceilings
                )
                if left < milli * _seconds(run, line, cell) and run.now_us < hours.month.ends_us:
                    found = min(found, hours.month.ends_us - max(left, 0) // milli * SECOND)
    return found


def _seconds(run: Pass, line: Line, cell: int) -> int:
    hours = run.state.hours
    if hours is None:
        return 0
    limit_s = run.policy.time_limit_s(run.state, run.state.jobs[line.job(cell)].spec)
    return hours.seconds(run.now_us, limit_s)
