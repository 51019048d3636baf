"""Which changes of the file a stack has to follow."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.planning.stack_digest import stack_digest
from tests.planning.scene import base, document, load

FOLLOWED = {
    "sites[use1].vpc.nat": "one",
    "sites[use1].image": "ami-00000000",
    "sites[use1].tags.team": "hpc",
    "pools[burst].offerings[1].type": "p5en.48xlarge",
    "pools[burst].root_volume": "600GiB",
    "pools[burst].fabric.kind": "ethernet",
    "storage[fast].size": "7200GiB",
    "controller.address": "https://b.example.org:7443",
}
LEFT = {
    "queues[research].weight": 3,
    "pools[burst].size.max": 8,
    "pools[burst].offerings[1].max_usd_per_hour": 12.5,
    "pools[h100].update.max_unavailable": 3,
    "sites[usw2].zones": ["us-west-2a"],
    "budgets[cloud].usd_per_hour": 500,
    "sites[use1].prices": "./prices.yml",
}


@pytest.mark.parametrize(("path", "value"), FOLLOWED.items())
def test_the_stack_follows(path: str, value: Any) -> None:
    assert stack_digest(load(document({path: value})), "use1") != stack_digest(base(), "use1")


@pytest.mark.parametrize(("path", "value"), LEFT.items())
def test_the_stack_need_not_follow(path: str, value: Any) -> None:
    assert stack_digest(load(document({path: value})), "use1") == stack_digest(base(), "use1")
