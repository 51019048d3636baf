"""All that is known now: a fold over the ledger, changed by `apply` alone.

Comes in: records (from events or a snapshot). Goes out: `State`, with the indexes that passes need: what is free,
what limits say, which classes of jobs wait. Called by: apply (changes it), scheduler (reads it through a Statement),
controller (reads it, snapshots it).

The records are the truth; capacity, limits, ports and classes are indexes that `rebuild` derives from them alone, in
an order that depends on nothing else. A property test holds the two equal.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestrator.ledger.capacity import FAR, WHOLE, Capacity
from orchestrator.ledger.demand import Demand
from orchestrator.ledger.hours import HOUR, HOURS, UNKNOWN, Hours, Month, counts_hours
from orchestrator.ledger.lending import lending_of
from orchestrator.ledger.limits import Amounts, LimitTree
from orchestrator.ledger.power import Power, power_of
from orchestrator.ledger.records import Account, Apply, Attempt, Fleet, Job, Node, Orphan, TaskArray, Token
from orchestrator.ledger.scopes import (
    ROOT,
    array_ceilings,
    dimensions_of,
    is_array,
    job_scope,
    models_counted,
    queue_ceilings,
    queue_scope,
    user_ceilings,
)
from orchestrator.ledger.spending import Spending, queue_budgets, spending_of
from orchestrator.ledger.usage import Used
from orchestrator.model.attempt import JobState, PartState, Placement
from orchestrator.model.capacity import Circuit, Halt, OfferingKey
from orchestrator.model.cluster import ClusterSpec, FairShare, Pool, Queue
from orchestrator.model.host import ItemKind, PoolDesired
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, LaunchKind, Request, Topology, Workload
from orchestrator.model.power import PoolWatts
from orchestrator.model.standing import PoolPrice

SPARE_SHAPES = 4096  # numbers of shapes that nobody waits with any more and that are kept all the same

OrphanKey = tuple[AttemptId, str]  # the attempt and the node that holds it
AccountKey = tuple[str, str]  # a pool and a queue


class ShapeKey(NamedTuple):
    """All that a job asks of nodes. Its launch kind says whether a node's share is one process or one a task."""

    request: Request
    launch: LaunchKind
    topology: Topology
    needs: tuple[str, ...] = ()  # storage


class ClassKey(NamedTuple):
    """Jobs that are alike to a pass: same queue, same person, same shape. Their reason is one reason."""

    queue: str
    owner: str
    shape: ShapeKey
    array: int = 0  # of tasks of a throttled array: its limit stops them alone


class Place(NamedTuple):
    """A job's place in the order of its class: higher priority first, then lower id (submit order)."""

    rank: int  # minus the priority
    job: int


@dataclass(slots=True)
class JobClass:
    """The waiting jobs of one class, in order."""

    key: ClassKey
    waiting: list[Place] = field(default_factory=list)
    shape: int = 0  # a number for `key.shape`
    stirred: bool = False  # its jobs are others than the scheduler has seen

    def add(self, place: Place) -> None:
        """Put a job at its place; at the end in the common case."""
        if not self.waiting or self.waiting[-1] < place:
            self.waiting.append(place)
        else:
            insort(self.waiting, place)

    def remove(self, place: Place) -> None:
        """Take a job out."""
        del self.waiting[bisect_left(self.waiting, place)]


@dataclass(slots=True)
class NameLine:
    """The live jobs of one person and name of which some are singletons: all ids, rising, and how many of those."""

    jobs: list[int]
    singletons: int = 0


@dataclass(slots=True)
class State:
    """The records, and the indexes derived from them."""

    seq: int = 0
    t_us: int = 0
    epoch: int = 0
    next_job: int = 1
    recovering: bool = (
        False  # restored from a backup: nothing starts until the nodes have told what they hold
    )
    forgotten_from: int = 0  # while recovering: jobs from this id on may have been made after the backup
    cluster: ClusterSpec | None = None
    digest: str = ""
    watts: tuple[PoolWatts, ...] = ()  # what GPUs of pools on powered sites draw, as of the applied file
    prices: tuple[PoolPrice, ...] = ()  # what standing nodes cost, as of the applied file
    commit: str = ""  # where the applied file stood
    lease_s: int = 0  # what the present controller gives nodes; 0: it did not tell, here and below
    lease_before_s: int = 0  # the longest that nodes may have from those before it
    started_us: int = 0  # when it took the ledger
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    arrays: dict[int, TaskArray] = field(default_factory=dict)  # by id, while a task of it is left
    tokens: dict[str, Token] = field(default_factory=dict)
    orphans: dict[OrphanKey, Orphan] = field(default_factory=dict)  # as they were listed, the last one last
    desired: dict[str, PoolDesired] = field(
        default_factory=dict
    )  # by digest: recorded, or still on some host
    recorded: dict[str, str] = field(default_factory=dict)  # pool -> digest of what its hosts are to have
    applies: list[Apply] = field(default_factory=list)  # the last few; only the newest may be under way
    uid: str = ""  # what all that is bought is marked with; empty: nothing was ever bought
    fleets: dict[str, Fleet] = field(default_factory=dict)  # by intent, while something of it may exist
    circuits: dict[OfferingKey, Circuit] = field(default_factory=dict)  # of offerings that were tried
    halts: dict[str, Halt] = field(default_factory=dict)  # by site
    boot_failures: dict[str, int] = field(default_factory=dict)  # by pool, in a row
    accounts: dict[AccountKey, Account] = field(default_factory=dict)
    used: dict[str, Used] = field(
        default_factory=dict
    )  # by scope; kept while the file shares by what was used
    demand: Demand = field(default_factory=Demand)
    month: Month | None = None  # that GPU-hours count in; None: no queue has a limit, or it is not a fact yet
    spent: dict[str, int] = field(
        default_factory=dict
    )  # by scope: GPU-hours of attempts that are over, in the month
    # indexes
    capacity: Capacity = field(default_factory=Capacity)
    limits: LimitTree = field(default_factory=LimitTree)
    power: Power | None = None  # None: no domain has a limit
    spending: Spending | None = None  # None: no budget is of dollars an hour
    hours: Hours | None = None  # None: no queue has a limit of GPU-hours
    # address -> rendezvous ports in use, with how many use it: an attempt taken back may share one with a lost one
    dimensions: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # pool -> what its GPUs are counted in
    ports: dict[str, dict[int, int]] = field(default_factory=dict)
    classes: dict[ClassKey, JobClass] = field(default_factory=dict)
    shapes: dict[ShapeKey, int] = field(default_factory=dict)  # numbers of those that were asked for
    stirred: list[JobClass] = field(default_factory=list)  # classes with the flag, also empty ones
    memory: Any = (
        None  # what the scheduler keeps between passes: derived from the rest, and dropped by `rebuild`
    )
    queues: dict[str, Queue] = field(default_factory=dict)  # of the wanted cluster, by name
    instances: dict[str, str] = field(default_factory=dict)  # instance -> intent
    blocked: dict[str, int] = field(
        default_factory=dict
    )  # queue -> jobs that wait for other jobs, in no class
    # a job, or a whole array -> jobs that wait for it
    dependents: dict[tuple[int, bool], dict[int, bool]] = field(default_factory=dict)
    doomed: dict[int, bool] = field(default_factory=dict)  # jobs that are to be cancelled: see `Job.doom`
    lines: dict[tuple[str, str], NameLine] = field(default_factory=dict)  # of singletons, by person and name
    # jobs that the last events changed besides their own; whoever publishes them empties it
    moved: list[int] = field(default_factory=list)

    def rebuild(self) -> None:
        """Derive every index anew from the records."""
        self.capacity, self.limits, self.ports, self.classes = Capacity(), LimitTree(), {}, {}
        self.stirred, self.memory = [], None
        self.blocked = {}
        self.index_limits()
        for node in self.nodes.values():
            node.holders, node.sharers = {}, {}
            self.index_node(node)
        self.index_power()
        self.index_spending()
        self.hours = (
            Hours(self.limits, self.month or UNKNOWN, self.spent) if counts_hours(self.cluster) else None
        )
        for job in self.jobs.values():
            self.open_scope(job)
            if job.attempt is not None:
                self.hold_attempt(job, job.attempt, runs=True)
            if job.state is JobState.WAITING:
                self.enqueue(job)
        self.index_dependencies()
        self.instances = {
            one.id: fleet.intent.id for fleet in self.fleets.values() for one in fleet.instances
        }

    # --- classes --------------------------------------------------------------------------------------------

    def enqueue(self, job: Job) -> None:
        """The job waits from now on: in its class, unless it waits for other jobs."""
        if job.blocked:
            queue = job.spec.queue
            self.blocked[queue] = self.blocked.get(queue, 0) + 1
            return
        key = self.class_of(job)
        found = self.classes.get(key)
        if found is None:
            if len(self.shapes) > 2 * len(self.classes) + SPARE_SHAPES:
                self._number_shapes_anew()
            shape = self.shapes.setdefault(key.shape, len(self.shapes))
            found = self.classes[key] = JobClass(key, shape=shape)
        found.add(place_of(job))
        self._stir(found)

    def dequeue(self, job: Job) -> None:
        """The job waits no longer."""
        if job.blocked:
            queue = job.spec.queue
            self.blocked[queue] -= 1
            if not self.blocked[queue]:
                del self.blocked[queue]
            return
        found = self.classes[key := self.class_of(job)]
        found.remove(place_of(job))
        self._stir(found)
        if not found.waiting:
            del self.classes[key]

    def _number_shapes_anew(self) -> None:
        """Forget those that nobody waits with any more, and with them what the scheduler remembers."""
        self.shapes, self.memory = {}, None
        for one in self.classes.values():
            one.shape = self.shapes.setdefault(one.key.shape, len(self.shapes))

    def class_of(self, job: Job) -> ClassKey:
        """The class of a job, as its array stands now."""
        return class_key(job.spec, job.owner.name, self.throttled(job))

    def throttled(self, job: Job) -> int:
        """The id of the job's array if that has a throttle; else 0. Other arrays are like jobs that came one by one."""
        array = self.arrays.get(job.array) if job.array else None
        return job.array if array is not None and array.at_most else 0

    def _stir(self, found: JobClass) -> None:
        if not found.stirred:
            found.stirred = True
            self.stirred.append(found)

    def index_dependencies(self) -> None:
        """Derive who waits for what, who is doomed, and the lines of singletons."""
        self.dependents, self.doomed, self.lines = {}, {}, {}
        for job in self.jobs.values():
            for wait in job.waits:
                self.dependents.setdefault((wait.job, wait.whole), {})[job.id] = True
            if job.doom:
                self.doomed[job.id] = True
            if job.spec.singleton:
                self.lines.setdefault(name_of(job), NameLine([])).singletons += 1
        for job in self.jobs.values() if self.lines else ():
            line = self.lines.get(name_of(job))
            if line is not None:
                insort(line.jobs, job.id)

    # --- nodes ----------------------------------------------------------------------------------------------

    def index_node(self, node: Node) -> None:
        """Give capacity the node's devices, cores and memory, and whether it is open."""
        pool = self.pool(node.pool)
        if node.name not in self.capacity.index:
            self.capacity.add(node.name, node.pool)
        facts = node.facts
        cores = (pool.cores if pool is not None else 0) or (facts.cores if facts else 0)
        memory = (pool.memory if pool is not None else 0) or (facts.memory if facts else 0)
        keep = (pool.keep_cores_per_gpu, pool.keep_memory_per_gpu) if pool is not None else (0, 0)
        self.capacity.resize(node.name, facts.devices if facts else (), cores, memory, *keep)
        self.index_software(node)
        self.capacity.set_open(node.name, node.open)

    def index_software(self, node: Node) -> None:
        """Give capacity the packages that the node's host was seen to have, as far as Gangline keeps their versions: of
        the others nothing is known, nor of hosts that it does not configure."""
        found = self.desired.get(node.configured)
        items = [item for role in found.desired.roles for item in role.items] if found is not None else []
        named = {
            item.name: dict(item.values).get("version", "") for item in items if item.kind is ItemKind.PACKAGE
        }
        self.capacity.set_software(
            node.name, tuple(sorted((name, version) for name, version in named.items() if version))
        )

    def pool(self, name: str) -> Pool | None:
        """The pool of the wanted cluster with that name, or None."""
        pools = self.cluster.pools if self.cluster is not None else ()
        return next((pool for pool in pools if pool.name == name), None)

    # --- limits ---------------------------------------------------------------------------------------------

    def index_limits(self) -> None:
        """Make the scopes of the wanted cluster's queues."""
        self.limits.add(ROOT, "", {})
        self.dimensions = {
            pool.name: dimensions_of(pool.name, model) for pool, model in models_counted(self.cluster)
        }
        self.queues = {queue.name: queue for queue in self.cluster.queues} if self.cluster else {}
        for queue in self.queues.values():
            ceilings, budgets = queue_budgets(self.cluster, queue.name)
            ceilings |= queue_ceilings(queue)
            if queue.limits.max_gpu_hours_per_month:
                ceilings[HOURS] = queue.limits.max_gpu_hours_per_month * HOUR
            self.limits.add(queue_scope(queue.name), queue_scope(queue.parent), ceilings, budgets)
        if self.cluster is not None:
            self.limits.lend(lending_of(self.cluster, self.dimensions, self.capacity))

    def index_power(self) -> None:
        """Make the scopes of the wanted cluster's power domains; every node draws what it does when idle."""
        self.power = power_of(self.cluster, self.watts, self.limits, self.capacity.rows)
        if self.power is not None:
            for node in self.nodes.values():
                pool = self.pool(node.pool)
                gpus = pool.gpu.count if pool is not None and pool.gpu is not None else 0
                self.power.place(node.name, node.pool, gpus, self.capacity.index[node.name])
            self.power.settle()

    def index_spending(self) -> None:
        """What nodes cost that stand, and those that were bought or are to be."""
        self.spending = spending_of(self.cluster, self.limits, self.prices, self.fleets.values())

    def gang_amounts(self, milli: int, pool: str) -> Amounts:
        """What a gang with so many milli-GPU of a pool counts for."""
        if not milli:
            return (("jobs", 1),)
        dimensions = self.dimensions.get(pool) or dimensions_of(pool, "")
        return (("jobs", 1), *((dimension, milli) for dimension in dimensions))

    def mixed_amounts(self, shares: Iterable[tuple[int, str]]) -> Amounts:
        """What a gang counts for whose groups have so many milli-GPU of these pools each."""
        found: dict[str, int] = {}
        for milli, pool in shares:
            for dimension, amount in self.gang_amounts(milli, pool)[1:]:
                found[dimension] = found.get(dimension, 0) + amount
        return (("jobs", 1), *found.items())

    def count_use(self, scope: str, t_us: int) -> None:
        """The scope, and those around it, hold other GPUs from now on; kept where the file shares by what was used.
        What arrays use is their person's use."""
        half_life_s = self.half_life_s
        if half_life_s:
            for one in self.limits.path(scope):
                if is_array(one.name):
                    continue
                record = self.used.setdefault(one.name, Used(t_us))
                record.hold(one.used.get("gpus", 0), t_us, half_life_s)

    @property
    def half_life_s(self) -> int:
        """After so long a GPU-hour counts half in the fair share; 0 where the file does not share by what was used."""
        found = self.cluster.scheduler if self.cluster is not None else None
        return found.half_life_s if found is not None and found.fair_share is FairShare.DECAY else 0

    def open_scope(self, job: Job) -> None:
        """Make the scope of the job's person in its queue, if this is their first job there."""
        name, parent = self.scope(job), queue_scope(job.spec.queue)
        if parent not in self.limits.scopes:  # a queue that is in the spec no longer, with work left in it
            self.limits.add(parent, ROOT, {})
        if name in self.limits.scopes:
            return
        person = job_scope(job.spec.queue, job.owner.name)
        if person not in self.limits.scopes:
            queue = self.queue(job.spec.queue)
            self.limits.add(person, parent, user_ceilings(queue) if queue is not None else {})
        if name != person:
            self.limits.add(name, person, array_ceilings(self.arrays[job.array].at_most))

    def scope(self, job: Job) -> str:
        """The innermost scope that a job counts in: its array if that has a throttle, else its person in its queue."""
        return job_scope(job.spec.queue, job.owner.name, self.throttled(job))

    def queue_of(self, attempt: Attempt) -> str:
        """The scope of the queue of an attempt's job."""
        return queue_scope(self.jobs[attempt.id.job].spec.queue)

    def scope_of(self, key: ClassKey) -> str:
        """The innermost scope of a class's jobs."""
        return job_scope(key.queue, key.owner, key.array)

    def throttle(self, array: TaskArray, at_most: int) -> None:
        """Another ceiling for an array that has one. What is remembered of the old one is forgotten."""
        array.at_most = at_most
        scope = self.limits.scopes[job_scope(array.spec.queue, array.owner.name, array.id)]
        self.limits.add(scope.name, scope.parent, array_ceilings(at_most))
        self.memory = None

    def close_array(self, array: TaskArray) -> None:
        """Nothing is counted there any more: its scope goes."""
        self.limits.drop(job_scope(array.spec.queue, array.owner.name, array.id))

    def queue(self, name: str) -> Queue | None:
        """The queue of the wanted cluster with that name, or None."""
        return self.queues.get(name)

    # --- attempts -------------------------------------------------------------------------------------------

    def hold_attempt(self, job: Job, attempt: Attempt, *, runs: bool) -> None:
        """Take what an attempt holds: the devices of parts that have not ended, its limits, its port. One that `runs`
        keeps devices that its node does not report any more."""
        for part in attempt.parts:
            if part.state is not PartState.ENDED:
                self.take_part(attempt, part.placement, runs=runs)
        placements = attempt_placements(attempt)
        self.limits.take(self.scope(job), amounts(self, placements))
        if self.hours is not None:
            self.hours.take(attempt, queue_scope(job.spec.queue), milli_of(placements), ends_us(attempt))
        if attempt.master_port:
            self.take_port(attempt.master_address, attempt.master_port)

    def take_part(self, attempt: Attempt, placement: Placement, *, runs: bool) -> None:
        """Take one node's share; ValueError if a device has a holder."""
        (self.capacity.hold if runs else self.capacity.take)(placement, ends_us(attempt))
        if self.power is not None:
            self.power.take(placement)
        if self.spending is not None:
            self.spending.take(placement, self.queue_of(attempt))
        node = self.nodes[placement.node]
        if placement.milli:
            for slot in placement.slots:
                insort(node.sharers.setdefault(slot, []), attempt.id)
            return
        for slot in placement.slots:
            node.holders[slot] = attempt.id

    def begin_month(self, month: Month) -> None:
        """GPU-hours count in that one from now on: anew, unless it is the one before as another zone has it."""
        if self.month is None or not month.is_of(self.month):
            self.spent = {}
        self.month = month
        self.rebuild()

    def set_ends(self, attempt: Attempt) -> None:
        """Its time limit runs: its devices are free by then."""
        if self.hours is not None:
            self.hours.move(attempt, ends_us(attempt))
        for part in attempt.parts:
            if part.state is not PartState.ENDED:
                self.capacity.set_until(part.placement, ends_us(attempt))

    def free_part(self, attempt: Attempt, placement: Placement) -> None:
        """Give one node's share back: its last process is proved gone."""
        self.capacity.release(placement)
        if self.power is not None:
            self.power.release(placement)
        if self.spending is not None:
            self.spending.release(placement, self.queue_of(attempt))
        node = self.nodes[placement.node]
        for slot in placement.slots:
            if placement.milli:
                node.sharers[slot].remove(attempt.id)
                if not node.sharers[slot]:
                    del node.sharers[slot]
            else:
                del node.holders[slot]

    def take_port(self, address: str, port: int) -> None:
        """One more attempt has its rendezvous there."""
        used = self.ports.setdefault(address, {})
        used[port] = used.get(port, 0) + 1

    def free_port(self, address: str, port: int) -> None:
        """One attempt less has its rendezvous there; KeyError if none had."""
        used = self.ports[address]
        used[port] -= 1
        if not used[port]:
            del used[port]
        if not used:
            del self.ports[address]


def ends_us(attempt: Attempt) -> int:
    """When its time limit ends an attempt at the latest, as far as is known now; `FAR` without one."""
    if not attempt.time_limit_s:
        return FAR
    return attempt.deadline_us or attempt.allocated_us + attempt.time_limit_s * 1_000_000


def attempt_placements(attempt: Attempt) -> tuple[Placement, ...]:
    """The placements of all parts, in gang order."""
    return tuple(part.placement for part in attempt.parts)


def amounts(state: State, placements: tuple[Placement, ...]) -> Amounts:
    """What a gang counts for in the limit tree, from its start until its attempt has ended everywhere."""
    if placements[-1].group:
        return state.mixed_amounts((milli_of((part,)), state.nodes[part.node].pool) for part in placements)
    return state.gang_amounts(milli_of(placements), state.nodes[placements[0].node].pool)


def milli_of(placements: tuple[Placement, ...]) -> int:
    """Thousandths of devices that these take."""
    return sum(sum(part.milli) if part.milli else len(part.slots) * WHOLE for part in placements)


def class_key(spec: JobSpec, owner: str, array: int = 0) -> ClassKey:
    """The class of a job, by what it asks for, whose it is, and the throttled array that it is a task of."""
    shape = ShapeKey(spec.request, spec.launch, spec.topology, spec.needs)
    return ClassKey(spec.queue, owner, shape, array)


def name_of(job: Job) -> tuple[str, str]:
    """Whose job it is and what it is called: singletons of one such pair run one after the other."""
    return (job.owner.name, job.spec.name)


def place_of(job: Job) -> Place:
    """The place of a job within its class."""
    return Place(-job.priority, job.id)


def time_limit_s(state: State, spec: JobSpec, usual: dict[Workload, int]) -> int:
    """The job's own limit, else its queue's default, else its workload's usual one, which its queue's longest one
    bounds; 0 is endless."""
    if spec.time_limit_s:
        return spec.time_limit_s
    queue = state.queue(spec.queue)
    if queue is not None and queue.limits.default_time_limit_s:
        return queue.limits.default_time_limit_s
    most = queue.limits.max_time_limit_s if queue is not None else 0
    return min(usual[spec.workload] or most, most) if most else usual[spec.workload]
