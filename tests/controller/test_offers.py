"""What bought pools are offered, and which of their nodes would not be bought like this any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.catalog import load
from orchestrator.controller import commands
from orchestrator.controller.offers import offers_of, outdated
from orchestrator.model.cluster import Market, Offering
from tests.autoscale.scene import elastic, hybrid
from tests.builders import T0, job
from tests.controller.clouds import CloudWorld

TYPE = "p5.48xlarge"
IMAGE = {"image": "ami-0fedcba9876543210"}
MARKET = {"offerings": (Offering((TYPE,), Market.SPOT, 30_000_000),)}


@pytest.mark.parametrize(
    ("market", "dollars"), [(Market.ON_DEMAND, 1), (Market.ON_DEMAND, 1000), (Market.SPOT, 1)]
)
def test_what_is_listed_above_its_bound_is_not_offered(market: Market, dollars: int) -> None:
    """A spot price may come down to its bound at any time, a list price does not; the bound is what may be paid."""
    pool = replace(elastic(), offerings=(Offering((TYPE,), market, dollars * 1_000_000),))
    found = offers_of(hybrid(pool), load(), {}, {}, T0)
    if (market, dollars) == (Market.ON_DEMAND, 1):
        assert found == ()
        return
    assert [one.key.zone for one in found] == ["us-east-1a", "us-east-1b"]
    assert {one.max_price for one in found} == {dollars * 1_000_000}
    assert all((one.price == one.max_price) == (market is Market.SPOT) for one in found)


@pytest.mark.parametrize(
    ("change", "renewed"), [({}, False), (IMAGE, False), (MARKET, True)], ids=["none", "image", "market"]
)
def test_what_an_older_version_bought_is_not_renewed_for_what_it_did_not_say(
    tmp_path: Path, change: dict[str, Any], renewed: bool
) -> None:
    """The same file and a newer Gangline leave it alone; another market is told without its meaning."""
    world = CloudWorld(tmp_path / "state")
    world.submit(job(nodes=2, gpus=8))
    world.ready()
    for fleet in world.state.fleets.values():
        fleet.intent = replace(fleet.intent, meaning="")
    pools = tuple(replace(each, **change) for each in world.spec.pools)
    world.do(commands.ApplyCluster(replace(world.spec, pools=pools), "test"))
    facts = world.facts("test", world.state.uid, world.spec.sites[1])
    assert facts is not None
    assert outdated(world.state, {"use1": facts}) == (
        frozenset(world.state.fleets) if renewed else frozenset()
    )
