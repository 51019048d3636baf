"""`catalog show|refresh`: prices with their age and source, what moved, and older prices that stay where none come.

Comes in: a home folder, answers of AWS without a network. Goes out: proof of tables, envelopes, exit codes and files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import catalog
from orchestrator.catalog.files import write_file
from orchestrator.cli import paths
from orchestrator.model.catalog import DatedPrice
from orchestrator.model.clock import SystemClock
from orchestrator.model.cluster import Market
from orchestrator.model.prices import DAY_US
from tests.cli.conftest import Said

Run = Callable[..., Said]
NOW = SystemClock().now_us()


def fetched(dollars: float, days: float = 0, market: Market = Market.ON_DEMAND, zone: str = "") -> DatedPrice:
    at = NOW - round(days * DAY_US)
    return DatedPrice(market, "us-east-1", round(dollars * 1e6), at, "a test", zone)


def keep(*prices: DatedPrice) -> None:
    """What a refresh before this test has kept."""
    write_file(paths.prices_dir(), "us-east-1", {"p5.48xlarge": list(prices)})


def items(said: Said) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said.out)["items"]
    return found


# --- show ------------------------------------------------------------------------------------------------------------


def test_all_types_are_listed_with_the_age_of_their_price(gangline: Run) -> None:
    said = gangline("catalog", "show")

    lines = said.out.splitlines()
    assert (said.code, said.err) == (0, "")
    assert len(lines) == 1 + len(catalog.load().instances)
    assert lines[0].split() == [
        "TYPE",
        "GPUS",
        "MODEL",
        "VCPUS",
        "GIB",
        "EFA",
        "MARKET",
        "WHERE",
        "$/H",
        "AGE",
    ]


def test_prices_of_one_type_come_from_where_they_were_fetched(gangline: Run) -> None:
    keep(fetched(44.0, 2), fetched(20.5, 0.5, Market.SPOT, "us-east-1a"))

    rows = items(gangline("catalog", "show", "p5.48xlarge", "-o", "json"))

    assert [(row["market"], row["zone"], row["usd_per_hour"], row["aged"]) for row in rows] == [
        ("on_demand", "", 44.0, False),
        ("spot", "us-east-1a", 20.5, True),
    ]
    assert {row["source"] for row in rows} == {"a test"}
    assert rows[0]["age_days"] == pytest.approx(2, abs=0.1)
    assert rows[0]["network_cards"] == 32


@pytest.mark.parametrize(("days", "old"), [(89, False), (91, True)])
def test_a_price_that_is_too_old_is_called_so(gangline: Run, days: int, old: bool) -> None:
    """Of a region that ships without prices, so that no younger one stands beside it."""
    row = replace(fetched(44.0, days), region="eu-west-1")
    write_file(paths.prices_dir(), "eu-west-1", {"p5.48xlarge": [row]})

    said = gangline("catalog", "show", "p5.48xlarge", "--region", "eu-west-1")

    assert said.out.splitlines()[1].endswith(" OLD") == old


def test_a_type_that_is_none_is_answered_with_the_nearest(gangline: Run) -> None:
    said = gangline("catalog", "show", "p5.48xlrage")
    assert said.code == 2
    assert said.err.splitlines() == [
        "error: the catalog has no instance type 'p5.48xlrage' [catalog.unknown-type]",
        "  hint: did you mean 'p5.48xlarge'?",
    ]


def test_a_file_of_prices_that_is_broken_is_told_by_every_verb_that_counts(
    gangline: Run, tmp_path: Path
) -> None:
    keep(fetched(1))
    (paths.prices_dir() / "us-east-1.json").write_text("{")
    (tmp_path / "c.yaml").write_text("{}")
    for words in (("catalog", "show"), ("validate", str(tmp_path / "c.yaml"))):
        said = gangline(*words)
        assert (said.code, "catalog.bad-file" in said.err) == (2, True), words


# --- refresh ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What AWS answers, by operation; a text is an error's code."""
    pytest.importorskip("boto3")
    from tests.provision.aws.answers import Answers

    account = Answers()
    monkeypatch.setattr("orchestrator.catalog.refresh.clients", lambda: account)
    return account.answers


def listed(request: dict[str, Any]) -> dict[str, Any]:
    """44 dollars for p5.48xlarge, and no price for anything else."""
    wanted = {one["Field"]: one["Value"] for one in request["Filters"]}
    if wanted["instanceType"] != "p5.48xlarge":
        return {"PriceList": []}
    price = {"unit": "Hrs", "pricePerUnit": {"USD": "44.0000000000"}}
    return {"PriceList": [json.dumps({"terms": {"OnDemand": {"T": {"priceDimensions": {"D": price}}}}})]}


def test_what_moved_is_said_and_kept(gangline: Run, answers: dict[str, Any]) -> None:
    answers |= {"GetProducts": listed, "DescribeSpotPriceHistory": {"SpotPriceHistory": []}}

    said = gangline("catalog", "refresh")

    assert said.code == 0
    assert [line.split() for line in said.out.splitlines()] == [
        ["TYPE", "MARKET", "WHERE", "BEFORE", "NOW", "MOVED"],
        ["p5.48xlarge", "on_demand", "us-east-1", "55.0400", "44.0000", "-20.1", "%"],
    ]
    assert said.err.startswith("us-east-1: 1 prices came, 1 of them moved or new; kept in ")
    (row,) = items(gangline("catalog", "show", "p5.48xlarge", "-o", "json"))
    assert row["usd_per_hour"] == 44.0
    (older,) = items(gangline("catalog", "show", "p4d.24xlarge", "-o", "json"))
    assert older["as_of"] == "2026-07-20T13:44:00Z"


def test_a_second_refresh_says_that_nothing_moved(gangline: Run, answers: dict[str, Any]) -> None:
    answers |= {"GetProducts": listed, "DescribeSpotPriceHistory": {"SpotPriceHistory": []}}
    gangline("catalog", "refresh")

    said = gangline("catalog", "refresh", "-o", "json")

    assert (said.code, json.loads(said.out)) == (
        0,
        {"apiVersion": "gangline/v1", "kind": "PriceMoveList", "items": []},
    )


def test_regions_are_named_one_by_one_or_with_commas(gangline: Run, answers: dict[str, Any]) -> None:
    answers |= {"GetProducts": listed, "DescribeSpotPriceHistory": {"SpotPriceHistory": []}}

    assert (
        gangline("catalog", "refresh", "--region", "us-west-2,eu-west-1", "--region", "us-east-2").code == 0
    )

    assert sorted(path.name for path in paths.prices_dir().iterdir()) == [
        "eu-west-1.json",
        "us-east-2.json",
        "us-west-2.json",
    ]


def test_a_part_that_did_not_come_has_its_own_code(gangline: Run, answers: dict[str, Any]) -> None:
    answers |= {"GetProducts": listed}

    said = gangline("catalog", "refresh")

    assert said.code == 4
    assert said.err.splitlines()[0] == (
        "us-east-1: EC2's spot price history gave no prices: these credentials may not call "
        "ec2:DescribeSpotPriceHistory; the older prices stay"
    )


def test_where_nothing_comes_the_older_prices_stay(gangline: Run, answers: dict[str, Any]) -> None:
    keep(fetched(44.0, 1))
    before = (paths.prices_dir() / "us-east-1.json").read_text()

    said = gangline("catalog", "refresh")

    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines()[-2:] == [
        "error: no prices came [catalog.no-answer]",
        "  hint: check credentials and the way to AWS; older prices are in use",
    ]
    assert (paths.prices_dir() / "us-east-1.json").read_text() == before


@pytest.mark.parametrize("name", ["us-east", "../x", "US-EAST-1", "us-east-1a"])
def test_what_is_no_region_is_refused_before_anything_is_asked(
    gangline: Run, answers: dict[str, Any], name: str
) -> None:
    said = gangline("catalog", "refresh", "--region", name)
    assert (said.code, "catalog.bad-region" in said.err) == (2, True)
    assert not paths.prices_dir().exists()


# --- who goes by them ------------------------------------------------------------------------------------------------

BUDGET = """\
apiVersion: gangline/v1
kind: Cluster
metadata: {name: c}
sites: [{name: u, kind: aws, region: us-east-1}]
pools: [{name: p, site: u, nodes: 'a[1-2]', offerings: [{type: p5.48xlarge, market: on_demand}]}]
budgets: [{name: m, usd_per_hour: 100}]
"""


def test_validate_goes_by_the_prices_that_were_fetched(gangline: Run, tmp_path: Path) -> None:
    """Two nodes at 55.04 dollars are over 100; at 44, which was fetched since, they are not."""
    path = tmp_path / "c.yaml"
    path.write_text(BUDGET)
    assert "spec.minimum-over-budget" in gangline("validate", str(path)).out
    keep(fetched(44.0))
    assert gangline("validate", str(path)) == (0, f"{path}: valid\n", "")


def test_looks_at_an_account_are_left_out_by_name_too(gangline: Run, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(BUDGET.replace("100", "1000"))
    said = gangline("validate", str(path), "--skip", "quota,images", "--skip", "minimum-over-budget")
    assert (said.code, said.err) == (0, "not checked: images, minimum-over-budget, quota\n")
    assert gangline("validate", str(path), "--skip", "quotas").err.endswith("did you mean 'quota'?\n")
