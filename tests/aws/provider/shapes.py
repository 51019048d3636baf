"""Pulumi's words to AWS's and back, led by botocore's model of a request: a text that is a number there becomes one.

Comes in: nested values in Pulumi's words (`networkInterfaces`, texts for truths). Goes out: members of a botocore shape
(`NetworkInterfaces`, booleans), and back. Called by: machines, storage.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import botocore.session
from botocore.model import Shape

# Where the two have different words: (Pulumi's, AWS's) at any depth.
WORDS = {
    "securityGroups": "Groups", "vpcSecurityGroupIds": "SecurityGroupIds", "securityGroupNames": "SecurityGroups",
    "httpProtocolIpv6": "HttpProtocolIpv6",
}  # fmt: skip
BACK = {aws: ours for ours, aws in WORDS.items()}


@cache
def request(service: str, operation: str) -> Shape:
    """The shape of a request."""
    model = botocore.session.get_session().get_service_model(service)
    return model.operation_model(operation).input_shape


def to_aws(shape: Shape, value: Any) -> Any:
    """A value in AWS's words."""
    if shape.type_name == "structure":
        members = {_aws(name): part for name, part in value.items()}
        return {
            name: to_aws(shape.members[name], part)
            for name, part in members.items()
            if name in shape.members and part is not None
        }
    if shape.type_name == "list":
        if isinstance(value, dict):  # tags
            return [{"Key": key, "Value": text} for key, text in sorted(value.items())]
        return [to_aws(shape.member, part) for part in value]
    if shape.type_name == "boolean":
        return value if isinstance(value, bool) else str(value).lower() == "true"
    if shape.type_name in ("integer", "long"):
        return int(value)
    return str(value) if shape.type_name == "string" else value


def from_aws(value: Any, like: Any) -> Any:
    """What AWS says in Pulumi's words, but only the members that `like` (the inputs) has too; the rest are defaults."""
    if isinstance(like, dict) and isinstance(value, list):  # tags
        return {row["Key"]: row["Value"] for row in value if not row["Key"].startswith("aws:")}
    if isinstance(like, dict) and isinstance(value, dict):
        named = {name: value.get(_aws(name)) for name in like}
        return {name: from_aws(part, like[name]) for name, part in named.items() if part is not None}
    if isinstance(like, list) and isinstance(value, list):
        return [
            from_aws(part, like[min(at, len(like) - 1)]) if like else part for at, part in enumerate(value)
        ]
    if isinstance(like, str) and isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(like, str) else value


def _aws(name: str) -> str:
    return WORDS.get(name, name[0].upper() + name[1:])
