"""What the program of a site declares as a whole, against mocks: marks, names, order, facts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.model.errors import InputError
from orchestrator.model.stack_facts import FixedFact
from orchestrator.provision.aws.marks import Marks
from tests.provision.aws.declared import ACCOUNT, UID, Declared, declare, inputs_of
from tests.provision.aws.documents import (
    STORAGE,
    document,
    elastic,
    fixed,
)


def test_everything_in_the_account_has_the_marks_and_the_files_tags() -> None:
    text = document(
        fixed() + elastic("g6.48xlarge"),
        ", tags: {team: infra, Name: mine}, vpc: {endpoints: [s3, ec2]}",
        "  - {name: fast, kind: fsx, path: /fast, sites: [use1], size: 1200GiB}\n"
        "  - {name: home, kind: efs, path: /home, sites: [use1]}\n",
        'address: "https://a.example.org:7443", instance: {site: use1, type: m7i.large}',
    )
    bare = {
        "Route",
        "RouteTableAssociation",
        "RolePolicy",
        "VolumeAttachment",
        "MountTarget",
    }  # AWS has no tags there

    site = declare(inputs_of(text))

    for one in site.custom():
        if one.type.rpartition(":")[2] in bare:
            continue
        tags = one.inputs["tags"]
        assert tags["gangline:uid"] == UID, one.urn
        assert tags["gangline:cluster"] == "atlas"
        assert tags["gangline:site"] == "use1"
        assert tags["team"] == "infra"
        assert tags["Name"].startswith("mine-")
    node = site.one("Instance", "train-02").inputs["tags"]
    assert (node["gangline:pool"], node["gangline:node"]) == ("train", "train-02")


def test_a_name_of_the_file_is_no_things_own() -> None:
    """What a killed run was making is told by its Name: two things of a kind never have the same one."""
    site = declare(inputs_of(document(fixed(), f", tags: {{Name: {'n' * 256}}}")))
    for kind in ("Subnet", "RouteTable", "Instance"):
        names = [one.inputs["tags"]["Name"] for one in site.custom() if one.type.endswith(f":{kind}")]
        assert len(names) == len(set(names)) > 1, kind
        assert max(map(len, names)) <= 256


def test_every_resource_is_parented_below_the_site() -> None:
    site = declare(inputs_of(document(fixed())))

    parents = {one.urn: one.parent for one in site.found}
    (root,) = [one.urn for one in site.found if one.type == "gangline:aws:Site"]
    for one in site.custom():
        assert root in (one.parent, parents[one.parent]), one.urn


def test_node_may_not_have_the_name_of_the_controllers_instance() -> None:
    with pytest.raises(InputError) as caught:
        declare(inputs_of(document(fixed("controller"))))

    assert caught.value.code == "aws.name-taken"


def test_removing_the_middle_of_three_removes_it_alone() -> None:
    all_three = declare(inputs_of(document(fixed("train-[01-03]")))).golden()
    two = declare(inputs_of(document(fixed("train-01,train-03")))).golden()

    gone = {urn.rpartition("::")[2] for urn in all_three.keys() - two.keys()}
    assert gone == {"train-02"}
    changed = [urn for urn, one in two.items() if all_three[urn] != one and not urn.endswith("::facts")]
    assert changed == []


LISTS = [
    '  - {name: train, site: use1, nodes: "train-[01-02]", offerings: [{type: p5.48xlarge, market: on_demand}]}\n',
    "  - {name: burst, site: use1, size: {max: 4}, offerings: [{type: p4d.24xlarge, market: spot}]}\n",
    "  - {name: small, site: use1, size: {max: 2}, offerings: [{type: g6.xlarge, market: spot}]}\n",
]


@pytest.mark.property
@settings(max_examples=20)  # a run of the program takes half a second
@given(st.permutations(LISTS), st.permutations(STORAGE.splitlines(keepends=True)), st.booleans())
def test_order_and_comments_change_no_resource(pools: list[str], storage: list[str], comment: bool) -> None:
    zones = ", zones: [us-east-1b, us-east-1a]" if comment else ", zones: [us-east-1a, us-east-1b]"
    mark = "# a comment\n" if comment else ""
    text = document(mark.join(pools), zones, "".join(storage))

    assert declare(inputs_of(text)).golden() == _plain_order()


def _plain_order() -> dict[str, Any]:
    if not _KEPT:
        text = document("".join(LISTS), ", zones: [us-east-1a, us-east-1b]", STORAGE)
        _KEPT.update(declare(inputs_of(text)).golden())
    return _KEPT


_KEPT: dict[str, Any] = {}


def test_commit_is_kept_as_long_as_the_file_means_the_same() -> None:
    text = document(fixed())
    facts = declare(inputs_of(text, commit="a" * 40)).facts

    same = declare(inputs_of(text, facts=facts, commit="b" * 40)).facts
    other = declare(inputs_of(document(fixed("train-01")), facts=facts, commit="b" * 40)).facts

    assert (facts.commit, same.commit, other.commit) == ("a" * 40, "a" * 40, "b" * 40)


def test_images_of_earlier_files_stay_in_the_facts() -> None:
    text = document(fixed())
    facts = declare(inputs_of(text)).facts
    newer = text.replace("ami-0123456789abcdef0", "ami-0123456789abcdef1")

    after = declare(inputs_of(newer, facts=facts)).facts

    assert [words for words, _ in after.images] == ["ami-0123456789abcdef0", "ami-0123456789abcdef1"]
    assert after.root("ami-0123456789abcdef0") == "/dev/sda1"


def test_names_for_aws_are_whole_or_have_a_sum() -> None:
    marks = Marks(UID, "atlas", "use1")

    assert marks.name("nodes", most=64) == f"gangline-{UID}-use1-nodes"
    long = marks.name("p" * 100, "q", most=64)
    assert len(long) == 64
    assert long != marks.name("p" * 100, "r", most=64)


def test_provider_is_bound_to_the_files_region_and_the_account() -> None:
    site = declare(inputs_of(document(fixed())))

    provider: Declared = site.one("aws", "aws")
    assert provider.inputs["region"] == "us-east-1"
    assert json.loads(provider.inputs["allowedAccountIds"]) == [ACCOUNT]


def test_fact_of_a_node_survives_a_round_trip() -> None:
    site = declare(inputs_of(document(fixed())))

    assert site.facts.fixed_node("train-02") == FixedFact(
        "train-02", "train", "Instance/train-02", "10.64.0.10", site.one("Instance", "train-02").trigger
    )
    assert replace(site.facts, fixed=()).fixed_node("train-02") is None
