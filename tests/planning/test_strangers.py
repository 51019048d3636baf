"""Hosts that are somebody else's when they are to come in: another cluster's node, another machine at the address."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.change import Change, UpdateClass
from orchestrator.model.host import Sight
from orchestrator.planning.world import Choices
from tests.planning.scene import Scene, facts, sight

MAC = "02:00:00:00:00:01"  # of h100-01 in the inventory


def seen(name: str, macs: tuple[str, ...] = (), agent_url: str = "") -> Sight:
    return replace(sight(name), facts=facts(name, macs=macs, agent_url=agent_url))


def scene(one: Sight, *consents: str, joined: bool = False) -> Scene:
    nodes = {} if joined else {one.host: None}
    return Scene("strangers", sights=(one,), nodes=nodes, choices=Choices(consents))


def found(one: Sight, path: str, joined: bool = False) -> list[Change]:
    return [change for change in scene(one, joined=joined).plan().changes if change.path == path]


@pytest.mark.parametrize(
    "url", ["https://10.0.0.9:7443", "https://10.0.0.9:7443/", "https://full.example.org:7443", ""]
)
def test_an_agent_of_ones_own_is_nothing(url: str) -> None:
    assert not found(seen("h100-03", agent_url=url), "host[h100-03].controller")


def test_a_node_of_another_cluster_is_taken_only_by_consent() -> None:
    one = seen("h100-03", agent_url="https://elsewhere:7443")
    (change,) = found(one, "host[h100-03].controller")
    assert (change.cls, change.old, change.consent) == (
        UpdateClass.REPLACE,
        "https://elsewhere:7443",
        "host/h100-03",
    )
    assert any("host[h100-03].controller" in blocker for blocker in scene(one).plan().blockers)
    agreed = scene(one, "host/h100-03").plan()
    assert not agreed.blockers
    assert "h100-03" in {name for step in agreed.steps for name in step.nodes}


def test_a_node_that_is_in_may_be_told_of_another_controller() -> None:
    """By hand: that is drift of a file, and set right as such."""
    assert not found(
        seen("h100-03", agent_url="https://elsewhere:7443"), "host[h100-03].controller", joined=True
    )


@pytest.mark.parametrize(
    ("macs", "refused"),
    [((MAC,), False), (("aa:00:00:00:00:01", MAC), False), ((), False), (("aa:00:00:00:00:01",), True)],
)
def test_a_new_host_has_the_card_that_the_inventory_gives(macs: tuple[str, ...], refused: bool) -> None:
    changes = found(seen("h100-01", macs=macs), "host[h100-01].mac")
    assert [change.cls for change in changes] == [UpdateClass.REFUSED] * refused


def test_a_card_exchanged_in_a_host_that_is_in_stops_nothing() -> None:
    assert not found(seen("h100-01", macs=("aa:00:00:00:00:01",)), "host[h100-01].mac", joined=True)


def test_a_host_without_a_mac_in_the_inventory_is_asked_for_none() -> None:
    assert not found(seen("h100-03", macs=("aa:00:00:00:00:01",)), "host[h100-03].mac")


def test_two_addresses_given_the_wrong_way_round() -> None:
    """Each answers with the other one's card."""
    one = seen("h100-01", macs=("02:00:00:00:00:02",))
    two = seen("h100-02", macs=(MAC,))
    plan = Scene("swapped", sights=(one, two), nodes={"h100-01": None, "h100-02": None}).plan()
    assert [change.path for change in plan.changes if change.cls is UpdateClass.REFUSED] == [
        "host[h100-01].mac",
        "host[h100-02].mac",
    ]
