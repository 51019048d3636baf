"""The check that power carries what queues are guaranteed: in each power domain, always and in each budget's window.

Comes in: `Context`. Goes out: faults. Called by: `checks`.

Counted are the board limits of the guaranteed GPUs and `unmanaged_kw`, nothing else, so that whatever is told here is
certain. Guaranteed GPUs are taken to run where they burden the domain least. Nodes that no domain names hang on the
site's root domain if there is exactly one. A domain with several feeds burdens each by its share: all of it under 2N,
1/n under N, 1/(n-1) under N+1, and their common parent once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from orchestrator.model.cluster import Redundancy
from orchestrator.spec.checks_sums import counted_guarantees
from orchestrator.spec.context import Context, rows, run
from orchestrator.spec.gpus import gpu_watts
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster_pools import PoolDocument
from orchestrator.wire.cluster_sites import AwsSite, DomainDocument, OwnedSite
from orchestrator.wire.faults import Loc, Problem, problem
from orchestrator.wire.leaf import UnknownTouched
from orchestrator.wire.quantities import DAYS, day_time_text

Domains = dict[str, DomainDocument]
Shares = dict[str, dict[str, Fraction]]
_Guaranteed = tuple[PoolDocument, int, dict[str, dict[Fraction, int]]]


def power(context: Context) -> Iterator[Found]:
    """Each domain of each site that is powered by its own."""
    for index, site in rows(context.document.sites):
        if not isinstance(site, AwsSite):
            yield from run((_site_power,), context, site, ("sites", index, "power", "domains"))


def _site_power(context: Context, site: OwnedSite, loc: Loc) -> Iterator[Found]:
    domains = {domain.name: domain for domain in site.power.domains}
    _require_sound(domains)
    guaranteed = _guaranteed(context, site.name)
    shares = _shares(domains)
    unmanaged = _unmanaged(domains, shares)
    pools = [
        (pool, guaranteed[pool.name], _nodes_by_share(pool, domains, shares))
        for pool in context.document.pools
        if pool.site == site.name and guaranteed.get(pool.name)
    ]
    for index, domain in enumerate(site.power.domains):
        yield from run((_one_domain,), context, domain, unmanaged[domain.name], pools, (*loc, index))


def _require_sound(domains: Domains) -> None:
    """Circles and dangling names are told elsewhere; sums over them mean nothing."""
    for name in domains:
        seen, waiting = set(), [name]
        while waiting:
            for upper in _uppers(domains[waiting.pop()]):
                if upper not in domains or upper == name:
                    raise UnknownTouched
                if upper not in seen:
                    seen.add(upper)
                    waiting.append(upper)


def _uppers(domain: DomainDocument) -> list[str]:
    return [domain.parent] if domain.parent is not None else list(domain.fed_by)


def _guaranteed(context: Context, site: str) -> dict[str, int]:
    """GPUs guaranteed by pool; guarantees by model are not tied to a place and are left out."""
    sums: dict[str, int] = {}
    for one in counted_guarantees(context):
        if one.key[0] == "pool":
            sums[one.key[1]] = sums.get(one.key[1], 0) + one.gpus
    return sums


def _one_domain(
    context: Context, domain: DomainDocument, unmanaged: int, pools: list[_Guaranteed], loc: Loc
) -> Iterator[Found]:
    need = Fraction(unmanaged)
    for pool, gpus, nodes in pools:
        need += _least_load(context, pool, gpus, nodes[domain.name])
    if domain.limit_kw is not None and need > domain.limit_kw * domain.derate // 1000:
        limit = domain.limit_kw * domain.derate // 1000
        yield Found((*loc, "limit_kw"), _told(domain.name, limit, need, "at any time"))
        return
    yield from _windows(context, domain.name, need)


def _windows(context: Context, domain: str, need: Fraction) -> Iterator[Found]:
    for index, budget in rows(context.document.budgets):
        if budget.domain != domain:
            continue
        for number, window in rows(budget.windows):
            if need > window.limit_kw:
                days = "-".join(dict.fromkeys((DAYS[window.days[0]], DAYS[window.days[-1]])))
                when = f"in the window {days} {day_time_text(window.from_)}-{day_time_text(window.to)}"
                loc: Loc = ("budgets", index, "windows", number, "limit_kw")
                yield Found(loc, _told(domain, window.limit_kw, need, when))


def _told(domain: str, limit: int, need: Fraction, when: str) -> Problem:
    values = {"domain": domain, "limit": _kw(Fraction(limit)), "need": _kw(need), "when": when}
    return problem(
        "spec.guarantee-over-power",
        working=f"{_kw(need)} kW are GPUs at full power and unmanaged_kw",
        **values,
    )


def _kw(watts: Fraction) -> str:
    return f"{float(watts) / 1000:g}"


def _unmanaged(domains: Domains, shares: Shares) -> dict[str, int]:
    """What hangs on each domain and those under it besides nodes; feeds of one load are not counted twice."""
    sums = {name: domain.unmanaged_kw for name, domain in domains.items()}
    for name, under in domains.items():
        for upper in shares[name] if under.parent is not None else ():
            if upper != name:
                sums[upper] += under.unmanaged_kw
    return sums


def _shares(domains: Domains) -> Shares:
    """For each domain, the part of its load that flows through itself and each domain above it."""
    found: Shares = {}

    def of(name: str) -> dict[str, Fraction]:
        if name not in found:
            found[name] = {**_above(domains[name], of), name: Fraction(1)}
        return found[name]

    for name in domains:
        of(name)
    return found


def _above(lower: DomainDocument, of: Callable[[str], dict[str, Fraction]]) -> dict[str, Fraction]:
    if lower.parent is not None:
        return of(lower.parent)
    feeds = list(lower.fed_by)
    each = {
        Redundancy.N: Fraction(1, max(1, len(feeds))),
        Redundancy.N_PLUS_1: Fraction(1, max(1, len(feeds) - 1)),
        Redundancy.TWO_N: Fraction(1),
    }[lower.redundancy]
    sums: dict[str, Fraction] = {}
    for feed in feeds:
        for upper, share in of(feed).items():
            sums[upper] = sums.get(upper, Fraction(0)) + each * share
    return {upper: min(Fraction(1), share) for upper, share in sums.items()}


def _least_load(context: Context, pool: PoolDocument, gpus: int, nodes: dict[Fraction, int]) -> Fraction:
    """The least watts that `gpus` guaranteed GPUs of a pool put on a domain."""
    watts = gpu_watts(context, pool)
    if watts is None or pool.gpu is None:
        return Fraction(0)
    load, left = Fraction(0), gpus
    for share in sorted(nodes):
        here = min(left, nodes[share] * pool.gpu.count)
        load += here * watts * share
        left -= here
    return load


def _nodes_by_share(pool: PoolDocument, domains: Domains, shares: Shares) -> dict[str, dict[Fraction, int]]:
    """For each domain, how many nodes of a pool load it by which share."""
    rest = set(pool.nodes or ())
    total = len(rest)
    found: dict[str, dict[Fraction, int]] = {name: {} for name in domains}
    roots = [name for name, domain in domains.items() if not _uppers(domain)]
    inside = {}
    for name, domain in domains.items():
        here = rest.intersection(domain.nodes or ())
        rest -= here
        inside[name] = len(here)
    if len(roots) == 1:
        inside[roots[0]] += len(rest)
    for under, count in inside.items():
        for upper, share in shares[under].items() if count else ():
            found[upper][share] = found[upper].get(share, 0) + count
    for counts in found.values():
        counts[Fraction(0)] = counts.get(Fraction(0), 0) + total - sum(counts.values())
    return found


SUMS = (power,)
