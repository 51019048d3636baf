"""Checks of sites, storage and the cluster's own names: references, circles, nodes that do not exist.

Comes in: `Context`. Goes out: faults. Called by: `checks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo, available_timezones

from orchestrator.model.cluster import MADE_STORAGE, Redundancy, StorageKind
from orchestrator.spec.context import Context, reference, rows, run, sure, twice
from orchestrator.spec.nodes import placed
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster import StorageDocument
from orchestrator.wire.cluster_sites import AwsSite, DomainDocument, OwnedSite
from orchestrator.wire.faults import Loc, did_you_mean, problem, shown, suggestion


def timezone(context: Context) -> Iterator[Found]:
    """The zone must be one that Python's time zone data knows."""
    name = context.document.metadata.timezone
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        known = sorted(available_timezones())
        if known:  # a machine without zone data can't tell
            advice = did_you_mean(name, known) or "write it as in Europe/Berlin"
            yield Found(
                ("metadata", "timezone"), problem("spec.unknown-timezone", got=shown(name), advice=advice)
            )


# --- storage ---------------------------------------------------------------------------------------------------------


def storage(context: Context) -> Iterator[Found]:
    """Each file system by itself, then the places where they are mounted."""
    for index, item in rows(context.document.storage):
        loc: Loc = ("storage", index)
        yield from run((_storage_source, _storage_folders), item, loc)
        yield from run((_storage_sites,), context, item, loc)


def _storage_source(item: StorageDocument, loc: Loc) -> Iterator[Found]:
    local = item.kind == StorageKind.LOCAL
    if local and item.source is not None:
        advice = "a local folder has a path only"
        found = problem("spec.not-for-kind", what="storage", kind=item.kind, field="source", advice=advice)
        yield Found((*loc, "source"), found, "key")
    if not local and item.source is None and item.kind not in MADE_STORAGE:
        found = problem("spec.missing-field", field="source", advice="say what is mounted, as in nas1:/home")
        yield Found((*loc, "source"), found, "parent")


def _storage_folders(item: StorageDocument, loc: Loc) -> Iterator[Found]:
    for name in ("per_job", "purge"):
        if getattr(item, name) and item.kind != StorageKind.LOCAL:
            advice = "shared storage keeps its files"
            found = problem("spec.not-for-kind", what="storage", kind=item.kind, field=name, advice=advice)
            yield Found((*loc, name), found, "key")
            return
    if item.purge and not item.per_job:
        advice = "only a folder that belongs to the job is emptied: add per_job: true"
        yield Found(
            (*loc, "purge"), problem("spec.needs-field", field="purge", other="per_job", advice=advice), "key"
        )


def _storage_sites(context: Context, item: StorageDocument, loc: Loc) -> Iterator[Found]:
    for index, name in rows(item.sites):
        yield from reference(context, (*loc, "sites", index), "site", name)
    yield from twice((*loc, "sites"), item.sites)


# --- sites -----------------------------------------------------------------------------------------------------------


def sites(context: Context) -> Iterator[Found]:
    """Zones and power domains of each site."""
    for index, site in rows(context.document.sites):
        loc: Loc = ("sites", index)
        if isinstance(site, AwsSite):
            yield from run((_zones,), site, loc)
            continue
        yield from run((_domain_circles,), site, loc)
        yield from run((_domains,), context, site, loc)


def places(context: Context) -> Iterator[Found]:
    """Nodes that power domains name, and domains that nothing hangs on."""
    for index, site in rows(context.document.sites):
        if not isinstance(site, AwsSite):
            yield from run((_domain_nodes,), context, site, ("sites", index))
            yield from run((_idle_domains,), site, ("sites", index, "power", "domains"))


def _zones(site: AwsSite, loc: Loc) -> Iterator[Found]:
    yield from twice((*loc, "zones"), site.zones)
    sure(site.region)
    for index, zone in rows(site.zones):
        if not zone.startswith(site.region):
            found = problem("spec.zone-elsewhere", zone=zone, region=site.region)
            yield Found((*loc, "zones", index), found)
            return


def _domain_nodes(context: Context, site: OwnedSite, loc: Loc) -> Iterator[Found]:
    here = (*loc, "power", "domains")
    listed = [
        ((*here, index, "nodes"), domain.name, domain.nodes)
        for index, domain in rows(site.power.domains)
        if domain.nodes is not None
    ]
    yield from placed(context, site.name, listed, "power domain")


def _domains(context: Context, site: OwnedSite, loc: Loc) -> Iterator[Found]:
    """Parents and feeds exist on this site, and are one or the other; no domain is without meaning."""
    here = (*loc, "power", "domains")
    names = [domain.name for _, domain in rows(site.power.domains)]
    for index, domain in rows(site.power.domains):
        place = (*here, index)
        yield from run((_feeds, _redundancy), domain, place)
        yield from run((_domain_references,), context, domain, place, names)


def _domain_references(
    context: Context, domain: DomainDocument, loc: Loc, names: list[str]
) -> Iterator[Found]:
    wanted: list[tuple[Loc, str]] = [((*loc, "fed_by", index), name) for index, name in rows(domain.fed_by)]
    if domain.parent is not None:
        wanted.append(((*loc, "parent"), domain.parent))
    for place, name in wanted:
        missing = list(reference(context, place, "domain", name, "power domain"))
        yield from missing
        if not missing and context.names["domain"].complete and name not in names:
            advice = suggestion(name, names, "power domain on this site")
            what = "power domain on this site"
            yield Found(place, problem("spec.dangling-reference", what=what, name=name, advice=advice))


def _feeds(domain: DomainDocument, loc: Loc) -> Iterator[Found]:
    yield from twice((*loc, "fed_by"), domain.fed_by)
    if domain.parent is not None and domain.fed_by:
        advice = "name one parent, or several feeds"
        found = problem("spec.exclusive-fields", field="fed_by", other="parent", advice=advice)
        yield Found((*loc, "fed_by"), found, "key")


def _redundancy(domain: DomainDocument, loc: Loc) -> Iterator[Found]:
    rule, count = domain.redundancy, len(domain.fed_by)
    if rule == Redundancy.TWO_N and count != 2:
        need = "exactly two feeds"
    elif rule == Redundancy.N_PLUS_1 and count < 2:
        need = "two feeds or more"
    else:
        return
    yield Found(
        (*loc, "redundancy"), problem("spec.redundancy-feeds", redundancy=rule, need=need, count=count)
    )


def _idle_domains(site: OwnedSite, here: Loc) -> Iterator[Found]:
    """A domain without a limit makes sense only as a joint of others."""
    used = {name for domain in site.power.domains for name in (domain.parent, *domain.fed_by)}
    for index, domain in rows(site.power.domains):
        if domain.limit_kw is None and domain.name not in used:
            yield Found((*here, index), problem("spec.idle-domain"))


def _domain_circles(site: OwnedSite, loc: Loc) -> Iterator[Found]:
    links: list[Link] = []
    for index, domain in rows(site.power.domains):
        upper = [domain.parent] if domain.parent is not None else list(domain.fed_by)
        field = "parent" if domain.parent is not None else "fed_by"
        links.append(Link((*loc, "power", "domains", index, field), domain.name, upper))
    yield from circles(links)


@dataclass(frozen=True, slots=True)
class Link:
    """Something named that lies under others; `loc` is where it says so."""

    loc: Loc
    name: str
    upper: Sequence[str]


def circles(links: list[Link]) -> Iterator[Found]:
    """One fault for each circle, at its first member."""
    above = {link.name: link.upper for link in links}
    told: set[str] = set()
    for link in links:
        chain = _circle_from(link.name, above)
        if chain and not told & set(chain):
            told |= set(chain)
            yield Found(link.loc, problem("spec.cycle", chain=" -> ".join(chain)))


def _circle_from(start: str, above: dict[str, Sequence[str]]) -> list[str]:
    """A way from `start` over those above it back to itself, or nothing."""
    came_from: dict[str, str] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        for upper in above.get(name, ()):
            if upper == start:
                chain = [start, name]
                while chain[-1] != start:
                    chain.append(came_from[chain[-1]])
                return chain[::-1] if name != start else [start, start]
            if upper in above and upper not in came_from:
                came_from[upper] = name
                waiting.append(upper)
    return []


NAMES = (timezone, storage, sites)
PLACES = (places,)
