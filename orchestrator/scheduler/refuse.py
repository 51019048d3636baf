"""What can never run, and what stops everything: reasons that no end of other work takes away.

Comes in: State, a job as asked for. Goes out: a `Reason`, or None. Called by: controller (at submit, so that a job
that can never run is refused there), what_if, cycle (what stops the whole pass, limits in words).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod

from orchestrator.ledger.capacity import WHOLE
from orchestrator.ledger.hours import HOURS
from orchestrator.ledger.limits import Amounts, Binding, keepers_words, kept_back, scope_words
from orchestrator.ledger.scopes import queue_scope, user_ceilings
from orchestrator.ledger.state import State
from orchestrator.model.capacity import Shape
from orchestrator.model.cluster import NODE_LEVEL, ClusterSpec, Pool, Queue
from orchestrator.model.counted import Has, by_the_file, counted_in, counted_milli
from orchestrator.model.job import JobSpec
from orchestrator.model.need import (
    SITE_LEVEL,
    Need,
    devices_of,
    gangs_of,
    known_levels,
    labels_of,
    lacking,
    levels_of,
    models_of,
    need_of,
    pools_for,
    profile_in,
    share_of,
)
from orchestrator.model.node import Contact
from orchestrator.model.reasons import Reason, amount_words, dimension_words, reason
from orchestrator.scheduler import spend

MOST_CHOICES = 64  # of pools for all groups
SHORTEST_MONTH_S = 28 * 86400 - 3600  # of a February in which summer time begins
UNKNOWN = 1 << 62  # cores or bytes of a node that has not reported yet: more than any job asks


def stop_reason(state: State) -> Reason | None:
    """Why nothing at all may start now, or None."""
    if state.cluster is None:
        return reason("wait.no-cluster")
    if state.recovering:
        silent = sum(1 for node in state.nodes.values() if node.contact is not Contact.OK)
        return reason("wait.recovering", silent=silent)
    return None


def never(
    state: State, spec: JobSpec, owner: str, shapes: Mapping[str, Shape] | None = None
) -> Reason | None:
    """Why the job can't run however long it waits on the cluster as wanted now; None if it can. `shapes`: of a bought
    pool's nodes, the largest that it may buy."""
    return forbidden(state, spec, owner) or impossible(state, spec, shapes)


def may_wait(found: Reason) -> bool:
    """Whether a job that can never run may be queued all the same, for a cluster that is still to come: not against a
    rule of its queue, nor with a share that no device can have, which such a cluster would not change."""
    code = found.fact("rule") or found.code  # of a group, what stands in its way
    return code not in (
        "never.queue",
        "never.time-limit",
        "never.limit",
        "never.gpu-hours",
        "never.lent",
        "never.spending",
        "never.share",
    )


def forbidden(state: State, spec: JobSpec, owner: str) -> Reason | None:
    """A rule of its queue that the job alone would break, that there is no such queue, or what no pass acts on yet."""
    if state.cluster is None:
        return None  # nothing is known yet; it waits with that reason
    queue = state.queue(spec.queue)
    if queue is None:
        known = ", ".join(queue.name for queue in state.cluster.queues)
        return reason("never.queue", queue=spec.queue, known=known)
    most = queue.limits.max_time_limit_s
    if most and spec.time_limit_s > most:
        return reason("never.time-limit", queue=queue.name, max_s=most, asked_s=spec.time_limit_s)
    return (
        _never_limit(state, spec, owner, queue)
        or _never_hours(state, spec, queue)
        or _never_lent(state, spec, queue)
        or spend.never_paid(state, spec, queue.name)
    )


def impossible(state: State, spec: JobSpec, shapes: Mapping[str, Shape] | None = None) -> Reason | None:
    """Why no node, pool or domain of the cluster as wanted could ever hold the gang. Only what is certain counts: what
    nodes that have not reported may turn out to have is no reason."""
    cluster = state.cluster
    if cluster is None:
        return None
    if spec.request.groups:
        return _groups_impossible(state, cluster, spec, shapes or {})
    fitting = list(pools_for(cluster, spec))
    found = _nobody_has(cluster, spec)
    if found is not None or not (fitting or cluster.pools):
        return found
    return (
        _too_large_a_share(state, spec, fitting)
        or _too_many(state, spec, fitting, shapes or {})
        or _too_much_power(state, spec, fitting)
    )


# --- what the job names ---------------------------------------------------------------------------------------


def _nobody_has(cluster: ClusterSpec, spec: JobSpec) -> Reason | None:
    """Something that the job names and no pool has; of things that no pool has together, all."""
    pools = cluster.pools
    models, labels = models_of(spec), labels_of(spec)
    if models and not any(_of(pool, models) for pool in pools):
        return reason("never.model", models=", ".join(models), known=_models_words(pools))
    if labels and not any(set(labels) <= set(pool.labels) for pool in pools):
        known = sorted({label for pool in pools for label in pool.labels})
        return reason("never.labels", labels=_labels_words(labels), known=_labels_words(known) or "no labels")
    mig = share_of(spec).mig
    if mig and not any(profile_in(pool, mig) for pool in pools if not models or _of(pool, models)):
        return reason("never.mig", profile=mig, known=_profiles_words(pools))
    for level in (spec.topology.required, spec.topology.preferred, spec.topology.segment_level):
        if level and level not in known_levels(cluster):
            return reason("never.level", level=level, known=", ".join(known_levels(cluster)))
    if pools and all(lacking(cluster, pool, spec) for pool in pools):
        fewest = min((lacking(cluster, pool, spec) for pool in pools), key=len)
        return reason("never.storage", needs=", ".join(spec.needs), lacking=", ".join(fewest))
    return _nobody_has_all(cluster, spec)


def _nobody_has_all(cluster: ClusterSpec, spec: JobSpec) -> Reason | None:
    named = [
        *(f"GPUs of model {model}" for model in (" or ".join(models_of(spec)),) if model),
        *(f"MIG profile {mig}" for mig in (share_of(spec).mig,) if mig),
        *(f"label {_labels_words((label,))}" for label in labels_of(spec)),
        *(f"level {level}" for level in levels_of(spec)),
        *(f"storage {name}" for name in spec.needs),
    ]
    if len(named) < 2 or not cluster.pools or any(True for _ in pools_for(cluster, spec)):
        return None
    return reason("never.together", named=", ".join(named))


def _of(pool: Pool, models: tuple[str, ...]) -> bool:
    """Whether all GPUs of the pool are of these models."""
    return pool.gpu is not None and set(pool.gpu.models()) <= set(models)


def _profiles_words(pools: tuple[Pool, ...]) -> str:
    """`1g.10gb, 3g.40gb in pool h100`, pool by pool."""
    divided = ((pool.name, pool.gpu.layout) for pool in pools if pool.gpu is not None and pool.gpu.mig)
    words = [f"{', '.join(layout.names())} in pool {name}" for name, layout in divided if layout is not None]
    return "; ".join(words) or "none"


def _models_words(pools: tuple[Pool, ...]) -> str:
    return ", ".join(sorted({name for pool in pools if pool.gpu for name in pool.gpu.models()})) or "no GPUs"


def _labels_words(labels: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels)


# --- one device -----------------------------------------------------------------------------------------------


def _too_large_a_share(state: State, spec: JobSpec, fitting: list[Pool]) -> Reason | None:
    """A share of one device that is more than a device, or more memory than any has."""
    need = need_of(spec)
    if need.shares and need.milli > WHOLE:
        return reason("never.share", share=amount_words("gpus", need.milli))
    if not need.device_bytes:
        return None
    pools = [pool for pool in fitting if pool.gpu is not None]
    sizes = [_device_memory(state, pool) for pool in pools]
    most = max(sizes, default=UNKNOWN)
    if most >= need.device_bytes:
        return None
    pool = pools[sizes.index(most)]
    return reason("never.device-memory", memory=need.device_bytes, memory_left=most, pool=pool.name)


def _device_memory(state: State, pool: Pool) -> int:
    """Bytes of the largest device that a node of the pool has or may have."""
    said = pool.gpu.memory if pool.gpu is not None else 0
    rows = _rows(state, pool)
    if said:
        return max([said, *(int(state.capacity.device_memory[row].max()) for row in rows)])
    if pool.size is not None or len(rows) < len(pool.nodes):
        return UNKNOWN
    found = [int(state.capacity.device_memory[row].max()) for row in rows]
    return max((size or UNKNOWN for size in found), default=UNKNOWN)


def _rows(state: State, pool: Pool) -> list[int]:
    """Rows of the wanted nodes that are known."""
    index = state.capacity.index
    return [index[name] for name in pool.nodes if name in index]


# --- the gang -------------------------------------------------------------------------------------------------


def _too_many(state: State, spec: JobSpec, fitting: list[Pool], shapes: Mapping[str, Shape]) -> Reason | None:
    """More units than the best pool takes when empty, or than the best domain of the level that they must stay in."""
    need = need_of(spec)
    most = {pool.name: _most_units(state, pool, need, shapes.get(pool.name)) for pool in fitting}
    best = max(most.values(), default=0)
    if best < need.units:
        if need.mig:
            return _too_many_instances(need, best)
        shape = {"gpus": need.gpus, "cores": need.cores, "memory": need.memory}
        if need.spread:
            return reason("never.nodes", nodes=need.units, **shape, most=best)
        if need.shares:
            share = amount_words("gpus", need.milli)
            return reason("never.shares", tasks=need.units, share=share, most=best)
        return reason("never.tasks", tasks=need.units, **shape, most=best)
    large = [pool for pool in fitting if most[pool.name] >= need.units]
    found = None
    if spec.topology.required not in ("", SITE_LEVEL):
        found = _too_many_for_domains(state, spec, large)
    if found is None and spec.topology.segment_nodes and spec.topology.segment_level != SITE_LEVEL:
        found = _too_many_segments(state, spec, large)
    return found


def _too_many_instances(need: Need, most: int) -> Reason:
    what = "node(s)" if need.spread else "task(s)"
    shape = {"count": need.gpus, "cores": need.cores, "memory": need.memory}
    return reason("never.instances", units=need.units, what=what, profile=need.mig, **shape, most=most)


def _too_many_for_domains(state: State, spec: JobSpec, pools: list[Pool]) -> Reason | None:
    need, level = need_of(spec), spec.topology.required
    best = ("-", 0, pools[0].name)
    for pool in pools:
        for name, units in _units_by_domain(state, pool, level, need):
            if units >= need.units:
                return None
            if units > best[1]:
                best = (name, units, pool.name)
    domain, most, pool_name = best
    what = "nodes" if need.spread else "tasks"
    return reason(
        "never.domain", units=need.units, what=what, level=level, domain=domain, most=most, pool=pool_name
    )


def _too_many_segments(state: State, spec: JobSpec, pools: list[Pool]) -> Reason | None:
    """More whole segments than any domain that the gang must stay in has room for when empty."""
    need, wish = need_of(spec), spec.topology
    size, best = wish.segment_nodes, ("-", 0, pools[0].name)
    for pool in pools:
        everywhere = {f"pool {pool.name}": pool.nodes}
        outer = {
            f"{wish.required} {name}": nodes for name, nodes in _domains(state, pool, wish.required).items()
        }
        inner = _domains(state, pool, wish.segment_level)
        for name, nodes in (outer or everywhere).items():
            inside = dict.fromkeys(nodes)
            count = sum(
                sum(_units_of(state, pool, node, need) for node in home if node in inside) // size
                for home in inner.values()
            )
            if count * size >= need.units:
                return None
            if count > best[1]:
                best = (name, count, pool.name)
    return reason(
        "never.segments",
        segments=need.units // size,
        nodes=size,
        level=wish.segment_level,
        domain=best[0],
        most=best[1],
        pool=best[2],
    )


# --- groups ---------------------------------------------------------------------------------------------------


def _groups_impossible(
    state: State, cluster: ClusterSpec, spec: JobSpec, shapes: Mapping[str, Shape]
) -> Reason | None:
    """A group that can't run by itself; groups that no site has together; too few nodes for each to have its own."""
    gangs = gangs_of(spec)
    for group, gang in zip(spec.request.groups, gangs, strict=True):
        found = impossible(state, gang, shapes)
        if found is not None:
            return reason("never.group", group=group.name, why=found.sentence(), rule=found.code)
    fitting = [list(pools_for(cluster, gang)) for gang in gangs]
    sites = [[pool.site for pool in pools] for pools in fitting]
    if not any(all(site.name in of_group for of_group in sites) for site in cluster.sites):
        pairs = zip(spec.request.groups, sites, strict=True)
        words = "; ".join(f"{group.name} in {', '.join(dict.fromkeys(found))}" for group, found in pairs)
        return reason("never.groups-apart", words=words)
    return _too_few_nodes(state, gangs, fitting, shapes)


def _too_few_nodes(
    state: State, gangs: tuple[JobSpec, ...], fitting: list[list[Pool]], shapes: Mapping[str, Shape]
) -> Reason | None:
    """No choice of pools has as many nodes as the groups take at least. Only what is certain counts: where there are
    more choices than are looked at, it may wait."""
    lacking: Reason | None = None
    for number, way in enumerate(product(*fitting)):
        counts: dict[str, int] = {}
        for gang, pool in zip(gangs, way, strict=True):
            least = _least_nodes(state, pool, need_of(gang), shapes.get(pool.name))
            counts[pool.name] = counts.get(pool.name, 0) + least
        over = next((pool for pool in way if counts[pool.name] > pool.most_nodes()), None)
        near = len(dict.fromkeys(pool.site for pool in way)) == 1
        if (near and over is None) or number >= MOST_CHOICES:
            return None
        if near and over is not None and lacking is None:
            nodes, most = counts[over.name], over.most_nodes()
            lacking = reason("never.groups", nodes=nodes, pool=over.name, most=most)
    return lacking


def _least_nodes(state: State, pool: Pool, need: Need, shape: Shape | None) -> int:
    """As few of its nodes as can hold the group."""
    if need.spread:
        return need.units
    kinds = state.capacity.kinds.get(pool.name, {})
    sizes = [(shape.cores, shape.memory)] if shape is not None else [*kinds]
    if shape is None and sum(kinds.values()) < pool.most_nodes():
        sizes.append((pool.cores, pool.memory))
    gpus = _devices(pool, need)
    each = max(need.units_on(gpus, cores or UNKNOWN, memory or UNKNOWN) for cores, memory in sizes)
    return -(-need.units // each) if each else need.units


def _units_by_domain(state: State, pool: Pool, level: str, need: Need) -> Iterator[tuple[str, int]]:
    """Each domain of the level with the units that the pool's nodes in it take when empty."""
    for name, nodes in _domains(state, pool, level).items():
        yield name, sum(_units_of(state, pool, node, need) for node in nodes)


def _domains(state: State, pool: Pool, level: str) -> dict[str, list[str]]:
    """The domains of a level, with those of the pool's nodes that are in each."""
    cluster = state.cluster
    found = cluster.domains_of(cluster.site_of(pool)).get(level, {}) if cluster is not None else {}
    if level == NODE_LEVEL and not found:
        found = {node: (node,) for node in pool.nodes}
    wanted = dict.fromkeys(pool.nodes)
    return {name: [node for node in nodes if node in wanted] for name, nodes in found.items()}


def _units_of(state: State, pool: Pool, node: str, need: Need) -> int:
    """Units that a wanted node takes when empty, by what it has reported or else by the file."""
    row = state.capacity.index.get(node)
    cores = pool.cores if row is None else int(state.capacity.cores[row])
    memory = pool.memory if row is None else int(state.capacity.memory[row])
    return need.units_on(_devices(pool, need), *_left_for(pool, need, cores, memory))


def _left_for(pool: Pool, need: Need, cores: int, memory: int) -> tuple[int, int]:
    """Cores and bytes that the gang may have of an empty node: work without GPUs leaves what is kept for them. 0: not
    known yet, which is any number."""
    gpus = pool.gpu.count if pool.gpu is not None and not (need.gpus or need.shares) else 0
    left = max(cores - pool.keep_cores_per_gpu * gpus, 0), max(memory - pool.keep_memory_per_gpu * gpus, 0)
    return left[0] if cores else UNKNOWN, left[1] if memory else UNKNOWN


def _most_units(state: State, pool: Pool, need: Need, shape: Shape | None) -> int:
    """Units of the gang that the whole pool takes when empty, by the spec and by what its nodes have reported."""
    gpus = _devices(pool, need)
    if shape is not None:
        return pool.most_nodes() * need.units_on(gpus, shape.cores, shape.memory)
    shapes = list(state.capacity.kinds.get(pool.name, {}).items())
    shapes.append(((pool.cores, pool.memory), pool.most_nodes() - sum(count for _, count in shapes)))
    total = 0
    for (cores, memory), count in shapes:
        total += max(count, 0) * need.units_on(gpus, *_left_for(pool, need, cores, memory))
    return total


def _devices(pool: Pool, need: Need) -> int:
    """Devices of a node by the file, as the need counts them."""
    return devices_of(pool, need, pool.gpu.count) if pool.gpu is not None else 0


def _never_limit(state: State, spec: JobSpec, owner: str, queue: Queue) -> Reason | None:
    """A ceiling that the job alone would pass."""
    milli = counted(state, spec)
    levels = [(f"a job in queue {queue.name}", {"gpus": queue.limits.max_gpus_per_job * WHOLE or milli})]
    levels.append((f"{owner} in queue {queue.name}", user_ceilings(queue)))
    path = state.limits.path(queue_scope(queue.name))
    levels += [(scope_words(scope.name), scope.ceilings) for scope in path]
    for words, ceilings in levels:
        for dimension, need in (("jobs", 1), ("gpus", milli)):
            ceiling = ceilings.get(dimension)
            if ceiling is not None and need > ceiling:
                return reason(
                    "never.limit",
                    scope=words,
                    what=dimension_words(dimension),
                    ceiling=amount_words(dimension, ceiling),
                    need=amount_words(dimension, need),
                )
    return None


def _never_hours(state: State, spec: JobSpec, queue: Queue) -> Reason | None:
    """More GPU-hours than a month may have, if the job runs as long as it may. Without a time limit it may run as short
    as a month's last hours."""
    limit_s = spec.time_limit_s or queue.limits.default_time_limit_s
    need = counted(state, spec) * min(limit_s, SHORTEST_MONTH_S)
    for scope in state.limits.path(queue_scope(queue.name)) if state.hours is not None else ():
        ceiling = scope.ceilings.get(HOURS)
        if ceiling is not None and need > ceiling:
            return reason(
                "never.gpu-hours",
                scope=scope_words(scope.name),
                ceiling=amount_words(HOURS, ceiling),
                need=amount_words(HOURS, need),
            )
    return None


def _never_lent(state: State, spec: JobSpec, queue: Queue) -> Reason | None:
    """More than other queues leave of every pool, or choice of pools for groups, that would take it, even when nothing
    runs there."""
    lending, bindings = state.limits.lending, list[Binding]()
    if lending is None:
        return None
    path = tuple(scope.name for scope in state.limits.path(queue_scope(queue.name)))
    for amounts in _asked_of_pools(state, spec):
        found = kept_back(lending, path, amounts, lambda _: {}, lending.most())
        if found is None:
            return None
        bindings.append(found)
    if not bindings:
        return None
    least = min(bindings, key=lambda one: one.over)
    left = least.ceiling - least.used
    return reason(
        "never.lent",
        queues=keepers_words(least),
        kept=amount_words(least.dimension, least.kept),
        what=dimension_words(least.dimension),
        left=amount_words(least.dimension, left),
        need=amount_words(least.dimension, left + least.over),
    )


def _asked_of_pools(state: State, spec: JobSpec) -> Iterator[Amounts]:
    """What limits count of it at least in each pool that suits it, or choice of pools for groups; nothing where there
    are more of these than are looked at."""
    gangs, cluster = gangs_of(spec), state.cluster
    fitting = [list(pools_for(cluster, gang)) if cluster is not None else [] for gang in gangs]
    if len(gangs) > 1 and prod(len(pools) for pools in fitting) > MOST_CHOICES:
        return
    for way in product(*fitting):
        pairs = zip(way, gangs, strict=True)
        yield state.mixed_amounts(
            (counted_in(pool, gang, lambda one: _has(state, one)), pool.name) for pool, gang in pairs
        )


def _too_much_power(state: State, spec: JobSpec, pools: list[Pool]) -> Reason | None:
    """More GPUs than a power domain carries that feeds every node of a pool; so of each pool that would take it."""
    milli, found = counted(state, spec), None
    for pool in pools if state.power is not None and milli else ():
        rows = [state.capacity.index[name] for name in pool.nodes if name in state.capacity.index]
        short = state.power.short(rows, -(-milli // WHOLE)) if state.power is not None and rows else None
        if short is None:
            return None
        found = found or short
    if found is None:
        return None
    scope, left, need = found
    domain = scope.name.removeprefix("power=")
    return reason("never.power", domain=domain, left=left, gpus=-(-milli // WHOLE), need=need)


def counted(state: State, spec: JobSpec) -> int:
    """Thousandths of GPUs that limits count of the gang at least, by what nodes have reported."""
    return counted_milli(state.cluster, spec, lambda pool: _has(state, pool))


def _has(state: State, pool: Pool) -> Has:
    gpus = [int(state.capacity.gpus[row]) for row in _rows(state, pool) if state.capacity.gpus[row]]
    memory = _device_memory(state, pool)
    said = by_the_file(pool)
    return Has(min([said.gpus, *gpus]), memory if memory < UNKNOWN else 0)
