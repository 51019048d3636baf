"""Watts in power domains: what idle nodes and held GPUs commit, through one feed, two, or several with redundancy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger import events
from orchestrator.ledger.state import State
from orchestrator.model.attempt import Placement
from orchestrator.model.cluster import ClusterSpec, PowerDomain, SitePower
from orchestrator.model.cluster_words import Redundancy
from orchestrator.model.power import PoolWatts
from tests.builders import Fold, cluster, pool


def powered(*domains: PowerDomain, nodes: int = 2) -> ClusterSpec:
    spec = cluster(pool(nodes=nodes, gpus=4))
    return replace(spec, sites=(replace(spec.sites[0], power=SitePower(domains=domains)),))


def applied(spec: ClusterSpec, idle: int = 0) -> State:
    """Nodes of four GPUs of 100 W."""
    fold = Fold(spec)
    fold(events.ClusterApplied(spec, "again", watts=(PoolWatts("p", idle, 100),)), "cluster")
    return fold.state


def used(state: State) -> dict[str, int]:
    scopes = state.power.scopes if state.power is not None else ()
    return {one.name.removeprefix("power=here/"): one.used.get("watts", 0) for one in scopes}


ROOT, A, B = PowerDomain("root", limit_watts=900), PowerDomain("a", "root"), PowerDomain("b", "root")
FEEDS = [
    (Redundancy.TWO_N, {"rack": 250, "a": 250, "b": 250, "root": 250}),
    (Redundancy.N, {"rack": 250, "a": 125, "b": 125, "root": 250}),
    (Redundancy.N_PLUS_1, {"rack": 250, "a": 250, "b": 250, "root": 250}),
]


@pytest.mark.parametrize(("how", "wanted"), FEEDS)
def test_each_feed_carries_its_part(how: Redundancy, wanted: dict[str, int]) -> None:
    rack = PowerDomain("rack", nodes=("p-1",), fed_by=("a", "b"), redundancy=how)
    state = applied(powered(ROOT, A, B, rack, nodes=1), idle=10)
    assert state.power is not None
    state.power.take(Placement("p-1", (0, 1), 1))
    state.power.take(Placement("p-1", (2,), 1, milli=(300,)))
    assert used(state) == {
        name: watts + 60 if name not in ("a", "b") or wanted["a"] == 250 else 155
        for name, watts in wanted.items()
    }


def test_a_third_of_a_watt_counts_whole() -> None:
    rack = PowerDomain("rack", nodes=("p-1",), fed_by=("a", "b", "c"), redundancy=Redundancy.N)
    state = applied(powered(ROOT, A, B, PowerDomain("c", "root"), rack, nodes=1))
    assert state.power is not None
    state.power.take(Placement("p-1", (0,), 1))
    assert used(state) == {"rack": 100, "a": 34, "b": 34, "c": 34, "root": 100}
    state.power.release(Placement("p-1", (0,), 1))
    assert set(used(state).values()) == {0}


def test_a_gpu_that_two_share_counts_once_until_both_are_gone() -> None:
    state = applied(powered(ROOT))
    assert state.power is not None
    share = Placement("p-1", (0,), 1, milli=(300,))
    state.power.take(share)
    state.power.take(share)
    assert used(state) == {"root": 100}
    state.power.release(share)
    assert used(state) == {"root": 100}
    state.power.release(share)
    assert used(state) == {"root": 0}


def test_what_may_be_used_is_the_limit_after_derating_less_what_nobody_controls() -> None:
    inner = PowerDomain("inner", "root", nodes=("p-1",), unmanaged_watts=30)
    state = applied(powered(replace(ROOT, derate_milli=800, unmanaged_watts=20), inner))
    assert state.limits.scopes["power=here/root"].ceilings == {"watts": 720 - 50}
    assert state.limits.scopes["power=here/inner"].ceilings == {}


def test_a_cluster_without_limits_on_power_counts_none() -> None:
    assert applied(powered(A, B)).power is None
    assert applied(cluster()).power is None
