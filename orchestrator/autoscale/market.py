"""What can be bought for a gang now: the first offering of a pool that takes all of it, or the reason why none does.

Comes in: a pass, a pool, what a gang lacks. Goes out: a `Choice` or a `Refusal`. Called by: cycle.

The order of a pool's offerings is the order of effective cost that its owner wrote down; types, zones and markets fall
back along it. An offering that rests is passed over; one whose launches are all under way is waited for, since the next
one costs more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.autoscale.money import Over
from orchestrator.autoscale.room import Taken
from orchestrator.model.capacity import BLOCK_LEAD_S, NEVER_US, Circuit, ErrorClass, Offer
from orchestrator.model.clock import SECOND
from orchestrator.model.cluster import Pool
from orchestrator.model.decisions import Buy
from orchestrator.model.need import Need
from orchestrator.model.reasons import Reason, dollars, reason

if TYPE_CHECKING:
    from orchestrator.autoscale.cycle import Pass


Want = tuple[Need, int]  # what one unit takes, and how many of them lack a node


@dataclass(frozen=True, slots=True)
class Choice:
    """So many nodes of that offering hold what the gang lacks."""

    offer: Offer
    count: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is bought in a pool; the least rank of all pools is the job's reason."""

    rank: int
    why: Reason


def could_hold(run: Pass, pool: Pool, need: Need) -> bool:
    """Whether the pool at its full size, of one of its offerings, would hold the whole gang."""
    most = pool.most_nodes()
    return any(need.units_on(*offer.shape) * most >= need.units for offer in run.offers.get(pool.name, ()))


def choose(run: Pass, pool: Pool, wants: tuple[Want, ...], queue: str, until_us: int) -> Choice | Refusal:
    """Nodes for what gangs lack, the whole of it from one offering, none for two of them; without a want one node."""
    stopped = _stopped(run, pool)
    if stopped:
        return Refusal(2, reason("wait.cloud", pool=pool.name, why=stopped))
    tried, budget, full, at_us = [], None, 0, NEVER_US
    for offer in run.offers.get(pool.name, ()):
        count = nodes_for(wants, offer)
        if not count:
            continue
        if _ends_too_soon(run, pool, offer, until_us if wants else 0):
            tried.append(f"{offer.key.words()}: the block ends {clock_words(offer.ends_us)}, too soon")
            continue
        rests = _rests(run, offer)
        if rests is not None:
            tried.append(f"{offer.key.words()}: {rests.words or rests.fault}")
            at_us = min(at_us, rests.retry_us)
            continue
        if run.sizes[pool.name] + count > pool.most_nodes():
            full = full or count
            continue
        if 0 <= offer.slots < _of_reservation(run, offer) + count:
            tried.append(f"{offer.key.words()}: the reservation has no more")
            continue
        over = run.purse.over(offer, count, queue, until_us)
        if over is not None:
            budget = budget or (over, offer, count)
            continue
        if run.launches.get(offer.key, 0) >= _circuit(run, offer).at_once:
            words = f"launches of {offer.key.words()} are under way, {count} more node(s) come after them"
            return Refusal(0, reason("wait.booting", nodes=count, pool=pool.name, words=words))
        return Choice(offer, count)
    lacking = sum(units for _, units in wants) or 1
    return _refusal(run, pool, lacking, tried, budget, full, at_us)


def nodes_for(wants: tuple[Want, ...], offer: Offer) -> int:
    """How many nodes of the offering hold that; 0 if they can't."""
    count = 0 if wants else 1
    for need, units in wants:
        each = need.units_on(*offer.shape)
        if not each:
            return 0
        count += -(-units // each)
    return count


def sells(run: Pass, pool: Pool) -> bool:
    """Whether a node of the pool could be tried for now, if it had room and money for one more."""
    return not _stopped(run, pool) and any(
        _rests(run, offer) is None for offer in run.offers.get(pool.name, ())
    )


def _refusal(
    run: Pass,
    pool: Pool,
    lacking: int,
    tried: list[str],
    budget: tuple[Over, Offer, int] | None,
    full: int,
    at_us: int,
) -> Refusal:
    """The one dominant reason: money before market, since the market is only waited for where money would be there."""
    if budget is not None:
        over, offer, count = budget
        why = reason(
            "wait.budget",
            budget=over.budget,
            period=over.period,
            ceiling=dollars(over.ceiling),
            used=dollars(over.used),
            need=dollars(over.need),
            nodes=count,
            pool=pool.name,
            offering=offer.key.words(),
        )
        return Refusal(1, why)
    if full:
        has = run.sizes[pool.name]
        most = pool.most_nodes()
        return Refusal(1, reason("wait.pool-full", pool=pool.name, most=most, has=has, nodes=full))
    if tried:
        at = "when the file changes" if at_us >= NEVER_US else clock_words(at_us)
        words = "; ".join(tried)
        return Refusal(0, reason("wait.capacity", nodes=lacking, pool=pool.name, tried=words, at=at))
    return Refusal(2, reason("wait.cloud", pool=pool.name, why="none of its offerings is sold there"))


def _stopped(run: Pass, pool: Pool) -> str:
    """What stops all of a pool's offerings; empty if nothing does."""
    failures = run.boot_failures.get(pool.name, 0)
    if failures >= run.policy.most_boot_failures:
        return f"{failures} nodes in a row did not become ready in time"
    halt = run.state.halts.get(pool.site)
    if halt is not None and run.now_us < halt.retry_us:
        return f"{halt.words}; tried again {clock_words(halt.retry_us)}"
    if halt is not None and _under_way(run, pool.site):
        return f"{halt.words}; it is being tried again"
    return dict(run.policy.blocked).get(pool.site, "")


def _under_way(run: Pass, site: str) -> bool:
    """Whether a launch is under way on the site, also one of this very pass."""
    return any(pool.site == site and key.pool == pool.name for pool in run.pools for key in run.launches)


def _circuit(run: Pass, offer: Offer) -> Circuit:
    return run.circuits.get(offer.key, Circuit(offer.key))


def _rests(run: Pass, offer: Offer) -> Circuit | None:
    """The circuit that keeps an offering from being tried now. A quota is of the account: it holds in every zone."""
    mine = _circuit(run, offer)
    if run.now_us < mine.retry_us:
        return mine
    for key, circuit in run.circuits.items():
        alike = (key.pool, key.type, key.market) == offer.key[:3]
        if alike and circuit.fault is ErrorClass.QUOTA and run.now_us < circuit.retry_us:
            return circuit
    return None


def _ends_too_soon(run: Pass, pool: Pool, offer: Offer, until_us: int) -> bool:
    """Whether a block is taken back before the work is over (`until_us`), or before a node could be of any use."""
    boot_s = pool.size.boot_deadline_s if pool.size is not None else 0
    useful_us = max(until_us, run.now_us + boot_s * SECOND)
    return 0 < offer.ends_us < useful_us + BLOCK_LEAD_S * SECOND


def _of_reservation(run: Pass, offer: Offer) -> int:
    """Nodes that a reservation holds already, also those that this pass puts there."""
    held = sum(
        len(fleet.instances) or len(fleet.intent.nodes)
        for fleet in run.state.fleets.values()
        if fleet.intent.offering.reservation == offer.key.reservation
    )
    return held + sum(
        len(one.nodes)
        for one in run.decisions
        if isinstance(one, Buy) and one.offer.key.reservation == offer.key.reservation
    )


def free_names(run: Pass, pool: Pool, count: int) -> tuple[str, ...]:
    """The lowest names POOL-1 … that no node, and no instance that is not confirmed gone, has."""
    names: list[str] = []
    number = 1
    while len(names) < count:
        name = f"{pool.name}-{number}"
        if name not in run.names:
            names.append(name)
        number += 1
    return tuple(names)


def coming_reason(pool: Pool, taken: Taken) -> Reason:
    """How far the nodes are that a gang counts on."""
    ready = sum(1 for spot, _ in taken if spot.ready)
    words = f"{ready} of {len(taken)} ready, the others boot"
    return reason("wait.booting", nodes=len(taken), pool=pool.name, words=words)


def clock_words(t_us: int) -> str:
    """`at 14:05:09 UTC`."""
    second = t_us // SECOND % 86_400
    return f"at {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d} UTC"
