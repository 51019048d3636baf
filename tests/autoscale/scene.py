"""A cluster with bought pools on paper: what is on offer, and the facts that a controller would record of decisions.

Comes in: pools, budgets, jobs. Goes out: a Fold with a clock, in which clouds answer what a test says. Called by: tests
of autoscale and of the ledger's capacity.
"""

from __future__ import annotations

import copy
from typing import Any

from orchestrator.autoscale import Policy, decide
from orchestrator.ledger import events
from orchestrator.ledger.snapshot import to_plain
from orchestrator.model.attempt import EndCause, JobState
from orchestrator.model.capacity import (
    ErrorClass,
    Instance,
    Intent,
    Offer,
    OfferingKey,
    Shape,
    billed_s,
)
from orchestrator.model.cluster import (
    Budget,
    ClusterSpec,
    GpuSpec,
    Market,
    Network,
    Offering,
    Pool,
    PoolSize,
    Queue,
    Scope,
    Site,
    SiteKind,
)
from orchestrator.model.decisions import Buy, CapacityDecision, Cordon, Reasons, Release, Uncordon
from orchestrator.model.ids import intent_id
from orchestrator.model.node import Device, Mark, MarkKind, NodeFacts
from orchestrator.model.protocol import EndOrder
from orchestrator.model.reasons import Reason, reason
from orchestrator.scheduler import Policy as SchedulerPolicy
from orchestrator.scheduler import decide as schedule
from orchestrator.scheduler.waits import Stopped
from tests.builders import GPU, T0, Fold

SECOND = 1_000_000
DOLLAR = 1_000_000
SHAPE = Shape(8, 96, 512 << 30)


def elastic(name: str = "burst", most: int = 4, least: int = 0, **rest: Any) -> Pool:
    """A bought pool of nodes with 8 GPUs; idle after 600 s, 1500 s to boot."""
    size = PoolSize(least, most, rest.pop("idle_s", 600), rest.pop("boot_s", 1500))
    offering = Offering(("p5.48xlarge",), Market.ON_DEMAND)
    return Pool(name, rest.pop("site", "use1"), gpu=GpuSpec(GPU, 8), size=size, offerings=(offering,), **rest)


def hybrid(
    *pools: Pool, budgets: tuple[Budget, ...] = (), queues: tuple[Queue, ...] = (Queue("default"),)
) -> ClusterSpec:
    """A cluster of a local site `here` and an aws site `use1`."""
    sites = (
        Site("here", SiteKind.LOCAL, Network("")),
        Site("use1", SiteKind.AWS, region="us-east-1", zones=("us-east-1a", "us-east-1b")),
    )
    return ClusterSpec("test", sites=sites, pools=pools or (elastic(),), budgets=budgets, queues=queues)


def budget(name: str = "cloud", hour: int = 0, month: int = 0, **scope: str) -> Budget:
    """Dollars an hour and a month."""
    return Budget(
        name, scope=Scope(**scope), microusd_per_hour=hour * DOLLAR, microusd_per_month=month * DOLLAR
    )


def offer(
    market: str = "on_demand",
    zone: str = "us-east-1a",
    *,
    pool: str = "burst",
    type_: str = "p5.48xlarge",
    dollars: int = 50,
    shape: Shape = SHAPE,
    **rest: Any,
) -> Offer:
    """One offering in one zone."""
    key = OfferingKey(pool, type_, market, zone, rest.pop("reservation", ""))
    return Offer(key, "use1", dollars * DOLLAR, shape, **rest)


class Told:
    """Keeps what both passes tell: of the one over capacity what it tells first."""

    def __init__(self) -> None:
        self.reasons: dict[Any, Reason] = {}
        self.waits: Reasons | None = None

    def waiting(self, reasons: Reasons) -> None:
        self.waits = reasons

    def class_blocked(self, key: Any, reason: Reason) -> None:
        self.reasons.setdefault(key, reason)


class Scene(Fold):
    """A ledger, the time, and what is on offer; instances are i-1, i-2 … in the order in which they are launched."""

    def __init__(self, spec: ClusterSpec | None = None, offers: tuple[Offer, ...] | None = None) -> None:
        super().__init__(spec or hybrid())
        self(events.ClusterNamed("k3j9x0q2m5a7"), "cluster")
        self.offers = offers if offers is not None else (offer(), offer(zone="us-east-1b"))
        self.policy = Policy()
        self.scheduling = SchedulerPolicy()
        self.now_us = T0
        self.made = 0
        self.waits: Reasons = Stopped(reason("wait.next-pass"))
        self.reasons: dict[Any, Reason] = {}

    def __call__(self, body: Any, subject: str = "test", t_us: int = 0) -> Any:
        return super().__call__(body, subject, t_us or getattr(self, "now_us", 0))

    def wait(self, seconds: int) -> None:
        """Time passes."""
        self.now_us += seconds * SECOND

    # --- passes ---------------------------------------------------------------------------------------------

    def look(self, budget: int = 10_000) -> tuple[CapacityDecision, ...]:
        """Both passes; starts are recorded, decisions about capacity are not. State must be as before."""
        told = Told()
        for start in schedule(self.state, self.scheduling, self.now_us, budget, told):
            job = start.attempt.job
            self(
                events.AttemptAllocated(
                    start.attempt,
                    start.placements,
                    start.master_address,
                    start.master_port,
                    start.time_limit_s,
                ),
                f"job/{job}",
            )
        self.waits = told.waits or self.waits
        before, capacity = copy.deepcopy(to_plain(self.state)), Told()
        used = {name: dict(scope.used) for name, scope in self.state.limits.scopes.items()}
        decisions = decide(self.state, self.offers, self.policy, self.now_us, budget, capacity, self.waits)
        assert to_plain(self.state) == before, "a pass changed State"
        assert {name: dict(scope.used) for name, scope in self.state.limits.scopes.items()} == used
        waits = {key: self.waits.get(key) for key in self.state.classes}
        self.reasons = {**{key: why for key, why in waits.items() if why is not None}, **capacity.reasons}
        return decisions

    def reason_of(self, job_id: int) -> Reason:
        """Why a job waits, after `look`."""
        job = self.state.jobs[job_id]
        return next(why for key, why in self.reasons.items() if key.shape.request == job.spec.request)

    # --- what a controller records ---------------------------------------------------------------------------

    def carry_out(self, decisions: tuple[CapacityDecision, ...] | None = None) -> list[str]:
        """Record decisions; the ids of new intents."""
        made: list[str] = []
        for one in self.look() if decisions is None else decisions:
            if isinstance(one, Buy):
                made.append(self.intend(one))
            elif isinstance(one, Cordon):
                mark = Mark(MarkKind.RELEASING, one.why, "autoscale", self.now_us)
                self(events.NodeMarked(one.node, mark))
            elif isinstance(one, Uncordon):
                self(events.NodeUnmarked(one.node, MarkKind.RELEASING))
            else:
                self.release(one)
        return made

    def intend(self, buy: Buy) -> str:
        """The intent of a decision."""
        name = intent_id(self.state.seq + 1)
        intent = Intent(
            name,
            buy.offer.site,
            buy.offer.key,
            buy.nodes,
            buy.offer.price,
            buy.offer.shape,
            buy.job,
            buy.queue,
            buy.offer.max_price,
            buy.until_us,
            buy.offer.ends_us,
        )
        self(events.CapacityIntended(intent))
        return name

    def release(self, one: Release) -> None:
        self(events.CapacityReleasing(one.intent, one.instances, one.why, one.failed, one.retry_us))

    def launch(self, *intents: str) -> list[str]:
        """The cloud has launched all of these (or all that were asked for); the nodes."""
        nodes: list[str] = []
        for name in intents or [fleet.intent.id for fleet in self.state.fleets.values() if fleet.asked]:
            bought = []
            for node in self.state.fleets[name].intent.nodes:
                self.made += 1
                bought.append(Instance(f"i-{self.made}", node, f"10.64.0.{self.made}", self.now_us))
                nodes.append(node)
            self(events.CapacityLaunched(name, tuple(bought)))
        return nodes

    def refuse(self, intent: str, fault: ErrorClass | None, rest_s: int = 60) -> None:
        """The cloud has refused."""
        retry_us = self.now_us + rest_s * SECOND
        self(events.CapacityRefused(intent, fault, f"{fault} on {intent}", retry_us))

    def join(self, *nodes: str, gpus: int = 8) -> None:
        """These nodes joined and are what was asked for."""
        for name in nodes:
            node = self.state.nodes[name]
            devices = tuple(Device(slot, GPU, emulated=True) for slot in range(gpus))
            self(
                events.NodeJoined(name, NodeFacts("boot", 96, 512 << 30, devices), f"outbox-{node.instance}")
            )
            self(events.NodeUnmarked(name, MarkKind.UNPROVED))
            self(events.CapacityProved(self.state.instances[node.instance], node.instance))

    def gone(self, *nodes: str) -> None:
        """The cloud says that these are gone."""
        for name in nodes:
            instance = self.state.nodes[name].instance
            intent = self.state.instances[instance]
            one = next(one for one in self.state.fleets[intent].instances if one.id == instance)
            seconds = billed_s(one.launched_us, self.now_us)
            self(events.CapacityGone(intent, instance, self.now_us, seconds))

    def bought(self, *, ready: bool = True) -> list[str]:
        """Carry a pass out, and let the cloud launch all of it; the new nodes, joined if `ready`."""
        nodes = self.launch(*self.carry_out())
        if ready:
            self.join(*nodes)
        return nodes

    def end(self, job_id: int) -> None:
        """The job's attempt is over everywhere, and so is the job."""
        attempt = self.state.jobs[job_id].attempt
        assert attempt is not None
        order = EndOrder("cancelled")
        self(events.AttemptEnding(attempt.id, EndCause.CANCELLED, order))
        for part in attempt.parts:
            self(events.AttemptPartEnded(attempt.id, part.placement.node))
        self(events.AttemptEnded(attempt.id, EndCause.CANCELLED))
        self(events.JobEnded(job_id, JobState.CANCELLED))


def kinds(scene: Scene) -> list[str]:
    """What a pass would decide now, by type."""
    return [type(one).__name__ for one in scene.look()]
