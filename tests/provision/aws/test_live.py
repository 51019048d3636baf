"""All looks at an account together: which are taken, and what is said where nobody could look.

Comes in: a spec, and an account that is all well but for one thing. Goes out: proof of severity, place and words.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("boto3")

from orchestrator import catalog
from orchestrator.model.cluster import (
    Offering,
    Vpc,
)
from orchestrator.model.findings import LIVE_CHECKS, Severity
from orchestrator.model.stack_facts import StackFacts, TemplateFact
from orchestrator.provision.aws import live
from tests.provision.aws.accounts import (
    FACTS,
    NOW,
    P5,
    RESERVED,
    SPOT,
    WELL,
    cluster,
    look,
    reserved,
    told,
)
from tests.provision.aws.answers import Answers


@pytest.mark.parametrize("facts", [None, FACTS], ids=["before the first apply", "later"])
@pytest.mark.parametrize("offering", [P5, SPOT, RESERVED], ids=lambda one: str(one.market))
def test_nothing_is_found_where_all_is_well(facts: StackFacts | None, offering: Offering) -> None:
    assert told(look(cluster(offering), facts)) == []


def test_the_names_of_the_checks_are_those_that_skip_takes() -> None:
    assert list(live.CHECKS) == list(LIVE_CHECKS)


def test_a_network_that_is_not_made_yet_is_not_looked_at() -> None:
    account = Answers(**WELL)
    assert live.check(cluster(vpc=Vpc()), "use1", None, catalog.load(), account, NOW) == ()
    assert not [name for name, _ in account.asked if name in ("DescribeSubnets", "DescribeVpcs")]


@pytest.mark.parametrize(
    ("operation", "check"),
    [
        ("DescribeInstanceTypeOfferings", "types"),
        ("GetServiceQuota", "quota"),
        ("DescribeSubnets", "addresses"),
        ("DescribeCapacityReservations", "reservations"),
        ("DescribeImages", "images"),
        ("DescribeVpcs", "network"),
        ("CreateFleet", "launch"),
    ],
)
def test_a_right_that_is_missing_is_named_and_nothing_counts_as_passed(operation: str, check: str) -> None:
    facts = replace(FACTS, templates=(replace(FACTS.templates[0], reservation="cr-1"),))
    refused: dict[str, Any] = {operation: "UnauthorizedOperation"}

    found = look(cluster(RESERVED), facts, **refused)

    unchecked = [one for one in found if one.name == check]
    assert [one.severity for one in unchecked] == [Severity.UNCHECKED]
    assert unchecked[0].words.endswith(f"these credentials may not call {operation}")
    assert unchecked[0].hint == f"`--skip {check}` leaves it out"


def test_without_credentials_nothing_else_is_asked() -> None:
    account = Answers(**WELL | {"GetCallerIdentity": "ExpiredToken"})

    (found,) = live.check(cluster(), "use1", None, catalog.load(), account, NOW)

    assert (found.name, found.severity, found.place) == ("credentials", Severity.ERROR, "sites[use1].region")
    assert "ExpiredToken" in found.words
    assert [name for name, _ in account.asked] == ["GetCallerIdentity"]


ASKED = (
    "GetCallerIdentity",
    "DescribeInstanceTypeOfferings",
    "GetServiceQuota",
    "DescribeImages",
    "DescribeSubnets",
    "DescribeCapacityReservations",
    "DescribeVpcs",
    "CreateFleet",
)


@pytest.mark.parametrize("name", LIVE_CHECKS)
def test_a_look_is_left_out_by_name(name: str) -> None:
    broken: dict[str, Any] = dict.fromkeys(ASKED, "RequestLimitExceeded")
    facts = replace(FACTS, templates=(replace(FACTS.templates[0], reservation="cr-1"),))

    skipped = look(cluster(RESERVED), facts, frozenset((f"aws.{name}",)), **broken)
    only = look(
        cluster(RESERVED),
        facts,
        frozenset(code for one, code in LIVE_CHECKS.items() if one != name),
        **broken,
    )

    assert name not in {one.name for one in skipped}
    assert {one.name for one in only} == {name}


def test_nobody_waits_longer_than_the_deadline() -> None:
    """One service does not answer: the others are heard, and that one is said not to be checked."""
    answered = threading.Event()

    def never(_: dict[str, Any]) -> dict[str, Any]:
        answered.wait(60)
        return {"Images": []}

    account = Answers(**WELL | {"DescribeImages": never, "DescribeVpcs": "InvalidVpcID.NotFound"})
    try:
        found = live.check(cluster(), "use1", None, catalog.load(), account, NOW, deadline_s=1)
    finally:
        answered.set()

    assert told(list(found)) == [
        "error sites[use1].vpc.id: there is no VPC vpc-1 in us-east-1 of this account",
        "unchecked sites[use1]: images was not checked: AWS did not answer within 1 s",
    ]


def test_only_the_wanted_spec_is_looked_at() -> None:
    """A reservation of the facts that the file no longer names has expired long ago, and is not asked about."""
    facts = replace(
        FACTS,
        templates=(*FACTS.templates, TemplateFact("burst", "p5.48xlarge", "lt-0", 1, "ami-0", "", "cr-9")),
    )
    account = Answers(**WELL | {"DescribeCapacityReservations": reserved(State="expired")})

    assert live.check(cluster(), "use1", facts, catalog.load(), account, NOW) == ()
    assert account.requests("DescribeCapacityReservations") == []
