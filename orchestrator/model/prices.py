"""What an hour of an instance costs: dated prices, and the one rule by which they are taken.

Comes in: the catalog, a site with its negotiated prices, a type and a market, the time. Goes out: a `Quote`, with what
was assumed in words. Called by: planning (figures), autoscale, spec (sums), cli.

A price is never taken for more than it is: an old one, or one of another region, is taken dearer than it says, and that
is said. Negotiated prices do not age, and come before all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from orchestrator.model.catalog import Catalog, DatedPrice, InstanceType
from orchestrator.model.cluster_sites import Site
from orchestrator.model.cluster_words import Market

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000
MILLI = 1000
# p5.48xlarge fell from 98.32 to 55.04 dollars (-44 %) within one refresh of karpenter-provider-aws' price file, in June
# 2025, and nothing moved in the year after: a quarter without a look is the most that is trusted.
ON_DEMAND_FRESH_US = 90 * DAY_US
# Spot prices follow demand; DescribeSpotPriceHistory gives the one in force. A working day's half is this project's
# choice: no source tells how far they move in hours.
SPOT_FRESH_US = 6 * HOUR_US
# p5.48xlarge costs 68.80 dollars in us-west-1 and 55.04 in us-east-1 (dstack, pull request 4113): +25 % is the widest
# gap upwards that was seen, between regions as over time.
ELSEWHERE_MILLI = 1250
AGED_MILLI = 1250
RENEW = "`gangline catalog refresh` asks for new ones"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Quote:
    """The price to count with, micro-dollars an hour. `listed` is what the source says; `assumed` why that is not the
    price, in words, and empty where it is. `row` is None for negotiated prices and what people own."""

    microusd_per_hour: int
    listed: int
    assumed: tuple[str, ...] = ()
    row: DatedPrice | None = field(default=None, compare=False)


def quote(
    catalog: Catalog, site: Site, type_name: str, market: Market, now_us: int, zone: str = ""
) -> Quote | None:
    """What an hour on that market costs on the site; in one `zone`, or at most in any zone of the site. None where
    nobody knows, and for capacity blocks, which are paid beforehand."""
    if market is Market.OWNED:
        return Quote(0, 0)
    own = negotiated(site, type_name, market)
    if own is not None:
        return Quote(own, own)
    known = catalog.instances.get(type_name)
    if known is None or market is Market.CAPACITY_BLOCK:
        return None
    if market is Market.SPOT:
        return _spot(known, site, now_us, zone)
    return _on_demand(known, site.region, now_us)


def negotiated(site: Site, type_name: str, market: Market) -> int | None:
    """What the site's own price file says. A capacity reservation is billed as on demand, unless it has a row."""
    rows = {(row.type, row.market): row.microusd_per_hour for row in site.negotiated}
    found = rows.get((type_name, market))
    if found is None and market is Market.CAPACITY_RESERVATION:
        return rows.get((type_name, Market.ON_DEMAND))
    return found


def age_us(row: DatedPrice, now_us: int) -> int:
    """How old a price is; never negative."""
    return max(0, now_us - row.as_of_us)


def is_aged(row: DatedPrice, now_us: int) -> bool:
    """Whether it is too old to be taken as it is."""
    return age_us(row, now_us) > (SPOT_FRESH_US if row.market is Market.SPOT else ON_DEMAND_FRESH_US)


# --- on demand -------------------------------------------------------------------------------------------------------


def _on_demand(known: InstanceType, region: str, now_us: int) -> Quote | None:
    rows = [row for row in known.prices if row.market is Market.ON_DEMAND]
    here = [row for row in rows if row.region == region]
    row = max(here or rows, key=lambda one: one.microusd_per_hour, default=None)
    if row is None:
        return None
    made = Quote(row.microusd_per_hour, row.microusd_per_hour, row=row)
    if not here:
        why = (
            f"{known.name} has no price in {region}: that of {row.region} is taken, {_times(ELSEWHERE_MILLI)}"
        )
        made = _dearer(made, ELSEWHERE_MILLI, why)
    if is_aged(row, now_us):
        made = _dearer(made, AGED_MILLI, _old(known.name, row, now_us))
    return made


def _dearer(made: Quote, milli: int, why: str) -> Quote:
    """Rounded up, so that no factor is lost."""
    return replace(
        made,
        microusd_per_hour=-(-made.microusd_per_hour * milli // MILLI),
        assumed=(*made.assumed, why),
    )


def _old(name: str, row: DatedPrice, now_us: int) -> str:
    days = age_us(row, now_us) // DAY_US
    return (
        f"the price of {name} in {row.region} is {days} days old ({day_of(row)}): "
        f"taken {_times(AGED_MILLI)}; {RENEW}"
    )


def _times(milli: int) -> str:
    return f"× {milli / MILLI:g}"


# --- spot ------------------------------------------------------------------------------------------------------------


def _spot(known: InstanceType, site: Site, now_us: int, zone: str) -> Quote | None:
    """The dearest fresh price of the zones in question. Where there is none, the price on demand: EC2 asks for no more
    on spot unless a request says so."""
    wanted = {zone} if zone else set(site.zones)
    rows = [
        row
        for row in known.prices
        if row.market is Market.SPOT and row.region == site.region and (not wanted or row.zone in wanted)
    ]
    fresh = [row for row in rows if not is_aged(row, now_us)]
    row = max(fresh, key=lambda one: one.microusd_per_hour, default=None)
    if row is not None:
        return Quote(row.microusd_per_hour, row.microusd_per_hour, row=row)
    most = _on_demand(known, site.region, now_us)
    if most is None:
        return None
    return replace(most, assumed=(_no_spot(known.name, site.region, rows, now_us), *most.assumed))


def _no_spot(name: str, region: str, rows: Iterable[DatedPrice], now_us: int) -> str:
    latest = max(rows, key=lambda one: one.as_of_us, default=None)
    if latest is None:
        why = f"no spot price of {name} in {region} is known"
    else:
        why = f"the spot price of {name} in {region} is {age_us(latest, now_us) // HOUR_US} hours old"
    return f"{why}: its price on demand is taken; {RENEW}"


# --- days ------------------------------------------------------------------------------------------------------------


def day_of(row: DatedPrice) -> str:
    """The day of a price in UTC, as 2026-07-20."""
    return (_EPOCH + timedelta(microseconds=row.as_of_us)).date().isoformat()


def microseconds(text: str) -> int:
    """An ISO day or time in UTC as microseconds. Raises ValueError for what is neither, or has another zone."""
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if found.tzinfo is None:
        found = found.replace(tzinfo=timezone.utc)
    if found.utcoffset() != timedelta(0):
        raise ValueError(f"{text} is not in UTC")
    return (found - _EPOCH) // timedelta(microseconds=1)


def iso(at_us: int) -> str:
    """The time in UTC to the second, as 2026-07-20T13:44:00Z."""
    return (_EPOCH + timedelta(seconds=at_us // 1_000_000)).strftime("%Y-%m-%dT%H:%M:%SZ")
