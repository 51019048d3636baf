"""What a plan says of a new pool whose nodes are bought: at once, or when work needs them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.cluster import ClusterSpec, Pool, Site, SiteKind
from orchestrator.planning.compare import compare
from orchestrator.planning.rules import Judged, judge

BEFORE = ClusterSpec("c", sites=(Site("use1", SiteKind.AWS, region="us-east-1"),))


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        (Pool("burst", "use1"), "its nodes are bought when work needs them"),
        (
            Pool("train", "use1", nodes=("t1",)),
            "its nodes are bought at once, by Pulumi, and join by themselves",
        ),
    ],
)
def test_a_new_pool_says_when_its_nodes_are_bought(pool: Pool, why: str) -> None:
    after = replace(BEFORE, pools=(pool,))
    (case,) = compare(BEFORE, after)
    assert judge(Judged(case, BEFORE, after)).effect.why == why
