"""The real cloud against an account: fleets that come whole, come short, time out after they launched, and go again.

The account is the tests' own server (tests.aws), which checks each request against botocore's models and has what moto
lacks: all or nothing, ClientToken, placement groups, capacity, connections that are cut.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.model.capacity import CloudState, ErrorClass, Intent, OfferingKey, Reserved, Shape
from orchestrator.model.cluster import Site, SiteKind
from orchestrator.model.stack_facts import StackFacts, SubnetFact, TemplateFact
from orchestrator.provision.aws import fleet
from orchestrator.provision.aws.marks import SITE as SITE_MARK
from orchestrator.provision.aws.marks import UID
from orchestrator.provision.cloud import LaunchError, Unanswered
from tests.aws.moto_server import Account

pytestmark = pytest.mark.system

SITE = Site("use1", SiteKind.AWS, region="us-east-1", zones=("us-east-1a",))
TYPE = "g5.xlarge"


def facts_of(aws: Account) -> StackFacts:
    """What a stack would have made, made by hand: a subnet and a launch template."""
    ec2 = aws.client("ec2")
    subnets = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1a"]}])[
        "Subnets"
    ]
    template = ec2.create_launch_template(
        LaunchTemplateName="burst",
        LaunchTemplateData={"ImageId": aws.image(), "InstanceType": TYPE},
    )["LaunchTemplate"]
    return StackFacts(
        cluster="atlas",
        uid="k3j9x0q2m5a7",
        site="use1",
        region="us-east-1",
        account="123456789012",
        spec="ab",
        subnets=(SubnetFact("us-east-1a", subnets[0]["SubnetId"]),),
        templates=(TemplateFact("burst", TYPE, template["LaunchTemplateId"], 1, "ami"),),
    )


def intent(number: int = 90, nodes: int = 4, market: str = "on_demand", **rest: Any) -> Intent:
    key = OfferingKey("burst", TYPE, market, "us-east-1a")
    names = tuple(f"burst-{each}" for each in range(1, nodes + 1))
    return Intent(f"intent-{number}", "use1", key, names, 1_006_000, Shape(1, 4, 1), **rest)


def alive(cloud: fleet.Ec2) -> list[str]:
    return [one.id for one in cloud.describe("k3j9x0q2m5a7", "use1") if one.state is not CloudState.GONE]


@pytest.mark.parametrize("market", ["on_demand", "spot"])
def test_a_gang_comes_whole_and_goes_by_its_ids(aws: Account, market: str) -> None:
    cloud, facts = fleet.cloud_of(SITE), facts_of(aws)
    came = cloud.launch(intent(market=market, max_price=2_000_000), facts)
    assert len(came) == 4
    seen = cloud.describe("k3j9x0q2m5a7", "use1")
    assert [one.id for one in sorted(seen, key=lambda one: one.id)] == [one.id for one in came]
    assert {(one.intent, one.zone) for one in seen} == {("intent-90", "us-east-1a")}
    assert all(one.address and one.launched_us for one in seen)
    cloud.terminate(tuple(one.id for one in came))
    assert alive(cloud) == []


def test_capacity_for_three_of_four_leaves_nothing(aws: Account) -> None:
    cloud, facts = fleet.cloud_of(SITE), facts_of(aws)
    aws.room(3, type=TYPE, zone="us-east-1a", market="on_demand")
    with pytest.raises(LaunchError) as caught:
        cloud.launch(intent(), facts)
    assert caught.value.fault is ErrorClass.CAPACITY
    assert alive(cloud) == []
    assert sum(bill["seconds"] for bill in aws.bills()) == 0


def test_a_fleet_that_comes_short_is_ended(aws: Account) -> None:
    cloud, facts = fleet.cloud_of(SITE), facts_of(aws)
    aws.partial(3)
    with pytest.raises(LaunchError) as caught:
        cloud.launch(intent(), facts)
    assert "3 of 4" in caught.value.words
    assert alive(cloud) == []


def test_a_call_that_timed_out_after_it_launched_finds_its_fleet_again(aws: Account) -> None:
    cloud, facts = fleet.cloud_of(SITE), facts_of(aws)
    aws.silent("CreateFleet", after=True)
    with pytest.raises(Unanswered):
        cloud.launch(intent(), facts)
    found = alive(cloud)
    assert len(found) == 4
    assert [one.id for one in cloud.launch(intent(), facts)] == sorted(found)
    assert sorted(alive(cloud)) == sorted(found)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("InsufficientInstanceCapacity", ErrorClass.CAPACITY),
        ("VcpuLimitExceeded", ErrorClass.QUOTA),
        ("RequestLimitExceeded", ErrorClass.THROTTLING),
        ("UnauthorizedOperation", ErrorClass.AUTH),
    ],
)
def test_a_refused_call_has_its_class(aws: Account, code: str, fault: ErrorClass) -> None:
    cloud, facts = fleet.cloud_of(SITE), facts_of(aws)
    aws.fail(code, operation="CreateFleet")
    with pytest.raises(LaunchError) as caught:
        cloud.launch(intent(), facts)
    assert caught.value.fault is fault


def test_a_price_above_the_bound(aws: Account) -> None:
    cloud, facts = fleet.cloud_of(SITE), facts_of(aws)
    aws.spot_price(0.9, type=TYPE, zone="us-east-1a")
    with pytest.raises(LaunchError) as caught:
        cloud.launch(intent(market="spot", max_price=100_000), facts)
    assert caught.value.fault is ErrorClass.PRICE
    assert alive(cloud) == []


def test_what_is_of_another_cluster_is_not_seen(aws: Account) -> None:
    cloud, facts = fleet.cloud_of(SITE), facts_of(aws)
    cloud.launch(intent(nodes=1), facts)
    assert cloud.describe("another00000", "use1") == ()


def test_what_another_site_of_the_region_launched_is_not_seen(aws: Account) -> None:
    cloud, facts = fleet.cloud_of(SITE), facts_of(aws)
    (here,) = cloud.launch(intent(nodes=1), facts)
    (there,) = cloud.launch(intent(91, nodes=1), replace(facts, site="other"))
    assert [one.id for one in cloud.describe(facts.uid, "use1")] == [here.id]
    assert [one.id for one in cloud.describe(facts.uid, "other")] == [there.id]


def test_what_a_stack_launched_is_marked_but_not_the_controllers(aws: Account) -> None:
    cloud, facts = fleet.cloud_of(SITE), facts_of(aws)
    (bought,) = cloud.launch(intent(nodes=1), facts)
    marks = [{"Key": "gangline:uid", "Value": facts.uid}, {"Key": "gangline:site", "Value": "use1"}]
    run = aws.client("ec2").run_instances(
        ImageId=aws.image(), InstanceType=TYPE, MinCount=1, MaxCount=1, SubnetId=facts.subnets[0].id,
        TagSpecifications=[{"ResourceType": "instance", "Tags": marks}],
    )  # fmt: skip
    own = run["Instances"][0]["InstanceId"]
    assert alive(cloud) == [bought.id]
    assert {one.id for one in cloud.marked(facts.uid, "use1")} == {bought.id, own}
    assert cloud.marked(facts.uid, "other") == ()


def test_reservations_are_told_with_what_they_hold_and_their_end(aws: Account) -> None:
    ec2, cloud = aws.client("ec2"), fleet.cloud_of(SITE)
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    common = {"InstanceType": TYPE, "InstancePlatform": "Linux/UNIX", "AvailabilityZone": "us-east-1a"}
    ids = [
        ec2.create_capacity_reservation(InstanceCount=count, **common, **more)["CapacityReservation"][
            "CapacityReservationId"
        ]
        for count, more in (
            (3, {"EndDateType": "limited", "EndDate": end}),
            (2, {"EndDateType": "unlimited"}),
        )
    ]
    ec2.cancel_capacity_reservation(CapacityReservationId=ids[1])
    unknown = "cr-0fedcba9876543210"
    told = cloud.reserved((*ids, unknown))
    assert told == (
        Reserved(ids[0], 3, int(end.timestamp() * 1_000_000), "us-east-1a"),
        Reserved(ids[1], 0, 0, "us-east-1a"),
        Reserved(unknown, 0),
    )


def test_everything_with_a_sites_marks_is_found(aws: Account) -> None:
    """A volume that somebody has copied, for one; another site's is not among it."""
    ec2, cloud = aws.client("ec2"), fleet.cloud_of(SITE)
    made = []
    for site in ("use1", "use2"):
        marks = [{"Key": UID, "Value": "k3j9x0q2m5a7"}, {"Key": SITE_MARK, "Value": site}]
        tags = [{"ResourceType": "volume", "Tags": marks}]
        made.append(
            ec2.create_volume(AvailabilityZone="us-east-1a", Size=1, TagSpecifications=tags)["VolumeId"]
        )
    assert cloud.tagged("k3j9x0q2m5a7", "use1") == (("volume", made[0]),)


def test_facts_that_nobody_has_written_are_none(aws: Account) -> None:
    assert fleet.facts_of("atlas", "k3j9x0q2m5a7", SITE) is None
