"""What is asked of EC2, as botocore's own models take it, and what its answers become, as its Stubber gives them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

from orchestrator.model.capacity import CloudInstance, CloudState, ErrorClass, Intent, OfferingKey, Shape
from orchestrator.model.cluster import Market
from orchestrator.model.stack_facts import PlacementFact, StackFacts, SubnetFact, TemplateFact
from orchestrator.provision.aws.fleet import Ec2, request
from orchestrator.provision.cloud import LaunchError, Unanswered

ZONE, TYPE = "us-east-1a", "p5.48xlarge"
FACTS = StackFacts(
    cluster="atlas",
    uid="k3j9x0q2m5a7",
    site="use1",
    region="us-east-1",
    account="123456789012",
    spec="ab",
    subnets=(SubnetFact(ZONE, "subnet-0a"), SubnetFact("us-east-1b", "subnet-0b")),
    templates=(
        TemplateFact("burst", TYPE, "lt-0a", 3, "ami-0a"),
        TemplateFact("burst", TYPE, "lt-0r", 1, "ami-0a", reservation="cr-0a"),
    ),
    placements=(PlacementFact("burst", ZONE, "gangline-burst-a"),),
)


def intent(market: str = "on_demand", *, zone: str = ZONE, reservation: str = "", **rest: Any) -> Intent:
    """Two nodes of the pool `burst`."""
    key = OfferingKey("burst", rest.pop("type_", TYPE), market, zone, reservation)
    return Intent("intent-90", "use1", key, ("burst-1", "burst-2"), 30_000_000, Shape(8, 192, 1), **rest)


@cache
def session() -> Any:
    """It keeps what it has read of EC2's model: half a second for each client else."""
    import boto3

    return boto3.session.Session()


def stubbed() -> tuple[Ec2, Any]:
    """A cloud whose client says what a test adds to the stub; every parameter is checked by botocore's model."""
    from botocore.stub import Stubber

    client = session().client(
        "ec2", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    stub = Stubber(client)
    stub.activate()
    return Ec2(client, client), stub


def fleet_of(*ids: str, errors: tuple[str, ...] = ()) -> dict[str, Any]:
    rows = [{"ErrorCode": code, "ErrorMessage": "words", "Lifecycle": "on-demand"} for code in errors]
    return {"FleetId": "fleet-1", "Errors": rows, "Instances": [{"InstanceIds": list(ids)}] if ids else []}


@pytest.mark.parametrize("market", ["on_demand", "spot", "capacity_reservation", "capacity_block"])
def test_every_market_asks_for_what_botocore_takes(market: str) -> None:
    reservation = "cr-0a" if market.startswith("capacity") else ""
    wanted = intent(market, reservation=reservation, max_price=30_500_000)
    cloud, stub = stubbed()
    asked = request(wanted, FACTS)
    stub.add_response("create_fleet", fleet_of("i-0b", "i-0a"), asked)
    found = cloud.launch(wanted, FACTS)
    assert [one.id for one in found] == ["i-0a", "i-0b"]
    assert {one.intent for one in found} == {"intent-90"}


def test_a_launch_is_all_or_nothing_in_one_zone_of_one_type() -> None:
    asked = request(intent(), FACTS)
    assert asked["Type"] == "instant"
    assert asked["ClientToken"] == "k3j9x0q2m5a7-intent-90"
    assert asked["TargetCapacitySpecification"] == {
        "TotalTargetCapacity": 2,
        "DefaultTargetCapacityType": "on-demand",
    }
    options = asked["OnDemandOptions"]
    assert (options["SingleInstanceType"], options["SingleAvailabilityZone"]) == (True, True)
    assert options["MinTargetCapacity"] == 2
    (config,) = asked["LaunchTemplateConfigs"]
    assert config["LaunchTemplateSpecification"] == {"LaunchTemplateId": "lt-0a", "Version": "3"}
    assert config["Overrides"] == [
        {"InstanceType": TYPE, "SubnetId": "subnet-0a", "Placement": {"GroupName": "gangline-burst-a"}}
    ]


def test_the_create_call_itself_marks_what_it_makes() -> None:
    asked = request(intent(), FACTS)
    for row in asked["TagSpecifications"]:
        marks = {tag["Key"]: tag["Value"] for tag in row["Tags"]}
        assert marks == {
            "gangline:uid": "k3j9x0q2m5a7",
            "gangline:cluster": "atlas",
            "gangline:site": "use1",
            "gangline:pool": "burst",
            "gangline:intent": "intent-90",
            "gangline:nodes": "burst-1 burst-2",
        }
    assert [row["ResourceType"] for row in asked["TagSpecifications"]] == ["fleet", "instance"]


def test_spot_has_its_bound_and_reserved_capacity_no_placement_group() -> None:
    spot = request(intent("spot", max_price=30_500_000), FACTS)
    (override,) = spot["LaunchTemplateConfigs"][0]["Overrides"]
    assert override["MaxPrice"] == "30.500000"
    assert spot["SpotOptions"]["MinTargetCapacity"] == 2
    for market in (Market.CAPACITY_RESERVATION, Market.CAPACITY_BLOCK):
        reserved = request(intent(str(market), reservation="cr-0a"), FACTS)
        (config,) = reserved["LaunchTemplateConfigs"]
        assert config["LaunchTemplateSpecification"]["LaunchTemplateId"] == "lt-0r"
        assert "Placement" not in config["Overrides"][0]
    block = request(intent("capacity_block", reservation="cr-0a"), FACTS)
    assert block["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "capacity-block"


@pytest.mark.parametrize(
    ("reservation", "grouped", "wanted"),
    [
        ("", None, True),
        ("", True, True),
        ("", False, False),
        ("cr-0a", None, False),
        ("cr-0a", False, False),
        ("cr-0a", True, True),
    ],
)
@pytest.mark.parametrize("zone", [ZONE, "us-east-1b"])
def test_the_stack_says_whether_a_launch_stands_in_the_group_of_its_zone(
    reservation: str, grouped: bool | None, wanted: bool, zone: str
) -> None:
    groups = {ZONE: "gangline-burst-a", "us-east-1b": "gangline-burst-b"}
    facts = replace(
        FACTS,
        templates=(
            TemplateFact("burst", TYPE, "lt-0a", 3, "ami-0a", reservation=reservation, grouped=grouped),
        ),
        placements=tuple(PlacementFact("burst", one, group) for one, group in groups.items()),
    )
    asked = request(intent(zone=zone, reservation=reservation), facts)
    (override,) = asked["LaunchTemplateConfigs"][0]["Overrides"]
    assert override.get("Placement") == ({"GroupName": groups[zone]} if wanted else None)


def test_a_group_that_is_in_the_template_is_not_said_twice() -> None:
    one = TemplateFact("burst", TYPE, "lt-0a", 3, "ami-0a", placement="gangline-burst-a", grouped=True)
    asked = request(intent(), replace(FACTS, templates=(one,)))
    assert "Placement" not in asked["LaunchTemplateConfigs"][0]["Overrides"][0]


@pytest.mark.parametrize(("public", "subnet"), [(True, "subnet-0p"), (False, "subnet-0a")])
def test_a_public_address_is_given_where_a_way_in_is(public: bool, subnet: str) -> None:
    """An address that the world could reach is of no use in a subnet whose way out is NAT."""
    facts = replace(
        FACTS,
        templates=(TemplateFact("burst", TYPE, "lt-0a", 3, "ami-0a", public=public),),
        public_subnets=(SubnetFact(ZONE, "subnet-0p"),),
    )
    (override,) = request(intent(), facts)["LaunchTemplateConfigs"][0]["Overrides"]
    assert override["SubnetId"] == subnet


def test_each_market_is_launched_by_its_own_template() -> None:
    spot = TemplateFact("burst", TYPE, "lt-0s", 2, "ami-0a", spot=True)
    facts = replace(FACTS, templates=(spot, *FACTS.templates))
    ids = [
        request(intent(market), facts)["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"][
            "LaunchTemplateId"
        ]
        for market in ("spot", "on_demand")
    ]
    assert ids == ["lt-0s", "lt-0a"]


@pytest.mark.parametrize(
    "wrong", [intent(zone="us-east-1z"), intent(type_="p9.huge"), intent(reservation="cr-other")]
)
def test_what_the_stack_does_not_have_is_refused_before_any_call(wrong: Intent) -> None:
    cloud, _ = stubbed()
    with pytest.raises(LaunchError) as caught:
        cloud.launch(wrong, FACTS)
    assert caught.value.fault is ErrorClass.PERMANENT


def test_part_of_a_gang_is_ended_and_refused() -> None:
    cloud, stub = stubbed()
    stub.add_response("create_fleet", fleet_of("i-0a", errors=("InsufficientInstanceCapacity",)))
    stub.add_response("terminate_instances", {}, {"InstanceIds": ["i-0a"]})
    with pytest.raises(LaunchError) as caught:
        cloud.launch(intent(), FACTS)
    assert caught.value.fault is ErrorClass.CAPACITY
    assert "1 of 2 came" in caught.value.words
    stub.assert_no_pending_responses()


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InternalError"])
def test_part_of_a_gang_that_can_not_be_ended_now_is_refused_all_the_same(code: str) -> None:
    """Also where nobody knows whether it was ended: looks find it by its mark, and no intent that waits for it."""
    cloud, stub = stubbed()
    stub.add_response("create_fleet", fleet_of("i-0a", errors=("InsufficientInstanceCapacity",)))
    for _ in range(5):
        stub.add_client_error("terminate_instances", code, http_status_code=500)
    with pytest.raises(LaunchError) as caught:
        cloud.launch(intent(), FACTS)
    assert caught.value.fault is ErrorClass.CAPACITY


def test_status_200_with_errors_is_a_refusal() -> None:
    cloud, stub = stubbed()
    stub.add_response("create_fleet", fleet_of(errors=("VcpuLimitExceeded",)))
    with pytest.raises(LaunchError) as caught:
        cloud.launch(intent(), FACTS)
    assert caught.value.fault is ErrorClass.QUOTA


def test_an_internal_error_leaves_the_outcome_open() -> None:
    cloud, stub = stubbed()
    stub.add_client_error("create_fleet", "InternalError", http_status_code=500)
    with pytest.raises(Unanswered):
        cloud.launch(intent(), FACTS)


def test_instances_that_are_forgotten_keep_no_other_from_being_ended() -> None:
    cloud, stub = stubbed()
    stub.add_client_error("terminate_instances", "InvalidInstanceID.NotFound", "i-0a does not exist")
    stub.add_client_error("terminate_instances", "InvalidInstanceID.NotFound", "i-0a does not exist")
    stub.add_response("terminate_instances", {}, {"InstanceIds": ["i-0b"]})
    cloud.terminate(("i-0a", "i-0b"))
    stub.assert_no_pending_responses()


def test_describing_reads_all_pages_and_what_each_instance_is() -> None:
    cloud, stub = stubbed()
    launched = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)

    def row(name: str, state: str) -> dict[str, Any]:
        return {
            "InstanceId": name,
            "State": {"Name": state},
            "LaunchTime": launched,
            "PrivateIpAddress": "10.64.3.7",
            "Placement": {"AvailabilityZone": ZONE},
            "Tags": [{"Key": "gangline:intent", "Value": "intent-90"}],
            "StateReason": {"Message": "Client.UserInitiatedShutdown"},
        }

    filters = [
        {"Name": "tag:gangline:uid", "Values": ["k3j9x0q2m5a7"]},
        {"Name": "tag:gangline:site", "Values": ["use1"]},
        {"Name": "tag-key", "Values": ["gangline:intent"]},
    ]
    asked = {"Filters": filters, "MaxResults": 1000}
    first = {"Reservations": [{"Instances": [row("i-0a", "running")]}], "NextToken": "more"}
    stub.add_response("describe_instances", first, asked)
    second = {"Reservations": [{"Instances": [row("i-0b", "terminated"), row("i-0c", "stopped")]}]}
    stub.add_response("describe_instances", second, asked | {"NextToken": "more"})
    found = cloud.describe("k3j9x0q2m5a7", "use1")
    assert [(one.id, one.state) for one in found] == [
        ("i-0a", CloudState.RUNNING),
        ("i-0b", CloudState.GONE),
        ("i-0c", CloudState.ENDING),
    ]
    assert found[0] == CloudInstance(
        "i-0a",
        "intent-90",
        CloudState.RUNNING,
        "10.64.3.7",
        int(launched.timestamp()) * 1_000_000,
        ZONE,
        "Client.UserInitiatedShutdown",
    )
