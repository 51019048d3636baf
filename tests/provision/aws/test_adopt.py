"""What a stack made is found again by its marks alone, or by what it links, under the id that the record has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from orchestrator.model.errors import Unavailable
from orchestrator.provision.aws.adopt import by_marks
from orchestrator.provision.aws.engine import Engine
from orchestrator.provision.aws.marks import Marks
from orchestrator.provision.aws.stack import SiteStack
from tests.aws.fixture import Place
from tests.aws.moto_server import Account
from tests.provision.aws.declared import UID, cluster
from tests.provision.aws.test_stack_real import FIXED, Bench

pytestmark = pytest.mark.system

WHOLE = FIXED.replace(
    "storage:\n", "storage:\n  - {name: home, kind: efs, path: /home, sites: [use1]}\n"
).replace(
    "sites:\n",
    'controller: {address: "https://a.example.org:7443", instance: {site: use1, type: m5.large}}\nsites:\n',
    1,
)
# Told by what they link; all else has marks. A volume that is attached already the provider finds by itself.
LINKS = {"MountTarget", "RolePolicy", "Route", "RouteTableAssociation"}
UNTOLD = {"VolumeAttachment"}
ENGINE = Engine(Path("/bin/false"), "3.272.0")


def test_everything_is_found_by_its_marks_or_by_what_it_links(pulumi_place: Place, tmp_path: Path) -> None:
    bench = Bench(pulumi_place, tmp_path / "state", WHOLE)
    bench.up()
    session = boto3.session.Session(region_name="us-east-1")
    find = by_marks(session, Marks(UID, "atlas", "use1"))

    recorded = [
        one
        for one in bench.stack()._resources()
        if one.get("custom") and not one["type"].startswith("pulumi:")
    ]
    told = [one for one in recorded if word(one["type"]) not in UNTOLD]

    assert {word(one["type"]) for one in told} >= LINKS
    assert len(told) > 30
    found = {one["urn"]: find(one["type"], name(one["urn"]), one["inputs"]) for one in told}
    assert found == {one["urn"]: one["id"] for one in told}
    marked = [one for one in told if word(one["type"]) not in LINKS]
    for strange in (Marks("0" * 12, "atlas", "use1"), Marks(UID, "atlas", "other")):
        other = by_marks(session, strange)
        assert {other(one["type"], name(one["urn"]), one["inputs"]) for one in marked} == {""}


def test_what_the_record_has_is_not_taken_for_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under two names one thing would end with either."""
    kind, written = "aws:ec2/subnet:Subnet", list[dict[str, Any]]()
    begun = {"type": "creating", "resource": {"urn": "urn::s::subnet-b", "type": kind, "inputs": {}}}
    known = {"urn": "urn::s::subnet-a", "type": kind, "id": "subnet-1"}
    whole = {"resources": [known], "pending_operations": [begun]}
    monkeypatch.setattr(SiteStack, "_deployment", lambda self: dict(whole))
    monkeypatch.setattr(SiteStack, "_write", lambda self, whole, what: written.append(whole))
    stack = SiteStack(cluster(WHOLE.replace("IMAGE", "ami-0123456789abcdef0")), "use1", tmp_path, ENGINE)
    assert stack.reconcile(lambda kind, name, given: "subnet-1") == ()
    assert written == [{"resources": [known], "pending_operations": []}]


def test_what_can_not_be_asked_is_not_taken_for_gone(aws: Account) -> None:
    """A killed run's node that nobody may look for must not be forgotten, or it runs on."""
    find = by_marks(boto3.session.Session(region_name="us-east-1"), Marks(UID, "atlas", "use1"))
    assert find("aws:iam/role:Role", "nodes", {}) == ""
    gone = {"fileSystemId": "fs-0123456789abcdef0", "subnetId": "subnet-0123456789abcdef0"}
    assert find("aws:efs/mountTarget:MountTarget", "home-a", gone) == ""

    aws.fail("UnauthorizedOperation", operation="DescribeInstances")
    with pytest.raises(Unavailable) as caught:
        find("aws:ec2/instance:Instance", "train-01", {})
    assert caught.value.message.startswith("whether a killed run has made Instance train-01 can't be asked: ")


def word(kind: str) -> str:
    return kind.rpartition(":")[2]


def name(urn: str) -> str:
    return urn.rpartition("::")[2]
