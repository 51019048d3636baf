"""What a cluster document has for AWS alone: network, stack, image, and the controller's own instance.

Comes in: parts of the sections `sites`, `pools` and `controller`. Goes out: documents and the words in them. Called by:
`cluster_sites`, `cluster_pools`, `cluster`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WrapValidator

from orchestrator.model.cluster import Market, Nat, PlacementGroup
from orchestrator.wire.common import (
    NetworkCidr,
    Reference,
    Rows,
    Size,
    choice_leaf,
    free_text_leaf,
    pattern_leaf,
)
from orchestrator.wire.leaf import Strict, key_leaf, read_present

NatWord = Annotated[Nat, choice_leaf(Nat)]
PlacementWord = Annotated[PlacementGroup, choice_leaf(PlacementGroup)]
MarketWord = Annotated[Market, choice_leaf(Market)]
REGION_PATTERN = r"^[a-z]{2,4}(-[a-z]{2,12}){1,3}-[0-9]{1,2}$"
Region = Annotated[
    str,
    pattern_leaf(
        REGION_PATTERN,
        "spec.bad-name",
        "a text: an AWS region",
        "write it as in us-east-1",
    ),
]
_ZONE = pattern_leaf(
    r"^[a-z]{2,4}(-[a-z0-9]{1,12}){2,6}[a-z]$",
    "spec.bad-name",
    "a text: an AWS zone",
    "write it as in us-east-1a",
)
Zone = Annotated[str, _ZONE]
ZoneKey = Annotated[str, key_leaf(_ZONE)]
INSTANCE_TYPE = pattern_leaf(
    r"^[a-z][a-z0-9-]{0,15}\.[a-z0-9-]{2,20}$",
    "spec.bad-name",
    "a text: an instance type",
    "write it as in p5.48xlarge",
)
InstanceType = Annotated[str, INSTANCE_TYPE]
VpcId = Annotated[
    str, pattern_leaf(r"^vpc-[0-9a-f]{8,17}$", "spec.bad-name", "a text: a VPC", "write its id, vpc-0123…")
]
SubnetId = Annotated[
    str,
    pattern_leaf(
        r"^subnet-[0-9a-f]{8,17}$", "spec.bad-name", "a text: a subnet", "write its id, subnet-0123…"
    ),
]
Image = Annotated[
    str,
    pattern_leaf(
        r"^(ami-[0-9a-f]{8,17}|ssm:/[A-Za-z0-9._/-]{1,1000})$",
        "spec.bad-image",
        "a text: a machine image",
        "write its id, ami-0123…, or ssm: and the name of a parameter that holds one",
    ),
]
Arn = Annotated[
    str,
    pattern_leaf(
        r"^arn:aws[a-z-]{0,16}:[a-z0-9-]{1,32}:[a-z0-9-]{0,32}:([0-9]{12}|aws):[A-Za-z0-9+=,.@_/:-]{1,512}$",
        "spec.bad-name",
        "a text: an ARN",
        "write it whole, arn:aws:…",
    ),
]
Endpoint = Annotated[
    str,
    pattern_leaf(
        r"^[a-z][a-z0-9.-]{1,60}$",
        "spec.bad-name",
        "a text: an AWS service",
        "write its short name, as in s3 or ssm",
    ),
]
StackUrl = Annotated[
    str,
    pattern_leaf(
        r"^(s3|file)://[^\s]{1,1000}$",
        "spec.bad-backend",
        "a text: where Pulumi keeps its state",
        "write s3://bucket/folder, or file:// and an absolute path",
    ),
]
StackSecrets = Annotated[
    str,
    pattern_leaf(
        r"^awskms://[^\s]{1,1000}$",
        "spec.bad-backend",
        "a text: a key for secrets of the stack",
        "write awskms:// and the key, or leave it away for a passphrase",
    ),
]
TagKey = Annotated[
    str,
    key_leaf(
        pattern_leaf(
            r"^(?!aws:|gangline:)[A-Za-z0-9][A-Za-z0-9_ .:/=+@-]{0,127}$",
            "spec.bad-name",
            "a text: a tag",
            "it starts with a letter or digit; names that begin with aws: or gangline: are taken",
        )
    ),
]
TagValue = Annotated[str, free_text_leaf("a text: a tag's value", 256)]
Tags = dict[TagKey, Annotated[TagValue, WrapValidator(read_present)]]


class VpcDocument(Strict):
    """The network of a site: one that Gangline makes, or one that people keep (`id`)."""

    cidr: NetworkCidr = Field("10.64.0.0/16", description="Addresses of a network that Gangline makes.")
    id: VpcId | None = Field(None, description="A VPC that people keep; needs `subnets`.")
    subnets: dict[ZoneKey, Annotated[SubnetId, WrapValidator(read_present)]] = Field(
        {},
        description="Its private subnets by zone.",
        examples=[{"us-east-1a": "subnet-0123456789abcdef0"}],
    )
    nat: NatWord = Field(
        Nat.ONE, description="How private subnets of a network that Gangline makes reach what is outside."
    )
    endpoints: Rows[Endpoint] = Field(
        ["s3"],
        description="AWS services that are reached without the way outside; s3 is free, others cost by the hour.",
        examples=[["s3", "ec2", "ssm"]],
    )


class StackDocument(Strict):
    """Where Pulumi keeps the record of what it made."""

    backend: StackUrl | None = Field(
        None,
        description="Place of the state; absent: the cluster's state folder on the machine that applies.",
        examples=["s3://atlas-pulumi/atlas"],
    )
    secrets: StackSecrets | None = Field(
        None, description="Key that encrypts secrets in it; absent: a passphrase of Gangline's own."
    )


class ControllerInstanceDocument(Strict):
    """The controller on an instance of its own."""

    site: Reference = Field(description="Site of kind aws on which it stands.")
    type: InstanceType = Field(description="Instance type.", examples=["m7i.large"])
    volume: Size | None = Field(None, description="Disk that keeps its state; absent: 50GiB.")
