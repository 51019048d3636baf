"""What nodes of a site may reach and may do, and what their disks are encrypted with, against mocks."""

from __future__ import annotations

import json

from tests.provision.aws.declared import declare, inputs_of
from tests.provision.aws.documents import (
    ADDRESS,
    EFA,
    document,
    elastic,
    fixed,
    template,
)


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
