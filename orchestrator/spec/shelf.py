"""The files that a cluster document names beside itself: inventories and negotiated prices, each read once.

Comes in: the document, the page that it stands on, the file beside which names are meant. Goes out: hosts and prices by
site, and every fault of those files at its place. Called by: `load`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import Host, Price
from orchestrator.spec.inventory import Claim, Inventory, Owner, read_inventory, taken
from orchestrator.spec.places import Page, unplaced
from orchestrator.spec.prices import read_prices
from orchestrator.spec.reading import Found
from orchestrator.spec.report import SpecError
from orchestrator.spec.source import Unreadable, beside, read_text, shown_path
from orchestrator.spec.tree import Misread
from orchestrator.spec.ways import contradicting
from orchestrator.wire.cluster import ClusterDocument
from orchestrator.wire.cluster_sites import AwsSite, MetalSite
from orchestrator.wire.faults import Loc
from orchestrator.wire.leaf import UNKNOWN

Prices = dict[str, tuple[Price, ...]]


class Shelf:
    """Reads them; `errors` has all that is wrong with them."""

    def __init__(self, page: Page, base: str | None) -> None:
        self.errors: list[SpecError] = []
        self._page = page
        self._base = base
        self._read: dict[str, Inventory | None] = {}
        self._pages: dict[str, Page] = {}
        self._prices: dict[str, tuple[Price, ...] | None] = {}

    def hosts_of(self, document: ClusterDocument) -> tuple[dict[str, tuple[Host, ...]], frozenset[str]]:
        """The hosts by site, and the sites whose hosts are not known."""
        hosts: dict[str, tuple[Host, ...]] = {}
        unread: set[str] = set()
        if document.sites is UNKNOWN:
            return {}, frozenset()
        for index, site in enumerate(document.sites):
            if not isinstance(site, MetalSite) or site.name is UNKNOWN or site.inventory is None:
                continue
            inventory = self._inventory(site.inventory, index) if site.inventory is not UNKNOWN else None
            if inventory is None or inventory.faults:
                unread.add(site.name)
            else:
                hosts[site.name] = inventory.hosts
                self._told(beside(self._base or "", site.inventory), contradicting(inventory.ways, site.ssh))
        self._shared()
        return hosts, frozenset(unread)

    def _told(self, path: str, faults: Iterable[Misread]) -> None:
        self.errors += [self._pages[path].of_text(fault) for fault in faults]

    def _shared(self) -> None:
        """What is one host's own in one inventory is no other host's in another one."""
        first: dict[Claim, tuple[str, Owner]] = {}
        for path, inventory in self._read.items():
            for claim, owner in inventory.claims.items() if inventory is not None else ():
                file, other = first.setdefault(claim, (path, owner))
                if other.host != owner.host:
                    found = taken(claim, other, f"{shown_path(file)}, line {other.place.line}")
                    self._told(path, [Misread(found, owner.place, owner.loc)])

    def _inventory(self, name: str, index: int) -> Inventory | None:
        if self._base is None:
            return None
        path = beside(self._base, name)
        if path not in self._read:
            self._read[path] = self._open(path, index)
        return self._read[path]

    def _open(self, path: str, index: int) -> Inventory | None:
        text = self._text(path, ("sites", index, "inventory"))
        if text is None:
            return None
        inventory = read_inventory(text)
        self._pages[path] = Page(path, text, inventory.tree)
        self._told(path, inventory.faults)
        return inventory

    def _text(self, path: str, loc: Loc) -> str | None:
        """The text of a file; None if there is none, which is told where it is named, or where it breaks off."""
        try:
            return read_text(path, "the folder of the file that names it")
        except Unreadable as error:
            if error.line:
                self.errors.append(unplaced(path, error.problem, error.line, error.column))
            else:
                self.errors.append(self._page.error(Found(loc, error.problem)))
            return None

    # --- prices ---

    def prices_of(self, document: ClusterDocument, known: Catalog) -> tuple[Prices, frozenset[str]]:
        """The negotiated prices by site, and the sites whose prices are not known."""
        prices: Prices = {}
        unpriced: set[str] = set()
        bought = _types(document)
        for index, site in _aws_sites(document):
            if site.prices is None:
                continue
            found = self._priced(site.prices, index, known, bought) if site.prices is not UNKNOWN else None
            if found is None:
                unpriced.add(site.name)
            else:
                prices[site.name] = found
        return prices, frozenset(unpriced)

    def _priced(self, name: str, index: int, known: Catalog, bought: list[str]) -> tuple[Price, ...] | None:
        if self._base is None:
            return None
        path = beside(self._base, name)
        if path not in self._prices:
            text = self._text(path, ("sites", index, "prices"))
            self._prices[path] = None
            if text is not None:
                found = read_prices(path, text, known, bought)
                self.errors += found.errors
                self._prices[path] = found.rows if not found.errors else None
        return self._prices[path]


def _aws_sites(document: ClusterDocument) -> Iterator[tuple[int, AwsSite]]:
    if document.sites is not UNKNOWN:
        for index, site in enumerate(document.sites):
            if isinstance(site, AwsSite) and site.name is not UNKNOWN:
                yield index, site


def _types(document: ClusterDocument) -> list[str]:
    """The instance types that pools buy, as far as they can be read."""
    pools = document.pools if document.pools is not UNKNOWN else []
    offerings = [
        one
        for pool in pools
        if pool is not UNKNOWN and pool.offerings is not UNKNOWN
        for one in pool.offerings
        if one is not UNKNOWN and one.type is not UNKNOWN
    ]
    return list(dict.fromkeys(name for one in offerings for name in one.type))
