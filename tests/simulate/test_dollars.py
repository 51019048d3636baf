"""Budgets of dollars an hour in simulations: what waits for them, and their use over time."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.cluster import Budget, Market, Offering, Scope, Site, SiteKind
from tests.builders import cluster, job, pool
from tests.simulate.stories import S, played, starts, trace

PRICE = 55_040_000  # micro-dollars an hour of a p5.48xlarge in us-east-1, as the catalog lists it


def test_a_budget_is_kept_and_its_use_is_told() -> None:
    spec = cluster(pool(nodes=1, gpus=8))
    offering = Offering(("p5.48xlarge",), Market.ON_DEMAND)
    spec = replace(
        spec,
        sites=(Site("here", SiteKind.AWS, spec.sites[0].network, region="us-east-1"),),
        pools=(replace(spec.pools[0], offerings=(offering,)),),
        budgets=(
            Budget("q", scope=Scope(queue="default"), microusd_per_hour=30_000_000),
            Budget("site", scope=Scope(site="here"), microusd_per_hour=60_000_000),
        ),
    )
    world = played(spec, trace(*[(0, 10, job(gpus=4))] * 2))

    assert starts(world) == [0, 10]
    assert world.book.reason[1] == "wait.spending"
    steps = world.commitment.limits["queue=default", "usd"]
    assert (steps.ceiling, steps.at_us, steps.used) == (30_000_000, [0, 20 * S], [PRICE // 2, 0])
    whole = world.commitment.limits["budget=site", "usd"]
    assert (whole.ceiling, set(whole.used)) == (60_000_000, {PRICE})
