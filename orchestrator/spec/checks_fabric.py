"""Checks of a site's fabric: its levels, and what their domains hold.

Comes in: `Context`. Goes out: faults. Called by: `checks`.

A domain's members are domains of the level inside, the nearest one of which the file tells anything, or nodes of the
site. A node that no domain of a level holds is allowed: gangs that require the level don't go there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.model.cluster import UNIT_LEVEL
from orchestrator.spec.context import Context, rows, run, sure, twice
from orchestrator.spec.nodes import more, nodes_of_site, placed
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster_sites import AwsSite, FabricDocument, OwnedSite
from orchestrator.wire.faults import Loc, did_you_mean, problem, suggestion
from orchestrator.wire.leaf import UNKNOWN

Nodes = Mapping[str, Any]  # domain -> its nodes


def fabrics(context: Context) -> Iterator[Found]:
    """Levels by themselves, and domains of levels that there are not."""
    for index, site in rows(context.document.sites):
        if not isinstance(site, AwsSite):
            yield from run((_levels, _levels_of_domains), site, ("sites", index, "fabric"))


def members(context: Context) -> Iterator[Found]:
    """Nodes that units name, and what domains hold."""
    for index, site in rows(context.document.sites):
        if not isinstance(site, AwsSite):
            yield from run((_units, _domains), context, site, ("sites", index, "fabric"))


def _levels(site: OwnedSite, loc: Loc) -> Iterator[Found]:
    yield from twice((*loc, "levels"), site.fabric.levels)


def _levels_of_domains(site: OwnedSite, loc: Loc) -> Iterator[Found]:
    known = list(site.fabric.levels)
    sure(*known)
    for level in site.fabric.domains:
        here = (*loc, "domains", level)
        if level == UNIT_LEVEL:
            advice = "units are the domains of that level: write them there"
            found = problem("spec.exclusive-fields", field="domains.unit", other="units", advice=advice)
            yield Found(here, found, "key")
        elif level not in known:
            advice = did_you_mean(level, known) or "add it to `levels`, from inside out"
            what = "topology level"
            yield Found(here, problem("spec.dangling-reference", what=what, name=level, advice=advice), "key")


def _units(context: Context, site: OwnedSite, loc: Loc) -> Iterator[Found]:
    listed = [((*loc, "units", name), name, nodes) for name, nodes in site.fabric.units.items()]
    yield from placed(context, site.name, listed, UNIT_LEVEL)


def _domains(context: Context, site: OwnedSite, loc: Loc) -> Iterator[Found]:
    """Level by level from inside out, since a domain's nodes follow from what lies inside it."""
    known = nodes_of_site(context, site.name)
    if known is None:
        return
    around = _Around(known, "", {})
    for level in site.fabric.levels:
        here = _of_level(site.fabric, level)
        if level != UNIT_LEVEL:
            yield from run((_one_level,), around, level, here, (*loc, "domains", level))
        if here:
            around = _Around(known, level, {name: around.nodes(holds) for name, holds in here.items()})


@dataclass(frozen=True, slots=True)
class _Around:
    """What members of a domain may be: nodes of the site, or domains of the level inside with their nodes."""

    known: frozenset[str]
    level: str
    inner: Nodes

    def nodes(self, holds: Any) -> Any:
        """The nodes of a domain; UNKNOWN if one of its members could not be read."""
        if holds is UNKNOWN or any(self.inner.get(member) is UNKNOWN for member in holds):
            return UNKNOWN
        return tuple(node for member in holds for node in self.inner.get(member, (member,)))


def _one_level(around: _Around, level: str, domains: Nodes, loc: Loc) -> Iterator[Found]:
    taken: dict[str, str] = {}
    for name, holds in domains.items():
        yield from run((_members,), around, (*loc, name), holds)
        yield from run((_again,), around.nodes(holds), (level, name), taken, (*loc, name))


def _members(around: _Around, loc: Loc, holds: Any) -> Iterator[Found]:
    strange = [one for one in holds if one not in around.inner and one not in around.known]
    if strange:
        what = f"{around.level} or node of this site" if around.level else "node of this site"
        likely = [*around.inner, *sorted(around.known)[:1000]]
        advice = suggestion(strange[0], likely, what)
        yield Found(loc, problem("spec.dangling-reference", what=what, name=strange[0], advice=advice))


def _again(nodes: Any, domain: tuple[str, str], taken: dict[str, str], loc: Loc) -> Iterator[Found]:
    """A node in two domains of one level, or twice in one: by itself and in a domain inside."""
    level, name = domain
    again: list[str] = []
    for node in nodes:
        if node in taken:
            again.append(node)
        taken.setdefault(node, name)
    if again:
        other = f"{level} {taken[again[0]]}"
        yield Found(loc, problem("spec.node-twice", node=again[0], more=more(again), other=other, what=level))


def _of_level(fabric: FabricDocument, level: str) -> Nodes:
    return fabric.units if level == UNIT_LEVEL else fabric.domains.get(level, {})


NAMES = (fabrics,)
PLACES = (members,)
