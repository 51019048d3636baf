"""All that is known now: a fold over the ledger, changed by `apply` alone.

Comes in: records (from events or a snapshot). Goes out: `State`, with the indexes that passes need: what is free,
what limits say, which classes of jobs wait. Called by: apply (changes it), scheduler (reads it through a Statement),
controller (reads it, snapshots it).

The records are the truth; capacity, limits, ports and classes are indexes that `rebuild` derives from them alone, in
an order that depends on nothing else. A property test holds the two equal.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.ledger.capacity import Capacity, mask_of
from orchestrator.ledger.limits import Amounts, LimitTree
from orchestrator.ledger.records import Account, Apply, Attempt, Fleet, Job, Node, Orphan, Token
from orchestrator.model.attempt import JobState, PartState, Placement
from orchestrator.model.capacity import Circuit, Halt, OfferingKey
from orchestrator.model.cluster import ClusterSpec, Pool, Queue
from orchestrator.model.host import PoolDesired
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import JobSpec, LaunchKind, Request, Workload

ROOT = "cluster"  # the top scope of the limit tree

OrphanKey = tuple[AttemptId, str]  # the attempt and the node that holds it
AccountKey = tuple[str, str]  # a pool and a queue


class ClassKey(NamedTuple):
    """Jobs that are alike to a pass: same queue, same person, same shape. Their reason is one reason."""

    queue: str
    owner: str
    request: Request
    launch: LaunchKind  # whether a node's share is one process or one a task
    required: str
    preferred: str
    needs: tuple[str, ...] = ()  # storage


class Place(NamedTuple):
    """A job's place in the order of its class: higher priority first, then lower id (submit order)."""

    rank: int  # minus the priority
    job: int


@dataclass(slots=True)
class JobClass:
    """The waiting jobs of one class, in order."""

    key: ClassKey
    waiting: list[Place] = field(default_factory=list)

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
    commit: str = ""  # where the applied file stood
    lease_s: int = 0  # what the present controller gives nodes; 0: it did not tell, here and below
    lease_before_s: int = 0  # the longest that nodes may have from those before it
    started_us: int = 0  # when it took the ledger
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
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
    # indexes
    capacity: Capacity = field(default_factory=Capacity)
    limits: LimitTree = field(default_factory=LimitTree)
    # address -> rendezvous ports in use, with how many use it: an attempt taken back may share one with a lost one
    ports: dict[str, dict[int, int]] = field(default_factory=dict)
    classes: dict[ClassKey, JobClass] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)  # instance -> intent

    def rebuild(self) -> None:
        """Derive every index anew from the records."""
        self.capacity, self.limits, self.ports, self.classes = Capacity(), LimitTree(), {}, {}
        self.index_limits()
        for node in self.nodes.values():
            node.holders = {}
            self.index_node(node)
        for job in self.jobs.values():
            self.open_scope(job)
            if job.attempt is not None:
                self.hold_attempt(job, job.attempt, runs=True)
            if job.state is JobState.WAITING:
                self.enqueue(job)
        self.instances = {
            one.id: fleet.intent.id for fleet in self.fleets.values() for one in fleet.instances
        }

    # --- classes --------------------------------------------------------------------------------------------

    def enqueue(self, job: Job) -> None:
        """The job waits from now on."""
        key = class_key(job.spec, job.owner.name)
        found = self.classes.get(key)
        if found is None:
            found = self.classes[key] = JobClass(key)
        found.add(place_of(job))

    def dequeue(self, job: Job) -> None:
        """The job waits no longer."""
        key = class_key(job.spec, job.owner.name)
        found = self.classes[key]
        found.remove(place_of(job))
        if not found.waiting:
            del self.classes[key]

    # --- nodes ----------------------------------------------------------------------------------------------

    def index_node(self, node: Node) -> None:
        """Give capacity the node's devices, cores and memory, and whether it is open."""
        pool = self.pool(node.pool)
        if node.name not in self.capacity.nodes:
            self.capacity.add(node.name, node.pool)
        facts = node.facts
        total = mask_of(tuple(device.slot for device in facts.devices)) if facts else 0
        cores = (pool.cores if pool is not None else 0) or (facts.cores if facts else 0)
        memory = (pool.memory if pool is not None else 0) or (facts.memory if facts else 0)
        self.capacity.resize(node.name, total, cores, memory)
        self.capacity.set_open(node.name, node.open)

    def pool(self, name: str) -> Pool | None:
        """The pool of the wanted cluster with that name, or None."""
        pools = self.cluster.pools if self.cluster is not None else ()
        return next((pool for pool in pools if pool.name == name), None)

    # --- limits ---------------------------------------------------------------------------------------------

    def index_limits(self) -> None:
        """Make the scopes of the wanted cluster's queues."""
        self.limits.add(ROOT, "", {})
        for queue in self.cluster.queues if self.cluster else ():
            self.limits.add(queue_scope(queue.name), queue_scope(queue.parent), queue_ceilings(queue))

    def open_scope(self, job: Job) -> None:
        """Make the scope of the job's person in its queue, if this is their first job there."""
        name, parent = self.scope(job), queue_scope(job.spec.queue)
        if parent not in self.limits.scopes:  # a queue that is in the spec no longer, with work left in it
            self.limits.add(parent, ROOT, {})
        if name not in self.limits.scopes:
            queue = self.queue(job.spec.queue)
            self.limits.add(name, parent, user_ceilings(queue) if queue is not None else {})

    def scope(self, job: Job) -> str:
        """The innermost scope that a job counts in: its person in its queue."""
        return f"{queue_scope(job.spec.queue)}/user={job.owner.name}"

    def queue(self, name: str) -> Queue | None:
        """The queue of the wanted cluster with that name, or None."""
        queues = self.cluster.queues if self.cluster is not None else ()
        return next((queue for queue in queues if queue.name == name), None)

    # --- attempts -------------------------------------------------------------------------------------------

    def hold_attempt(self, job: Job, attempt: Attempt, *, runs: bool) -> None:
        """Take what an attempt holds: the devices of parts that have not ended, its limits, its port. One that `runs`
        keeps devices that its node does not report any more."""
        for part in attempt.parts:
            if part.state is not PartState.ENDED:
                self.take_part(attempt, part.placement, runs=runs)
        self.limits.take(self.scope(job), amounts(self, attempt_placements(attempt)))
        if attempt.master_port:
            self.take_port(attempt.master_address, attempt.master_port)

    def take_part(self, attempt: Attempt, placement: Placement, *, runs: bool) -> None:
        """Take one node's share; ValueError if a device has a holder."""
        take = self.capacity.hold if runs else self.capacity.take
        take(placement.node, mask_of(placement.slots), placement.cores, placement.memory)
        holders = self.nodes[placement.node].holders
        for slot in placement.slots:
            holders[slot] = attempt.id

    def free_part(self, placement: Placement) -> None:
        """Give one node's share back: its last process is proved gone."""
        self.capacity.release(placement.node, mask_of(placement.slots), placement.cores, placement.memory)
        holders = self.nodes[placement.node].holders
        for slot in placement.slots:
            del holders[slot]

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


def attempt_placements(attempt: Attempt) -> tuple[Placement, ...]:
    """The placements of all parts, in gang order."""
    return tuple(part.placement for part in attempt.parts)


def amounts(state: State, placements: tuple[Placement, ...]) -> Amounts:
    """What a gang counts for in the limit tree, from its start until its attempt has ended everywhere."""
    gpus = sum(len(part.slots) for part in placements)
    return gang_amounts(gpus, state.nodes[placements[0].node].pool)


def gang_amounts(gpus: int, pool: str) -> Amounts:
    """What a gang with so many GPUs of a pool counts for."""
    if not gpus:
        return (("jobs", 1),)
    return (("jobs", 1), ("gpus", gpus), (f"gpus@{pool}", gpus))


def class_key(spec: JobSpec, owner: str) -> ClassKey:
    """The class of a job, by what it asks for and whose it is."""
    topology = spec.topology
    return ClassKey(
        spec.queue, owner, spec.request, spec.launch, topology.required, topology.preferred, spec.needs
    )


def place_of(job: Job) -> Place:
    """The place of a job within its class."""
    return Place(-job.spec.priority, job.id)


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


def queue_scope(name: str) -> str:
    """The scope of a queue; the root for no queue."""
    return f"queue={name}" if name else ROOT


def queue_ceilings(queue: Queue) -> dict[str, int]:
    """Ceilings of a queue per dimension, from its limits and from guarantee + borrowing limit per pool."""
    ceilings: dict[str, int] = {}
    if queue.limits.max_running_jobs:
        ceilings["jobs"] = queue.limits.max_running_jobs
    borrow = {share.pool: share.gpus for share in queue.borrow_limit if share.pool}
    owned = {share.pool: share.gpus for share in queue.guarantee if share.pool}
    for pool, gpus in borrow.items():
        ceilings[f"gpus@{pool}"] = gpus + owned.get(pool, 0)
    return ceilings


def user_ceilings(queue: Queue) -> dict[str, int]:
    """Ceilings of one person in a queue."""
    ceilings: dict[str, int] = {}
    if queue.limits.max_jobs_per_user:
        ceilings["jobs"] = queue.limits.max_jobs_per_user
    if queue.limits.max_gpus_per_user:
        ceilings["gpus"] = queue.limits.max_gpus_per_user
    return ceilings
