"""What is given back: nodes that did not boot, nodes that nobody needs.

Comes in: a pass that knows what is booked. Goes out: its decisions. Called by: cycle, renew.

Idle nodes go in two passes: first no new work is given to them, and that is in the ledger; then, if nothing has come to
them and nobody counts on them, they are released. Floors win over idleness, a gang that still waits for the rest of its
nodes keeps those it has, and what people have cordoned is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.autoscale.backoff import retry_us
from orchestrator.autoscale.money import floor_of
from orchestrator.autoscale.room import held
from orchestrator.ledger.records import Bought, Fleet, Node
from orchestrator.model.capacity import Circuit, ErrorClass
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Pool
from orchestrator.model.decisions import Cordon, Release, Uncordon
from orchestrator.model.node import MarkKind

if TYPE_CHECKING:
    from orchestrator.autoscale.cycle import Pass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bought node that stands or boots, is not being ended, and is nobody's own."""

    fleet: Fleet
    one: Bought
    node: Node

    @property
    def cordoned(self) -> bool:
        """Whether an earlier pass has closed it to new work."""
        return any(mark.kind is MarkKind.RELEASING for mark in self.node.marks)


def those_that_do_not_boot(run: Pass) -> None:
    """Instances that were not proved by their pool's deadline: the breaker counts them, their offering rests."""
    for fleet in run.state.fleets.values():
        pool = run.state.pool(fleet.intent.pool)
        if pool is None or pool.size is None:
            continue
        deadline_s = pool.size.boot_deadline_s
        late = tuple(
            one.id
            for one in fleet.instances
            if not one.proved_us
            and not one.releasing_us
            and run.now_us - one.launched_us >= deadline_s * SECOND
        )
        if late:
            _give_up(run, fleet, late, f"not ready {deadline_s} s after its launch")


def _give_up(run: Pass, fleet: Fleet, late: tuple[str, ...], why: str) -> None:
    """As the ledger will have it, so that this very pass does not buy the same again."""
    key, pool = fleet.intent.offering, fleet.intent.pool
    circuit = run.circuits.get(key, Circuit(key))
    again_us = retry_us(ErrorClass.CAPACITY, circuit.failures + 1, fleet.intent.id, run.now_us)
    run.decisions.append(Release(fleet.intent.id, late, why, failed=True, retry_us=again_us))
    run.circuits[key] = circuit.failed(ErrorClass.CAPACITY, why, again_us)
    run.boot_failures[pool] = run.boot_failures.get(pool, 0) + len(late)
    for name in late:
        _forget(run, fleet, name)


def _forget(run: Pass, fleet: Fleet, instance: str) -> None:
    """Nobody counts on it in this pass."""
    nodes = {one.node: True for one in fleet.instances if one.id == instance}
    spots = run.room.pools.get(fleet.intent.pool, [])
    run.room.pools[fleet.intent.pool] = [spot for spot in spots if spot.node not in nodes]


def what_nobody_needs(run: Pass) -> None:
    """Pool by pool: what the file wants no more, what is beyond the largest size, what has been idle for long."""
    booked, taken = run.room.booked(), busy(run)
    pools = {pool.name: pool for pool in run.pools}
    for name in dict.fromkeys(fleet.intent.pool for fleet in run.state.fleets.values()):
        pool = pools.get(name)
        free = [one for one in candidates(run, name) if one.node.name not in taken]
        if pool is None:
            for each in free:
                release(run, each, "its pool is not in the file any more")
        else:
            _shrink(run, pool, free, booked)


def candidates(run: Pass, pool: str) -> list[Candidate]:
    """Those that may go, the dearest first, then the one that is idle the longest."""
    going = {name for one in run.decisions if isinstance(one, Release) for name in one.instances}
    found = [
        Candidate(fleet, one, run.state.nodes[one.node])
        for fleet in run.state.fleets.values()
        if fleet.intent.pool == pool
        for one in fleet.instances
        if not one.releasing_us and one.id not in going and not held(run.state.nodes[one.node])
    ]
    return sorted(found, key=lambda each: (-each.fleet.intent.price, _idle_since(each), each.one.id))


def busy(run: Pass) -> dict[str, bool]:
    """Nodes that an attempt which is not over has a share on."""
    found: dict[str, bool] = {}
    for job in run.state.jobs.values():
        for part in job.attempt.parts if job.attempt is not None else ():
            found[part.placement.node] = True
    return found


def staying(run: Pass, pool: Pool) -> int:
    """Nodes of a pool that exist or come, and are not being ended."""
    going = sum(
        len(one.instances) for one in run.decisions if isinstance(one, Release) and _of(run, one, pool)
    )
    ending = sum(
        1
        for fleet in run.state.fleets.values()
        if fleet.intent.pool == pool.name
        for one in fleet.instances
        if one.releasing_us
    )
    return run.sizes[pool.name] - ending - going


def _of(run: Pass, one: Release, pool: Pool) -> bool:
    return run.state.fleets[one.intent].intent.pool == pool.name


def _shrink(run: Pass, pool: Pool, free: list[Candidate], booked: dict[str, bool]) -> None:
    spare = staying(run, pool) - floor_of(pool)
    surplus = staying(run, pool) - pool.most_nodes()
    for each in free:
        needed = each.node.name in booked or spare <= 0
        if needed:
            if each.cordoned:
                run.decisions.append(Uncordon(each.node.name, "it is needed again"))
            continue
        if surplus > 0 and each.node.name not in booked:
            _give_back(run, each, f"the pool may have {pool.most_nodes()} node(s) only")
        elif _idle_for(run, pool, each):
            _give_back(run, each, f"idle for {_idle_s(run, each)} s")
        else:
            if each.cordoned:
                run.decisions.append(Uncordon(each.node.name, "it has not been idle for long"))
            continue
        spare, surplus = spare - 1, surplus - 1


def _give_back(run: Pass, each: Candidate, why: str) -> None:
    """Cordoned by an earlier pass, or never open: it goes. Else no new work from now on, and another look later."""
    if each.cordoned or not each.node.open:
        release(run, each, why)
    else:
        run.decisions.append(Cordon(each.node.name, why))


def release(run: Pass, each: Candidate, why: str) -> None:
    """Decide that it goes."""
    run.decisions.append(Release(each.fleet.intent.id, (each.one.id,), why))


def _idle_since(each: Candidate) -> int:
    return each.node.idle_us or each.one.launched_us


def _idle_s(run: Pass, each: Candidate) -> int:
    return (run.now_us - _idle_since(each)) // SECOND


def _idle_for(run: Pass, pool: Pool, each: Candidate) -> bool:
    idle_s = pool.size.idle_s if pool.size is not None else 0
    return _idle_s(run, each) >= idle_s
