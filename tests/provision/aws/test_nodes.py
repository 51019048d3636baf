"""What nodes of a site are declared as, against mocks: the shape that EC2 needs, for every type of the catalog."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from orchestrator import catalog
from orchestrator.model.cluster import FabricKind, PoolFabric
from orchestrator.model.errors import InputError
from orchestrator.model.stack_facts import StackFacts
from orchestrator.provision.aws.inputs import SiteInputs
from orchestrator.provision.aws.nodes import GIB, root_gib
from tests.provision.aws.declared import UID, Site, declare, inputs_of
from tests.provision.aws.documents import (
    EFA,
    RESERVED,
    document,
    elastic,
    fixed,
    marked_by,
    template,
)

TYPES = catalog.load().instances


@cache
def whole_catalog(fabric: str) -> Site:
    """One site with a pool for every type that the fabric fits, each named after its type."""
    fitting = [name for name, one in TYPES.items() if one.efa or not fabric]
    pools = [elastic(name, fabric=fabric).replace("burst", name.replace(".", "-")) for name in fitting]
    return declare(inputs_of(document("".join(pools)), zones=["us-east-1a"]))


def of_type(kind: str, fabric: str = "") -> dict[str, Any]:
    """The template of that type in it."""
    return whole_catalog(fabric).one("LaunchTemplate", f"template-{kind.replace('.', '-')}-{kind}").inputs


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_plain_template_has_one_interface(kind: str) -> None:
    made = of_type(kind)

    (nic,) = made["networkInterfaces"]
    assert nic["networkCardIndex"] == nic["deviceIndex"] == 0
    assert "interfaceType" not in nic
    assert nic["associatePublicIpAddress"] == "false"
    assert nic["securityGroups"] == ["SecurityGroup/nodes"]
    assert made["instanceType"] == kind
    assert "placement" not in made
    closed(made, kind)


@pytest.mark.parametrize("kind", sorted(name for name, one in TYPES.items() if one.efa))
def test_efa_template_has_efa_on_every_card_that_takes_it(kind: str) -> None:
    known = TYPES[kind]
    made = of_type(kind, EFA)

    nics = made["networkInterfaces"]
    places = [(nic["networkCardIndex"], nic["deviceIndex"]) for nic in nics]
    kinds = [nic.get("interfaceType", "interface") for nic in nics]
    assert len(set(places)) == len(places)
    assert places[0] == (0, 0)
    assert {card for card, _ in places} == set(range(known.cards))
    assert sum(kind in ("efa", "efa-only") for kind in kinds) == known.efa
    assert kinds[0] == ("efa" if known.cards == 1 else "interface")
    assert all(kind == "efa-only" for kind in kinds[1:])
    assert all(device == (1 if card == 0 else 0) for card, device in places[1:])
    assert all(nic["securityGroups"] == ["SecurityGroup/nodes"] for nic in nics)
    # More than one interface and a public address is what EC2 refuses.
    assert len(nics) == 1 or all("associatePublicIpAddress" not in nic for nic in nics)
    pool = kind.replace(".", "-")
    assert made["placement"] == {"groupName": f"gangline-{UID}-use1-{pool}-us-east-1a"}
    closed(made, kind)


def closed(made: dict[str, Any], kind: str) -> None:
    """What no template may lack, whatever its type."""
    assert made["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpTokens": "required",
        "httpPutResponseHopLimit": 1,
    }
    (disk,) = made["blockDeviceMappings"]
    assert disk["deviceName"] == "/dev/sda1"
    assert disk["ebs"]["encrypted"] == "true"
    assert disk["ebs"]["volumeSize"] == 200
    assert made["iamInstanceProfile"] == {"name": f"gangline-{UID}-use1-nodes"}
    specs = {one["resourceType"]: one["tags"] for one in made["tagSpecifications"]}
    assert specs.keys() == {"instance", "volume", "network-interface"}
    pool = kind.replace(".", "-")
    assert all(tags["gangline:uid"] == UID and tags["gangline:pool"] == pool for tags in specs.values())


def test_p6_b300_has_a_plain_first_card() -> None:
    made = template(declare(inputs_of(document(elastic("p6-b300.48xlarge", fabric=EFA)))))

    first = [nic for nic in made["networkInterfaces"] if nic["networkCardIndex"] == 0]
    assert [nic.get("interfaceType") for nic in first] == [None]
    assert len(made["networkInterfaces"]) == 17


def test_p5_has_an_efa_beside_the_plain_interface_of_its_first_card() -> None:
    made = template(declare(inputs_of(document(elastic("p5.48xlarge", fabric=EFA)))))

    assert len(made["networkInterfaces"]) == 33


def unchecked(text: str, **changes: Any) -> SiteInputs:
    """Inputs whose only pool is another than `validate` would let through: the program looks for itself."""
    found = inputs_of(text)
    (pool,) = found.spec.pools
    return replace(found, spec=replace(found.spec, pools=(replace(pool, **changes),)))


@pytest.mark.parametrize("kind", sorted(name for name, one in TYPES.items() if not one.efa))
def test_efa_on_a_type_without_it_is_refused(kind: str) -> None:
    with pytest.raises(InputError) as caught:
        declare(unchecked(document(elastic(kind)), fabric=PoolFabric(FabricKind.EFA)))

    assert caught.value.code == "aws.no-efa"
    assert kind in caught.value.message


def test_public_address_with_several_interfaces_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        declare(unchecked(document(elastic("p5.48xlarge", fabric=EFA)), public_address=True))

    assert caught.value.path == "pools[burst].public_address"


def test_public_address_with_one_interface_comes_from_a_public_subnet() -> None:
    pool = elastic("g6.48xlarge").replace("size:", "public_address: true, size:")

    site = declare(inputs_of(document(pool, ", vpc: {nat: none}")))

    (nic,) = template(site)["networkInterfaces"]
    assert nic["associatePublicIpAddress"] == "true"
    assert [one.zone for one in site.facts.public_subnets] == ["us-east-1a", "us-east-1b"]
    (fact,) = site.facts.templates
    assert site.facts.subnet(fact, "us-east-1b") == "Subnet/public-us-east-1b"
    assert site.all("NatGateway") == []
    assert len(site.all("InternetGateway")) == 1


@pytest.mark.parametrize(
    ("fabric", "market", "more", "wanted"),
    [
        ("fabric: {kind: efa}, ", "on_demand", "", True),
        ("fabric: {kind: efa}, ", "spot", "", True),
        ("fabric: {kind: efa, placement: none}, ", "on_demand", "", False),
        ("", "on_demand", "", False),
        ("fabric: {kind: ethernet, placement: cluster}, ", "on_demand", "", True),
        ("fabric: {kind: efa}, ", "capacity_reservation", RESERVED, False),
        ("fabric: {kind: efa, placement: cluster}, ", "capacity_reservation", RESERVED, True),
        ("fabric: {kind: efa}, ", "capacity_block", RESERVED, False),
    ],
)
def test_placement_group_only_where_it_is_asked_for(
    fabric: str, market: str, more: str, wanted: bool
) -> None:
    site = declare(inputs_of(document(elastic("p5.48xlarge", market, fabric, more)), zones=["us-east-1a"]))

    assert ("placement" in template(site)) is wanted
    assert len(site.all("PlacementGroup")) == int(wanted)
    assert all(one.inputs["strategy"] == "cluster" for one in site.all("PlacementGroup"))


def test_several_zones_have_a_group_each_and_the_template_none() -> None:
    site = declare(inputs_of(document(elastic("p5.48xlarge", fabric=EFA))))

    assert "placement" not in template(site)
    assert site.facts.placement("burst", "us-east-1b") == f"gangline-{UID}-use1-burst-us-east-1b"


@pytest.mark.parametrize("market", ["capacity_reservation", "capacity_block"])
def test_template_of_reserved_capacity_names_it(market: str) -> None:
    site = declare(inputs_of(document(elastic("p5.48xlarge", market, EFA, RESERVED))))

    made = template(site)
    target = made["capacityReservationSpecification"]["capacityReservationTarget"]
    assert target == {"capacityReservationId": "cr-0123456789abcdef0"}
    block = {"marketType": "capacity-block"}
    assert made.get("instanceMarketOptions") == (block if market == "capacity_block" else None)
    fact = site.facts.template("burst", "p5.48xlarge", "cr-0123456789abcdef0")
    assert fact is not None
    assert fact.id == "LaunchTemplate/template-burst-p5.48xlarge-cr-0123456789abcdef0"


@pytest.mark.parametrize(
    ("fabric", "market", "wanted"),
    [
        ("fabric: {kind: efa}, ", "capacity_reservation", False),
        ("fabric: {kind: efa, placement: cluster}, ", "capacity_reservation", True),
        ("fabric: {kind: efa}, ", "capacity_block", False),
    ],
)
def test_facts_say_which_offering_stands_in_a_group(fabric: str, market: str, wanted: bool) -> None:
    """Reserved capacity beside what is bought on demand, over several zones: each template has its own word."""
    pool = elastic("p5.48xlarge", market, fabric, RESERVED).replace(
        "]}\n", ", {type: p5.48xlarge, market: on_demand}]}\n"
    )

    facts = declare(inputs_of(document(pool))).facts

    assert {one.reservation: one.grouped for one in facts.templates} == {RESERVED[-20:]: wanted, "": True}
    assert {one.placement for one in facts.templates} == {""}
    assert [one.zone for one in facts.placements] == ["us-east-1a", "us-east-1b"]


def test_spot_has_a_template_of_its_own_since_its_requests_are_marked() -> None:
    """EC2 refuses marks of a spot request in a launch that makes none."""
    pool = elastic("[p5.48xlarge, p5en.48xlarge]", "spot", EFA).replace(
        "]}\n", ", {type: p5.48xlarge, market: on_demand}]}\n"
    )

    site = declare(inputs_of(document(pool)))

    always = {"instance", "volume", "network-interface"}
    assert {name: marked_by(site, name) - always for name in site.names("LaunchTemplate")} == {
        "template-burst-p5.48xlarge": set(),
        "template-burst-p5.48xlarge-spot": {"spot-instances-request"},
        "template-burst-p5en.48xlarge": {"spot-instances-request"},
    }
    assert all("instanceMarketOptions" not in one.inputs for one in site.all("LaunchTemplate"))
    by_market = [site.facts.template("burst", "p5.48xlarge", spot=spot) for spot in (True, False)]
    assert [fact.id for fact in by_market if fact is not None] == [
        "LaunchTemplate/template-burst-p5.48xlarge-spot",
        "LaunchTemplate/template-burst-p5.48xlarge",
    ]


def known_nodes(site: Site) -> StackFacts:
    """The facts as the next run reads them."""
    return site.facts


def test_fixed_node_starts_from_its_pools_template_in_one_zone() -> None:
    site = declare(inputs_of(document(fixed())))

    assert site.names("Instance") == ["train-01", "train-02", "train-03"]
    node = site.one("Instance", "train-02")
    assert node.inputs["launchTemplate"] == {
        "id": "LaunchTemplate/template-train-p5.48xlarge",
        "version": "1",
    }
    assert node.delete_first
    assert {nic["subnetId"] for nic in template(site)["networkInterfaces"]} == {"Subnet/subnet-us-east-1a"}
    assert template(site)["instanceInitiatedShutdownBehavior"] == "stop"
    assert any("routeTable" in urn for urn in node.depends)  # a node needs the way out, and ends before it


def test_known_node_ignores_template_and_user_data_until_its_meaning_changes() -> None:
    text = document(fixed())
    first = declare(inputs_of(text))
    facts = known_nodes(first)

    again = declare(inputs_of(text, facts=facts, boot=lambda pool, node: "another"))
    larger = declare(inputs_of(document(fixed(more=", root_volume: 500GiB")), facts=facts))

    before = first.one("Instance", "train-01")
    assert before.ignore == ()
    same = again.one("Instance", "train-01")
    assert set(same.ignore) == {"launchTemplate", "userData"}
    assert same.trigger == before.trigger != ""
    changed = larger.one("Instance", "train-01")
    assert changed.ignore == ()
    assert changed.trigger != before.trigger


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("type: p5.48xlarge", "type: p5en.48xlarge"),
        ("ami-0123456789abcdef0", "ami-0123456789abcdef1"),
        ("fabric: {kind: efa}", "fabric: {kind: efa, placement: none}"),
        ("region: us-east-1", 'region: us-east-1, kms_key: "arn:aws:kms:us-east-1:123456789012:key/k"'),
        ("market: on_demand", "market: capacity_reservation, reservation: cr-0123456789abcdef0"),
        ("site: use1, nodes", "site: use1, root_volume: 500GiB, nodes"),
    ],
)
def test_what_a_node_is_replaced_for(old: str, new: str) -> None:
    text = document(fixed())
    facts = declare(inputs_of(text)).facts

    before = declare(inputs_of(text, facts=facts)).one("Instance", "train-01").trigger
    after = declare(inputs_of(text.replace(old, new), facts=facts)).one("Instance", "train-01").trigger

    assert text != text.replace(old, new)
    assert before != after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("region: us-east-1", "region: us-east-1, tags: {team: infra}"),
        ("name: train, ", "name: train, labels: {row: '3'}, "),
        ("train-[01-03]", "train-[01-04]"),
        ("market: on_demand", "market: on_demand, max_usd_per_hour: 60"),
    ],
)
def test_what_a_node_is_not_replaced_for(old: str, new: str) -> None:
    text = document(fixed())
    assert text != text.replace(old, new)

    before, after = (
        declare(inputs_of(one)).one("Instance", "train-01") for one in (text, text.replace(old, new))
    )

    assert before.trigger == after.trigger


def test_meaning_of_a_node_is_that_of_older_versions() -> None:
    """A fixed figure: a change of it would replace every fixed node of everybody."""
    site = declare(inputs_of(document(fixed())))

    assert site.one("Instance", "train-01").trigger == MEANING


MEANING = "dfd6a5660655c99b"


def test_held_node_keeps_its_old_meaning_in_the_facts_until_its_turn() -> None:
    text = document(fixed())
    facts = declare(inputs_of(text, commit="a" * 40)).facts
    newer = document(fixed("train-01,train-02", more=", root_volume: 500GiB"))

    part = declare(
        inputs_of(newer, facts=facts, held=frozenset({"train-02", "train-03"}), commit="b" * 40)
    ).facts
    whole = declare(inputs_of(newer, facts=part, commit="b" * 40)).facts

    before, after = facts.fixed[0].meaning, whole.fixed[0].meaning
    assert before != after
    assert {one.node: one.meaning for one in part.fixed} == {
        "train-01": after,
        "train-02": before,
        "train-03": before,
    }
    assert [one.node for one in whole.fixed] == ["train-01", "train-02"]
    assert (part.spec, part.commit) == (facts.spec, "a" * 40)
    assert (whole.spec != facts.spec, whole.commit) == (True, "b" * 40)


def test_pool_stays_in_the_zone_where_it_stands() -> None:
    facts = declare(inputs_of(document(fixed(), ", zones: [us-east-1b]"))).facts

    site = declare(inputs_of(document(fixed(), ", zones: [us-east-1a, us-east-1b]"), facts=facts))

    assert facts.home("pool/train") == "us-east-1b"
    assert {nic["subnetId"] for nic in template(site)["networkInterfaces"]} == {"Subnet/subnet-us-east-1b"}
    assert site.names("NatGateway") == ["nat-us-east-1b"]


@pytest.mark.parametrize(("asked", "gib"), [(1, 1), (GIB, 1), (GIB + 1, 2), (500 * GIB, 500)])
def test_a_disk_is_never_smaller_than_was_asked_for(asked: int, gib: int) -> None:
    (pool,) = inputs_of(document(fixed())).pools
    assert root_gib(replace(pool, root_volume=asked)) == gib


def test_node_with_user_data_of_its_own() -> None:
    site = declare(inputs_of(document(fixed()), boot=lambda pool, node: f"boot {node or 'any'}"))

    assert site.one("Instance", "train-02").inputs["userData"] == "boot train-02"
    assert template(site)["userData"] == "Ym9vdCBhbnk="
