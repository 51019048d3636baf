"""What a check may look at, and how it says what it found.

Comes in: a cluster document of which parts may be `UNKNOWN`, the names that its sections declare, the catalog, and
hosts of inventories. Goes out: `Found` faults. Called by: the `checks_*` modules, run by `checks`.

A check that touches an `UNKNOWN` value stops and says nothing: the value's own fault was told already. References are
checked only where all names of their section could be read, for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import Host, Price
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster import ClusterDocument
from orchestrator.wire.common import NAME_PATTERN
from orchestrator.wire.faults import Loc, plain, problem, suggestion
from orchestrator.wire.leaf import UNKNOWN, UnknownTouched

NAME = re.compile(NAME_PATTERN)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a section declares. `complete` is False if one of them could not be read."""

    known: tuple[str, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Context:
    """All that the checks of one cluster document share.

    `hosts` has the hosts of each site whose inventory was read, by site name; `unread` the sites whose inventory could
    not be read or has faults: what their hosts are is not known. `prices` has the negotiated prices of each site that
    names a file of them, `unpriced` the sites whose file could not be read.
    """

    document: ClusterDocument
    names: dict[str, Names]
    catalog: Catalog
    hosts: dict[str, tuple[Host, ...]] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    prices: dict[str, tuple[Price, ...]] = field(default_factory=dict)
    unpriced: frozenset[str] = frozenset()


Check = Callable[[Context], Iterator[Found]]


def declared(data: Any) -> dict[str, Names]:
    """The names in a plain document, before anything of it is judged."""
    return {
        "site": _names(data, "sites", required=True),
        "pool": _names(data, "pools", required=True),
        "queue": _names(data, "queues"),
        "storage": _names(data, "storage"),
        "group": _group_names(data),
        "domain": _domain_names(data),
    }


def without_unknown(names: dict[str, Names], data: Any) -> dict[str, Names]:
    """The same names, once the sections are known that could not be read: whatever those name is not known."""
    lost = {what for what, places in _SECTIONS.items() if any(_is_unknown(data, place) for place in places)}
    sites = data.get("sites") if isinstance(data, dict) else None
    if isinstance(sites, list) and any(_is_unknown(site, place) for site in sites for place in _DOMAINS):
        lost.add("domain")
    return {what: Names(one.known, one.complete and what not in lost) for what, one in names.items()}


_SECTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "site": (("sites",),),
    "pool": (("pools",),),
    "queue": (("queues",),),
    "storage": (("storage",),),
    "group": (("access",), ("access", "groups")),
    "domain": (("sites",),),
}
_DOMAINS = (("power",), ("power", "domains"))


def _is_unknown(data: Any, place: tuple[str, ...]) -> bool:
    for step in place:
        data = data.get(step) if isinstance(data, dict) else None
    return data is UNKNOWN


def _names(data: Any, section: str, required: bool = False) -> Names:
    if not isinstance(data, dict) or section not in data:
        return Names(("default",) if section == "queues" else (), not required)
    items = data[section]
    if section == "queues" and isinstance(items, list) and not items:
        return Names(("default",))
    return _names_in(items)


def _names_in(items: Any) -> Names:
    """The `name`s of a list of mappings; a name that is none may be meant by any reference."""
    if not isinstance(items, list):
        return Names((), False)
    found = [item.get("name") if isinstance(item, dict) else None for item in items]
    known = [name for name in found if isinstance(name, str) and NAME.fullmatch(name)]
    return Names(tuple(known), len(known) == len(found))


def _group_names(data: Any) -> Names:
    access = data.get("access", {}) if isinstance(data, dict) else {}
    groups = access.get("groups", {}) if isinstance(access, dict) else None
    if not isinstance(groups, dict):
        return Names((), False)
    return Names(tuple(groups), all(NAME.fullmatch(name) for name in groups))


def _domain_names(data: Any) -> Names:
    sites = data.get("sites") if isinstance(data, dict) else None
    if not isinstance(sites, list):
        return Names((), False)
    known: list[str] = []
    complete = True
    for site in sites:
        power = site.get("power", {}) if isinstance(site, dict) else None
        names = _names_in(power.get("domains", [])) if isinstance(power, dict) else Names((), False)
        known += names.known
        complete = complete and names.complete
    return Names(tuple(known), complete)


def rows(items: Iterable[T]) -> Iterator[tuple[int, T]]:
    """The items of a list that could be read, with their numbers."""
    return ((index, item) for index, item in enumerate(items) if item is not UNKNOWN)


def run(checks: Iterable[Callable[..., Iterator[Found]]], *arguments: Any) -> Iterator[Found]:
    """What each check finds; one that touches an unknown value ends there."""
    for check in checks:
        try:
            yield from check(*arguments)
        except UnknownTouched:
            continue


def sure(*values: object) -> None:
    """Stop the check if one of these is unknown: for values that go into functions of C, which do not touch them."""
    if any(value is UNKNOWN for value in values):
        raise UnknownTouched


def reference(context: Context, loc: Loc, what: str, name: str | None, called: str = "") -> Iterator[Found]:
    """A fault if `name` is none of the section's. `what` is a key of `Context.names`, `called` its word in messages."""
    names = context.names[what]
    if name is None or not names.complete or name in names.known:
        return
    word = called or what
    advice = suggestion(name, list(names.known), word)
    yield Found(loc, problem("spec.dangling-reference", what=word, name=plain(name, 60), advice=advice))


def twice(loc: Loc, items: Iterable[Any]) -> Iterator[Found]:
    """A fault at each item of a list that was listed before."""
    seen: set[Any] = set()
    for index, item in rows(items):
        if item in seen:
            yield Found((*loc, index), problem("spec.duplicate-item", name=item))
        seen.add(item)


def given(document: Any, *fields: str) -> list[str]:
    """Which of these fields the file gives, by their Python names."""
    return [name for name in fields if name in document.model_fields_set]
