"""A world with a cloud: the real core with elastic pools, and a cloud in memory that a test bends.

Comes in: a spec with bought pools, and what the cloud does wrong. Goes out: what exists and what it is billed. Called
by: tests of the controller. Nothing is asked before a test turns the hands, so every interleaving can be told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.controller import commands
from orchestrator.controller.beats import Beats
from orchestrator.controller.elastic import Elastic
from orchestrator.controller.hands import perform
from orchestrator.controller.inbox import Inbox
from orchestrator.controller.loop import Core
from orchestrator.controller.settings import Settings
from orchestrator.controller.view import View
from orchestrator.model.capacity import (
    CloudInstance,
    CloudState,
    ErrorClass,
    Intent,
    Reserved,
    billed_s,
    client_token,
)
from orchestrator.model.clock import SECOND, ManualClock
from orchestrator.model.cluster import ClusterSpec, Market, Offering, Site
from orchestrator.model.node import Device, NodeFacts
from orchestrator.model.stack_facts import StackFacts, SubnetFact, TemplateFact
from orchestrator.provision.cloud import LaunchError, Task, Unanswered
from tests.autoscale.scene import elastic, hybrid
from tests.builders import GPU, job
from tests.controller.world import ModelAgent, World, _Here
from tests.ledgers import open_quickly

GANG_OF_4 = job(nodes=4, gpus=8)
SPOT_THEN_ON_DEMAND = (
    Offering(("p5.48xlarge",), Market.SPOT, 30_000_000),
    Offering(("p5.48xlarge",), Market.ON_DEMAND),
)


@dataclass
class Machine:
    """One instance of the cloud in memory; times in UTC microseconds, 0: not yet."""

    id: str
    intent: str
    site: str
    token: str
    zone: str
    market: str
    launched_us: int
    shown_us: int  # from when on describing tells of it
    ended_us: int = 0
    forgotten_us: int = 0

    def billed_s(self, now_us: int) -> int:
        return billed_s(self.launched_us, self.ended_us or now_us)


@dataclass
class FakeCloud:
    """EC2 as far as the controller knows it. `stock` by market: how many may exist; `script`: what the next launches
    do: an error class, `lost` (nothing is done, nothing is answered) or `silent` (done, not answered)."""

    clock: ManualClock
    stock: dict[str, int] = field(default_factory=dict)
    script: list[ErrorClass | str] = field(default_factory=list)
    hide_s: int = 0
    remember_s: int = 3600
    stubborn: bool = False  # terminating fails
    blind: bool = False  # describing fails
    secretive: bool = False  # looking at reservations fails
    reservations: dict[str, Reserved] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def launch(self, intent: Intent, facts: StackFacts) -> tuple[CloudInstance, ...]:
        self.calls.append(intent.id)
        token = client_token(facts.uid, intent.sign)
        mine = [one for one in self.machines.values() if one.token == token]
        said = self.script.pop(0) if self.script else ""
        if said == "lost":
            raise Unanswered("read timeout")
        if isinstance(said, ErrorClass):
            raise LaunchError(said, f"{said} says the cloud")
        market = intent.offering.market
        if not mine:
            alive = sum(1 for one in self.machines.values() if one.market == market and not one.ended_us)
            if alive + len(intent.nodes) > self.stock.get(market, 1000):
                raise LaunchError(ErrorClass.CAPACITY, f"no {market} capacity for {len(intent.nodes)}")
            mine = [self._start(intent, token) for _ in intent.nodes]
        if said == "silent":
            raise Unanswered("read timeout")
        return tuple(self._shown(one) for one in mine)

    def _start(self, intent: Intent, token: str) -> Machine:
        now_us = self.clock.now_us()
        one = Machine(
            f"i-{len(self.machines) + 1:04d}",
            intent.sign,
            intent.site,
            token,
            intent.offering.zone,
            intent.offering.market,
            now_us,
            now_us + self.hide_s * SECOND,
        )
        self.machines[one.id] = one
        return one

    def terminate(self, ids: tuple[str, ...]) -> None:
        if self.stubborn:
            raise LaunchError(ErrorClass.AUTH, "not allowed to end instances")
        for name in ids:
            self.end(name)

    def end(self, name: str) -> None:
        """An instance ends, for whatever reason."""
        one = self.machines[name]
        one.ended_us = one.ended_us or self.clock.now_us()

    def describe(self, uid: str, site: str) -> tuple[CloudInstance, ...]:
        if self.blind:
            raise Unanswered("read timeout")
        now_us = self.clock.now_us()
        return tuple(
            self._shown(one)
            for one in self.machines.values()
            if one.token.startswith(uid)
            and one.site == site
            and one.shown_us <= now_us
            and not (one.ended_us and one.ended_us + self.remember_s * SECOND <= now_us)
        )

    def reserved(self, ids: tuple[str, ...]) -> tuple[Reserved, ...]:
        if self.secretive:
            raise LaunchError(ErrorClass.AUTH, "not allowed to look at reservations")
        return tuple(self.reservations.get(name, Reserved(name, 0)) for name in ids)

    def _shown(self, one: Machine) -> CloudInstance:
        state = CloudState.GONE if one.ended_us else CloudState.RUNNING
        address = f"10.64.1.{int(one.id[2:])}"
        return CloudInstance(one.id, one.intent, state, address, one.launched_us, one.zone)

    def alive(self) -> list[str]:
        return [one.id for one in self.machines.values() if not one.ended_us]

    def billed_s(self) -> int:
        """All seconds that the cloud bills up to now."""
        return sum(one.billed_s(self.clock.now_us()) for one in self.machines.values())


class Paused:
    """Hands that wait for a test to turn them."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def put(self, task: Task) -> None:
        self.tasks.append(task)


class CloudWorld(World):
    """A World whose `use1` is a cloud; nodes there get agents when a test boots them."""

    def __init__(self, path: Path, spec: ClusterSpec | None = None, settings: Settings | None = None) -> None:
        self.cloud: FakeCloud | None = None
        self.facts_spec: str | None = ""  # empty: always of the wanted file; None: there are none
        super().__init__(path, spec or hybrid(), settings)
        self.calm()

    def start_controller(self) -> None:
        """A new controller, and new hands: what the old ones were about to do is lost."""
        self.cloud = self.cloud or FakeCloud(self.clock)
        self.store = open_quickly(self.path)
        self.inbox, self.view = Inbox(), View()
        self.beats = Beats(self.clock, self.settings)
        self.hands = Paused()
        self.core = Core(
            self.store,
            self.clock,
            self.settings,
            self.inbox,
            self.view,
            self.beats,
            elastic=Elastic(self.hands),
        )
        self.core.connect(_Here(), lambda jobs, nodes: None, lambda: None)  # type: ignore[arg-type]
        self.core._open()

    @property
    def sky(self) -> FakeCloud:
        assert self.cloud is not None
        return self.cloud

    def facts(self, cluster: str, uid: str, site: Site) -> StackFacts | None:
        if self.facts_spec is None:
            return None
        spec = self.facts_spec or self.core._elastic.digest(self.state, site.name)
        return StackFacts(
            cluster,
            uid,
            site.name,
            site.region,
            "123456789012",
            spec,
            subnets=tuple(SubnetFact(zone, f"subnet-{zone}") for zone in site.zones),
            templates=tuple(self._templates(site)),
        )

    def _templates(self, site: Site) -> Iterator[TemplateFact]:
        """As the stack of the wanted file has them."""
        assert self.state.cluster is not None
        for pool in self.state.cluster.pools:
            for one in pool.offerings if pool.site == site.name else ():
                for name in one.types:
                    image = pool.image or site.image
                    yield TemplateFact(
                        pool.name, name, "lt", 1, image, reservation=one.reservation, meaning=f"image {image}"
                    )

    # --- hands ----------------------------------------------------------------------------------------------

    def turn(self, most: int = 1000) -> int:
        """Perform what is there to do, and give the controller the answers; how many tasks."""
        tasks, self.hands.tasks = self.hands.tasks[:most], self.hands.tasks[most:]
        for task in tasks:
            self.do(perform(task, lambda site: self.sky, self.facts))
        return len(tasks)

    def calm(self, turns: int = 10) -> None:
        """Turn until nothing is to do at this moment."""
        for _ in range(turns):
            self.cycle()
            if not self.turn():
                return

    def pass_s(self, seconds: int, step: int = 10) -> None:
        """Time passes, all bought nodes that have agents are heard, all answers come at once."""
        for _ in range(max(seconds // step, 1)):
            self.sync_agents()
            self.wait(step)
            self.beat()
            self.calm()

    # --- bought nodes ---------------------------------------------------------------------------------------

    def boot(self, *nodes: str, facts: NodeFacts | None = None) -> None:
        """The agents of these bought nodes (all, if none is named) start and are let in."""
        for name in nodes or [node.name for node in self.state.nodes.values() if node.instance]:
            node = self.state.nodes[name]
            if name not in self.agents:
                devices = tuple(Device(slot, GPU, emulated=True) for slot in range(8))
                told = facts or NodeFacts(f"boot-{node.instance}", 192, 2048 << 30, devices)
                self.agents[name] = ModelAgent(name, f"outbox-{node.instance}", told)
        self.beat()
        self.cycle()

    def sync_agents(self) -> None:
        """Machines that are gone don't speak, and neither do those whose node is another instance now."""
        for name, agent in list(self.agents.items()):
            node = self.state.nodes.get(name)
            instance = agent.outbox.removeprefix("outbox-")
            if instance.startswith("i-") and (node is None or not self._lives(instance)):
                del self.agents[name]

    def _lives(self, instance: str) -> bool:
        machine = self.sky.machines.get(instance)
        return machine is not None and not machine.ended_us

    def ready(self) -> list[str]:
        """Everything that was decided is launched, joined and proved; the bought nodes."""
        self.calm()
        self.boot()
        self.calm()
        return [node.name for node in self.state.nodes.values() if node.instance]

    def known(self) -> list[str]:
        """Instances in the ledger."""
        return sorted(self.state.instances)

    def interrupt(self, node: str, in_s: int, why: str = "spot instance interruption") -> Any:
        at_us = self.clock.now_us() + in_s * SECOND
        return self.do(commands.InterruptNode(node, at_us, why, f"node:{node}"))

    def billed_s(self) -> int:
        """Seconds of instances that are gone, as the ledger has them."""
        return sum(account.seconds for account in self.state.accounts.values())


def world_of(path: Path, **rest: object) -> CloudWorld:
    """A pool `burst` of at most 4, on spot first; one zone."""
    spec = hybrid(replace(elastic(**rest), offerings=SPOT_THEN_ON_DEMAND))  # type: ignore[arg-type]
    sites = tuple(replace(site, zones=site.zones[:1]) for site in spec.sites)
    return CloudWorld(path / "state", replace(spec, sites=sites))
