"""Where a gang fits now: best fit by free devices, within one pool, with exact device slots.

Comes in: State (as the pass has changed it so far), a job. Goes out: placements in gang order, pool by pool, or
`Blocked` with the reason. Called by: cycle.

Best fit: the open nodes with the fewest free devices that suffice, in the order of the spec; a gang counted in tasks
is packed on as few nodes as possible. All ties go by node order, so equal states give equal placements.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.ledger.capacity import NodeCapacity, PoolCapacity, lowest
from orchestrator.ledger.records import Job
from orchestrator.ledger.state import State
from orchestrator.model.attempt import Placement
from orchestrator.model.job import JobSpec, LaunchKind
from orchestrator.model.need import Need, need_of, pools_for
from orchestrator.model.reasons import Reason, reason

Chosen = list[tuple[NodeCapacity, int]]  # nodes with the units that each takes


class Option(NamedTuple):
    """A pool that takes the gang now, and how."""

    pool: str
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Blocked:
    """It does not fit now. `pools` are those that it may keep for itself: with their work gone, it would fit."""

    reason: Reason
    pools: tuple[str, ...] = ()


def options(state: State, job: Job) -> list[Option]:
    """One placement for each pool where the gang fits now: the pool that loses least by it first, then spec order."""
    need = need_of(job.spec)
    found: list[tuple[int, int, Option]] = []
    for number, pool in enumerate(_candidates(state, job.spec)):
        chosen = _spread(pool, need) if need.spread else _pack(pool, need)
        if chosen:
            parts = tuple(_placement(node, need, units) for node, units in chosen)
            found.append((_left_over(need, chosen), number, Option(pool.name, parts)))
    found.sort(key=lambda row: row[:2])
    return [option for _, _, option in found]


def why_not(state: State, job: Job) -> Blocked:
    """Why no pool takes the gang now, in the pool where it comes closest."""
    return _why(state, need_of(job.spec), list(_candidates(state, job.spec)))


def _candidates(state: State, spec: JobSpec) -> Iterator[PoolCapacity]:
    for pool in pools_for(state.cluster, spec) if state.cluster else ():
        if pool.name in state.capacity.pools:
            yield state.capacity.pools[pool.name]


def _left_over(need: Need, chosen: Chosen) -> int:
    """Devices left free on the nodes taken: what the choice breaks off. Work without GPUs counts all of them."""
    return sum(node.free.bit_count() - need.gpus * units for node, units in chosen)


# --- one pool -------------------------------------------------------------------------------------------------


def _spread(pool: PoolCapacity, need: Need) -> Chosen:
    """Every unit on a node of its own: the fullest nodes that still suffice. Empty if they are too few."""
    chosen: Chosen = []
    for node in _ascending(pool, need.gpus):
        if _units_on(node, need):
            chosen.append((node, 1))
            if len(chosen) == need.units:
                return _in_gang_order(chosen)
    return []


def _in_gang_order(chosen: Chosen) -> Chosen:
    return sorted(chosen, key=lambda pair: pair[0].order)


def _pack(pool: PoolCapacity, need: Need) -> Chosen:
    """As few nodes as possible: the emptiest ones first, the rest on the fullest node that takes it."""
    left = need.units
    chosen: Chosen = []
    used: set[int] = set()
    for node in _descending(pool, need.gpus):
        whole = _smallest_for(pool, need, left, used)
        if whole is not None:
            return _in_gang_order([*chosen, (whole, left)])
        units = min(left, _units_on(node, need))
        if units and node.order not in used:
            chosen.append((node, units))
            used.add(node.order)
            left -= units
    return []


def _smallest_for(pool: PoolCapacity, need: Need, units: int, used: set[int]) -> NodeCapacity | None:
    for node in _ascending(pool, need.gpus * units):
        if node.order not in used and _units_on(node, need) >= units:
            return node
    return None


def _ascending(pool: PoolCapacity, gpus: int) -> Iterator[NodeCapacity]:
    """Open nodes with at least so many free devices, fewest first, then by order."""
    for bucket in pool.buckets[gpus:]:
        for order in bucket:
            yield pool.nodes[order]


def _descending(pool: PoolCapacity, gpus: int) -> Iterator[NodeCapacity]:
    for bucket in reversed(pool.buckets[gpus:]):
        for order in bucket:
            yield pool.nodes[order]


def _units_on(node: NodeCapacity, need: Need) -> int:
    """How many units the free part of an open node takes."""
    units = need.units
    if need.gpus:
        units = min(units, node.free.bit_count() // need.gpus)
    if need.cores:
        units = min(units, node.free_cores // need.cores)
    if need.memory:
        units = min(units, node.free_memory // need.memory)
    return max(units, 0)


def _placement(node: NodeCapacity, need: Need, units: int) -> Placement:
    return Placement(
        node=node.name,
        slots=lowest(node.free, need.gpus * units),
        tasks=need.tasks * units,
        cores=need.cores * units,
        memory=need.memory * units,
    )


def could_fit(state: State, spec: JobSpec, without: Container[str]) -> bool:
    """Whether the open nodes of some pool, less these, would take the gang if nothing else ran."""
    need = need_of(spec)
    for pool in _candidates(state, spec):
        each = (_units_on_empty(node, need) for node in pool.nodes if node.open and node.name not in without)
        if sum(min(units, 1) if need.spread else units for units in each) >= need.units:
            return True
    return False


# --- why not --------------------------------------------------------------------------------------------------


def _why(state: State, need: Need, tried: list[PoolCapacity]) -> Blocked:
    """The reason in the pool where it comes closest, and the pools that it would fit once their work is gone."""
    if not tried:
        return Blocked(reason("wait.nodes-closed", pool="-", closed=0, all=0, why="no pool has such nodes"))
    best = max(tried, key=lambda pool: _fit(pool, need))
    fitting = tuple(pool.name for pool in tried if _fit_empty(pool, need, only_open=True) >= need.units)
    if not fitting:
        return Blocked(
            _closed_reason(state, max(tried, key=lambda pool: _fit_empty(pool, need, only_open=False)))
        )
    return Blocked(_capacity_reason(best, need), fitting)


def _fit(pool: PoolCapacity, need: Need) -> int:
    """Units that fit now."""
    each = (_units_on(node, need) for node in pool.nodes if node.open)
    return sum(min(units, 1) if need.spread else units for units in each)


def _fit_empty(pool: PoolCapacity, need: Need, *, only_open: bool) -> int:
    """Units that would fit if nothing ran."""
    total = 0
    for node in pool.nodes:
        if node.open or not only_open:
            units = _units_on_empty(node, need)
            total += min(units, 1) if need.spread else units
    return total


def _units_on_empty(node: NodeCapacity, need: Need) -> int:
    units = need.units
    if need.gpus:
        units = min(units, node.total.bit_count() // need.gpus)
    if need.cores:
        units = min(units, node.cores // need.cores)
    if need.memory:
        units = min(units, node.memory // need.memory)
    return units


def _capacity_reason(pool: PoolCapacity, need: Need) -> Reason:
    nodes = [node for node in pool.nodes if node.open]
    free = sum(node.free.bit_count() for node in nodes)
    taken = sum(node.total.bit_count() for node in nodes) - free
    if not need.spread:
        return reason(
            "wait.tasks",
            tasks=need.units,
            gpus=need.gpus,
            cores=need.cores,
            memory=need.memory,
            fit=_fit(pool, need),
            pool=pool.name,
            free=free,
            taken=taken,
        )
    with_gpus = [node for node in nodes if node.free.bit_count() >= need.gpus]
    shape: dict[str, str | int] = {"nodes": need.units, "open": len(nodes), "pool": pool.name}
    if len(with_gpus) < need.units:
        return reason("wait.gpus", gpus=need.gpus, fit=len(with_gpus), free=free, taken=taken, **shape)
    with_cores = [node for node in with_gpus if node.free_cores >= need.cores]
    if len(with_cores) < need.units:
        return reason("wait.cores", cores=need.cores, fit=len(with_cores), **shape)
    fit = sum(1 for node in with_cores if node.free_memory >= need.memory)
    return reason("wait.memory", memory=need.memory, fit=fit, **shape)


def _closed_reason(state: State, pool: PoolCapacity) -> Reason:
    """How many nodes of the pool are closed, and for what."""
    counts: dict[str, int] = {}
    for capacity in pool.nodes:
        node = state.nodes[capacity.name]
        if not node.open:
            why = str(node.marks[0].kind) if node.marks else str(node.contact)
            why = {"never": "never heard of", "ok": "leaving"}.get(why, why)
            counts[why] = counts.get(why, 0) + 1
    words = ", ".join(f"{count} {why}" for why, count in sorted(counts.items()))
    return reason(
        "wait.nodes-closed",
        pool=pool.name,
        closed=sum(counts.values()),
        all=len(pool.nodes),
        why=words or "-",
    )


# --- rendezvous -----------------------------------------------------------------------------------------------


def rendezvous(state: State, job: JobSpec, job_id: int, parts: tuple[Placement, ...]) -> tuple[str, int]:
    """Address and port for rank 0's rendezvous; port 0 if a lone process needs none, -1 if no port is free.

    The search starts at a place that depends on the job, so that a port is not used again at once.
    """
    address = state.nodes[parts[0].node].address
    if job.launch is LaunchKind.RANKS and sum(part.tasks for part in parts) == 1:
        return address, 0
    first, last = port_range(state, parts)
    used = state.ports.get(address, {})
    span = last - first + 1
    for step in range(min(span, len(used) + 1)):
        port = first + (job_id + step) % span
        if port not in used:
            return address, port
    return address, -1


def port_range(state: State, parts: tuple[Placement, ...]) -> tuple[int, int]:
    """First and last port of the job network at the gang's site."""
    pool = state.pool(state.nodes[parts[0].node].pool)
    if pool is None or state.cluster is None:
        raise ValueError(f"node {parts[0].node} is in no pool of the cluster")
    network = state.cluster.site_of(pool).network
    return network.first_port, network.last_port
