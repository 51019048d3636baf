"""Asks AWS what instances cost now: list prices on demand, and spot prices by zone.

Comes in: regions, instance types, the prices that were known before. Goes out: a `Refreshed` for each region; whoever
calls writes it with `files.write_file`. Called by: cli (`catalog refresh`).

boto3 takes credentials, proxies and addresses (`AWS_ENDPOINT_URL`) from the environment. It is imported when prices
are asked for, never before. Nothing is written here, so that what was known stays where an answer does not come.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from orchestrator.catalog.files import Rows, micro
from orchestrator.model.catalog import Catalog, DatedPrice
from orchestrator.model.cluster_words import Market
from orchestrator.model.errors import InputError
from orchestrator.model.prices import iso

AT_ONCE = 4  # requests; the price API allows few a second
CONNECT_S, READ_S = 5, 20
RETRIES = 5  # of one request, with the SDK's own growing pauses
TYPES_A_CALL = 100  # of DescribeSpotPriceHistory, so that a request stays small
PRICE_API = "the AWS price list API"
SPOT_API = "EC2's spot price history"
# The regions in which the price list API answers, by the first letters of the region that is asked about (as
# karpenter-provider-aws chooses them); all others: us-east-1.
PRICE_REGIONS = {"ap-": "ap-south-1", "eu-": "eu-central-1", "cn-": "cn-northwest-1"}
LINUX = "Linux/UNIX"

Client = Any
Clients = Callable[[str, str], Client]  # service and region -> a boto3 client


class Unanswered(Exception):
    """A service gave no prices: `words` is a sentence about why."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


@dataclass(frozen=True, slots=True)
class Moved:
    """A price that is another one now; before is None for one that nobody knew."""

    type: str
    market: Market
    region: str
    zone: str
    before: int | None
    now: int

    def milli(self) -> int | None:
        """By how much, in thousandths of the price before."""
        return None if not self.before else round(1000 * (self.now - self.before) / self.before)


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What came of one region: all its prices of which `came` are of now, what moved, and why a part did not come."""

    region: str
    rows: Rows
    came: int
    moved: tuple[Moved, ...]
    failed: tuple[str, ...] = ()


def clients() -> Clients:
    """Clients of boto3, bounded in time, for any thread. Raises InputError where boto3 is not installed."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise InputError(
            "catalog.no-boto3", "boto3 is not installed", "install gangline with its extra `aws`"
        ) from None

    bounds = Config(
        connect_timeout=CONNECT_S,
        read_timeout=READ_S,
        retries={"mode": "standard", "max_attempts": RETRIES},
    )
    session, making = boto3.session.Session(), Lock()

    def make(service: str, region: str) -> Client:
        with making:  # a session is not for several threads; the clients that it makes are
            return session.client(service, region_name=region, config=bounds)

    return make


def refresh(region: str, known: Catalog, now_us: int, make: Clients) -> Refreshed:
    """Ask for all types that the catalog has. What did not come stays as it was, with its old date."""
    types = tuple(sorted(known.instances))
    rows: Rows = {}
    failed: list[str] = []
    for market, ask in ((Market.ON_DEMAND, _on_demand), (Market.SPOT, _spot)):
        try:
            came = ask(region, types, now_us, make)
        except Unanswered as error:
            failed.append(error.words)
            came = _kept(known, region, market)
        else:
            if market is Market.ON_DEMAND:
                came = {**_kept(known, region, market), **came}
        for name, prices in came.items():
            rows.setdefault(name, []).extend(prices)
    came_now = sum(price.as_of_us == now_us for prices in rows.values() for price in prices)
    return Refreshed(region, rows, came_now, tuple(_moves(known, region, rows, now_us)), tuple(failed))


def _kept(known: Catalog, region: str, market: Market) -> Rows:
    rows: Rows = {}
    for name, one in known.instances.items():
        found = [price for price in one.prices if price.region == region and price.market is market]
        if found:
            rows[name] = found
    return rows


def _moves(
    known: Catalog, region: str, rows: Mapping[str, Sequence[DatedPrice]], now_us: int
) -> Iterator[Moved]:
    for name in sorted(rows):
        before = {one.place(): one.microusd_per_hour for one in known.instances[name].prices}
        for price in rows[name]:
            was = before.get(price.place())
            if price.as_of_us == now_us and was != price.microusd_per_hour:
                yield Moved(name, price.market, region, price.zone, was, price.microusd_per_hour)


# --- on demand -------------------------------------------------------------------------------------------------------


def price_region(region: str) -> str:
    """Where the price list API is asked about a region."""
    return next((at for start, at in PRICE_REGIONS.items() if region.startswith(start)), "us-east-1")


def _on_demand(region: str, types: Sequence[str], now_us: int, make: Clients) -> Rows:
    """One call a type: without the type in its filter an answer has all of a region's products."""
    with _in_words(PRICE_API, "pricing:GetProducts"):
        client = make("pricing", price_region(region))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(lambda name: _list_price(client, region, name), types))
    source = f"{PRICE_API}, {iso(now_us)}"
    return {
        name: [DatedPrice(Market.ON_DEMAND, region, price, now_us, source)]
        for name, price in zip(types, found, strict=True)
        if price is not None
    }


def _list_price(client: Client, region: str, name: str) -> int | None:
    """Micro-dollars an hour of Linux on shared hardware; None where the region does not list it."""
    wanted = {
        "instanceType": name,
        "regionCode": region,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "tenancy": "Dedicated" if ".metal" in name else "Shared",  # bare metal is listed as dedicated alone
        "marketoption": "OnDemand",
    }
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    prices: list[int] = []
    for page in client.get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=filters):
        for text in page["PriceList"]:
            prices += _hourly(json.loads(text), name)
    return max(prices, default=None)


def _hourly(product: dict[str, Any], name: str) -> list[int]:
    """The prices an hour of one product; nothing where it is another type's, or free of charge (a reserved term)."""
    if product.get("product", {}).get("attributes", {}).get("instanceType", name) != name:
        return []
    terms = product.get("terms", {}).get("OnDemand", {}).values()
    found = [one for term in terms for one in term.get("priceDimensions", {}).values()]
    prices = [
        micro(float(one["pricePerUnit"]["USD"]))
        for one in found
        if one.get("unit") == "Hrs" and "USD" in one.get("pricePerUnit", {})
    ]
    return [price for price in prices if price > 0]


# --- spot ------------------------------------------------------------------------------------------------------------


def _spot(region: str, types: Sequence[str], now_us: int, make: Clients) -> Rows:
    """The price in force of each type and zone: a point is the time of a change, and holds until the next one."""
    with _in_words(SPOT_API, "ec2:DescribeSpotPriceHistory"):
        points = list(_points(make("ec2", region), types, iso(now_us)))
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for point in sorted(points, key=lambda one: one["Timestamp"]):
        newest[(point["InstanceType"], point["AvailabilityZone"])] = point
    source = f"{SPOT_API}, {iso(now_us)}"
    rows: Rows = {}
    for (name, zone), point in sorted(newest.items()):
        price = micro(float(point["SpotPrice"]))
        if name in types and price > 0:
            rows.setdefault(name, []).append(DatedPrice(Market.SPOT, region, price, now_us, source, zone))
    return rows


def _points(client: Client, types: Sequence[str], at: str) -> Iterator[dict[str, Any]]:
    pages = client.get_paginator("describe_spot_price_history")
    for first in range(0, len(types), TYPES_A_CALL):
        asked = list(types[first : first + TYPES_A_CALL])
        for page in pages.paginate(
            InstanceTypes=asked, ProductDescriptions=[LINUX], StartTime=at, EndTime=at
        ):
            yield from page["SpotPriceHistory"]


# --- what went wrong, in words ---------------------------------------------------------------------------------------


@contextmanager
def _in_words(service: str, right: str) -> Iterator[None]:
    """Turns whatever botocore raises, and an answer of another shape, into `Unanswered`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise Unanswered(f"{service} gave no prices: {_refusal(error.response, right)}") from None
    except BotoCoreError as error:
        raise Unanswered(f"{service} gave no prices: {_first_line(str(error))}") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Unanswered(f"{service} gave no prices: its answer is none that Gangline reads") from None


def _refusal(response: Mapping[str, Any], right: str) -> str:
    said = response.get("Error", {})
    code = said.get("Code", "an error")
    if code in DENIED:
        return f"these credentials may not call {right}"
    return f"{code}: {_first_line(said.get('Message', ''))}"


DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")


def _first_line(text: str) -> str:
    """The first sentence-like part of a message, without line breaks."""
    return " ".join(text.split())[:300].rstrip(".") or "no reason was given"


def regions_of(known: Catalog) -> list[str]:
    """The regions that the catalog has prices of."""
    return sorted(_regions(known.instances.values()))


def _regions(instances: Iterable[Any]) -> set[str]:
    return {price.region for one in instances for price in one.prices}
