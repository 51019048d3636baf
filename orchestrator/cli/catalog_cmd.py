"""`catalog show|refresh`: instance types with their prices, how old those are and where they come from.

Comes in: types, regions. Goes out: tables; a file of prices for each region in this person's configuration. Called by:
the command's table. Only `refresh` uses the network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import options, paths
from orchestrator.cli.known import known_catalog
from orchestrator.cli.session import note
from orchestrator.cli.verbs import SETTINGS, Example, Verbs, verb
from orchestrator.model.errors import GanglineError, InputError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.catalog.refresh import Moved, Refreshed
    from orchestrator.cli.output import Listing
    from orchestrator.model.catalog import Catalog, DatedPrice, InstanceType

PARTLY = 4
MICRO = 1_000_000


@click.group(
    "catalog",
    cls=Verbs,
    context_settings=SETTINGS,
    examples=[
        Example("gangline catalog show p5.48xlarge", "what is known of one type"),
        Example("gangline catalog refresh --region us-east-1", "ask AWS for today's prices"),
    ],
)
def catalog() -> None:
    """Show what instances cost, or ask AWS for new prices."""


# --- show ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """One price of one type, or a type without any. Dollars an hour, days; `source` says where it is from."""

    type: str
    gpu_model: str
    gpus: int
    vcpus: int
    memory_gib: int
    efa: int
    network_cards: int
    market: str = ""
    region: str = ""
    zone: str = ""
    usd_per_hour: float | None = None
    as_of: str = ""
    age_days: float | None = None
    aged: bool = False
    source: str = ""


@verb(
    "show",
    group=catalog,
    examples=[
        Example("gangline catalog show", "all types, with prices on demand"),
        Example("gangline catalog show p5.48xlarge", "all prices of one, by market and zone"),
        Example("gangline catalog show --region eu-central-1 -o json", "one region, for a program"),
    ],
)
@click.argument("types", nargs=-1, metavar="[TYPE]...")
@click.option("--region", default="", metavar="REGION", help="Only prices of this region.")
@options.listing
def show(types: tuple[str, ...], region: str) -> None:
    """List instance types with their prices, and the age and source of each.

    Without TYPE: one line a type and region, on demand. With TYPE: every price that is known of it, spot by zone too.
    A price that is OLD is taken dearer than it says.
    """
    from orchestrator.model.clock import SystemClock

    known = known_catalog()
    chosen = [_type(known, name) for name in types] or list(known.instances.values())
    now_us = SystemClock().now_us()
    shown = [one for kind in chosen for one in _shown(kind, region, bool(types), now_us)]
    _listing().print(shown)


def _type(known: Catalog, name: str) -> InstanceType:
    from orchestrator.wire.faults import plain, suggestion

    found = known.instances.get(name)
    if found is None:
        hint = suggestion(name, list(known.instances), "instance type")
        raise InputError(
            "catalog.unknown-type", f"the catalog has no instance type '{plain(name, 60)}'", hint
        )
    return found


def _shown(kind: InstanceType, region: str, every: bool, now_us: int) -> Iterator[Shown]:
    from orchestrator.model.cluster_words import Market

    about = Shown(kind.name, kind.gpu_model, kind.gpus, kind.vcpus, kind.memory >> 30, kind.efa, kind.cards)
    prices = [
        price
        for price in kind.prices
        if region in ("", price.region) and (every or price.market is Market.ON_DEMAND)
    ]
    yield from (_priced(about, price, now_us) for price in prices)
    if not prices:
        yield about


def _priced(about: Shown, price: DatedPrice, now_us: int) -> Shown:
    from orchestrator.model.prices import DAY_US, age_us, is_aged, iso

    return replace(
        about,
        market=str(price.market),
        region=price.region,
        zone=price.zone,
        usd_per_hour=price.microusd_per_hour / MICRO,
        as_of=iso(price.as_of_us),
        age_days=round(age_us(price, now_us) / DAY_US, 2),
        aged=is_aged(price, now_us),
        source=price.source,
    )


def _listing() -> Listing[Shown]:
    from orchestrator.cli.output import Column, Listing

    columns: tuple[Column[Shown], ...] = (
        Column("TYPE", lambda one: one.type),
        Column("GPUS", lambda one: str(one.gpus), right=True),
        Column("MODEL", lambda one: one.gpu_model, cut=True),
        Column("VCPUS", lambda one: str(one.vcpus), right=True),
        Column("GIB", lambda one: str(one.memory_gib), right=True),
        Column("EFA", lambda one: str(one.efa) if one.efa else "-", right=True),
        Column("CARDS", lambda one: str(one.network_cards), right=True, wide=True),
        Column("MARKET", lambda one: one.market or "-"),
        Column("WHERE", lambda one: one.zone or one.region or "-"),
        Column("$/H", lambda one: "-" if one.usd_per_hour is None else f"{one.usd_per_hour:.4f}", right=True),
        Column("AGE", _age, right=True),
        Column("SOURCE", lambda one: one.source or "-", cut=True, wide=True),
    )
    return Listing("PriceList", columns, lambda one: one.type, "the catalog has no such type")


def _age(one: Shown) -> Any:
    from orchestrator.cli.tables import Cell
    from orchestrator.cli.text import span

    if one.age_days is None:
        return "-"
    age = span(one.age_days * 86400)
    return Cell(f"{age} OLD", "wait") if one.aged else age


# --- refresh ---------------------------------------------------------------------------------------------------------


@verb(
    "refresh",
    group=catalog,
    examples=[
        Example("gangline catalog refresh", "the regions whose prices are known already"),
        Example("gangline catalog refresh --region eu-central-1 --region us-west-2", "these two"),
    ],
)
@click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    help="A region; several: repeated, or with commas.",
)
@options.listing
def refresh(regions: tuple[str, ...]) -> int:
    """Ask AWS what instances cost now, and say what moved.

    It needs credentials that may call pricing:GetProducts and ec2:DescribeSpotPriceHistory. What does not come leaves
    the older prices as they are. Exit code 1: nothing came; 4: a part did.
    """
    from orchestrator import catalog as data
    from orchestrator.catalog.refresh import clients, regions_of
    from orchestrator.catalog.refresh import refresh as ask
    from orchestrator.model.clock import SystemClock

    folder = paths.prices_dir()
    known = data.load(folder)
    make, now_us = clients(), SystemClock().now_us()
    asked = options.listed(regions) or tuple(regions_of(known))
    done = [ask(_region(name), known, now_us, make) for name in asked]
    for one in done:
        _keep(folder, one)
    code = _verdict(done)
    _moves().print([_move(move) for one in done for move in one.moved])
    return code


def _region(name: str) -> str:
    import re

    from orchestrator.wire.cluster_aws import REGION_PATTERN
    from orchestrator.wire.faults import plain

    if not re.fullmatch(REGION_PATTERN, name):
        raise InputError(
            "catalog.bad-region", f"'{plain(name, 60)}' is no region", "write it as in us-east-1", "--region"
        )
    return name


def _keep(folder: Path, one: Refreshed) -> None:
    from orchestrator.catalog.files import write_file

    for words in one.failed:
        note(f"{one.region}: {words}; the older prices stay")
    if not one.came:
        return
    try:
        path = write_file(folder, one.region, one.rows)
    except OSError as error:
        raise GanglineError(
            "catalog.not-written", f"the prices can't be kept: {error.strerror}", "", str(folder)
        ) from None
    note(f"{one.region}: {one.came} prices came, {len(one.moved)} of them moved or new; kept in {path}")


def _verdict(done: list[Refreshed]) -> int:
    if not any(one.came for one in done):
        raise Unavailable(
            "catalog.no-answer",
            "no prices came",
            "check credentials and the way to AWS; older prices are in use",
        )
    return PARTLY if any(one.failed for one in done) else 0


@dataclass(frozen=True, slots=True)
class Move:
    """A price that is another one now, in dollars an hour; `percent` of the price before, which is None if new."""

    type: str
    market: str
    region: str
    zone: str
    usd_before: float | None
    usd_now: float
    percent: float | None


def _move(one: Moved) -> Move:
    milli = one.milli()
    return Move(
        one.type,
        str(one.market),
        one.region,
        one.zone,
        None if one.before is None else one.before / MICRO,
        one.now / MICRO,
        None if milli is None else milli / 10,
    )


def _moves() -> Listing[Move]:
    from orchestrator.cli.output import Column, Listing

    columns: tuple[Column[Move], ...] = (
        Column("TYPE", lambda one: one.type),
        Column("MARKET", lambda one: one.market),
        Column("WHERE", lambda one: one.zone or one.region),
        Column("BEFORE", lambda one: "-" if one.usd_before is None else f"{one.usd_before:.4f}", right=True),
        Column("NOW", lambda one: f"{one.usd_now:.4f}", right=True),
        Column("MOVED", lambda one: "new" if one.percent is None else f"{one.percent:+.1f} %", right=True),
    )
    return Listing("PriceMoveList", columns, lambda one: one.type, "no price moved")
