"""Prices of nodes that stand: facts of an apply, from the catalog, and told again when they are others."""

from __future__ import annotations

from orchestrator import catalog
from orchestrator.controller.offers import policy_of
from orchestrator.model.cluster import ClusterSpec, GpuSpec, Market, Network, Offering, Pool, Site, SiteKind
from orchestrator.model.standing import pool_prices
from tests.builders import GPU

JULY_US = 1_784_500_000_000_000  # days after the catalog's prices were looked at


def fixed() -> ClusterSpec:
    """Two nodes on demand, one pool of listed nodes of one's own."""
    offering = Offering(("p5.48xlarge",), Market.ON_DEMAND)
    aws = Pool("fixed", "use1", ("f-1", "f-2"), GpuSpec(GPU, 8), offerings=(offering,))
    own = Pool("own", "here", ("o-1",), GpuSpec(GPU, 8))
    sites = (Site("here", SiteKind.LOCAL, Network("")), Site("use1", SiteKind.AWS, region="us-east-1"))
    return ClusterSpec("test", sites=sites, pools=(aws, own))


def test_listed_nodes_that_are_paid_for_have_a_price_and_a_shape() -> None:
    (one,) = pool_prices(fixed(), catalog.load(), JULY_US)
    assert (one.pool, one.microusd_per_hour, one.shape.gpus, one.shape.cores) == ("fixed", 55_040_000, 8, 192)


def test_the_pass_over_capacity_counts_the_same_for_all_of_them() -> None:
    policy = policy_of(fixed(), catalog.load(), {}, frozenset(), JULY_US)
    assert policy.standing == (("fixed", 2 * 55_040_000),)
