"""The program of a site under the real engine: what an edit touches, what a hand in the account shows, how it ends.

AWS is the mended moto server, the provider a stand-in (tests/aws); the engine is Pulumi's own.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import catalog
from orchestrator.model.errors import Conflict, GanglineError
from orchestrator.provision.aws import adopt, facts, lookups
from orchestrator.provision.aws import engine as engines
from orchestrator.provision.aws.changes import Op, ResourceChange
from orchestrator.provision.aws.inputs import SiteInputs
from orchestrator.provision.aws.stack import Done, SiteStack
from tests.aws.fixture import Place
from tests.provision.aws.declared import UID, cluster

pytestmark = pytest.mark.system

FIXED = """
apiVersion: gangline/v1
kind: Cluster
metadata: {name: atlas}
sites:
  - {name: use1, kind: aws, region: us-east-1, zones: [us-east-1a, us-east-1b], image: IMAGE}
storage:
  - {name: fast, kind: fsx, path: /fast, sites: [use1], size: 4800GiB, throughput: 250}
pools:
  - name: train
    site: use1
    nodes: [train-01, train-02, train-03]
    fabric: {kind: efa}
    offerings: [{type: p5.48xlarge, market: on_demand}]
  - name: burst
    site: use1
    size: {max: 4}
    fabric: {kind: efa}
    offerings: [{type: p5.48xlarge, market: on_demand}]
"""
FACTS = ("aws:ssm/parameter:Parameter", "facts")


class Bench:
    """One site in one account: a document goes in, what would change or did change comes out."""

    def __init__(self, place: Place, folder: Path, text: str = FIXED) -> None:
        self.place, self.folder = place, folder
        self.image = place.account.image()
        self.text = text.replace("IMAGE", self.image)
        self.engine = engines.find(home=place.folder / "home")
        self.boot = "#!/bin/sh\necho one\n"
        self.commit = ""

    def inputs(self, text: str = "", **more: Any) -> SiteInputs:
        found = lookups.look_up(cluster(text or self.text), "use1", UID, catalog.load())
        return replace(found, boot=lambda pool, node: self.boot, commit=self.commit, **more)

    def stack(self, leased: bool = False) -> SiteStack:
        return SiteStack(cluster(self.text), "use1", self.folder, self.engine, leased)

    def preview(self, text: str = "", **more: Any) -> list[tuple[Op, str, str]]:
        began = time.monotonic()
        rows = self.stack().preview(self.inputs(text, **more))
        sys.stdout.write(f"preview: {time.monotonic() - began:.1f} s, {len(rows)} rows\n")
        return short(rows)

    def up(self, text: str = "", **more: Any) -> Done:
        began = time.monotonic()
        done = self.stack().up(self.inputs(text, **more))
        sys.stdout.write(f"up: {time.monotonic() - began:.1f} s, {len(done.changes)} rows\n")
        return done

    def instances(self) -> dict[str, str]:
        """Ids by node of what runs."""
        filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        answer = self.place.account.client("ec2").describe_instances(Filters=filters)
        found = [one for row in answer["Reservations"] for one in row["Instances"]]
        return {tags(one).get("gangline:node", ""): one["InstanceId"] for one in found}


def tags(thing: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in thing.get("Tags", [])}


def short(rows: tuple[ResourceChange, ...]) -> list[tuple[Op, str, str]]:
    """Rows without the facts' parameter, which says the digest of the file and so follows every edit."""
    return [(one.op, one.type.rpartition(":")[2], one.name) for one in rows if (one.type, one.name) != FACTS]


@pytest.fixture
def bench(pulumi_place: Place, tmp_path: Path) -> Bench:
    return Bench(pulumi_place, tmp_path / "state")


def test_up_is_complete_and_a_second_preview_is_empty(bench: Bench) -> None:
    planned = bench.preview()
    done = bench.up()

    assert short(done.changes) == planned
    assert {op for op, _, _ in planned} == {Op.CREATE}
    assert done.facts is not None
    assert [one.node for one in done.facts.fixed] == ["train-01", "train-02", "train-03"]
    assert {one.node: one.instance for one in done.facts.fixed} == bench.instances()
    kept = facts.read(bench.place.account.client("ssm"), "atlas", UID, "use1")
    assert kept == done.facts
    assert bench.stack().preview(bench.inputs()) == ()


def test_what_means_nothing_changes_nothing(bench: Bench) -> None:
    bench.commit = "0" * 40
    bench.up()

    bench.commit = "1" * 40
    head, _, rest = bench.text.partition("  - name: train\n")
    train, _, burst = rest.partition("  - name: burst\n")
    turned = f"{head}  - name: burst  # a comment\n{burst}  - name: train\n{train}"
    turned = turned.replace("[us-east-1a, us-east-1b]", "[us-east-1b, us-east-1a]")
    turned = turned.replace("[train-01, train-02, train-03]", "[train-03, train-01, train-02]")

    assert bench.stack().preview(bench.inputs(turned)) == ()
    assert bench.stack().sight(bench.inputs(turned)).rows == ()


def test_removing_the_middle_of_three_touches_it_alone(bench: Bench) -> None:
    bench.up()
    before = bench.instances()

    done = bench.up(bench.text.replace("train-02, ", ""))

    assert short(done.changes) == [(Op.DELETE, "Instance", "train-02")]
    assert bench.instances() == {node: before[node] for node in ("train-01", "train-03")}


def test_another_zone_moves_nothing(bench: Bench) -> None:
    """A zone that comes before all others in the alphabet: nodes, NAT and file system stay where they stand."""
    without = bench.text.replace("[us-east-1a, us-east-1b]", "[us-east-1b]")
    bench.up(without)
    before = bench.instances()

    rows = bench.up(bench.text)

    new = [name for op, _, name in short(rows.changes) if op == Op.CREATE]
    assert all("us-east-1a" in name for name in new)
    assert not [row for row in short(rows.changes) if row[0] in (Op.REPLACE, Op.DELETE)]
    assert bench.instances() == before


def test_new_user_data_is_for_new_nodes_only(bench: Bench) -> None:
    bench.up()
    before = bench.instances()
    bench.boot = "#!/bin/sh\necho two\n"

    done = bench.up()

    assert short(done.changes) == [
        (Op.UPDATE, "LaunchTemplate", "template-burst-p5.48xlarge"),
        (Op.UPDATE, "LaunchTemplate", "template-train-p5.48xlarge"),
    ]
    assert done.facts is not None
    assert [one.version for one in done.facts.templates] == [2, 2]
    assert bench.instances() == before
    assert bench.stack().preview(bench.inputs()) == ()


def test_node_that_is_replaced_gets_the_newest_template(bench: Bench) -> None:
    bench.up()
    before = bench.instances()
    bench.boot = "#!/bin/sh\necho two\n"
    bench.up()
    newer = bench.place.account.image("newer")
    text = bench.text.replace(bench.image, newer)

    planned = bench.preview(text)
    bench.up(text)

    nodes = [name for op, kind, name in planned if kind == "Instance" and op == Op.REPLACE]
    assert nodes == ["train-01", "train-02", "train-03"]
    after = bench.instances()
    assert not set(before.values()) & set(after.values())
    launched = bench.place.account.calls("RunInstances")[-1]["params"]
    assert launched["LaunchTemplate"]["Version"] == "3"
    assert bench.stack().preview(bench.inputs(text)) == ()


def test_held_nodes_wait_for_their_turn(bench: Bench) -> None:
    """Fixed nodes are replaced batch by batch: a run leaves the others as they are, and no trace is left at the end."""
    bench.up()
    before = bench.instances()
    newer = bench.place.account.image("newer")
    text = bench.text.replace(bench.image, newer).replace("train-02, ", "")

    first = bench.up(text, held=frozenset({"train-02", "train-03"}))
    between = bench.instances()
    second = bench.up(text, held=frozenset({"train-02"}))
    last = bench.up(text)

    assert [row for row in short(first.changes) if row[1] == "Instance"] == [
        (Op.REPLACE, "Instance", "train-01")
    ]
    assert between.keys() == before.keys()
    assert [between[node] == before[node] for node in sorted(before)] == [False, True, True]
    assert short(second.changes) == [(Op.REPLACE, "Instance", "train-03")]
    assert short(last.changes) == [(Op.DELETE, "Instance", "train-02")]
    assert bench.stack().preview(bench.inputs(text)) == ()
    ec2 = bench.place.account.client("ec2")
    for instance in bench.instances().values():
        (row,) = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"]
        assert row["ImageId"] == newer


def test_drift_is_seen_and_changes_nothing(bench: Bench) -> None:
    bench.up()
    ec2 = bench.place.account.client("ec2")
    ids = bench.instances()
    ec2.terminate_instances(InstanceIds=[ids["train-02"]])
    ec2.delete_tags(Resources=[ids["train-01"]], Tags=[{"Key": "gangline:pool"}])

    seen = short(bench.stack().drift())

    assert (Op.DELETE, "Instance", "train-02") in seen
    assert (Op.UPDATE, "Instance", "train-01") in seen
    assert [name for _, _, name in seen if name == "train-03"] == []
    assert set(bench.instances().values()) == {ids["train-01"], ids["train-03"]}


def test_drift_is_repaired_after_a_refresh(bench: Bench) -> None:
    bench.up()
    ids = bench.instances()
    bench.place.account.client("ec2").terminate_instances(InstanceIds=[ids["train-02"]])

    bench.stack().refresh()
    done = bench.up()

    assert [row for row in short(done.changes) if row[0] != Op.UPDATE] == [
        (Op.CREATE, "Instance", "train-02")
    ]
    assert sorted(bench.instances()) == ["train-01", "train-02", "train-03"]


def test_storage_is_not_deleted_by_an_edit(bench: Bench) -> None:
    bench.up()
    fsx = bench.place.account.client("fsx")
    without = bench.text.replace("  - {name: fast", "  # - {name: fast").replace("storage:\n", "")

    with pytest.raises(GanglineError) as caught:
        bench.up(without)

    assert "fast" in caught.value.message
    assert "release it by name" in caught.value.hint
    assert len(fsx.describe_file_systems()["FileSystems"]) == 1

    done = bench.up(without, released=frozenset({"fast"}))

    assert short(done.changes) == [(Op.DELETE, "LustreFileSystem", "fast")]
    assert fsx.describe_file_systems()["FileSystems"] == []


def test_storage_is_not_replaced_unseen(bench: Bench) -> None:
    bench.up()
    fsx = bench.place.account.client("fsx")
    (before,) = fsx.describe_file_systems()["FileSystems"]
    keyed = bench.text.replace(
        f"image: {bench.image}", f'image: {bench.image}, kms_key: "arn:aws:kms:us-east-1:123456789012:key/k"'
    )

    planned = bench.stack().preview(bench.inputs(keyed, released=frozenset({"fast"})))
    with pytest.raises(GanglineError) as caught:
        bench.up(keyed)

    assert (Op.REPLACE, "LustreFileSystem", "fast") in short(planned)
    assert "fast" in caught.value.message
    (after,) = fsx.describe_file_systems()["FileSystems"]
    assert after["FileSystemId"] == before["FileSystemId"]


def test_destroy_keeps_storage_until_it_is_released(bench: Bench) -> None:
    bench.up()
    account = bench.place.account

    kept = bench.stack().destroy()

    left = {one.name for one in bench.stack().left()}
    assert kept.facts is not None
    assert "fast" in left
    assert "subnet-us-east-1a" in left
    assert "train-01" not in left
    assert bench.instances() == {}

    gone = bench.stack().destroy(released=frozenset({"fast"}))

    assert gone.facts is None
    assert account.client("fsx").describe_file_systems()["FileSystems"] == []
    mine = [{"Name": "tag:gangline:uid", "Values": [UID]}]
    ec2 = account.client("ec2")
    assert ec2.describe_vpcs(Filters=mine)["Vpcs"] == []
    assert ec2.describe_launch_templates(Filters=mine)["LaunchTemplates"] == []
    assert facts.read(account.client("ssm"), "atlas", UID, "use1") is None


def test_destroy_can_be_run_again(bench: Bench) -> None:
    bench.up()
    bench.place.account.fail("DependencyViolation", operation="DeleteVpc", message="still used", times=None)

    with pytest.raises(GanglineError) as caught:
        bench.stack().destroy(released=frozenset({"fast"}))

    assert caught.value.hint
    assert "Traceback" not in caught.value.message


def test_capacity_error_is_in_words(bench: Bench) -> None:
    bench.place.account.fail("InsufficientInstanceCapacity", operation="RunInstances", message="none left")

    with pytest.raises(GanglineError) as caught:
        bench.up()

    assert caught.value.code == "aws.stack-failed"
    assert "Instance train-0" in caught.value.message
    assert "AWS has none of it now" in caught.value.hint
    assert "none left" in caught.value.message
    assert "Traceback" not in caught.value.message

    bench.up()

    assert sorted(bench.instances()) == ["train-01", "train-02", "train-03"]


def test_plan_of_a_hundred_nodes_takes_seconds(bench: Bench) -> None:
    """Bound: 10 s on two processors that are not busy with others. The figure is printed; the test allows for that."""
    text = bench.text.replace("nodes: [train-01, train-02, train-03]", 'nodes: "train-[001-100]"')
    began = time.monotonic()

    rows = bench.preview(text)

    took = time.monotonic() - began
    sys.stdout.write(f"plan of 100 nodes: {took:.1f} s\n")
    assert len([one for one in rows if one[1] == "Instance"]) == 100
    assert took < 60


def test_lock_of_a_killed_run_goes_only_under_the_lease(bench: Bench) -> None:
    bench.up()
    locks = bench.folder / "stacks" / "record" / ".pulumi" / "locks"
    (kept,) = [path for path in locks.rglob("atlas-use1") if path.is_dir()] or [locks]
    kept.mkdir(parents=True, exist_ok=True)
    lock = kept / "00000000-0000-0000-0000-000000000000.json"
    lock.write_text(
        '{"pid": 1, "username": "other", "hostname": "other", "timestamp": "2026-11-30T12:00:00Z"}'
    )
    fewer = bench.text.replace("train-02, ", "")

    with pytest.raises(Conflict) as caught:
        bench.up(fewer)
    assert caught.value.code == "aws.stack-locked"
    assert lock.exists()

    done = bench.stack(leased=True).up(bench.inputs(fewer))

    assert short(done.changes) == [(Op.DELETE, "Instance", "train-02")]
    assert not lock.exists()


def test_a_run_that_dies_between_the_record_and_its_note_leaves_a_record_to_be_read(bench: Bench) -> None:
    """An older Gangline's runs left notes beside the record; one that was killed there left an empty one."""
    bench.up()
    record = bench.folder / "stacks" / "record"
    assert not list((record / ".pulumi" / "stacks").rglob("*.attrs")), "Pulumi writes these in place"
    (checkpoint,) = (record / ".pulumi" / "stacks").rglob("atlas-use1.json")
    checkpoint.with_name("atlas-use1.json.attrs").touch()

    assert bench.preview() == []


def test_what_a_killed_run_was_making_is_taken_or_forgotten(bench: Bench) -> None:
    """The record says that two things were being made: one is there, one never came to be."""
    bench.up()
    stack = bench.stack()
    made = bench.instances()["train-02"]
    pending = _unrecord(bench, "train-02", "train-03")
    bench.place.account.client("ec2").terminate_instances(InstanceIds=[bench.instances()["train-03"]])

    done = stack.up(bench.inputs(), find=lambda kind, name, given: made if name == "train-02" else "")

    assert pending == 2
    assert done.adopted == ("train-02",)
    assert [row for row in short(done.changes) if row[0] == Op.CREATE] == [
        (Op.CREATE, "Instance", "train-03")
    ]
    after = bench.instances()
    assert after["train-02"] == made
    assert sorted(after) == ["train-01", "train-02", "train-03"]
    assert bench.stack().preview(bench.inputs()) == ()


def test_what_aws_makes_only_once_is_taken_over_after_a_killed_run(bench: Bench) -> None:
    """AWS refuses the same rule or route twice: rules have marks, a route is told by its table."""
    bench.up()
    _unrecord(bench, "nodes-from-nodes", "nodes-out", "out-us-east-1b")

    done = bench.stack().up(bench.inputs(), find=adopt.of_site(cluster(bench.text), "use1", UID))

    assert done.adopted == ("nodes-from-nodes", "nodes-out", "out-us-east-1b")
    assert short(done.changes) == []
    assert bench.stack().preview(bench.inputs()) == ()


def test_destroy_ends_what_a_killed_run_was_making(bench: Bench) -> None:
    """No run came between: all that is known of the node is that it was being made, and its marks."""
    bench.up()
    _unrecord(bench, "train-02")

    done = bench.stack().destroy(
        released=frozenset({"fast"}), find=adopt.of_site(cluster(bench.text), "use1", UID)
    )

    assert done.adopted == ("train-02",)
    assert bench.instances() == {}
    assert not any(one.startswith("i-") for one in bench.stack().ids())


def _unrecord(bench: Bench, *nodes: str) -> int:
    """Make the record what a killed run leaves: these nodes are being created. How many it has then."""
    (file,) = (bench.folder / "stacks" / "record").rglob("stacks/gangline/atlas-use1.json")
    whole = json.loads(file.read_text())
    state = whole["checkpoint"]["latest"]
    taken = [one for one in state["resources"] if one["urn"].rpartition("::")[2] in nodes]
    urns = {one["urn"] for one in taken}
    state["resources"] = [one for one in state["resources"] if one["urn"] not in urns]
    for one in state["resources"]:  # the facts name the nodes
        one["dependencies"] = [urn for urn in one.get("dependencies") or [] if urn not in urns]
        one.pop("propertyDependencies", None)
    begun = [{name: value for name, value in one.items() if name not in ("id", "outputs")} for one in taken]
    state["pending_operations"] = [{"resource": one, "type": "creating"} for one in begun]
    file.write_text(json.dumps(whole))
    return len(begun)


def test_the_record_of_another_cluster_of_that_name_is_left_alone(bench: Bench) -> None:
    """As in a bucket that two clusters of one name share: an apply would end the other's nodes and make its own."""
    text = "".join(line for line in bench.text.splitlines(keepends=True) if "kind: fsx" not in line)
    bench.text = text.replace("storage:\n", "")
    bench.up()
    before = bench.instances()
    other = replace(bench.inputs(), uid="zzzzzzzzzzzz")
    for verb in ("preview", "up", "refresh", "destroy"):
        stack = SiteStack(cluster(bench.text), "use1", bench.folder, bench.engine, True, other.uid)
        with pytest.raises(Conflict) as caught:
            getattr(stack, verb)(*[other] * (verb in ("preview", "up")))
        assert caught.value.code == "aws.other-stack"
        assert UID in caught.value.message
    assert bench.instances() == before
    mine = SiteStack(cluster(bench.text), "use1", bench.folder, bench.engine, True, UID)
    assert short(mine.preview(bench.inputs())) == []
