"""The account that tests use acts like EC2 where moto alone does not, and fails where a test tells it to.

Each test says what EC2 does; moto's own behaviour is not tested here.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.aws.moto_server import ROOT, Account, plain_environment

pytestmark = pytest.mark.system
USER_DATA = base64.b64encode(b"#!/bin/sh\n").decode()
TYPE, ZONE = "p5.48xlarge", "us-east-1a"


class Ground:
    """An account with an image and a launch template of p5 with three of its network cards."""

    def __init__(self, aws: Account) -> None:
        self.aws, self.ec2 = aws, aws.client("ec2")
        self.image = aws.image()
        rows = self.ec2.describe_subnets()["Subnets"]
        self.subnets = {row["AvailabilityZone"]: row["SubnetId"] for row in rows}
        self.group = self.ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
        self.ec2.create_placement_group(GroupName="gang", Strategy="cluster")
        iam = aws.client("iam")
        iam.create_instance_profile(InstanceProfileName="node")
        self.template = self.make_template(
            "train", IamInstanceProfile={"Name": "node"}, Placement={"GroupName": "gang"}, UserData=USER_DATA,
            MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            NetworkInterfaces=[self.nic(0, 0), self.nic(1, 1, "efa-only"), self.nic(2, 1, "efa-only")],
        )  # fmt: skip

    def nic(self, card: int, device: int, kind: str = "interface", **more: Any) -> dict[str, Any]:
        return {
            "NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": kind, "Groups": [self.group], **more
        }  # fmt: skip

    def make_template(self, name: str, **data: Any) -> str:
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "gangline:pool", "Value": name}]}]
        full = {"ImageId": self.image, "InstanceType": TYPE, "TagSpecifications": tags} | data
        made = self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=full)
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def fleet(
        self, count: int, token: str = "one", market: str = "on-demand", zones: Any = (ZONE,), **more: Any
    ) -> Any:
        """CreateFleet as Gangline asks for a gang: all of one type in one zone, or nothing."""
        options = {"SingleInstanceType": True, "SingleAvailabilityZone": True, "MinTargetCapacity": count}
        overrides = [{"InstanceType": TYPE, "SubnetId": self.subnets[zone]} for zone in zones]
        asked = {
            "Type": "instant", "ClientToken": token,
            "SpotOptions" if market == "spot" else "OnDemandOptions": options,
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": self.template, "Version": "1"},
                    "Overrides": overrides,
                }
            ],
            "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": market},
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": "gangline:intent", "Value": token}]}
            ],
        }  # fmt: skip
        return self.ec2.create_fleet(**asked | more)

    def run(self, **more: Any) -> list[str]:
        asked = {
            "ImageId": self.image,
            "InstanceType": TYPE,
            "SubnetId": self.subnets[ZONE],
            "MinCount": 1,
            "MaxCount": 1,
        }
        made = self.ec2.run_instances(**{k: v for k, v in (asked | more).items() if v is not None})
        return [row["InstanceId"] for row in made["Instances"]]

    def refused(self, **more: Any) -> str:
        with pytest.raises(ClientError) as told:
            self.run(**more)
        return str(told.value.response["Error"]["Code"])

    def seen(self, *ids: str) -> list[dict[str, Any]]:
        rows = self.ec2.describe_instances(InstanceIds=list(ids))["Reservations"]
        return [instance for row in rows for instance in row["Instances"]]

    def running(self) -> list[str]:
        return [bill["instance"] for bill in self.aws.bills() if bill["ended"] is None]


@pytest.fixture
def ground(aws: Account) -> Ground:
    return Ground(aws)


def test_a_spot_request_can_be_marked_only_where_one_is_made(ground: Ground) -> None:
    marks = [{"ResourceType": "spot-instances-request", "Tags": [{"Key": "gangline:uid", "Value": "a"}]}]
    ground.template = ground.make_template("spot", TagSpecifications=marks)

    assert len(ids_of(ground.fleet(1, market="spot"))) == 1
    assert codes_of(ground.fleet(1, "two")) == ["InvalidParameterCombination"]


def ids_of(answer: Any) -> list[str]:
    return [one for row in answer.get("Instances", []) for one in row["InstanceIds"]]


def codes_of(answer: Any) -> list[str]:
    return [row["ErrorCode"] for row in answer["Errors"]]


# Fleets


def test_a_fleet_starts_what_its_template_says(ground: Ground) -> None:
    (instance,) = ground.seen(*ids_of(ground.fleet(1)))

    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    nics = [
        (nic["Attachment"]["NetworkCardIndex"], nic["Attachment"]["DeviceIndex"], nic["InterfaceType"])
        for nic in instance["NetworkInterfaces"]
    ]
    assert sorted(nics) == [(0, 0, "interface"), (1, 1, "efa-only"), (2, 1, "efa-only")]
    assert (tags["gangline:pool"], tags["gangline:intent"]) == ("train", "one")
    assert instance["Placement"]["GroupName"] == "gang"
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["IamInstanceProfile"]["Arn"].endswith("/node")
    assert instance["SecurityGroups"][0]["GroupId"] == ground.group
    assert instance["ClientToken"] == "one"
    kept = ground.ec2.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
    assert kept["UserData"]["Value"] == USER_DATA


def test_the_same_token_is_the_same_fleet_and_another_request_is_refused(ground: Ground) -> None:
    first = ground.fleet(4)

    assert ids_of(ground.fleet(4)) == ids_of(first)
    assert len(ground.running()) == 4
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        ground.fleet(3)


def test_a_gang_of_four_where_three_fit_starts_none_and_the_next_zone_is_tried(ground: Ground) -> None:
    ground.aws.room(3, type=TYPE, zone=ZONE)

    none = ground.fleet(4)
    assert (codes_of(none), ids_of(none), ground.running()) == (["InsufficientInstanceCapacity"], [], [])
    other = ground.fleet(4, "two", zones=(ZONE, "us-east-1b"))
    assert codes_of(other) == ["InsufficientInstanceCapacity"]
    assert {row["Placement"]["AvailabilityZone"] for row in ground.seen(*ids_of(other))} == {"us-east-1b"}
    assert len(ids_of(ground.fleet(3, "three"))) == 3  # and what did not start took no room


def test_ending_gives_room_back_and_stops_the_bill(ground: Ground) -> None:
    ground.aws.room(1, type=TYPE)
    first = ids_of(ground.fleet(1))
    assert ids_of(ground.fleet(1, "two")) == []
    ground.aws.pass_time(90)

    ground.ec2.terminate_instances(InstanceIds=first)

    (bill,) = ground.aws.bills()
    assert 90 <= bill["seconds"] < 150
    assert (bill["type"], bill["market"], bill["zone"]) == (TYPE, "on_demand", ZONE)
    assert len(ids_of(ground.fleet(1, "three"))) == 1


def test_without_a_minimum_a_fleet_may_be_partial(ground: Ground) -> None:
    ground.aws.room(3, type=TYPE)

    assert len(ids_of(ground.fleet(4, OnDemandOptions={}))) == 3


def test_a_fleet_may_end_with_fewer_than_it_was_asked_for(ground: Ground) -> None:
    ground.aws.partial(3)

    assert len(ids_of(ground.fleet(4))) == 3
    assert len(ground.running()) == 3
    assert len(ids_of(ground.fleet(4, "two"))) == 4


def test_a_minimum_goes_with_one_type_or_one_zone(ground: Ground) -> None:
    with pytest.raises(ClientError, match="InvalidParameterCombination"):
        ground.fleet(2, OnDemandOptions={"MinTargetCapacity": 2})


def test_faults_of_an_offering_are_said_in_a_good_answer(ground: Ground) -> None:
    ground.aws.fail("SpotMaxPriceTooLow", market="spot", times=2)

    assert codes_of(ground.fleet(1, market="spot")) == ["SpotMaxPriceTooLow"]
    assert len(ids_of(ground.fleet(1, "two"))) == 1
    assert codes_of(ground.fleet(1, "three", market="spot", zones=(ZONE, "us-east-1b"))) == [
        "SpotMaxPriceTooLow"
    ]
    (instance,) = ground.seen(*ids_of(ground.fleet(1, "four", market="spot")))
    assert instance["InstanceLifecycle"] == "spot"


def test_faults_of_a_call_are_errors_of_it(ground: Ground) -> None:
    ground.aws.fail("UnauthorizedOperation", operation="CreateFleet", message="not you")
    with pytest.raises(ClientError, match=r"UnauthorizedOperation.*not you"):
        ground.fleet(1)

    ground.aws.fail("RequestLimitExceeded", operation="CreateFleet", times=None)
    once = ground.aws.client("ec2", config=Config(retries={"total_max_attempts": 1}))
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        once.create_fleet(**ground.aws.calls("CreateFleet")[0]["params"])
    assert ground.running() == []


def test_a_fleet_whose_answer_is_lost_runs_and_is_found_by_its_token(ground: Ground) -> None:
    ground.aws.silent("CreateFleet")
    once = ground.aws.client("ec2", config=Config(retries={"total_max_attempts": 1}))
    ground.ec2, kept = once, ground.ec2

    with pytest.raises(ConnectionClosedError):
        ground.fleet(2)

    lost = ground.running()
    assert len(lost) == 2
    assert sorted(ids_of(ground.fleet(2))) == sorted(lost)
    ground.ec2 = kept
    ground.aws.silent("CreateFleet", after=False)
    assert len(ids_of(ground.fleet(1, "two"))) == 1  # boto tries again by itself, with the same token
    assert len(ground.running()) == 3


def test_fleets_are_described_and_deleted_with_their_instances(ground: Ground) -> None:
    made = ground.fleet(2)

    (row,) = ground.ec2.describe_fleets(FleetIds=[made["FleetId"]])["Fleets"]
    assert (row["Type"], row["ClientToken"], ids_of(row)) == ("instant", "one", ids_of(made))
    ground.ec2.delete_fleets(FleetIds=[made["FleetId"]], TerminateInstances=True)
    assert ground.running() == []


# Seeing


def test_new_and_ended_instances_are_seen_later(ground: Ground) -> None:
    ground.aws.visible_after(2, gone_after=1)
    ids = ids_of(ground.fleet(1))

    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        ground.seen(*ids)
    by_tag = [{"Name": "tag:gangline:intent", "Values": ["one"]}]
    assert ground.ec2.describe_instances(Filters=by_tag)["Reservations"] == []
    assert ground.seen(*ids)[0]["State"]["Name"] == "running"
    ground.ec2.terminate_instances(InstanceIds=ids)
    states = [ground.seen(*ids)[0]["State"]["Name"] for _ in range(2)]
    assert states == ["shutting-down", "terminated"]


def test_aws_takes_instances_by_itself(ground: Ground) -> None:
    ground.aws.room(1, type=TYPE, market="spot")
    (lost,), (kept,) = ids_of(ground.fleet(1, market="spot")), ground.run()

    ground.aws.take(lost)

    (gone,) = ground.seen(lost)
    assert gone["State"]["Name"] == "terminated"
    assert gone["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert ground.running() == [kept]
    assert len(ids_of(ground.fleet(1, "two", market="spot"))) == 1  # its place is free again


def test_members_of_a_placement_group_share_their_innermost_level(ground: Ground) -> None:
    gang, (alone,) = ids_of(ground.fleet(2)), ground.run()

    rows = ground.ec2.describe_instance_topology()["Instances"]
    leaf = {row["InstanceId"]: row["NetworkNodes"][2] for row in rows}
    assert leaf[gang[0]] == leaf[gang[1]] != leaf[alone]


# Refusals


def test_what_ec2_refuses(ground: Ground) -> None:
    efa, plain = ground.nic(0, 0, "efa"), ground.nic(0, 0, SubnetId=ground.subnets[ZONE])
    two = [plain | {"AssociatePublicIpAddress": True}, ground.nic(1, 1)]
    nics = {"SubnetId": None, "NetworkInterfaces": [plain]}

    assert ground.refused(InstanceType="p9.huge") == "InvalidParameterValue"
    assert ground.refused(ImageId="ami-0123456789abcdef0") == "InvalidAMIID.NotFound"
    assert ground.refused(Placement={"GroupName": "nobody"}) == "InvalidPlacementGroup.Unknown"
    assert (
        ground.refused(InstanceType="t3.micro", Placement={"GroupName": "gang"})
        == "InvalidParameterCombination"
    )
    assert ground.refused(**nics | {"NetworkInterfaces": two}) == "InvalidParameterCombination"
    assert (
        ground.refused(**nics | {"NetworkInterfaces": [efa]}, InstanceType="m7i.large")
        == "InvalidParameterCombination"
    )
    assert (
        ground.refused(**nics | {"NetworkInterfaces": [plain, ground.nic(32, 1)]}) == "InvalidParameterValue"
    )
    assert ground.refused(**nics | {"NetworkInterfaces": [plain, plain]}) == "InvalidParameterValue"
    assert ground.refused(IamInstanceProfile={"Name": "nobody"}) == "NoSuchEntity"
    assert ground.running() == []


def test_a_type_that_is_not_in_the_zone_is_refused(ground: Ground) -> None:
    offered = ground.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["p4de.24xlarge"]}]
    )["InstanceTypeOfferings"]
    without = sorted({*ground.subnets} - {row["Location"] for row in offered})

    assert without
    assert ground.refused(InstanceType="p4de.24xlarge", SubnetId=ground.subnets[without[0]]) == "Unsupported"


def test_dry_run_tells_what_is_invalid_and_uses_nothing_up(ground: Ground) -> None:
    ground.aws.fail("InsufficientInstanceCapacity", type=TYPE)

    assert ground.refused(DryRun=True) == "DryRunOperation"
    assert ground.refused(DryRun=True, ImageId="ami-0123456789abcdef0") == "InvalidAMIID.NotFound"
    assert ground.refused() == "InsufficientInstanceCapacity"


def test_quotas_count_virtual_processors_by_market(ground: Ground) -> None:
    ground.aws.quota(L_417A185B=192 * 2)
    said = ground.aws.client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode="L-417A185B")

    assert said["Quota"]["Value"] == 384
    assert len(ground.run(MinCount=2, MaxCount=2)) == 2
    assert ground.refused() == "VcpuLimitExceeded"
    assert len(ids_of(ground.fleet(1, market="spot"))) == 1


def test_a_subnet_runs_out_of_addresses_by_the_interfaces_that_have_one(ground: Ground) -> None:
    net = ground.ec2.create_vpc(CidrBlock="10.9.0.0/24")["Vpc"]["VpcId"]
    made = ground.ec2.create_subnet(VpcId=net, CidrBlock="10.9.0.0/28", AvailabilityZone=ZONE)
    ground.subnets[ZONE] = made["Subnet"]["SubnetId"]

    assert codes_of(ground.fleet(12)) == ["InsufficientFreeAddressesInSubnet"]
    assert len(ids_of(ground.fleet(11, "two"))) == 11


# Reservations


def test_a_reservation_takes_its_own_kind_until_its_end(ground: Ground) -> None:
    made = ground.ec2.create_capacity_reservation(
        InstanceType=TYPE, InstancePlatform="Linux/UNIX", AvailabilityZone=ZONE, InstanceCount=1,
        EndDateType="limited", EndDate=time.time() + 3600,
    )  # fmt: skip
    identity = made["CapacityReservation"]["CapacityReservationId"]
    inside = {
        "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": identity}}
    }

    assert ground.refused(**inside, InstanceType="p5en.48xlarge") == "InvalidParameterCombination"
    assert ground.refused(**inside, MinCount=2, MaxCount=2) == "ReservationCapacityExceeded"
    (instance,) = ground.seen(*ground.run(**inside))
    assert instance["CapacityReservationId"] == identity
    ground.aws.pass_time(3601)
    (row,) = ground.ec2.describe_capacity_reservations(CapacityReservationIds=[identity])[
        "CapacityReservations"
    ]
    assert (row["State"], row["AvailableInstanceCount"]) == ("expired", 0)
    assert ground.refused(**inside) == "InvalidCapacityReservationState"


def test_a_capacity_block_takes_no_placement_group(ground: Ground) -> None:
    offer = ground.ec2.describe_capacity_block_offerings(
        InstanceType=TYPE, InstanceCount=2, CapacityDurationHours=24
    )["CapacityBlockOfferings"][0]
    bought = ground.ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )["CapacityReservation"]
    inside: dict[str, Any] = {
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "SubnetId": ground.subnets[offer["AvailabilityZone"]],
        "CapacityReservationSpecification": {
            "CapacityReservationTarget": {"CapacityReservationId": bought["CapacityReservationId"]}
        },
    }  # fmt: skip

    assert bought["ReservationType"] == "capacity-block"
    assert ground.refused(**inside, Placement={"GroupName": "gang"}) == "InvalidParameterCombination"
    assert ground.refused(**{k: v for k, v in inside.items() if k != "InstanceMarketOptions"}) == (
        "InvalidParameterCombination"
    )
    assert ground.seen(*ground.run(**inside))[0]["InstanceLifecycle"] == "capacity-block"


# Prices


def test_prices_are_what_a_test_sets(ground: Ground) -> None:
    ground.aws.price(TYPE, 41.5)
    ground.aws.spot_price(12.25, type=TYPE, zone="us-east-1b")
    wanted = {"instanceType": TYPE, "regionCode": "us-east-1"}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]

    said = ground.aws.client("pricing").get_products(ServiceCode="AmazonEC2", Filters=filters)
    (product,) = [json.loads(text) for text in said["PriceList"]]
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert float(dimension["pricePerUnit"]["USD"]) == 41.5
    history = ground.ec2.describe_spot_price_history(InstanceTypes=[TYPE], ProductDescriptions=["Linux/UNIX"])
    by_zone = {row["AvailabilityZone"]: float(row["SpotPrice"]) for row in history["SpotPriceHistory"]}
    assert (by_zone["us-east-1b"], by_zone[ZONE]) == (12.25, 12.45)


# What is used


def test_what_is_used_is_not_deleted(ground: Ground) -> None:
    ids = ids_of(ground.fleet(1))
    subnet = ground.subnets[ZONE]

    for call, named in (
        (ground.ec2.delete_subnet, {"SubnetId": subnet}),
        (ground.ec2.delete_security_group, {"GroupId": ground.group}),
        (ground.ec2.delete_placement_group, {"GroupName": "gang"}),
        (ground.ec2.delete_vpc, {"VpcId": ground.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]}),
    ):
        with pytest.raises(ClientError, match=r"DependencyViolation|InUse"):
            call(**named)
    ground.ec2.terminate_instances(InstanceIds=ids)
    ground.ec2.delete_placement_group(GroupName="gang")
    ground.ec2.delete_subnet(SubnetId=subnet)


# The server itself


def test_a_request_that_botocores_model_does_not_allow_is_noted(aws_server: Account) -> None:
    aws_server.reset()
    loose = aws_server.client("ec2", config=Config(parameter_validation=False))

    with pytest.raises(ClientError, match=r"MissingParameter|InvalidParameterValue"):
        loose.run_instances(MinCount=1, InstanceType="p5.48xlarge")
    with pytest.raises(ClientError, match="none of"):
        loose.create_placement_group(GroupName="x", Strategy="clutser")

    first, second = aws_server.misfits()
    assert "MaxCount" in first
    assert "clutser" in second
    aws_server.reset()


def test_a_parameter_that_the_model_does_not_have_is_noted(aws_server: Account) -> None:
    aws_server.reset()
    body = b"Action=DescribeSubnets&Version=2016-11-15&SubnetIdd.1=subnet-1"
    scope = "Credential=testing/20260101/us-east-1/ec2/aws4_request"
    request = urllib.request.Request(
        aws_server.endpoint, body, headers={"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host"}
    )

    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=30)

    assert aws_server.misfits() == ["ec2 DescribeSubnets: unknown parameter SubnetIdd.1"]
    aws_server.reset()


def test_the_server_ends_with_whoever_started_it() -> None:
    code = (
        "import sys\nfrom tests.aws.moto_server import Account\n"
        "account = Account.start()\nprint(account.port, flush=True)\nsys.stdin.read()\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=plain_environment(), text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert starter.stdout is not None
    port = int(starter.stdout.readline())

    starter.kill()
    starter.wait()

    deadline = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/_ground/bills", timeout=5).close()
        except (ConnectionError, urllib.error.URLError):
            break
        assert time.monotonic() < deadline, "the server still listens"
    for stream in (starter.stdin, starter.stdout):
        assert stream is not None
        stream.close()
