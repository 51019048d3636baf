"""What EC2 has with given tags, of whatever kind.

Comes in: a boto3 client of EC2, tags. Goes out: kinds and ids. Called by: adopt (one thing by its name), fleet (all
of a site).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def having(ec2: Any, tags: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Kind (`volume`) and id of all that has every one of these tags (one at least), sorted. EC2 tells of some things
    for a while after their end."""
    return tuple(sorted(set.intersection(*(_with(ec2, key, value) for key, value in tags.items()))))


def _with(ec2: Any, key: str, value: str) -> set[tuple[str, str]]:
    filters = [{"Name": "key", "Values": [key]}, {"Name": "value", "Values": [value]}]
    pages = ec2.get_paginator("describe_tags").paginate(Filters=filters)
    return {(row["ResourceType"], row["ResourceId"]) for page in pages for row in page["Tags"]}
