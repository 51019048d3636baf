"""Checks of pools: what a pool needs depends on the kind of its site; a node stands in one pool only.

Comes in: `Context`. Goes out: faults. Called by: `checks`.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model.cluster import Emulate, Market
from orchestrator.spec.context import Context, given, reference, rows, run
from orchestrator.spec.gpus import types_of
from orchestrator.spec.nodes import more
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster_pools import OfferingDocument, PoolDocument
from orchestrator.wire.cluster_sites import AwsSite, MetalSite
from orchestrator.wire.faults import Loc, did_you_mean, problem, suggestion

NUMBERS = ("size", "offerings")
BOUGHT_ONLY = (*NUMBERS, "image", "root_volume", "public_address")
ELASTIC = "`size` for nodes that are bought when work waits"
FIXED = "`nodes` for some that are always there"
WHAT_TO_BUY = "say what may be bought, as in offerings: [{type: p5.48xlarge, market: on_demand}]"
RESERVED = (Market.CAPACITY_RESERVATION, Market.CAPACITY_BLOCK)


def pools(context: Context) -> Iterator[Found]:
    """Each pool by itself."""
    for index, pool in rows(context.document.pools):
        loc: Loc = ("pools", index)
        yield from run((_site, _gpu_model, _mig, _for_site, _gpu_of_type), context, pool, loc)
        yield from run((_size, _offerings, _kept), pool, loc)


def _site(context: Context, pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    yield from reference(context, (*loc, "site"), "site", pool.site)


def _gpu_model(context: Context, pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    gpu = pool.gpu
    if gpu is None or gpu.model in context.catalog.gpus:
        return
    if gpu.memory is not None and gpu.max_watts is not None:
        return
    near = did_you_mean(gpu.model, list(context.catalog.gpus))
    advice = near or "say what it is: add gpu.memory and gpu.max_watts"
    yield Found((*loc, "gpu", "model"), problem("spec.unknown-gpu-model", name=gpu.model, advice=advice))


def _mig(context: Context, pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    """The catalog knows how the model is divided. Real GPUs are divided by nothing yet, and no whole one may take the
    place of an instance."""
    gpu = pool.gpu
    if gpu is None or not gpu.mig:
        return
    model = context.catalog.gpus.get(gpu.model)
    told = model is not None or (gpu.memory is not None and gpu.max_watts is not None)
    if told and (model is None or model.mig is None):
        known = ", ".join(sorted(one.name for one in context.catalog.gpus.values() if one.mig is not None))
        yield Found((*loc, "gpu", "mig"), problem("spec.no-mig", name=gpu.model, known=known), "key")
    if gpu.emulate != Emulate.ALWAYS:
        bought = bool(given(pool, "offerings"))
        advice = "leave 'mig' out" if bought else "add emulate: always, to try things out, or leave 'mig' out"
        yield Found((*loc, "gpu", "mig"), problem("spec.mig-not-real", advice=advice), "key")


def _for_site(context: Context, pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    """The fields that go with the kind of the pool's site."""
    site = next((site for _, site in rows(context.document.sites) if site.name == pool.site), None)
    if site is None:
        return
    bought = isinstance(site, AwsSite)
    fixed = bought and pool.nodes is not None
    needed = ["offerings"] if bought else ["nodes"]
    for field in given(pool, *BOUGHT_ONLY) if not bought else ():
        advice = "its nodes are listed in `nodes`" if field in NUMBERS else "its nodes are not bought"
        yield _misplaced(pool, site.kind, (*loc, field), field, advice)
    if fixed and given(pool, "size"):
        advice = f"keep {FIXED}, or {ELASTIC}"
        found = problem("spec.exclusive-fields", field="size", other="nodes", advice=advice)
        yield Found((*loc, "size"), found, "key")
    if bought and not fixed and not given(pool, "size"):
        advice = f"add {ELASTIC}, or {FIXED}"
        yield Found(
            (*loc, "size"), problem("spec.needs-one-of", fields="size, nodes", advice=advice), "parent"
        )
    if not bought and pool.fabric is not None and given(pool.fabric, "placement"):
        loc_of = (*loc, "fabric", "placement")
        yield _misplaced(pool, site.kind, loc_of, "fabric.placement", "its nodes are not bought")
    for field in needed:
        if field not in pool.model_fields_set:
            advice = WHAT_TO_BUY if bought else f"a pool on a site of kind {site.kind} needs it"
            yield Found((*loc, field), problem("spec.missing-field", field=field, advice=advice), "parent")
    if bought and given(pool, "offerings") and not len(pool.offerings):
        yield Found((*loc, "offerings"), problem("spec.empty-value", what="a list of offerings"))
    if pool.gpu is not None and bought and given(pool.gpu, "emulate"):
        advice = "GPUs that are bought are real"
        yield _misplaced(pool, site.kind, (*loc, "gpu", "emulate"), "gpu.emulate", advice)


def _misplaced(pool: PoolDocument, kind: str, loc: Loc, field: str, advice: str) -> Found:
    what = "pool on a site"
    return Found(loc, problem("spec.not-for-kind", what=what, kind=kind, field=field, advice=advice), "key")


def _kept(pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    """Nodes are bought by what they have in all."""
    for field in given(pool, "keep_cores_per_gpu", "keep_memory_per_gpu") if given(pool, "size") else ():
        advice = "buy nodes without GPUs for work without GPUs"
        found = problem("spec.exclusive-fields", field=field, other="size", advice=advice)
        yield Found((*loc, field), found, "key")


def _gpu_of_type(context: Context, pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    """A bought pool may say its GPUs; then every type that the catalog knows must have them. Without, all have as
    many."""
    if pool.gpu is None:
        yield from _as_many(context, pool, loc)
        return
    for _, offering in rows(pool.offerings):
        for name in offering.type:
            known = context.catalog.instances.get(name)
            if known and (known.gpu_model, known.gpus) != (pool.gpu.model, pool.gpu.count):
                has, wanted = f"{known.gpus} {known.gpu_model}", f"{pool.gpu.count} {pool.gpu.model}"
                found = problem("spec.gpu-not-of-type", type=name, has=has, wanted=wanted)
                yield Found((*loc, "gpu"), found, "key")
                return


def _as_many(context: Context, pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    types = types_of(context, pool) or []
    other = next((one for one in types if one.gpus != types[0].gpus), None)
    if other is not None:
        first = types[0]
        found = problem(
            "spec.types-differ", one=first.name, has=first.gpus, other=other.name, more=other.gpus
        )
        yield Found((*loc, "offerings"), found, "key")


def _size(pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    size = pool.size
    if size is not None and size.min > size.max:
        found = problem("spec.min-over-max", low_name="min", low=size.min, high_name="max", high=size.max)
        yield Found((*loc, "size", "min"), found)


def _offerings(pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    for index, offering in rows(pool.offerings):
        yield from run((_reservation, _types), offering, (*loc, "offerings", index))


def _reservation(offering: OfferingDocument, loc: Loc) -> Iterator[Found]:
    if offering.market == Market.OWNED:
        advice = "owned nodes are listed in a pool of a metal site"
        found = problem(
            "spec.not-for-kind", what="pool on a site", kind="aws", field="market: owned", advice=advice
        )
        yield Found((*loc, "market"), found)
        return
    reserved = offering.market in RESERVED
    if reserved and offering.reservation is None:
        advice = f"market {offering.market} needs the id of what was reserved"
        yield Found(
            (*loc, "reservation"), problem("spec.missing-field", field="reservation", advice=advice), "parent"
        )
    if not reserved and offering.reservation is not None:
        advice = "remove it, or write market: capacity_reservation (or capacity_block)"
        found = problem(
            "spec.not-for-kind", what="market", kind=offering.market, field="reservation", advice=advice
        )
        yield Found((*loc, "reservation"), found, "key")


def _types(offering: OfferingDocument, loc: Loc) -> Iterator[Found]:
    seen: set[str] = set()
    for index, name in enumerate(offering.type):
        if name in seen:
            yield Found((*loc, "type", index), problem("spec.duplicate-item", name=name))
        seen.add(name)


def in_inventory(context: Context) -> Iterator[Found]:
    """Nodes of metal pools are hosts of the inventory, if the site names one."""
    for index, pool in rows(context.document.pools):
        yield from run((_in_inventory,), context, pool, ("pools", index))


def _in_inventory(context: Context, pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    if pool.nodes is None or pool.site in context.unread or pool.site not in context.hosts:
        return
    hosts = {host.name for host in context.hosts[pool.site]}
    missing = [node for node in pool.nodes if node not in hosts]
    if missing:
        site = next(site for _, site in rows(context.document.sites) if site.name == pool.site)
        name = site.inventory if isinstance(site, MetalSite) else ""
        advice = suggestion(missing[0], sorted(hosts)[:1000], "host")
        found = problem(
            "spec.node-unknown", node=missing[0], more=more(missing), where=f"in {name}", advice=advice
        )
        yield Found((*loc, "nodes"), found)


def nodes_once(context: Context) -> Iterator[Found]:
    """A node stands in one pool only."""
    owner: dict[str, str] = {}
    for index, pool in rows(context.document.pools):
        yield from run((_nodes_once,), pool, owner, ("pools", index, "nodes"))


def _nodes_once(pool: PoolDocument, owner: dict[str, str], loc: Loc) -> Iterator[Found]:
    nodes = pool.nodes or ()
    again = [node for node in nodes if node in owner]
    if again:
        other = f"pool {owner[again[0]]}"
        yield Found(
            loc, problem("spec.node-twice", node=again[0], more=more(again), other=other, what="pool")
        )
    owner.update((node, str(pool.name)) for node in nodes if node not in owner)


NAMES = (pools,)
PLACES = (nodes_once, in_inventory)
