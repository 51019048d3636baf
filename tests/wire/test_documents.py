"""The values of documents one by one, and that a document can be written out and read again.

Comes in: values of each kind of leaf. Goes out: proof of what is taken, in base units, and of what is refused, with
its code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from orchestrator.model.base import Word
from orchestrator.spec.tree import read_tree
from orchestrator.wire import cluster, cluster_aws, cluster_pools, cluster_queues, cluster_sites, common, job
from orchestrator.wire.leaf import UNKNOWN, Strict, UnknownTouched

FULL = Path(__file__).parents[1] / "spec" / "full"

GOOD: list[tuple[Any, Any, Any]] = [
    (common.Name, "h100_A.b-1", "h100_A.b-1"),
    (common.Name, "7", "7"),
    (common.Duration, "1h30m", 5400),
    (common.Size, "1GiB", 2**30),
    (common.Kilowatts, 44.5, 44500),
    (common.Kilowatts, 160, 160000),
    (common.Dollars, 0.18, 180000),
    (common.Share, 0.8, 800),
    (common.Share, 1, 1000),
    (common.Pue, 1.25, 1250),
    (common.Ports, "20000-29999", (20000, 29999)),
    (common.Ports, "5000-5000", (5000, 5000)),
    (common.NetworkCidr, "10.20.0.0/16", "10.20.0.0/16"),
    (common.NetworkCidr, "fd00::/8", "fd00::/8"),
    (common.Hosts, "n[1-2]", ("n1", "n2")),
    (common.Hosts, ["n[1-2]", "m"], ("n1", "n2", "m")),
    (common.Days, "fri-sun", (4, 5, 6)),
    (common.DayTime, "24:00", 1440),
    (common.AbsolutePath, "/a/b.c/..d", "/a/b.c/..d"),
    (common.Secret, "env:X", "env:X"),
    (common.Secret, "file:/etc/key", "file:/etc/key"),
    (common.Secret, "aws-secret:prod/bmc", "aws-secret:prod/bmc"),
    (cluster.Address, "https://a.example.org:7443", "https://a.example.org:7443"),
    (cluster.Address, "http://[::1]:80/", "http://[::1]:80/"),
    (cluster.Address, "http://127.0.0.1:7443", "http://127.0.0.1:7443"),
    (cluster_pools.InstanceTypes, "p5.48xlarge", ("p5.48xlarge",)),
    (cluster_pools.InstanceTypes, ["p5.48xlarge", "p6-b200.48xlarge"], ("p5.48xlarge", "p6-b200.48xlarge")),
    (cluster_pools.Version, "580.126.20", "580.126.20"),
    (cluster_aws.Region, "us-gov-west-1", "us-gov-west-1"),
    (cluster_aws.Zone, "us-east-1a", "us-east-1a"),
    (job.CommandText, "echo $HOME", ("/bin/sh", "-c", "echo $HOME")),
    (job.CommandText, ["a", ""], ("a", "")),
    (job.Output, "logs/%j-%t.%%", "logs/%j-%t.%%"),
]

BAD: list[tuple[Any, Any, str]] = [
    (common.Name, "", "spec.bad-name"),
    (common.Name, "-a", "spec.bad-name"),
    (common.Name, "a/b", "spec.bad-name"),
    (common.Name, "a\n", "spec.bad-name"),
    (common.Name, "a" * 64, "spec.bad-name"),
    (common.Name, 5, "spec.wrong-type"),
    (common.Duration, 3600, "spec.wrong-type"),
    (common.Duration, "1 hour", "spec.bad-duration"),
    (common.Span, "0s", "spec.out-of-range"),
    (common.Span, "0d0h", "spec.out-of-range"),
    (common.Span, "1 hour", "spec.bad-duration"),
    (common.Size, "80 GB", "spec.bad-size"),
    (common.Kilowatts, 0, "spec.out-of-range"),
    (common.Kilowatts, 0.0001, "spec.bad-number"),
    (common.Kilowatts, float("nan"), "spec.bad-number"),
    (common.Kilowatts, float("inf"), "spec.bad-number"),
    (common.Kilowatts, 1e300, "spec.out-of-range"),
    (common.Kilowatts, True, "spec.wrong-type"),
    (common.Kilowatts, "160", "spec.wrong-type"),
    (common.Dollars, 0.0000001, "spec.bad-number"),
    (common.Share, 1.1, "spec.out-of-range"),
    (common.Share, 0, "spec.out-of-range"),
    (common.Pue, 0.9, "spec.out-of-range"),
    (common.Count, 1.0, "spec.wrong-type"),
    (common.Count, -1, "spec.out-of-range"),
    (common.Count, 10**300, "spec.out-of-range"),
    (common.Flag, "yes", "spec.wrong-type"),
    (common.Flag, 1, "spec.wrong-type"),
    (common.Ports, "29999-20000", "spec.bad-ports"),
    (common.Ports, "80-90", "spec.bad-ports"),
    (common.Ports, "20000-70000", "spec.bad-ports"),
    (common.Ports, 20000, "spec.wrong-type"),
    (common.NetworkCidr, "10.20.0.1/16", "spec.bad-network"),
    (common.NetworkCidr, "10.20.0.0", "spec.bad-network"),
    (common.NetworkCidr, "10.20.0.0/33", "spec.bad-network"),
    (common.Hosts, [], "spec.empty-value"),
    (common.Hosts, ["n1", "n[1-2]"], "spec.bad-hostlist"),
    (common.Hosts, "n[1-", "spec.bad-hostlist"),
    (common.AbsolutePath, "a/b", "spec.bad-path"),
    (common.AbsolutePath, "/a/../b", "spec.bad-path"),
    (common.AbsolutePath, "/a\0", "spec.bad-path"),
    (common.Secret, "hunter2", "spec.bad-secret"),
    (common.Secret, "env:", "spec.bad-secret"),
    (common.Secret, "file:relative", "spec.bad-secret"),
    (cluster.Address, "atlas:7443", "spec.bad-url"),
    (cluster.Address, "http://atlas.example.org:7443", "spec.bad-url"),
    (cluster.Uid, 999, "spec.out-of-range"),
    (cluster_pools.Version, "580", "spec.bad-text"),
    (cluster_pools.InstanceTypes, [], "spec.empty-value"),
    (cluster_pools.InstanceTypes, ["p5.48xlarge", 5], "spec.wrong-type"),
    (cluster_queues.ReclaimWord, "Borrowed", "spec.bad-choice"),
    (job.CommandText, "", "job.empty-command"),
    (job.CommandText, [""], "job.empty-command"),
    (job.CommandText, "a\0b", "spec.bad-text"),
    (job.Output, "%q", "job.bad-placeholder"),
    (job.Output, "a%", "job.bad-placeholder"),
]


@pytest.mark.parametrize(("kind", "value", "wanted"), GOOD)
def test_leaves_are_read_in_base_units_and_written_back(kind: Any, value: Any, wanted: Any) -> None:
    adapter = TypeAdapter[Any](kind)
    assert adapter.validate_python(value) == wanted
    assert adapter.validate_python(json.loads(adapter.dump_json(wanted))) == wanted


@pytest.mark.parametrize(("kind", "value", "code"), BAD)
def test_leaves_refuse_with_one_fault(kind: Any, value: Any, code: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter[Any](kind).validate_python(value)
    (detail,) = caught.value.errors()
    assert detail["ctx"]["problem"].code == code


def test_a_secret_is_never_repeated_in_its_fault() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter[Any](common.Secret).validate_python("hunter2")
    assert "hunter2" not in str(caught.value.errors(include_input=False))


@pytest.mark.parametrize(
    "name", ["cluster.yaml", "job.yaml", "tasks.yaml", "array.yaml", "mig.yaml", "groups.yaml"]
)
def test_a_document_is_written_as_it_can_be_read(name: str) -> None:
    root = read_tree((FULL / name).read_text()).root
    assert root is not None
    model: type[Strict] = cluster.ClusterDocument if name == "cluster.yaml" else job.JobDocument
    document = model.model_validate(root.value)
    written = json.loads(json.dumps(document.model_dump(by_alias=True, exclude_unset=True, mode="json")))
    assert model.model_validate(written) == document


def test_fields_have_their_names_in_files_only() -> None:
    with pytest.raises(ValidationError):
        cluster_queues.WindowDocument.model_validate({"from_": "10:00", "to": "11:00", "limit_kw": 1})
    window = cluster_queues.WindowDocument.model_validate({"from": "10:00", "to": "11:00", "limit_kw": 1})
    assert window.days == (0, 1, 2, 3, 4, 5, 6)


def test_every_field_says_what_it_is() -> None:
    missing = [
        f"{one.__name__}.{name}"
        for module in (cluster, cluster_sites, cluster_pools, cluster_queues, job)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Strict)
        for name, field in one.model_fields.items()
        if not field.description or not field.description.endswith(".")
    ]
    assert missing == []


def test_what_is_unknown_stops_whatever_touches_it() -> None:
    touches: list[Any] = [
        lambda: UNKNOWN < 1,
        lambda: UNKNOWN == 1,
        lambda: "text" == UNKNOWN,  # noqa: SIM300
        lambda: bool(UNKNOWN),
        lambda: list(UNKNOWN),
        lambda: UNKNOWN.name,
        lambda: f"{UNKNOWN}",
        lambda: {UNKNOWN},
        lambda: len(UNKNOWN),
        lambda: UNKNOWN + 1,
        lambda: 1 * UNKNOWN,
        lambda: UNKNOWN[0],
        lambda: "a" in UNKNOWN,
        lambda: UNKNOWN in ("a", "b"),
        lambda: str(UNKNOWN),
    ]
    for touch in touches:
        with pytest.raises(UnknownTouched):
            touch()


def test_words_of_choices_are_those_of_the_model() -> None:
    class Colour(Word):
        RED = "red"

    adapter = TypeAdapter[Any](Annotated[Colour, common.choice_leaf(Colour)])
    assert adapter.validate_python("red") is Colour.RED
    assert adapter.dump_python(Colour.RED) == "red"
    assert adapter.json_schema()["enum"] == ["red"]
