"""New prices from AWS: what is asked, what is kept, what is said of what moved; and what happens where none come.

Comes in: answers of the services, queued in botocore's stubs, which check each request against the service's own model.
Goes out: proof of prices, moves and words.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator import catalog
from orchestrator.catalog.files import read_file, write_file
from orchestrator.catalog.load import with_prices
from orchestrator.catalog.refresh import Refreshed, price_region, refresh, regions_of
from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import Market
from orchestrator.model.errors import InputError
from orchestrator.model.prices import DAY_US, day_of, microseconds

boto3 = pytest.importorskip("boto3")
from botocore.stub import ANY, Stubber  # noqa: E402

NOW = microseconds("2026-11-30T12:00:00Z")
MARKETS = {"p5.48xlarge": 55.04, "p5e.48xlarge": None}


def known() -> Catalog:
    """Two types of the shipped catalog: one with a price, one without."""
    whole = catalog.load()
    return replace(whole, instances={name: whole.instances[name] for name in MARKETS})


def product(name: str, *usd: str, unit: str = "Hrs") -> str:
    """One product of the price list, in the form of its API."""
    terms = {
        f"T{number}": {"priceDimensions": {"D": {"unit": unit, "pricePerUnit": {"USD": price}}}}
        for number, price in enumerate(usd)
    }
    return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": {"OnDemand": terms}})


def point(name: str, zone: str, price: str, hour: int) -> dict[str, Any]:
    at = datetime(2026, 11, 30, hour, tzinfo=UTC)
    return {"InstanceType": name, "AvailabilityZone": zone, "SpotPrice": price, "Timestamp": at}


class Aws:
    """Clients with queued answers; each region that was asked is noted."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self._clients = {
            service: boto3.client(
                service, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
            )
            for service in ("pricing", "ec2")
        }
        self.stubs = {service: Stubber(client) for service, client in self._clients.items()}
        for stub in self.stubs.values():
            stub.activate()

    def client(self, service: str, region: str) -> Any:
        self.asked.append((service, region))
        return self._clients[service]

    def lists(self, *products: str) -> None:
        """The answer for the next type, in the order of their names."""
        expected = {"ServiceCode": "AmazonEC2", "Filters": ANY}
        self.stubs["pricing"].add_response("get_products", {"PriceList": list(products)}, expected)

    def spots(self, *points: dict[str, Any]) -> None:
        answer = {"SpotPriceHistory": list(points), "NextToken": ""}
        self.stubs["ec2"].add_response("describe_spot_price_history", answer)

    def denies(self, service: str, operation: str, code: str) -> None:
        self.stubs[service].add_client_error(operation, code, "You are not allowed. Really.")


@pytest.fixture
def one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stubs answer in the order of their queue, so that requests must come in the order of types."""
    monkeypatch.setattr("orchestrator.catalog.refresh.AT_ONCE", 1)


@pytest.fixture
def aws(one_at_once: None) -> Aws:
    return Aws()


def shown(done: Refreshed) -> list[tuple[str, str, str, float | None, float]]:
    return [
        (one.type, str(one.market), one.zone, one.before and one.before / 1e6, one.now / 1e6)
        for one in done.moved
    ]


def test_what_moved_is_said_by_market_and_zone(aws: Aws) -> None:
    aws.lists(product("p5.48xlarge", "44.0320000000"))
    aws.lists(product("p5e.48xlarge", "70"))
    aws.spots(
        point("p5.48xlarge", "us-east-1a", "19.5", 3),
        point("p5.48xlarge", "us-east-1a", "21.25", 11),
        point("p5.48xlarge", "us-east-1b", "18", 1),
    )

    done = refresh("us-east-1", known(), NOW, aws.client)

    assert shown(done) == [
        ("p5.48xlarge", "on_demand", "", 55.04, 44.032),
        ("p5.48xlarge", "spot", "us-east-1a", None, 21.25),
        ("p5.48xlarge", "spot", "us-east-1b", None, 18.0),
        ("p5e.48xlarge", "on_demand", "", None, 70.0),
    ]
    assert done.moved[0].milli() == -200
    assert done.moved[1].milli() is None
    assert (done.came, done.failed) == (4, ())


def test_a_price_that_did_not_move_is_younger_all_the_same(aws: Aws, tmp_path: Path) -> None:
    aws.lists(product("p5.48xlarge", "55.04"))
    aws.lists()
    aws.spots()

    done = refresh("us-east-1", known(), NOW, aws.client)
    write_file(tmp_path, "us-east-1", done.rows)

    assert done.moved == ()
    (price,) = catalog.load(tmp_path).instances["p5.48xlarge"].prices
    assert day_of(price) == "2026-11-30"
    assert price.source == "the AWS price list API, 2026-11-30T12:00:00Z"
    assert catalog.load().instances["p5.48xlarge"].prices[0].as_of_us < NOW - 100 * DAY_US


def test_what_is_free_or_of_another_unit_is_no_price(aws: Aws) -> None:
    aws.lists(product("p5.48xlarge", "0.0000000000"), product("p5.48xlarge", "9", unit="Quantity"))
    aws.lists(product("another.type", "3"))
    aws.spots(point("another.type", "us-east-1a", "1", 1))

    done = refresh("us-east-1", known(), NOW, aws.client)

    assert (done.came, done.moved) == (0, ())


@pytest.mark.parametrize("usd", ["Infinity", "NaN", "-1", "99999999.0", "0.0000000001"])
def test_what_nothing_costs_is_no_price(aws: Aws, tmp_path: Path, usd: str) -> None:
    """Kept, it would end every later command that reads the prices, or make an instance free."""
    aws.lists(product("p5.48xlarge", usd))
    aws.lists(product("p5e.48xlarge", "3"))
    aws.spots(point("p5.48xlarge", "us-east-1a", usd, 1))

    done = refresh("us-east-1", known(), NOW, aws.client)

    assert [(one.type, one.now) for one in done.moved] == [("p5e.48xlarge", 3_000_000)]
    write_file(tmp_path, "us-east-1", done.rows)
    assert catalog.load(tmp_path).instances["p5.48xlarge"].prices == known().instances["p5.48xlarge"].prices


def test_a_region_is_asked_about_where_the_price_list_answers(aws: Aws) -> None:
    for _ in MARKETS:
        aws.lists()
    aws.spots()

    refresh("eu-west-3", known(), NOW, aws.client)

    assert aws.asked == [("pricing", "eu-central-1"), ("ec2", "eu-west-3")]
    assert [price_region(one) for one in ("us-west-2", "ap-south-2", "cn-north-1", "sa-east-1")] == [
        "us-east-1",
        "ap-south-1",
        "cn-northwest-1",
        "us-east-1",
    ]


def test_a_right_that_is_missing_is_named_and_older_prices_stay(aws: Aws) -> None:
    aws.denies("pricing", "get_products", "AccessDeniedException")
    aws.spots(point("p5.48xlarge", "us-east-1a", "20", 1))

    done = refresh("us-east-1", known(), NOW, aws.client)

    assert done.failed == (
        "the AWS price list API gave no prices: these credentials may not call pricing:GetProducts",
    )
    listed = [price for price in done.rows["p5.48xlarge"] if price.market is Market.ON_DEMAND]
    assert [day_of(price) for price in listed] == ["2026-07-20"]
    assert done.came == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("UnauthorizedOperation", "these credentials may not call ec2:DescribeSpotPriceHistory"),
        ("RequestLimitExceeded", "RequestLimitExceeded: You are not allowed. Really"),
    ],
)
def test_what_the_service_says_is_passed_on_in_one_line(aws: Aws, code: str, words: str) -> None:
    for _ in MARKETS:
        aws.lists()
    aws.denies("ec2", "describe_spot_price_history", code)

    assert refresh("us-east-1", known(), NOW, aws.client).failed == (
        f"EC2's spot price history gave no prices: {words}",
    )


def test_spot_prices_of_zones_that_are_gone_go(aws: Aws) -> None:
    for _ in MARKETS:
        aws.lists()
    aws.spots(point("p5.48xlarge", "us-east-1a", "20", 1), point("p5.48xlarge", "us-east-1f", "9", 1))
    first = refresh("us-east-1", known(), NOW, aws.client)
    before = with_prices(known(), first.rows)
    for _ in MARKETS:
        aws.lists()
    aws.spots(point("p5.48xlarge", "us-east-1a", "21", 2))

    second = refresh("us-east-1", before, NOW + DAY_US, aws.client)

    zones = [price.zone for price in second.rows["p5.48xlarge"] if price.market is Market.SPOT]
    assert zones == ["us-east-1a"]


def test_an_answer_of_another_shape_is_no_traceback(aws: Aws) -> None:
    aws.lists("{")
    aws.lists()
    aws.spots()

    (words,) = refresh("us-east-1", known(), NOW, aws.client).failed

    assert words == "the AWS price list API gave no prices: its answer is none that Gangline reads"


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_says_what_was_written(tmp_path: Path) -> None:
    rows = {name: list(one.prices) for name, one in known().instances.items() if one.prices}
    path = write_file(tmp_path / "new", "us-east-1", rows)
    assert read_file(path) == rows
    assert [one.name for one in path.parent.iterdir()] == ["us-east-1.json"]


def test_the_newer_of_two_prices_counts(tmp_path: Path) -> None:
    (shipped,) = known().instances["p5.48xlarge"].prices
    for days, expected in ((-1, shipped.microusd_per_hour), (1, 1_000_000)):
        row = replace(shipped, microusd_per_hour=1_000_000, as_of_us=shipped.as_of_us + days * DAY_US)
        write_file(tmp_path, "us-east-1", {"p5.48xlarge": [row]})
        (price,) = catalog.load(tmp_path).instances["p5.48xlarge"].prices
        assert price.microusd_per_hour == expected


def test_regions_with_prices_are_known(tmp_path: Path) -> None:
    (shipped,) = known().instances["p5.48xlarge"].prices
    write_file(tmp_path, "eu-west-1", {"p5.48xlarge": [replace(shipped, region="eu-west-1")]})
    assert regions_of(catalog.load(tmp_path)) == ["eu-west-1", "us-east-1"]
    assert regions_of(catalog.load(tmp_path / "nothing")) == ["us-east-1"]


def _edited(change: Callable[[dict[str, Any]], object]) -> str:
    row = {"type": "a.b", "market": "spot", "usd_per_hour": 1, "as_of": "2026-01-01", "source": "s"}
    data: dict[str, Any] = {"kind": "PriceList", "region": "us-east-1", "prices": [row]}
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        _edited(lambda data: data.pop("region")),
        _edited(lambda data: data.update(kind="Job")),
        _edited(lambda data: data["prices"][0].update(usd_per_hour="cheap")),
        _edited(lambda data: data["prices"][0].update(usd_per_hour=-1)),
        _edited(lambda data: data["prices"][0].update(usd_per_hour=float("nan"))),
        _edited(lambda data: data["prices"][0].update(usd_per_hour=1e-9)),
        _edited(lambda data: data["prices"][0].update(market="cheap")),
        _edited(lambda data: data["prices"][0].update(as_of="yesterday")),
        _edited(lambda data: data["prices"][0].update(as_of="2026-01-01T00:00:00+02:00")),
        _edited(lambda data: data["prices"].append(None)),
    ],
)
def test_a_file_that_is_none_is_told_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "us-east-1.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        catalog.load(tmp_path)
    assert (error.value.code, error.value.path) == ("catalog.bad-file", str(path))
    assert "refresh" in error.value.hint
