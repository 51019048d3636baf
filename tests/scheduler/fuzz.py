"""Random clusters, queues, jobs and orders of events, for the properties of passes.

Comes in: a source of dice. Goes out: a `Story`, a ledger that lives through passes, each of which is checked. Called
by: test_properties, test_exhaustive, and `make fuzz` with many more rounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from orchestrator.ledger import events
from orchestrator.ledger.hours import counts_hours
from orchestrator.ledger.records import Job
from orchestrator.ledger.snapshot import from_plain, to_plain
from orchestrator.ledger.state import State, ends_us
from orchestrator.model.array import Array, Range
from orchestrator.model.attempt import EndCause, JobState
from orchestrator.model.capacity import Shape
from orchestrator.model.cluster import (
    Budget,
    ClusterSpec,
    FairShare,
    Pool,
    Queue,
    QueueLimits,
    Scope,
    Share,
)
from orchestrator.model.cluster_sites import FabricDomain, PowerDomain, SiteFabric, SitePower, Unit
from orchestrator.model.cluster_words import Redundancy
from orchestrator.model.decisions import Reasons, Start
from orchestrator.model.host import Desired, Item, ItemKind, PoolDesired, RoleState
from orchestrator.model.job import JobSpec, LaunchKind, Owner, PerNode, Request, Topology
from orchestrator.model.node import Device, Mark, MarkKind, NodeFacts
from orchestrator.model.reasons import Reason
from orchestrator.model.standing import PoolPrice
from orchestrator.scheduler import Policy, decide, policy_of, refuse
from tests.builders import ALICE, BOB, T0, Fold, cluster, grouped, pool

GIB = 1 << 30
NEW = Desired((RoleState("base", (Item(ItemKind.PACKAGE, "nvidia-open", (("version", "580"),)),)),))


class Told:
    """Keeps the reasons of the last pass that had any."""

    def __init__(self) -> None:
        self.waits: Reasons | None = None

    def waiting(self, reasons: Reasons) -> None:
        self.waits = reasons


def a_cluster(dice: random.Random, pools: int = 3, nodes: int = 6, gpus: int = 8) -> ClusterSpec:
    """Up to so many pools of up to so many nodes, with units and spines in some, and up to four queues."""
    sizes = tuple(size for size in (0, 1, 2, 4, 8) if size <= gpus)
    return _cluster(
        dice,
        [
            pool(
                name,
                dice.randint(1, nodes),
                dice.choice(sizes),
                dice.choice((4, 8, 64)),
                model=dice.choice(("A", "B")),
                keep_cores_per_gpu=dice.choice((0, 0, 1, 2, 7)),
                keep_memory_per_gpu=dice.choice((0, 0, 0, 20 * GIB)),
            )
            for name in "abc"[: dice.randint(1, pools)]
        ],
    )


def small(dice: random.Random) -> ClusterSpec:
    """At most six nodes with at most four devices each."""
    return a_cluster(dice, 2, 3, 4)


def _cluster(dice: random.Random, pools: list[Pool]) -> ClusterSpec:
    spec = cluster(*pools, queues=tuple(_queues(dice, [each.name for each in pools])))
    share = dice.choice(list(FairShare))
    spec = replace(
        spec, scheduler=replace(spec.scheduler, fair_share=share, half_life_s=dice.choice((600, 86400)))
    )
    if dice.random() < 0.6:
        names = [node for each in pools for node in each.nodes]
        dice.shuffle(names)
        units = [tuple(names[at : at + 2]) for at in range(0, len(names) - 1, 2)]
        spines = [
            [f"u{unit}" for unit in range(at, min(at + 2, len(units)))] for at in range(0, len(units), 2)
        ]
        fabric = SiteFabric(
            ("unit", "spine"),
            tuple(Unit(f"u{at}", members) for at, members in enumerate(units)),
            tuple(FabricDomain("spine", f"s{at}", tuple(one)) for at, one in enumerate(spines)),
        )
        site = spec.sites[0]
        spec = replace(spec, sites=(replace(site, fabric=fabric),))
    spec = _powered(dice, spec) if dice.random() < 0.3 else spec
    return replace(spec, budgets=tuple(_budgets(dice, spec))) if dice.random() < 0.3 else spec


def _budgets(dice: random.Random, spec: ClusterSpec) -> Iterator[Budget]:
    """Dollars an hour for some queues, twice for a few, and for the whole cluster, which binds nobody who starts."""
    yield Budget("all", microusd_per_hour=1_000_000_000_000)
    for at, queue in enumerate(dice.choices(spec.queues, k=dice.randint(1, 3))):
        yield Budget(f"b{at}", scope=Scope(queue=queue.name), microusd_per_hour=dice.randint(1, 60) * 250_000)


def prices(dice: random.Random, spec: ClusterSpec) -> tuple[PoolPrice, ...]:
    """What nodes of some pools cost: quarters of a dollar a GPU, so that parts of them are whole micro-dollars."""
    return tuple(
        PoolPrice(
            each.name,
            dice.randint(1, 16) * 250_000 * (each.gpu.count if each.gpu else 4),
            Shape(each.gpu.count if each.gpu else 0, each.cores, each.memory),
        )
        for each in spec.pools
        if spec.budgets and dice.random() < 0.8
    )


def _powered(dice: random.Random, spec: ClusterSpec) -> ClusterSpec:
    """GPUs of 100 W in racks with two feeds, all of one kind, and limits here and there."""
    pools = tuple(
        replace(each, gpu=replace(each.gpu, max_watts=100)) if each.gpu is not None else each
        for each in spec.pools
    )
    names = [node for each in pools for node in each.nodes]
    gpus = sum(len(each.nodes) * each.gpu.count for each in pools if each.gpu is not None)
    racks = [tuple(names[at : at + 3]) for at in range(0, len(names), 3)]
    how = dice.choice(list(Redundancy))
    most = [dice.choice((0, 100 * dice.randint(1, max(gpus, 2)))) for _ in range(3 + len(racks))]
    domains = (
        PowerDomain("root", limit_watts=most[0] or 100 * max(gpus, 1)),
        PowerDomain("a", "root", most[1]),
        PowerDomain("b", "root", most[2], unmanaged_watts=50),
        *(
            PowerDomain(f"r{at}", "", most[3 + at], nodes=nodes, fed_by=("a", "b"), redundancy=how)
            for at, nodes in enumerate(racks)
        ),
    )
    site = replace(spec.sites[0], power=SitePower(domains=domains))
    return replace(spec, pools=pools, sites=(site,))


def _queues(dice: random.Random, pools: list[str]) -> list[Queue]:
    names = ["default", "q1", "q2", "q3"][: dice.randint(1, 4)]
    found: list[Queue] = []
    for name in names:
        parent = dice.choice(["", *names[: names.index(name)]]) if name != "default" else ""
        limits = QueueLimits(
            max_running_jobs=dice.choice((0, 0, 0, 2, 5)),
            max_jobs_per_user=dice.choice((0, 0, 0, 2)),
            max_gpus_per_user=dice.choice((0, 0, 0, 4, 9)),
            max_gpu_hours_per_month=dice.choice((1, 3, 12, 60)) if dice.random() < 0.15 else 0,
        )
        guarantee = tuple(Share(dice.randint(1, 8), one) for one in pools if dice.random() < 0.3)
        borrow = tuple(Share(dice.randint(0, 6), one) for one in pools if dice.random() < 0.2)
        if dice.random() < 0.2:  # counted by model, over whatever pools have it
            borrow = (*borrow, Share(dice.randint(0, 6), "", dice.choice("AB")))
            guarantee = (*guarantee, Share(dice.randint(1, 4), "", dice.choice("AB")))
        lends = tuple(
            replace(share, gpus=dice.randint(0, share.gpus)) for share in guarantee if dice.random() < 0.3
        )
        weight = dice.randint(1, 3)
        found.append(Queue(name, parent, guarantee, borrow, lends, weight=weight, limits=limits))
    return found


def a_job(dice: random.Random, spec: ClusterSpec) -> JobSpec:
    """Any kind of request, mostly ones that can run."""
    share = PerNode(
        gpus=dice.choice((0, 1, 1, 2, 4, 8)),
        cores=dice.choice((0, 1, 2, 8)),
        memory=dice.choice((0, GIB, 30 * GIB)),
        gpu_models=dice.choice(((), (), ("A",), ("B",), ("A", "B"))),
    )
    kind = dice.random()
    if kind < 0.25:
        share = PerNode(0, share.cores, 0, share.gpu_models, gpu_milli=dice.choice((100, 300, 500, 800)))
    elif kind < 0.4:  # a share by its memory, or whole devices with so much at least
        size = dice.choice((2_000 << 20, 16 * GIB, 42 * GIB))
        share = PerNode(
            min(share.gpus, dice.choice((0, 8))), share.cores, 0, share.gpu_models, gpu_memory=size
        )
    level = Topology()
    if spec.sites[0].fabric.levels:
        level = dice.choice(
            (level, Topology("unit"), Topology("spine"), Topology("", "unit"), Topology("spine", "unit"))
        )
    units = dice.choice((1, 1, 2, 3, 4, 6))
    spread = dice.random() < 0.5
    alone = dice.random() < 0.12
    request = (
        Request(nodes=units, per_node=share, exclusive=alone)
        if spread
        else Request(tasks=units, per_task=share, exclusive=alone)
    )
    if spread and level != Topology("", "unit") and spec.sites[0].fabric.levels and dice.random() < 0.6:
        sizes = [size for size in (1, 2, 3) if units % size == 0]
        level = replace(
            level, segment_nodes=dice.choice(sizes), segment_level=dice.choice(("unit", "unit", "spine"))
        )
    queue = dice.choice(spec.queues).name
    return JobSpec(
        "j",
        request,
        ("true",),
        queue=queue,
        topology=level,
        priority=dice.choice((0, 0, 0, 1, 5)),
        launch=LaunchKind.LAUNCHER if spread else LaunchKind.RANKS,
        time_limit_s=(0, 60, 3600)[(units + share.gpus + share.cores) % 3]  # one of each class
        if counts_hours(spec)
        else dice.choice((0, 60, 3600)),
        array=dice.choice(
            (None, None, None, None, Array((Range(1, dice.randint(1, 5)),), dice.randint(0, 2)))
        ),
    )


def a_job_or_groups(dice: random.Random, spec: ClusterSpec) -> JobSpec:
    """Half of them are gangs of two or three groups, each of which asks for what some job would."""
    first = a_job(dice, spec)
    if dice.random() < 0.5:
        return first
    others = [a_job(dice, spec) for _ in range(dice.choice((1, 1, 2)))]
    return as_gang(first, others)


def as_gang(first: JobSpec, others: list[JobSpec]) -> JobSpec:
    """A gang of groups that ask for what these jobs ask for; all else is of the first one."""
    return grouped(
        "j",
        parts={f"g{at}": one for at, one in enumerate((first, *others))},
        queue=first.queue,
        topology=replace(first.topology, segment_nodes=0, segment_level=""),  # groups have none
        priority=first.priority,
        launch=LaunchKind.RANKS,
        time_limit_s=first.time_limit_s,
        array=first.array,
    )


def a_policy(dice: random.Random, spec: ClusterSpec) -> Policy:
    """Settings of all kinds."""
    return replace(policy_of(spec), kept=dice.choice((0, 1, 2, 8)))


def _facts(dice: random.Random, spec: Pool) -> NodeFacts:
    """What a node reports: devices with memory, of which one may be missing, and then its slot is empty."""
    sizes = {"A": 40 * GIB, "B": 46_068 << 20}
    devices = tuple(
        Device(slot, spec.gpu.model, sizes[spec.gpu.model], emulated=True, numa=slot // 2)
        for slot in range(spec.gpu.count if spec.gpu else 0)
        if spec.gpu
    )
    if len(devices) > 1 and dice.random() < 0.1:
        devices = tuple(each for each in devices if each.slot != dice.randrange(len(devices)))
    return NodeFacts("boot-1", spec.cores, spec.memory, devices)


@dataclass
class Story:
    """A cluster that lives: jobs come, start, end, are cancelled; nodes close and open. `check` is called before each
    pass with the state and the policy, and after it with the decisions as well."""

    dice: random.Random
    check: Callable[[Story, tuple[Start, ...]], None]
    kind: Callable[[random.Random], ClusterSpec] = a_cluster
    kept: int | None = None  # instead of any
    asks: Callable[[random.Random, ClusterSpec], JobSpec] = a_job
    refused: Callable[[Story, JobSpec, Owner, Reason], None] | None = None  # told of each job that is
    spec: ClusterSpec = field(init=False)
    fold: Fold = field(init=False)
    policy: Policy = field(init=False)
    told: Told = field(default_factory=Told)
    now_us: int = T0

    def __post_init__(self) -> None:
        self.spec = self.kind(self.dice)
        self.fold = Fold(self.spec, ready=False)
        for each in self.spec.pools:
            for name in each.nodes:
                self.fold(events.NodeJoined(name, _facts(self.dice, each), f"outbox-{name}"))
                self.fold(events.NodeUnmarked(name, MarkKind.UNPROVED))
        if self.spec.budgets:
            self.fold(events.ClusterApplied(self.spec, "priced", prices=prices(self.dice, self.spec)))
        self.state.desired["new"] = PoolDesired("", "new", NEW)
        self.policy = a_policy(self.dice, self.spec)
        if self.kept is not None:
            self.policy = replace(self.policy, kept=self.kept)

    @property
    def state(self) -> State:
        return self.fold.state

    def seconds(self, job: Job) -> int:
        """For how long of the month a start of the job would hold its GPUs."""
        if self.state.month is None:
            return 0
        limit_s, ends_us = self.policy.time_limit_s(self.state, job.spec), self.state.month.ends_us
        until_us = min(self.now_us + limit_s * 1_000_000, ends_us) if limit_s else ends_us
        return max(-(-(until_us - self.now_us) // 1_000_000), 0)

    def play(self, length: int) -> None:
        """So many rounds of events and a pass."""
        for _ in range(length):
            for _ in range(self.dice.randint(0, 6)):
                self._event()
            self.now_us += self.dice.choice((0, 1, 30, 600)) * 1_000_000
            if self.state.hours is not None:
                self._end_by_limits()
                self._turn_month()
            self.look()

    def look(self) -> None:
        """A pass, checked and recorded."""
        decisions = decide(self.state, self.policy, self.now_us, 100_000, self.told)
        self.check(self, decisions)
        for start in decisions:
            self.fold(
                events.AttemptAllocated(
                    start.attempt,
                    start.placements,
                    start.master_address,
                    start.master_port,
                    start.time_limit_s,
                ),
                f"job/{start.attempt.job}",
                self.now_us,
            )

    def _end_by_limits(self) -> None:
        """Nothing runs on past its time limit: what it was committed for is all that it takes."""
        for job in list(self.state.jobs.values()):
            if job.attempt is not None and ends_us(job.attempt) <= self.now_us:
                self._end(job, ends_us(job.attempt))

    def _turn_month(self) -> None:
        """As the controller does it before a pass, with months of some hours."""
        month = self.state.month
        if month is None or self.now_us >= month.ends_us:
            begin_us = month.ends_us if month is not None else T0
            length_us = self.dice.choice((1800, 7200, 40_000)) * 1_000_000
            ends_us = max(begin_us + length_us, self.now_us + 60_000_000)
            self.fold(events.MonthBegan(begin_us, ends_us), "cluster", self.now_us)

    def _event(self) -> None:
        kind = self.dice.random()
        if kind < 0.5:
            self._submit()
        elif kind < 0.75:
            self._end_one()
        elif kind < 0.83:
            self._cancel_one()
        elif kind < 0.87:
            self._throttle_one()
        elif kind < 0.92:
            self._prioritize_one()
        elif kind < 0.97 or len(self.spec.pools) > 2:
            self._mark_one()
        else:
            self._change_one()

    def _submit(self) -> None:
        spec = self.asks(self.dice, self.spec)
        owner = self.dice.choice((ALICE, BOB))
        for _ in range(self.dice.choice((1, 1, 1, 5))):
            never = refuse.never(self.state, spec, owner.name)
            if never is None:
                self.fold.submit(spec, owner)
            elif self.refused is not None:
                self.refused(self, spec, owner, never)

    def _end_one(self) -> None:
        live = [job for job in self.state.jobs.values() if job.attempt is not None]
        if live:
            self._end(self.dice.choice(live))

    def _end(self, job: Job, t_us: int = 0) -> None:
        assert job.attempt is not None
        attempt = job.attempt.id
        for part in list(job.attempt.parts):
            self.fold(events.AttemptPartEnded(attempt, part.placement.node), "story", t_us)
        self.fold(events.AttemptEnded(attempt, EndCause.COMPLETED), "story", t_us)
        self.fold(events.JobEnded(job.id, JobState.SUCCEEDED), "story", t_us)

    def _cancel_one(self) -> None:
        waiting = [job for job in self.state.jobs.values() if job.state is JobState.WAITING]
        if waiting:
            self.fold(events.JobEnded(self.dice.choice(waiting).id, JobState.CANCELLED))

    def _prioritize_one(self) -> None:
        waiting = [job for job in self.state.jobs.values() if job.state is JobState.WAITING]
        if waiting:
            self.fold(events.JobPrioritized(self.dice.choice(waiting).id, self.dice.choice((-3, 0, 5, 9))))

    def _throttle_one(self) -> None:
        """Never below what has an attempt, so that limits hold at every moment."""
        if self.state.arrays:
            array = self.dice.choice(list(self.state.arrays))
            jobs = [job for job in self.state.jobs.values() if job.array == array]
            running = sum(job.attempt is not None for job in jobs)
            self.fold(events.ArrayThrottled(array, self.dice.choice((0, max(running, 1), running + 1))))

    def _mark_one(self) -> None:
        name = self.dice.choice(list(self.state.nodes))
        if self.state.nodes[name].marks:
            self.fold(events.NodeUnmarked(name, MarkKind.CORDONED))
        else:
            self.fold(events.NodeMarked(name, Mark(MarkKind.CORDONED, "", "", 0)))

    def _change_one(self) -> None:
        """A change of software has come to one more node."""
        node = self.state.nodes[self.dice.choice(list(self.state.nodes))]
        self.fold(events.NodeConfigured(node.name, "" if node.configured else "new"))


def cold(state: State) -> State:
    """The same state, read back: without anything that passes remember."""
    return from_plain(to_plain(state))
