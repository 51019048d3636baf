"""What is bought, as others may read it: pools with their instances, their offerings and what keeps them.

Comes in: State, and what the controller knows of clouds. Goes out: frozen views. Called by: publish (when something of
it has changed), api (reads). Times are UTC microseconds, money micro-dollars.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.ledger.records import Bought, Fleet
from orchestrator.ledger.state import State
from orchestrator.model.capacity import Circuit, Halt, OfferingKey
from orchestrator.model.cluster import Pool


@dataclass(frozen=True, slots=True)
class BoughtView:
    """Why a node exists. `proved_us` 0: it boots; `releasing_us` 0: it stays; `job` 0: for the pool's floor."""

    instance: str
    intent: str
    offering: OfferingKey
    microusd_per_hour: int
    job: int
    launched_us: int
    proved_us: int
    releasing_us: int
    why: str


@dataclass(frozen=True, slots=True)
class PoolView:
    """A bought pool. `asked` nodes are being launched, `booting` not proved yet; `offerings` are those that were tried;
    `blocked` says why nothing can be bought there at all; `stuck` pairs instances with why they could not be ended."""

    name: str
    site: str
    least: int
    most: int
    asked: int
    booting: int
    ready: int
    releasing: int
    microusd_per_hour: int
    boot_failures: int
    offerings: tuple[Circuit, ...]
    halt: Halt | None
    blocked: str
    stuck: tuple[tuple[str, str], ...]
    billed_s: int
    billed_microusd: int


def bought_view(state: State, instance: str) -> BoughtView | None:
    """Of the instance that a node is; None if it was not bought."""
    fleet = state.fleets.get(state.instances.get(instance, ""))
    if fleet is None:
        return None
    one = next(one for one in fleet.instances if one.id == instance)
    intent = fleet.intent
    return BoughtView(
        instance,
        intent.id,
        intent.offering,
        intent.price,
        intent.job,
        one.launched_us,
        one.proved_us,
        one.releasing_us,
        one.why,
    )


def pool_views(state: State, blocked: dict[str, str], stuck: dict[str, str]) -> tuple[PoolView, ...]:
    """All bought pools of the file, and those that left it while instances of theirs exist."""
    pools = {
        pool.name: pool for pool in (state.cluster.pools if state.cluster else ()) if pool.size is not None
    }
    names = dict.fromkeys([*pools, *(fleet.intent.pool for fleet in state.fleets.values())])
    return tuple(_pool_view(state, name, pools.get(name), blocked, stuck) for name in names)


def _pool_view(
    state: State, name: str, pool: Pool | None, blocked: dict[str, str], stuck: dict[str, str]
) -> PoolView:
    fleets = [fleet for fleet in state.fleets.values() if fleet.intent.pool == name]
    instances = [one for fleet in fleets for one in fleet.instances]
    accounts = [account for account in state.accounts.values() if account.pool == name]
    site = pool.site if pool is not None else fleets[0].intent.site
    return PoolView(
        name=name,
        site=site,
        least=pool.size.min if pool is not None and pool.size is not None else 0,
        most=pool.most_nodes() if pool is not None else 0,
        asked=sum(len(fleet.intent.nodes) for fleet in fleets if fleet.asked),
        booting=sum(1 for one in instances if not one.proved_us and not one.releasing_us),
        ready=sum(1 for one in instances if one.proved_us and not one.releasing_us),
        releasing=sum(1 for one in instances if one.releasing_us),
        microusd_per_hour=sum(_hourly(fleet, fleet.instances) for fleet in fleets),
        boot_failures=state.boot_failures.get(name, 0),
        offerings=tuple(found for key, found in state.circuits.items() if key.pool == name),
        halt=state.halts.get(site),
        blocked=blocked.get(site, ""),
        stuck=tuple((one.id, stuck[one.id]) for one in instances if stuck.get(one.id)),
        billed_s=sum(account.seconds for account in accounts),
        billed_microusd=sum(account.microusd for account in accounts),
    )


def _hourly(fleet: Fleet, instances: list[Bought]) -> int:
    return fleet.intent.price * (len(instances) or len(fleet.intent.nodes))
