"""What the program of a site declares, against mocks: the shape that EC2 needs, for every type of the catalog."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import catalog
from orchestrator.model.cluster import FabricKind, PoolFabric
from orchestrator.model.errors import InputError
from orchestrator.model.stack_facts import FixedFact, StackFacts
from orchestrator.provision.aws import rights
from orchestrator.provision.aws.inputs import SiteInputs
from orchestrator.provision.aws.marks import Marks
from orchestrator.provision.aws.network import private_blocks, public_blocks
from tests.provision.aws.declared import ACCOUNT, UID, Declared, Site, declare, inputs_of

TYPES = catalog.load().instances
SITE = "  - {name: use1, kind: aws, region: us-east-1, image: ami-0123456789abcdef0"
HEAD = """
apiVersion: gangline/v1
kind: Cluster
metadata: {name: atlas}
"""


def document(pools: str, site: str = "", storage: str = "", controller: str = "") -> str:
    """A cluster with one aws site; `site` are further fields of it, each with a comma before it."""
    parts = [HEAD, f"controller: {{{controller}}}\n" if controller else "", f"sites:\n{SITE}{site}}}\n"]
    parts += [f"storage:\n{storage}" if storage else "", f"pools:\n{pools}"]
    return "".join(parts)


def elastic(kind: str, market: str = "on_demand", fabric: str = "", more: str = "") -> str:
    """One pool that buys that type."""
    offering = f"{{type: {kind}, market: {market}{more}}}"
    return f"  - {{name: burst, site: use1, size: {{max: 4}}, {fabric}offerings: [{offering}]}}\n"


def fixed(nodes: str = "train-[01-03]", more: str = "", kind: str = "p5.48xlarge") -> str:
    """One pool with nodes by name."""
    offer = f"offerings: [{{type: {kind}, market: on_demand}}]"
    return f'  - {{name: train, site: use1, nodes: "{nodes}", fabric: {{kind: efa}}, {offer}{more}}}\n'


def template(site: Site) -> dict[str, Any]:
    """The inputs of the only launch template."""
    (found,) = site.all("LaunchTemplate")
    return found.inputs


EFA = "fabric: {kind: efa}, "
ADDRESS = 'address: "https://a.example.org:7443"'


# --- interfaces ------------------------------------------------------------------------------------------------


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


# --- placement, reservations -----------------------------------------------------------------------------------

RESERVED = ", reservation: cr-0123456789abcdef0"


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


def marked_by(site: Site, name: str) -> set[str]:
    """The kinds of things that the template marks with the cluster's uid."""
    rows = site.one("LaunchTemplate", name).inputs["tagSpecifications"]
    return {row["resourceType"] for row in rows if row["tags"]["gangline:uid"] == UID}


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


def test_all_that_the_controllers_rights_want_marked_is_marked() -> None:
    site = declare(inputs_of(document(elastic("p5.48xlarge", "spot"))))

    in_request = {"fleet"}
    assert {*rights.BOUGHT} == in_request | marked_by(site, "template-burst-p5.48xlarge")


# --- security --------------------------------------------------------------------------------------------------


def test_security_group_names_itself_both_ways_and_lets_nobody_else_in() -> None:
    site = declare(inputs_of(document(elastic("p5.48xlarge", fabric=EFA))))

    group = "SecurityGroup/nodes"
    ways_in = [one.inputs for one in site.all("SecurityGroupIngressRule")]
    ways_out = [one.inputs for one in site.all("SecurityGroupEgressRule")]
    assert [one["ipProtocol"] for one in ways_in] == ["-1"]
    assert [one["referencedSecurityGroupId"] for one in ways_in] == [group]
    assert {one.get("referencedSecurityGroupId", one.get("cidrIpv4")) for one in ways_out} == {
        group,
        "0.0.0.0/0",
    }
    (made,) = site.all("SecurityGroup")
    assert not {"ingress", "egress"} & made.inputs.keys()


def test_nodes_have_no_right_in_the_account() -> None:
    boundary = ', permissions_boundary: "arn:aws:iam::123456789012:policy/bound"'
    site = declare(inputs_of(document(elastic("p5.48xlarge"), boundary)))

    (role,) = site.all("Role")
    assert role.inputs["permissionsBoundary"] == "arn:aws:iam::123456789012:policy/bound"
    assert not {"inlinePolicies", "managedPolicyArns"} & role.inputs.keys()
    assert not [one for one in site.found if "olicy" in one.type and one.type != role.type]
    assumed = json.loads(role.inputs["assumeRolePolicy"])
    assert [one["Principal"] for one in assumed["Statement"]] == [{"Service": "ec2.amazonaws.com"}]


def test_everything_in_the_account_has_the_marks_and_the_files_tags() -> None:
    text = document(
        fixed() + elastic("g6.48xlarge"),
        ", tags: {team: infra, Name: mine}, vpc: {endpoints: [s3, ec2]}",
        "  - {name: fast, kind: fsx, path: /fast, sites: [use1], size: 1200GiB}\n"
        "  - {name: home, kind: efs, path: /home, sites: [use1]}\n",
        'address: "https://a.example.org:7443", instance: {site: use1, type: m7i.large}',
    )
    bare = {
        "Route",
        "RouteTableAssociation",
        "RolePolicy",
        "VolumeAttachment",
        "MountTarget",
    }  # AWS has no tags there

    site = declare(inputs_of(text))

    for one in site.custom():
        if one.type.rpartition(":")[2] in bare:
            continue
        tags = one.inputs["tags"]
        assert tags["gangline:uid"] == UID, one.urn
        assert tags["gangline:cluster"] == "atlas"
        assert tags["gangline:site"] == "use1"
        assert tags["team"] == "infra"
        assert tags["Name"] == "mine"
    node = site.one("Instance", "train-02").inputs["tags"]
    assert (node["gangline:pool"], node["gangline:node"]) == ("train", "train-02")


def test_every_resource_is_parented_below_the_site() -> None:
    site = declare(inputs_of(document(fixed())))

    parents = {one.urn: one.parent for one in site.found}
    (root,) = [one.urn for one in site.found if one.type == "gangline:aws:Site"]
    for one in site.custom():
        assert root in (one.parent, parents[one.parent]), one.urn


def test_key_of_the_site_encrypts_every_disk() -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/k"
    site = declare(
        inputs_of(
            document(
                fixed(more=", root_volume: 500GiB"),
                f', kms_key: "{key}"',
                controller=f"{ADDRESS}, instance: {{site: use1, type: m7i.large, volume: 80GiB}}",
            )
        )
    )

    (disk,) = template(site)["blockDeviceMappings"]
    assert disk["ebs"]["kmsKeyId"] == key
    assert disk["ebs"]["volumeSize"] == 500
    volume = site.one("Volume", "controller-data")
    assert volume.inputs["kmsKeyId"] == key
    assert (volume.inputs["size"], volume.inputs["encrypted"]) == (80, True)
    assert site.one("Instance", "controller").inputs["rootBlockDevice"]["kmsKeyId"] == key


# --- network ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nat", "gateways", "public"),
    [
        ("one", ["nat-us-east-1a"], ["public-us-east-1a"]),
        ("per_zone", ["nat-us-east-1a", "nat-us-east-1b"], ["public-us-east-1a", "public-us-east-1b"]),
        ("none", [], []),
    ],
)
def test_nat(nat: str, gateways: list[str], public: list[str]) -> None:
    site = declare(inputs_of(document(elastic("p5.48xlarge"), f", vpc: {{nat: {nat}}}")))

    assert site.names("NatGateway") == gateways
    assert site.names("Eip") == gateways
    private = ["subnet-us-east-1a", "subnet-us-east-1b"]
    assert site.names("Subnet") == sorted(private + public)
    ways = {one.name: one.inputs.get("natGatewayId") for one in site.all("Route") if "public" not in one.name}
    used = [f"NatGateway/{gateways[min(at, len(gateways) - 1)]}" for at in range(2)] if gateways else []
    assert [ways[name] for name in sorted(ways)] == used
    assert all(not one.inputs["mapPublicIpOnLaunch"] for one in site.all("Subnet"))
    assert [one.id for one in site.facts.subnets] == [f"Subnet/{name}" for name in private]


def test_network_that_people_keep_is_used_and_nothing_is_made_in_it() -> None:
    vpc = ", vpc: {id: vpc-0123456789abcdef0, subnets: {us-east-1c: subnet-0123456789abcdef0}}"

    site = declare(inputs_of(document(fixed(), vpc)))

    made = {one.type.rpartition(":")[2] for one in site.custom()}
    assert not made & {"Vpc", "Subnet", "RouteTable", "Route", "NatGateway", "InternetGateway", "VpcEndpoint"}
    assert site.one("SecurityGroup", "nodes").inputs["vpcId"] == "vpc-0123456789abcdef0"
    assert {nic["subnetId"] for nic in template(site)["networkInterfaces"]} == {"subnet-0123456789abcdef0"}
    assert [(one.zone, one.id) for one in site.facts.subnets] == [("us-east-1c", "subnet-0123456789abcdef0")]


def test_endpoints() -> None:
    site = declare(inputs_of(document(elastic("p5.48xlarge"), ", vpc: {endpoints: [s3, ec2]}")))

    s3, ec2 = (site.one("VpcEndpoint", f"endpoint-{name}").inputs for name in ("s3", "ec2"))
    assert (s3["vpcEndpointType"], ec2["vpcEndpointType"]) == ("Gateway", "Interface")
    assert sorted(s3["routeTableIds"]) == ["RouteTable/routes-us-east-1a", "RouteTable/routes-us-east-1b"]
    assert ec2["serviceName"] == "com.amazonaws.us-east-1.ec2"
    assert ec2["privateDnsEnabled"] is True
    assert ec2["securityGroupIds"] == ["SecurityGroup/endpoints"]


LETTERS = [f"us-east-1{letter}" for letter in "abcdef"]


@given(st.sets(st.sampled_from(LETTERS), min_size=1), st.sampled_from(LETTERS))
@pytest.mark.property
def test_another_zone_moves_no_addresses(zones: set[str], more: str) -> None:
    for blocks in (private_blocks, public_blocks):
        before, after = (blocks("10.64.0.0/16", tuple(sorted(some))) for some in (zones, {*zones, more}))

        assert {zone: after[zone] for zone in zones} == before
        assert len(set(after.values())) == len(after)


def test_local_zones_have_a_place_of_their_own() -> None:
    blocks = private_blocks("10.64.0.0/16", ("us-east-1a", "us-east-1-dfw-2a"))

    assert blocks["us-east-1a"] == "10.64.0.0/20"
    assert len(set(blocks.values())) == 2


@pytest.mark.parametrize(
    ("cidr", "function"), [("10.0.0.0/25", private_blocks), ("10.0.0.0/21", public_blocks)]
)
def test_range_that_is_too_small_is_refused(cidr: str, function: Any) -> None:
    with pytest.raises(InputError) as caught:
        function(cidr, ("us-east-1a",))

    assert caught.value.path == "vpc.cidr"


# --- fixed nodes -----------------------------------------------------------------------------------------------


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


def test_node_with_user_data_of_its_own() -> None:
    site = declare(inputs_of(document(fixed()), boot=lambda pool, node: f"boot {node or 'any'}"))

    assert site.one("Instance", "train-02").inputs["userData"] == "boot train-02"
    assert template(site)["userData"] == "Ym9vdCBhbnk="


def test_node_may_not_have_the_name_of_the_controllers_instance() -> None:
    with pytest.raises(InputError) as caught:
        declare(inputs_of(document(fixed("controller"))))

    assert caught.value.code == "aws.name-taken"


# --- storage, controller ---------------------------------------------------------------------------------------

STORAGE = """  - {name: fast, kind: fsx, path: /fast, sites: [use1], size: 4800GiB, throughput: 250}
  - {name: home, kind: efs, path: /home, sites: [use1], throughput: 100}
  - {name: old, kind: fsx, path: /old, sites: [use1], source: fs-0123456789abcdef0/mnt}
  - {name: shared, kind: efs, path: /shared, sites: [use1], source: fs-0123456789abcdef1}
"""


def test_storage_is_protected_unless_its_name_was_released() -> None:
    text = document(fixed(), storage=STORAGE)

    site = declare(inputs_of(text, released=frozenset({"home"})))

    fast, home = site.one("LustreFileSystem", "fast"), site.one("FileSystem", "home")
    assert (fast.protect, fast.retain) == (True, True)
    assert (home.protect, home.retain) == (False, False)
    assert (fast.inputs["storageCapacity"], fast.inputs["perUnitStorageThroughput"]) == (4800, 250)
    assert fast.inputs["deploymentType"] == "PERSISTENT_2"
    assert home.inputs["encrypted"] is True
    assert (home.inputs["throughputMode"], home.inputs["provisionedThroughputInMibps"]) == (
        "provisioned",
        100,
    )
    assert site.names("MountTarget") == ["home-us-east-1a", "home-us-east-1b"]


def test_how_storages_are_mounted() -> None:
    found = {one.name: one for one in declare(inputs_of(document(fixed(), storage=STORAGE))).facts.storages}

    assert found["fast"].source == "LustreFileSystem/fast.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh"
    assert found["old"].source == "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com@tcp:/mnt"
    assert found["old"].id == "fs-0123456789abcdef0"
    assert found["shared"].source == "fs-0123456789abcdef1.efs.us-east-1.amazonaws.com:/"
    assert "nfsvers=4.1" in found["home"].options


def test_controllers_instance() -> None:
    host = 'address: "https://a.example.org:7443", instance: {site: use1, type: m7i.large}'

    site = declare(inputs_of(document(elastic("p5.48xlarge"), controller=host), controller_boot="boot it"))

    instance, volume = site.one("Instance", "controller"), site.one("Volume", "controller-data")
    assert (volume.protect, volume.retain) == (True, True)
    assert instance.inputs["metadataOptions"]["httpTokens"] == "required"
    assert instance.inputs["rootBlockDevice"]["encrypted"] is True
    assert instance.inputs["userData"] == "boot it"
    ways_in = [
        one.inputs for one in site.all("SecurityGroupIngressRule") if one.name.startswith("controller")
    ]
    assert {(one["fromPort"], one["toPort"], one["ipProtocol"]) for one in ways_in} == {(7443, 7443, "tcp")}
    assert {one.get("cidrIpv4", one.get("referencedSecurityGroupId")) for one in ways_in} == {
        "10.64.0.0/16",
        "SecurityGroup/nodes",
    }
    assert site.facts.controller == "Instance/controller"

    again = declare(inputs_of(document(elastic("p5.48xlarge"), controller=host), facts=site.facts))
    assert set(again.one("Instance", "controller").ignore) == {"ami", "userData", "rootBlockDevice"}


def test_controllers_rights_are_bound_to_the_clusters_uid() -> None:
    where = rights.Where("aws", "us-east-1", ACCOUNT)

    policy = json.loads(rights.of_controller(where, "atlas", UID, "arn:aws:iam::123456789012:role/nodes"))

    said = {one["Sid"]: one for one in policy["Statement"]}
    changing = [one for one in policy["Statement"] if not one["Action"][0].startswith("ec2:Describe")]
    assert all("*" not in action for one in changing for action in one["Action"])
    assert said["EndOwn"]["Condition"] == {"StringEquals": {"aws:ResourceTag/gangline:uid": UID}}
    assert said["BuyMarked"]["Condition"] == {"StringEquals": {"aws:RequestTag/gangline:uid": UID}}
    assert said["MarkBought"]["Condition"]["StringEquals"]["aws:RequestTag/gangline:uid"] == UID
    assert said["GiveRole"]["Resource"] == ["arn:aws:iam::123456789012:role/nodes"]
    assert not set(said["BuyMarked"]["Resource"]) & set(said["BuyFrom"]["Resource"])
    assert said["ReadFacts"]["Resource"][0].endswith(f":parameter/gangline/atlas-{UID}/*")
    assert said["Look"]["Action"] == ["ec2:DescribeInstances"]
    assert not [one for one in policy["Statement"] if "kms" in json.dumps(one)]


def test_controllers_rights_lend_the_files_own_key_to_ec2_alone() -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/k"
    host = 'address: "https://a.example.org:7443", instance: {site: use1, type: m7i.large}'
    text = document(elastic("p5.48xlarge"), f', kms_key: "{key}"', controller=host)

    policy = json.loads(declare(inputs_of(text)).one("RolePolicy", "controller").inputs["policy"])

    said = {one["Sid"]: one for one in policy["Statement"]}
    assert [said[name]["Resource"] for name in ("UseKey", "LendKey")] == [[key], [key]]
    assert said["UseKey"]["Condition"] == {"StringEquals": {"kms:ViaService": "ec2.us-east-1.amazonaws.com"}}
    assert said["LendKey"]["Action"] == ["kms:CreateGrant"]
    assert said["LendKey"]["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}


def test_a_key_by_its_alias_is_named_as_iam_can() -> None:
    where, alias = rights.Where("aws", "us-east-1", ACCOUNT), "arn:aws:kms:us-east-1:123456789012:alias/disks"

    policy = json.loads(rights.of_controller(where, "atlas", UID, "arn", alias))

    lend = next(one for one in policy["Statement"] if one["Sid"] == "LendKey")
    assert lend["Resource"] == ["arn:aws:kms:us-east-1:123456789012:key/*"]
    assert lend["Condition"]["ForAnyValue:StringEquals"] == {"kms:ResourceAliases": "alias/disks"}


# --- names -----------------------------------------------------------------------------------------------------


def test_removing_the_middle_of_three_removes_it_alone() -> None:
    all_three = declare(inputs_of(document(fixed("train-[01-03]")))).golden()
    two = declare(inputs_of(document(fixed("train-01,train-03")))).golden()

    gone = {urn.rpartition("::")[2] for urn in all_three.keys() - two.keys()}
    assert gone == {"train-02"}
    changed = [urn for urn, one in two.items() if all_three[urn] != one and not urn.endswith("::facts")]
    assert changed == []


LISTS = [
    '  - {name: train, site: use1, nodes: "train-[01-02]", offerings: [{type: p5.48xlarge, market: on_demand}]}\n',
    "  - {name: burst, site: use1, size: {max: 4}, offerings: [{type: p4d.24xlarge, market: spot}]}\n",
    "  - {name: small, site: use1, size: {max: 2}, offerings: [{type: g6.xlarge, market: spot}]}\n",
]


@pytest.mark.property
@settings(max_examples=20)  # a run of the program takes half a second
@given(st.permutations(LISTS), st.permutations(STORAGE.splitlines(keepends=True)), st.booleans())
def test_order_and_comments_change_no_resource(pools: list[str], storage: list[str], comment: bool) -> None:
    zones = ", zones: [us-east-1b, us-east-1a]" if comment else ", zones: [us-east-1a, us-east-1b]"
    mark = "# a comment\n" if comment else ""
    text = document(mark.join(pools), zones, "".join(storage))

    assert declare(inputs_of(text)).golden() == _plain_order()


def _plain_order() -> dict[str, Any]:
    if not _KEPT:
        text = document("".join(LISTS), ", zones: [us-east-1a, us-east-1b]", STORAGE)
        _KEPT.update(declare(inputs_of(text)).golden())
    return _KEPT


_KEPT: dict[str, Any] = {}


def test_commit_is_kept_as_long_as_the_file_means_the_same() -> None:
    text = document(fixed())
    facts = declare(inputs_of(text, commit="a" * 40)).facts

    same = declare(inputs_of(text, facts=facts, commit="b" * 40)).facts
    other = declare(inputs_of(document(fixed("train-01")), facts=facts, commit="b" * 40)).facts

    assert (facts.commit, same.commit, other.commit) == ("a" * 40, "a" * 40, "b" * 40)


def test_images_of_earlier_files_stay_in_the_facts() -> None:
    text = document(fixed())
    facts = declare(inputs_of(text)).facts
    newer = text.replace("ami-0123456789abcdef0", "ami-0123456789abcdef1")

    after = declare(inputs_of(newer, facts=facts)).facts

    assert [words for words, _ in after.images] == ["ami-0123456789abcdef0", "ami-0123456789abcdef1"]
    assert after.root("ami-0123456789abcdef0") == "/dev/sda1"


def test_names_for_aws_are_whole_or_have_a_sum() -> None:
    marks = Marks(UID, "atlas", "use1")

    assert marks.name("nodes", most=64) == f"gangline-{UID}-use1-nodes"
    long = marks.name("p" * 100, "q", most=64)
    assert len(long) == 64
    assert long != marks.name("p" * 100, "r", most=64)


def test_provider_is_bound_to_the_files_region_and_the_account() -> None:
    site = declare(inputs_of(document(fixed())))

    provider: Declared = site.one("aws", "aws")
    assert provider.inputs["region"] == "us-east-1"
    assert json.loads(provider.inputs["allowedAccountIds"]) == [ACCOUNT]


def test_fact_of_a_node_survives_a_round_trip() -> None:
    site = declare(inputs_of(document(fixed())))

    assert site.facts.fixed_node("train-02") == FixedFact(
        "train-02", "train", "Instance/train-02", "10.64.0.10", site.one("Instance", "train-02").trigger
    )
    assert replace(site.facts, fixed=()).fixed_node("train-02") is None
