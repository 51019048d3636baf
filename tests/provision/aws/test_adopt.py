"""What a stack made is found again by its marks alone, each thing under the id that the record has."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest

from orchestrator.provision.aws.adopt import by_marks
from orchestrator.provision.aws.marks import Marks
from tests.aws.fixture import Place
from tests.provision.aws.declared import UID
from tests.provision.aws.test_stack_real import Bench

pytestmark = pytest.mark.system

# Not told by marks: AWS has no tags there, or they have no id that can be asked for.
UNMARKED = {
    "MountTarget",
    "Route",
    "RouteTableAssociation",
}


def test_everything_with_marks_is_found(pulumi_place: Place, tmp_path: Path) -> None:
    bench = Bench(pulumi_place, tmp_path / "state")
    bench.up()
    find = by_marks(boto3.session.Session(region_name="us-east-1"), Marks(UID, "atlas", "use1"))

    recorded = {
        (one["type"].rpartition(":")[2], one["urn"].rpartition("::")[2]): (one["type"], one["id"])
        for one in bench.stack()._resources()
        if one.get("custom") and not one["type"].startswith("pulumi:")
    }

    marked = {key: value for key, value in recorded.items() if key[0] not in UNMARKED}
    assert len(marked) > 15
    assert {key: find(kind, key[1]) for key, (kind, _) in marked.items()} == {
        key: number for key, (_, number) in marked.items()
    }
    for strange in (Marks("0" * 12, "atlas", "use1"), Marks(UID, "atlas", "other")):
        other = by_marks(boto3.session.Session(region_name="us-east-1"), strange)
        assert {other(kind, key[1]) for key, (kind, _) in marked.items()} == {""}
