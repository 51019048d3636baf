"""Nodes that the file wants otherwise by now, another image for one: closed few at a time, released once they are free.

Comes in: a pass whose policy names what is outdated. Goes out: its decisions. Called by: cycle, before what nobody
needs is given back.

A closed node finishes its work within the pool's drain, as nodes on metal do, and its name and money are free for one
that is as the file says. No more of a pool are away at once than its `max_unavailable`, and none more is closed while
new ones can't be had or don't boot: old nodes are better than none. What was closed stays so while nobody can say what
the file wants of its site, since a look at the stack that fails means nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.autoscale import market
from orchestrator.autoscale.give_back import Candidate, busy, candidates, release, staying
from orchestrator.autoscale.money import floor_of
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Pool
from orchestrator.model.decisions import Buy, Cordon, Uncordon

if TYPE_CHECKING:
    from orchestrator.autoscale.cycle import Pass

WHY = "bought for an older file: its next one is as the file says"


def what_the_file_wants_otherwise(run: Pass) -> None:
    """Pool by pool; what left the file with its pool is given back anyway."""
    taken, booked, unknown = busy(run), run.room.booked(), dict(run.policy.blocked)
    for pool in run.pools:
        if pool.site in unknown:
            continue
        all_of = candidates(run, pool.name)
        old = [each for each in all_of if each.fleet.intent.id in run.policy.outdated]
        for each in all_of:
            if each.cordoned and each.node.name in taken and each not in old:  # the file has changed back
                run.decisions.append(Uncordon(each.node.name, "it is as the file says"))
        closed = [each for each in old if each.cordoned]
        for each in closed:
            if each.node.name not in taken:
                release(run, each, WHY)
        free = [each for each in old if each.node.open and each.node.name not in booked]
        free.sort(key=lambda each: each.node.name in taken)  # idle ones first: they disturb nobody
        for each in free[: _more(run, pool, len(closed))]:
            _close(run, pool, each)


def _more(run: Pass, pool: Pool, closed: int) -> int:
    """How many may be closed besides those that are, or whose place is not filled yet."""
    if pool.name in run.closed or run.boot_failures.get(pool.name) or not market.sells(run, pool):
        return 0
    coming = sum(
        len(one.nodes) for one in run.decisions if isinstance(one, Buy) and one.offer.key.pool == pool.name
    )
    ending = 0
    for fleet in run.state.fleets.values():
        if fleet.intent.pool == pool.name:
            coming += len(fleet.intent.nodes) if fleet.asked else 0
            coming += sum(1 for one in fleet.instances if not (one.proved_us or one.releasing_us))
            ending += sum(1 for one in fleet.instances if one.releasing_us)
    empty = floor_of(pool) - staying(run, pool)  # places that nothing was asked for yet
    return max(0, pool.update.max_unavailable - closed - coming - max(ending, empty))


def _close(run: Pass, pool: Pool, each: Candidate) -> None:
    drain = pool.update.drain
    run.decisions.append(Cordon(each.node.name, WHY, run.now_us + drain.deadline_s * SECOND, drain.then))
