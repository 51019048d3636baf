"""What the controller's own instance may do in the account: buy nodes of its cluster, and end those.

Comes in: where the site is, the cluster's marks. Goes out: an IAM policy document. Called by: controller_host. Whoever
runs the controller elsewhere gives these rights to its credentials.

Every right that changes something is bound to the cluster's uid: as a tag that has to be in the request, or on the
instance. The fleet's own tags are in the request, those of all else that it makes in the launch template (nodes.py).
`RunInstances` also names what an instance is made of, which has no such tag; that part has no condition. A key of the
account's own for disks is lent to EC2 alone, by what its guide to EBS encryption lists for whoever launches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.provision.aws.facts import parameter_name
from orchestrator.provision.aws.marks import UID

# All that `fleet` asks; these have no condition in IAM.
LOOKS = ("ec2:DescribeCapacityReservations", "ec2:DescribeInstances")
BUYING = ("ec2:CreateFleet", "ec2:RunInstances")
BOUGHT = ("fleet", "instance", "network-interface", "spot-instances-request", "volume")
OWN_INGREDIENTS = ("launch-template", "placement-group", "security-group", "subnet")
KEY_USES = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
OTHERS_INGREDIENTS = {"image": "", "snapshot": "", "capacity-reservation": "*"}  # kind: account in its ARN


@dataclass(frozen=True, slots=True)
class Where:
    """The partition (`aws`), region and account that the rights hold in."""

    partition: str
    region: str
    account: str

    def ec2(self, kind: str) -> str:
        """The ARN pattern of all things of a kind in that account, or of the account that such things are in."""
        account = OTHERS_INGREDIENTS.get(kind, self.account)
        return f"arn:{self.partition}:ec2:{self.region}:{account}:{kind}/*"


def of_controller(where: Where, cluster: str, uid: str, nodes_role: str, key: str = "") -> str:
    """The policy document, as canonical JSON. `nodes_role` is the ARN of the role that nodes get, `key` that of the key
    that the site names for disks; empty: EC2's own, which needs no right."""
    asked = {f"aws:RequestTag/{UID}": uid}
    at_birth = {**asked, "ec2:CreateAction": ["CreateFleet", "RunInstances"]}
    bought = [where.ec2(kind) for kind in BOUGHT]
    ingredients = [where.ec2(kind) for kind in (*OWN_INGREDIENTS, *sorted(OTHERS_INGREDIENTS))]
    place = f"arn:{where.partition}:ssm:{where.region}:{where.account}:parameter"
    own = {f"aws:ResourceTag/{UID}": uid}
    statements = [
        _allow("Look", LOOKS, ["*"]),
        _allow("BuyMarked", BUYING, bought, {"StringEquals": asked}),
        _allow("BuyFrom", BUYING, ingredients),
        _allow("MarkBought", ("ec2:CreateTags",), bought, {"StringEquals": at_birth}),
        _allow("EndOwn", ("ec2:TerminateInstances",), [where.ec2("instance")], {"StringEquals": own}),
        _allow(
            "GiveRole",
            ("iam:PassRole",),
            [nodes_role],
            {"StringLike": {"iam:PassedToService": "ec2.amazonaws.com*"}},
        ),
        _allow("ReadFacts", ("ssm:GetParameter",), [place + parameter_name(cluster, uid, "*")]),
        *(_disks(where, key) if key else ()),
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, sort_keys=True)


def _disks(where: Where, key: str) -> Iterator[dict[str, Any]]:
    """The key is used only through EC2, and lent only to an AWS service. Policies name keys, not their aliases."""
    named, meant = key, {}
    account, _, alias = key.rpartition(":alias/")
    if account:
        named, meant = (
            f"{account}:key/*",
            {"ForAnyValue:StringEquals": {"kms:ResourceAliases": f"alias/{alias}"}},
        )
    domain = "amazonaws.com.cn" if where.partition == "aws-cn" else "amazonaws.com"
    through = {"StringEquals": {"kms:ViaService": f"ec2.{where.region}.{domain}"}}
    lent = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    yield _allow("UseKey", KEY_USES, [named], {**meant, **through})
    yield _allow("LendKey", ("kms:CreateGrant",), [named], {**meant, **lent})


def _allow(
    name: str, actions: tuple[str, ...], resources: list[str], condition: dict[str, Any] | None = None
) -> dict[str, Any]:
    statement = {"Sid": name, "Effect": "Allow", "Action": list(actions), "Resource": resources}
    return {**statement, "Condition": condition} if condition else statement
