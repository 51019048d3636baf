"""The controller's own instance, against mocks, and the rights that it has in the account."""

from __future__ import annotations

import json

from orchestrator.provision.aws import rights
from tests.provision.aws.declared import ACCOUNT, UID, declare, inputs_of
from tests.provision.aws.documents import (
    document,
    elastic,
    marked_by,
)


def test_all_that_the_controllers_rights_want_marked_is_marked() -> None:
    site = declare(inputs_of(document(elastic("p5.48xlarge", "spot"))))

    in_request = {"fleet"}
    assert {*rights.BOUGHT} == in_request | marked_by(site, "template-burst-p5.48xlarge")


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
    assert said["Look"]["Action"] == ["ec2:DescribeCapacityReservations", "ec2:DescribeInstances"]
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
