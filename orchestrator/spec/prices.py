"""The file of negotiated prices of an aws site, read as strictly as the cluster's own.

Comes in: the text of the file that a site names, the catalog, the types that the cluster buys. Goes out: `PriceFile`:
rows of the model, and faults placed in that file. Called by: `load`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import Market, Price
from orchestrator.spec.context import rows, run, sure
from orchestrator.spec.kinds import kind_of
from orchestrator.spec.places import Page
from orchestrator.spec.reading import Found, read_document
from orchestrator.spec.report import SpecError
from orchestrator.spec.tree import read_tree
from orchestrator.wire.faults import Loc, problem, suggestion
from orchestrator.wire.prices import KIND, PriceDocument, PricesDocument


@dataclass(frozen=True, slots=True)
class PriceFile:
    """What a file says. With errors, `rows` is empty."""

    rows: tuple[Price, ...]
    errors: tuple[SpecError, ...]


def read_prices(path: str, text: str, catalog: Catalog, bought: Collection[str]) -> PriceFile:
    """All rows of a price file and all that is wrong with it. `bought`: types that the catalog need not know."""
    page = Page(path, text, read_tree(text))
    errors = [page.of_text(fault) for fault in page.tree.faults]
    root = page.tree.root
    if root is None:
        return PriceFile((), tuple(errors))
    kind, strange = kind_of(root, (KIND,))
    found, document = (strange, None) if kind is None else _read(root.value, catalog, bought)[:2]
    errors += [page.error(one) for one in found]
    if errors or document is None:
        return PriceFile((), tuple(errors))
    return PriceFile(_model(document.prices), ())


def check_prices(data: Any, catalog: Catalog) -> tuple[list[Found], int]:
    """What is wrong with a price file by itself, and how many faults were not looked at. Which types the cluster buys
    is not known then, so that any may be meant."""
    found, _, more = _read(data, catalog, None)
    return found, more


def _read(
    data: Any, catalog: Catalog, bought: Collection[str] | None
) -> tuple[list[Found], PricesDocument | None, int]:
    reading = read_document(PricesDocument, data)
    found = list(reading.found)
    if reading.document is not None:
        found += run((_rows,), reading.document, catalog, bought)
    return found, reading.document, reading.more


def _rows(document: PricesDocument, catalog: Catalog, bought: Collection[str] | None) -> Iterator[Found]:
    seen: set[tuple[str, Market]] = set()
    for index, row in rows(document.prices):
        loc: Loc = ("prices", index)
        yield from run((_market,), row, (*loc, "market"))
        yield from run((_twice,), row, (*loc, "type"), seen)
        if bought is not None:
            yield from run((_known,), row, (*loc, "type"), catalog, bought)


def _model(found: Iterable[PriceDocument]) -> tuple[Price, ...]:
    made = [Price(row.type, row.market, row.usd_per_hour) for row in found]
    return tuple(sorted(made, key=lambda row: (row.type, row.market)))


def _twice(row: PriceDocument, loc: Loc, seen: set[tuple[str, Market]]) -> Iterator[Found]:
    """One price for a type and market."""
    sure(row.type, row.market)
    if (row.type, row.market) in seen:
        name = f"{row.type} on {row.market}"
        yield Found(loc, problem("spec.duplicate-item", name=name))
    seen.add((row.type, row.market))


def _known(row: PriceDocument, loc: Loc, catalog: Catalog, bought: Collection[str]) -> Iterator[Found]:
    if row.type not in catalog.instances and row.type not in bought:
        advice = suggestion(row.type, [*bought, *catalog.instances], "instance type")
        yield Found(loc, problem("spec.unknown-instance-type", name=row.type, advice=advice))


def _market(row: PriceDocument, loc: Loc) -> Iterator[Found]:
    if row.market is Market.OWNED:
        advice = "what people own has no price here"
        found = problem("spec.not-for-kind", what="price", kind="aws", field="market: owned", advice=advice)
        yield Found(loc, found)
