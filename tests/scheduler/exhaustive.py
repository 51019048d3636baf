"""The same questions answered by trying everything: does a gang fit now, do limits let it, what are the numbers.

Comes in: a State's records (its indexes are not looked at), a job. Goes out: `Paper`: what is left of every node, and
answers by brute force. Called by: the differential tests of this folder. For small worlds: a node's units are found by
trying every device for every unit (exhaustive_nodes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

from orchestrator.ledger.hours import HOURS
from orchestrator.ledger.records import Job
from orchestrator.ledger.state import State
from orchestrator.model.attempt import PartState, Placement
from orchestrator.model.cluster import Pool, PowerDomain, Queue, Redundancy, Share
from orchestrator.model.decisions import Start
from orchestrator.model.job import JobSpec
from orchestrator.model.need import gangs_of
from tests.metered import hours_on_paper
from tests.priced import dollars_on_paper, gang_dollars
from tests.scheduler.exhaustive_nodes import WHOLE, Ask, Left, Slot, ask_of


class Over(NamedTuple):
    """A limit that a job would pass."""

    scope: str
    dimension: str
    ceiling: int
    used: int
    need: int


@dataclass
class Use:
    """What an attempt counts for: milli-GPU by pool."""

    queue: str
    user: str
    milli: dict[str, int]
    array: int


class Paper:
    """A State on paper, made from its records alone; `take` and `put_back` change it."""

    def __init__(
        self, state: State, *, empty: bool = False, seconds: Callable[[Job], int] | None = None
    ) -> None:
        """`empty`: as if nothing ran, and all nodes were open. `seconds`: for how long of the month a job would hold
        its GPUs; without it GPU-hours are not looked at."""
        assert state.cluster is not None
        self._state = state
        self.cluster = state.cluster
        self.queues = {queue.name: queue for queue in self.cluster.queues}
        self.nodes: dict[str, Left] = {}
        self.held: dict[str, set[int]] = {}  # node -> slots of which somebody holds a part
        self.uses: list[Use] = []
        self.more: list[tuple[str, Placement]] = []  # that starts on paper hold, by queue
        self.seconds = seconds
        self.hours = {} if empty else hours_on_paper(state)
        self.throttles = {array.id: array.at_most for array in state.arrays.values() if array.at_most}
        for node in state.nodes.values():
            pool, facts = state.pool(node.pool), node.facts
            devices = facts.devices if facts else ()
            slots = {device.slot: Slot(WHOLE, device.memory, device.memory) for device in devices}
            cores = (pool.cores if pool else 0) or (facts.cores if facts else 0)
            memory = (pool.memory if pool else 0) or (facts.memory if facts else 0)
            left = Left(node.pool, node.open or empty, slots, cores, memory)
            left.plain_cores = max(cores - len(slots) * (pool.keep_cores_per_gpu if pool else 0), 0)
            left.plain_memory = max(memory - len(slots) * (pool.keep_memory_per_gpu if pool else 0), 0)
            left.software = node.configured
            left.layout = pool.gpu.layout if pool and pool.gpu and pool.gpu.mig else None
            self.nodes[node.name] = left
        for job in () if empty else state.jobs.values():
            if job.attempt is not None:
                parts = tuple(part.placement for part in job.attempt.parts)
                self.uses.append(self._use(job, parts))
                for part in job.attempt.parts:
                    if part.state is not PartState.ENDED:
                        self._take(part.placement)

    def _use(self, job: Job, parts: tuple[Placement, ...]) -> Use:
        milli: dict[str, int] = {}
        for part in parts:
            pool = self.nodes[part.node].pool
            milli[pool] = milli.get(pool, 0) + (sum(part.milli) if part.milli else WHOLE * len(part.slots))
        return Use(job.spec.queue, job.owner.name, milli, job.array)

    def _take(self, part: Placement) -> None:
        self.nodes[part.node].take(part)
        self.held.setdefault(part.node, set()).update(part.slots)

    # --- power ----------------------------------------------------------------------------------------------

    @property
    def powered(self) -> bool:
        """Whether there is a limit on power. GPUs draw nothing when idle in these worlds."""
        return any(one.limit_watts for one in self.cluster.sites[0].power.domains)

    def dark(self, more: dict[str, int]) -> list[str]:
        """The power domains that so many GPUs more on each node would pass."""
        domains = {one.name: one for one in self.cluster.sites[0].power.domains}
        watts = {
            node: (len(self.held.get(node, ())) + more.get(node, 0)) * (pool.gpu.max_watts if pool.gpu else 0)
            for pool in self.cluster.pools
            for node in pool.nodes
        }
        loads = {name: _load(name, domains, watts) for name in domains}
        return [
            name
            for name, one in domains.items()
            if one.limit_watts and more and loads[name] > one.usable_watts()
        ]

    def powers(self, spec: JobSpec, pool: str) -> bool:
        """Whether some way to place the gang in one of its homes stays within power: every way is tried."""
        ask = ask_of(spec)
        names = {id(node): name for name, node in self.nodes.items()}
        for home in self.homes(spec, pool).values():
            for software in {one.software for one in home}:
                mine = [
                    one for one in home if one.units(ask) and (one.software == software or ask.units == 1)
                ]
                if self._some_way(ask, [(names[id(one)], one.units(ask)) for one in mine], ask.units, {}):
                    return True
        return False

    def _some_way(self, ask: Ask, left: list[tuple[str, int]], units: int, more: dict[str, int]) -> bool:
        if not units:
            return not self.dark(more)
        if sum(most for _, most in left) < units:
            return False
        (name, most), *rest = left
        return any(
            self._some_way(
                ask, rest, units - count, {**more, name: self._lit(name, ask, count)} if count else more
            )
            for count in range(min(most, units), -1, -1)
        )

    def _lit(self, name: str, ask: Ask, units: int) -> int:
        node = self.nodes[name]
        if ask.exclusive:
            return len(node.slots)
        if not ask.mig:
            return units * ask.gpus
        held, places = self.held.get(name, set()), node.places(ask.mig)
        left = units * ask.gpus - sum(count for slot, count in places.items() if slot in held)
        dark = sorted((count for slot, count in places.items() if slot not in held), reverse=True)
        return next(used for used in range(len(dark) + 1) if sum(dark[:used]) >= left)

    # --- starts ---------------------------------------------------------------------------------------------

    def start(self, job: Job, start: Start) -> None:
        """Take what a start takes; AssertionError where anything of it is not there."""
        for part in start.placements:
            node = self.nodes[part.node]
            assert not (node.parts and part.alone), (
                f"somebody is on {part.node}, and it is to be nobody else's"
            )
            self._take(part)
            assert node.open
            assert node.cores >= 0
            assert node.memory >= 0
            assert all(slot in node.slots for slot in part.slots), f"{part} has devices that are not there"
            assert all(slot.milli >= 0 and slot.free_bytes >= 0 for slot in node.slots.values()), part
        self.uses.append(self._use(job, start.placements))
        self.more += [(job.spec.queue, part) for part in start.placements]
        if self.seconds is not None:
            amount = sum(self.uses[-1].milli.values()) * self.seconds(job)
            for queue in self.path(job.spec.queue):
                key = f"queue={queue.name}", HOURS
                self.hours[key] = self.hours.get(key, 0) + amount

    # --- nodes ----------------------------------------------------------------------------------------------

    def pools(self, spec: JobSpec) -> list[str]:
        """Pools with what it names: a model, GPUs at all, the level that it requires. Of a gang of groups each choice
        of a pool for every group, written as a+b; all pools of these worlds are of one site."""
        if spec.request.groups:
            return ["+".join(way) for way in product(*(self.pools(gang) for gang in gangs_of(spec)))]
        share = spec.request.per_node if spec.request.nodes else spec.request.per_task
        found = []
        for pool in self.cluster.pools:
            models = set(pool.gpu.models()) if pool.gpu else set()
            wants = bool(share.gpus or share.shares or share.gpu_models)
            if wants and (not models or (share.gpu_models and not models <= set(share.gpu_models))):
                continue
            if (share.gpus or share.shares) and not self._divided_for(pool, share.mig):
                continue
            levels = self.cluster.domains_of(self.cluster.site_of(pool))
            wish = spec.topology
            if all(level in levels for level in (wish.required, wish.segment_level) if level):
                found.append(pool.name)
        return found

    def _divided_for(self, pool: Pool, mig: str) -> bool:
        """Whether its GPUs are whole ones, or, for a profile, divided and have it."""
        if pool.gpu is None or not pool.gpu.mig or pool.gpu.layout is None:
            return not mig
        return bool(mig) and pool.gpu.layout.find(mig) is not None

    def homes(self, spec: JobSpec, pool: str) -> dict[str, list[Left]]:
        """The sets of nodes of a pool within one of which the gang must stay, by name."""
        inside = self.segments(spec, pool)
        mine = {
            name: node
            for name, node in self.nodes.items()
            if node.pool == pool and (inside is None or any(name in nodes for nodes in inside))
        }
        if not spec.topology.required:
            return {"": list(mine.values())}
        domains = self._domains(pool).get(spec.topology.required, {})
        return {name: [mine[node] for node in nodes if node in mine] for name, nodes in domains.items()}

    def segments(self, spec: JobSpec, pool: str) -> list[tuple[str, ...]] | None:
        """The sets of nodes within one of which each segment must stay; None without segments."""
        found = self._domains(pool).get(spec.topology.segment_level, {})
        return list(found.values()) if spec.topology.segment_nodes else None

    def _domains(self, pool: str) -> dict[str, dict[str, tuple[str, ...]]]:
        found = next(one for one in self.cluster.pools if one.name == pool)
        return self.cluster.domains_of(self.cluster.site_of(found))

    def room(self, spec: JobSpec, pool: str, software: str | None = None) -> dict[str, int]:
        """Units that each of these takes now; in whole segments, and of nodes with that software alone where given."""
        ask, homes = ask_of(spec), self.homes(spec, pool)
        if software is not None:
            homes = {
                name: [node for node in nodes if node.software == software] for name, nodes in homes.items()
            }
        parts, size = self.segments(spec, pool), spec.topology.segment_nodes
        if parts is None:
            return {name: sum(one.units(ask) for one in nodes) for name, nodes in homes.items()}
        inside = [[self.nodes[name] for name in names] for names in parts]
        found = {}
        for name, home in homes.items():
            each = [
                sum(one.units(ask) for one in home if any(one is mine for mine in part)) for part in inside
            ]
            found[name] = sum(count // size * size for count in each)
        return found

    def fits(self, spec: JobSpec, pool: str) -> bool:
        """Whether the whole gang has room in one of them."""
        if spec.request.groups:
            return self._groups_fit(gangs_of(spec), pool.split("+"))
        return self.alike(spec, pool) >= ask_of(spec).units

    def alike(self, spec: JobSpec, pool: str) -> int:
        """The most units that one of them takes on nodes with the same software."""
        sets = sorted({node.software for node in self.nodes.values() if node.pool == pool})
        return max((units for one in sets for units in self.room(spec, pool, one).values()), default=0)

    def _groups_fit(self, gangs: tuple[JobSpec, ...], pools: list[str]) -> bool:
        """Whether every group has nodes of its own in one domain: each node is given to each group in turn."""
        asks = [ask_of(gang) for gang in gangs]
        homes = [self.homes(gang, pool) for gang, pool in zip(gangs, pools, strict=True)]
        for name in homes[0]:
            here = [home.get(name, []) for home in homes]
            nodes = [node for node in self.nodes.values() if any(node is one for own in here for one in own)]
            gives = tuple(
                tuple(
                    node.units(ask) if any(node is one for one in own) else 0
                    for ask, own in zip(asks, here, strict=True)
                )
                for node in nodes
            )
            if _dealt(gives, tuple(ask.units for ask in asks)):
                return True
        return False

    # --- limits ---------------------------------------------------------------------------------------------

    def path(self, queue: str) -> list[Queue]:
        """The queue and those above it."""
        found = []
        while queue:
            found.append(self.queues[queue])
            queue = found[-1].parent
        return found

    def over(self, job: Job, pool: str) -> list[Over]:
        """All limits that a start in that pool would pass, the innermost first."""
        spec, user = job.spec, job.owner.name
        at_once = self.throttles.get(job.array, 0)
        tasks = sum(use.array == job.array for use in self.uses)
        asked = self._asked(spec, pool)
        need = sum(asked.values())
        path = self.path(spec.queue)
        own = [use for use in self.uses if (use.queue, use.user) == (spec.queue, user)]
        limits = path[0].limits
        found = [
            _over(f"array {job.array}", "tasks", at_once, tasks, 1),
            _over(f"{user} in queue {spec.queue}", "jobs", limits.max_jobs_per_user, len(own), 1),
            _over(
                f"{user} in queue {spec.queue}",
                "gpus",
                limits.max_gpus_per_user * WHOLE,
                _milli(own, self.everywhere()),
                need,
            ),
        ]
        for queue in path:
            below = [use for use in self.uses if queue in self.path(use.queue)]
            found.append(_over(f"queue {queue.name}", "jobs", queue.limits.max_running_jobs, len(below), 1))
            for share in queue.borrow_limit:
                counted = self._counted_in(share)
                if any(one in counted for one in asked):
                    here = _milli(below, counted)
                    need_here = sum(milli for one, milli in asked.items() if one in counted)
                    alike = [own for own in queue.guarantee if _same(own, share)]
                    most = (share.gpus + sum(own.gpus for own in alike)) * WHOLE
                    where = f"@{share.pool}" if share.pool else f"~{share.gpu_model}"
                    found.append(
                        _over(f"queue {queue.name}", f"gpus{where}", most, here, need_here, given=True)
                    )
        return [one for one in found if one is not None]

    def dear(self, job: Job, pool: str) -> list[Over]:
        """The budgets of queues that a start in that pool would pass, the innermost first."""
        need, _ = gang_dollars(self._state, job.spec, pool)
        used, found = dollars_on_paper(self._state, self.more), []
        for queue in self.path(job.spec.queue):
            scope = f"queue={queue.name}"
            for one in self.cluster.budgets:
                if one.scope.queue == queue.name:
                    most, before = one.microusd_per_hour, used.get((scope, "usd"), 0)
                    found.append(_over(f"queue {queue.name}", "usd", most, before, need))
        return [one for one in found if one is not None]

    def metered(self, job: Job, pool: str) -> list[Over]:
        """The GPU-hours of queues that a start in that pool would pass, the innermost first."""
        if self.seconds is None:
            return []
        need, found = sum(self._asked(job.spec, pool).values()) * self.seconds(job), []
        for queue in self.path(job.spec.queue):
            most = queue.limits.max_gpu_hours_per_month * 3_600_000
            used = self.hours.get((f"queue={queue.name}", HOURS), 0)
            found.append(_over(f"queue {queue.name}", HOURS, most, used, need))
        return [one for one in found if one is not None]

    def lent(self, job: Job, pool: str) -> list[Over]:
        """What queues keep of their guarantees and do not use, where a start in that pool would need some of it; if
        they use all that they keep, nodes alone say what is left."""
        asked = self._asked(job.spec, pool)
        more = Use(job.spec.queue, job.owner.name, asked, job.array)
        found = []
        for like in {
            (share.pool, share.gpu_model) for queue in self.queues.values() for share in queue.lending_limit
        }:
            share = Share(0, *like)
            counted = self._counted_in(share)
            need = any(milli for one, milli in asked.items() if one in counted)
            if not need or not any(self._keeps(one, share) for one in self.queues):
                continue
            there = sum(
                WHOLE if node.open else WHOLE - slot.milli
                for node in self.nodes.values()
                if node.pool in counted
                for slot in node.slots.values()
            )
            before = self._counted("", share, self.uses)
            after = self._counted("", share, [*self.uses, more])
            kept = after - _milli([*self.uses, more], counted)
            if kept and after > max(there, before):
                found.append(Over("lent", "gpus", there, before, after - before))
        return found

    def kept_on_path(self, name: str) -> list[int]:
        """What the queue, and each around it, keeps of anything."""
        shares = [share for queue in self.queues.values() for share in queue.lending_limit]
        return [self._keeps(one.name, share) for one in self.path(name) for share in shares]

    def _keeps(self, name: str, share: Share) -> int:
        queue = self.queues[name]
        owned = sum(one.gpus for one in queue.guarantee if _same(one, share))
        lends = [one.gpus for one in queue.lending_limit if _same(one, share)]
        return max(owned - lends[0], 0) * WHOLE if lends else 0

    def _counted(self, name: str, share: Share, uses: list[Use]) -> int:
        """What a queue (none: the cluster) counts for: what it and those below it use, or keep where that is more."""
        own = _milli([use for use in uses if use.queue == name], self._counted_in(share))
        below = [self._counted(one.name, share, uses) for one in self.queues.values() if one.parent == name]
        return max(own + sum(below), self._keeps(name, share) if name else 0)

    def everywhere(self) -> list[str]:
        """All pools."""
        return [pool.name for pool in self.cluster.pools]

    def _counted_in(self, share: Share) -> list[str]:
        return [one for one in self.everywhere() if self._counts(share, one)]

    def _asked(self, spec: JobSpec, pool: str) -> dict[str, int]:
        """Milli-GPU that a gang counts for, by pool."""
        found: dict[str, int] = {}
        for gang, name in zip(gangs_of(spec), pool.split("+"), strict=True):
            milli = self._counts_for(gang, name)
            found[name] = found.get(name, 0) + milli
        return found

    def _counts(self, share: Share, pool: str) -> bool:
        """Whether GPUs of a pool count in a share."""
        gpu = next(one.gpu for one in self.cluster.pools if one.name == pool)
        return pool == share.pool if share.pool else gpu is not None and gpu.models() == (share.gpu_model,)

    def _milli_by_bytes(self, spec: JobSpec, pool: str) -> int:
        """The most that shares by memory count for."""
        ask = ask_of(spec)
        sizes = {
            slot.size for node in self.nodes.values() if node.pool == pool for slot in node.slots.values()
        }
        if not ask.shares or not sizes:
            return 0
        return ask.units * max(max(1, ask.device_bytes * WHOLE // size) if size else 1 for size in sizes)

    def _counts_for(self, spec: JobSpec, pool: str) -> int:
        """What limits count of it there, in thousandths of GPUs."""
        if spec.request.exclusive:
            return self._milli_alone(spec, pool)
        if ask_of(spec).mig:
            return self._milli_of_instances(spec, pool)
        return spec.request.total_milli() or self._milli_by_bytes(spec, pool)

    def _milli_of_instances(self, spec: JobSpec, pool: str) -> int:
        """Each counts for the memory slices that it has where it runs."""
        ask = ask_of(spec)
        gpu = next(one.gpu for one in self.cluster.pools if one.name == pool)
        layout = gpu.layout if gpu is not None else None
        profile = layout.find(ask.mig) if layout is not None else None
        assert layout is not None
        assert profile is not None
        return ask.units * ask.gpus * (profile.size * WHOLE // layout.slices)

    def _milli_alone(self, spec: JobSpec, pool: str) -> int:
        """The most that nodes which are nobody else's count for: as many as it takes of those that hold least, each as
        if it had the most GPUs."""
        ask, empty = ask_of(spec), Paper(self._state, empty=True)
        mine = [node for node in empty.nodes.values() if node.pool == pool]
        home = [node for nodes in empty.homes(spec, pool).values() for node in nodes]
        fewest = min((units for node in home if (units := node.units(ask))), default=ask.units)
        count = ask.units if ask.spread else -(-ask.units // fewest)
        return count * max((len(node.slots) for node in mine), default=0) * WHOLE

    def may(self, job: Job) -> list[str]:
        """The pools where limits let it start."""
        return [
            pool
            for pool in self.pools(job.spec)
            if not any(stops(job, pool) for stops in (self.over, self.metered, self.lent, self.dear))
        ]

    def ever(self, spec: JobSpec) -> list[str]:
        """The pools that would take it now, whatever limits say."""
        return [pool for pool in self.pools(spec) if self.fits(spec, pool)]

    def starts(self, job: Job) -> bool:
        """Whether it could start now."""
        certain = (pool for pool in self.may(job) if gang_dollars(self._state, job.spec, pool)[1])
        return any(self.goes(job.spec, pool) for pool in certain)

    def goes(self, spec: JobSpec, pool: str) -> bool:
        """Whether nodes take it, and power lets it go there. On power, groups, shares, several instances, segments and
        gangs on nodes of their own are not judged: what such a gang lights is given out by a greedy choice, which may
        miss a place."""
        if spec.request.groups:
            return self.fits(spec, pool) and not self.powered
        ask = ask_of(spec)
        if not self.powered or not (ask.gpus or ask.shares or ask.exclusive):
            return self.fits(spec, pool)
        several = ask.units > 1 if ask.exclusive else bool(ask.mig) and ask.units * ask.gpus > 1
        judged = not (ask.shares or several or spec.topology.segment_nodes)
        return judged and self.powers(spec, pool)


def _load(name: str, domains: dict[str, PowerDomain], watts: dict[str, int]) -> float:
    """Of its nodes, what hangs on it and what nobody controls; feeds of a rack by its rule."""
    found = float(domains[name].unmanaged_watts + sum(watts[node] for node in domains[name].nodes))
    for under in domains.values():
        if under.parent == name and not any(one.fed_by for one in domains.values()):
            found += _load(under.name, domains, watts)
        elif name in under.fed_by:
            part = 0.5 if under.redundancy is Redundancy.N else 1.0
            found += part * _load(under.name, domains, watts)
    if not domains[name].parent and not domains[name].fed_by and any(one.fed_by for one in domains.values()):
        racks = [one for one in domains.values() if one.fed_by]  # the root carries each rack once
        found += sum(_load(one.name, domains, watts) for one in racks)
        found += sum(one.unmanaged_watts for one in domains.values() if one.parent == name)
    return found


def _same(one: Share, other: Share) -> bool:
    return (one.pool, one.gpu_model) == (other.pool, other.gpu_model)


def _milli(uses: list[Use], pools: list[str]) -> int:
    return sum(milli for use in uses for pool, milli in use.milli.items() if pool in pools)


@cache
def _dealt(gives: tuple[tuple[int, ...], ...], needs: tuple[int, ...]) -> bool:
    """Whether these nodes, which give so many units to each group, can be dealt out so that all have enough."""
    if not any(needs):
        return True
    if not gives:
        return False
    first, rest = gives[0], gives[1:]
    if _dealt(rest, needs):
        return True
    after = (
        tuple(max(need - first[group], 0) if at == group else need for at, need in enumerate(needs))
        for group in range(len(needs))
        if first[group] and needs[group]
    )
    return any(_dealt(rest, one) for one in after)


def _over(scope: str, dimension: str, ceiling: int, used: int, need: int, given: bool = False) -> Over | None:
    bound = (ceiling or given) and need > 0 and used + need > ceiling
    return Over(scope, dimension, ceiling, used, need) if bound else None
