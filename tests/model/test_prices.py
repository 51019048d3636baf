"""One rule for prices: which row counts, in which zone, and what days and times are.

Comes in: rows of two regions and two zones. Goes out: proof of the quote for each market. What old prices cost is
proved with the figures (tests/planning/test_figures.py).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.catalog import Catalog, DatedPrice, InstanceType
from orchestrator.model.cluster import Market, Price, Site, SiteKind
from orchestrator.model.prices import DAY_US, age_us, day_of, is_aged, iso, microseconds, quote

NOW = microseconds("2026-11-30T12:00:00Z")
SITE = Site("u", SiteKind.AWS, region="r-1", zones=("r-1a", "r-1b"))


def row(price: int, market: Market = Market.ON_DEMAND, region: str = "r-1", zone: str = "") -> DatedPrice:
    return DatedPrice(market, region, price, NOW, "list", zone)


ROWS = (
    row(100),
    row(300, region="r-2"),
    row(30, Market.SPOT, zone="r-1a"),
    row(40, Market.SPOT, zone="r-1b"),
    row(90, Market.SPOT, zone="r-1c"),
)
CATALOG = Catalog({}, {"a.b": InstanceType("a.b", 8, 1, "G", 1, prices=ROWS)}, "", "", ())


def cost(market: Market, site: Site = SITE, zone: str = "", name: str = "a.b") -> int | None:
    found = quote(CATALOG, site, name, market, NOW, zone)
    return found.microusd_per_hour if found is not None else None


@pytest.mark.parametrize(
    ("market", "zone", "expected"),
    [
        (Market.OWNED, "", 0),
        (Market.ON_DEMAND, "", 100),
        (Market.CAPACITY_RESERVATION, "", 100),
        (Market.CAPACITY_BLOCK, "", None),
        (Market.SPOT, "", 40),  # the dearest zone of the site
        (Market.SPOT, "r-1a", 30),
        (Market.SPOT, "r-1c", 90),
        (Market.SPOT, "r-1d", 100),  # unknown: on demand
    ],
)
def test_each_market_has_its_price(market: Market, zone: str, expected: int | None) -> None:
    assert cost(market, zone=zone) == expected


def test_a_site_of_all_zones_takes_the_dearest_of_the_region() -> None:
    assert cost(Market.SPOT, replace(SITE, zones=())) == 90


def test_what_nobody_knows_has_no_price() -> None:
    assert cost(Market.ON_DEMAND, name="c.d") is None
    assert cost(Market.SPOT, name="c.d") is None


def test_a_negotiated_price_counts_on_its_own_market_alone() -> None:
    own = replace(
        SITE, negotiated=(Price("a.b", Market.ON_DEMAND, 70), Price("c.d", Market.CAPACITY_BLOCK, 5))
    )
    assert cost(Market.ON_DEMAND, own) == 70
    assert cost(Market.CAPACITY_RESERVATION, own) == 70
    assert cost(Market.SPOT, own) == 40
    assert cost(Market.CAPACITY_BLOCK, own, name="c.d") == 5


def test_a_factor_is_rounded_up() -> None:
    found = quote(CATALOG, replace(SITE, region="r-3"), "a.b", Market.ON_DEMAND, NOW)
    assert found is not None
    assert (found.listed, found.microusd_per_hour) == (300, 375)
    odd = replace(CATALOG, instances={"a.b": InstanceType("a.b", 8, 1, "G", 1, prices=(row(3),))})
    found = quote(odd, replace(SITE, region="r-3"), "a.b", Market.ON_DEMAND, NOW)
    assert found is not None
    assert found.microusd_per_hour == 4  # 3.75


def test_a_price_of_the_future_is_fresh() -> None:
    later = replace(row(1), as_of_us=NOW + DAY_US)
    assert (age_us(later, NOW), is_aged(later, NOW)) == (0, False)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-07-20", "2026-07-20T00:00:00Z"),
        ("2026-07-20T13:44:00Z", "2026-07-20T13:44:00Z"),
        ("2026-07-20T13:44:00+00:00", "2026-07-20T13:44:00Z"),
    ],
)
def test_days_and_times_are_of_utc(text: str, shown: str) -> None:
    assert iso(microseconds(text)) == shown
    assert day_of(replace(row(1), as_of_us=microseconds(text))) == "2026-07-20"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-07-20T13:44:00+02:00"])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        microseconds(text)
