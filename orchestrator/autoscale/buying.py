"""What a pass does once it has decided: nodes are bought, limits are debited, for whoever comes after.

Comes in: a pass, what was chosen. Goes out: decisions, in the pass. Called by: cycle, groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.autoscale import market
from orchestrator.ledger.capacity import WHOLE
from orchestrator.ledger.limits import Amounts
from orchestrator.ledger.records import Job
from orchestrator.ledger.state import time_limit_s
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Pool
from orchestrator.model.decisions import Buy
from orchestrator.model.job import JobSpec
from orchestrator.model.need import Need

if TYPE_CHECKING:
    from orchestrator.autoscale.cycle import Pass

LATE_S = 60  # longer than a boot may take: so long are coming nodes kept for their job


def milli_of(run: Pass, pool: Pool, gang: JobSpec, need: Need) -> int:
    """What limits will count of the gang, in thousandths of GPUs: of nodes that are nobody else's all that the largest
    on offer has, as the scheduler will, else a node would be bought that the limit keeps the gang from."""
    asked = gang.request.total_milli()
    shapes = [offer.shape for offer in run.offers.get(pool.name, ())] if need.exclusive else []
    found = [(need.units_on(*shape), shape.gpus) for shape in shapes]
    each = min((units for units, _ in found if units), default=0)
    if not each:
        return asked
    nodes = need.units if need.spread else -(-need.units // each)
    return max(asked, nodes * max(gpus for units, gpus in found if units) * WHOLE)


def hours_of(run: Pass, job: Job, milli: int) -> Amounts:
    """What the job would be committed for of GPU-hours, if it started now."""
    state = run.state
    if state.hours is None:
        return ()
    limit_s = time_limit_s(state, job.spec, dict(run.policy.usual_time_limit_s))
    return state.hours.ask(state.scope(job), milli, run.now_us, limit_s)


def debit(run: Pass, debits: list[tuple[str, Amounts]], scope: str, amounts: Amounts) -> None:
    """Take them for the length of the pass."""
    run.state.limits.take(scope, amounts)
    debits.append((scope, amounts))


def buy(run: Pass, pool: Pool, found: market.Choice, job: Job | None, until_us: int) -> None:
    """Decide on a launch, and debit all that it takes in this very pass."""
    queue = job.spec.queue if job is not None else ""
    names = market.free_names(run, pool, found.count)
    boot_s = (pool.size.boot_deadline_s if pool.size is not None else 0) + LATE_S
    kept_us = run.now_us + boot_s * SECOND if job is not None else 0
    run.decisions.append(Buy(found.offer, names, job.id if job is not None else 0, queue, kept_us))
    run.names.update((name, True) for name in names)
    run.room.add(pool.name, names, found.offer.shape)
    run.sizes[pool.name] += found.count
    run.launches[found.offer.key] = run.launches.get(found.offer.key, 0) + 1
    run.purse.take(found.offer, found.count, queue, until_us)
