"""Whatever a cloud does, and whenever the controller dies: nothing is doubled, nothing leaks, the books are right.

A state machine turns the hands task by task, loses answers, hides new instances, lets the cloud refuse, forget and take
back, kills the controller between any two steps, and lets time pass. At the end everything is well again for an hour,
without work: then nothing exists, and the ledger has what was billed.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orchestrator.controller import commands
from orchestrator.ledger import events
from orchestrator.ledger.events import Event
from orchestrator.model.capacity import ErrorClass
from orchestrator.model.cluster import ClusterSpec, Market, Offering
from orchestrator.model.errors import Refused
from orchestrator.model.node import MarkKind
from tests.autoscale.scene import budget, elastic, hybrid
from tests.builders import ALICE, job
from tests.controller.clouds import CloudWorld
from tests.controller.invariants import check_state
from tests.controller.scenes import ledger

MOST = 4
HOURLY = 150  # dollars: less than MOST nodes on demand
OFFERINGS = (
    Offering(("p5.48xlarge",), Market.SPOT, 20_000_000),
    Offering(("p5.48xlarge",), Market.ON_DEMAND),
)


def spec_of(most: int = MOST, least: int = 0) -> ClusterSpec:
    pool = replace(elastic(most=most, least=least, idle_s=120, boot_s=400), offerings=OFFERINGS)
    return hybrid(pool, budgets=(budget(hour=HOURLY),))


class Elasticity(RuleBasedStateMachine):
    """One world, its cloud, and all that can go wrong between them."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Event] = []
        self.folder = tempfile.TemporaryDirectory(prefix="gangline-elastic-")
        self.world = CloudWorld(Path(self.folder.name) / "state", spec_of())

    @initialize(spot=st.integers(0, 4), on_demand=st.integers(0, 4))
    def stock(self, spot: int, on_demand: int) -> None:
        self.world.sky.stock = {"spot": spot, "on_demand": on_demand}

    # --- people and time ------------------------------------------------------------------------------------

    @rule(nodes=st.integers(1, 4))
    def submit(self, nodes: int) -> None:
        if len(self.world.state.jobs) < 4:
            spec = job(nodes=nodes, gpus=8, time_limit_s=600)
            answer = self.world.do(commands.Submit(spec, ALICE, "user:alice"))
            assert isinstance(answer, commands.Submitted | Refused)

    @precondition(lambda self: self.world.state.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.world.state.jobs)))
        self.world.do(commands.CancelJob(chosen, "user:alice", now=True))

    @rule(seconds=st.sampled_from([1, 5, 15, 60, 130, 450]))
    def wait(self, seconds: int) -> None:
        self.world.sync_agents()
        self.world.wait(seconds)

    @rule(most=st.integers(1, 5), least=st.integers(0, 2))
    def resize(self, most: int, least: int) -> None:
        self.world.do(commands.ApplyCluster(spec_of(most, min(least, most)), "user:root"))

    # --- hands and agents -----------------------------------------------------------------------------------

    @rule(tasks=st.integers(1, 3))
    def turn(self, tasks: int) -> None:
        self.world.turn(tasks)

    @rule()
    def turn_all(self) -> None:
        self.world.calm()

    @rule()
    def lose_tasks_that_only_look(self) -> None:
        """A thread that hangs in a call answers late."""
        self.world.hands.tasks.sort(key=lambda task: type(task).__name__)

    @rule()
    def boot_some(self) -> None:
        names = [
            node.name for node in self.world.state.nodes.values() if node.instance and not node.releasing
        ]
        lives = [name for name in names if self.world._lives(self.world.state.nodes[name].instance)]
        if lives:
            self.world.boot(*lives[: 1 + len(lives) // 2])

    @rule()
    def beat(self) -> None:
        self.world.sync_agents()
        self.world.settle(2)

    # --- the cloud ------------------------------------------------------------------------------------------

    @rule(said=st.sampled_from(["lost", "silent", *ErrorClass]))
    def say(self, said: ErrorClass | str) -> None:
        self.world.sky.script.append(said)

    @rule(seconds=st.sampled_from([0, 20, 80]))
    def hide(self, seconds: int) -> None:
        self.world.sky.hide_s = seconds

    @rule(blind=st.booleans(), stubborn=st.booleans())
    def fail(self, blind: bool, stubborn: bool) -> None:
        self.world.sky.blind, self.world.sky.stubborn = blind, stubborn

    @precondition(lambda self: self.world.sky.alive())
    @rule(data=st.data(), forget=st.booleans())
    def take_back(self, data: st.DataObject, forget: bool) -> None:
        name = data.draw(st.sampled_from(self.world.sky.alive()))
        self.world.sky.end(name)
        self.world.agents = {
            node: agent for node, agent in self.world.agents.items() if agent.outbox != f"outbox-{name}"
        }
        if forget:
            self.world.sky.remember_s = 0

    # --- the controller -------------------------------------------------------------------------------------

    @rule()
    def kill(self) -> None:
        self.world.kill_controller()
        self.world.start_controller()

    @rule()
    def snapshot(self) -> None:
        self.world.core._snapshot()

    # --- what always holds ----------------------------------------------------------------------------------

    @invariant()
    def the_state_is_sound(self) -> None:
        check_state(self.world.state)

    @invariant()
    def no_intent_is_launched_twice(self) -> None:
        asked = {
            event.body.intent.sign: len(event.body.intent.nodes)
            for event in self._told()
            if isinstance(event.body, events.CapacityIntended)
        }
        made: dict[str, int] = {}
        for machine in self.world.sky.machines.values():
            made[machine.intent] = made.get(machine.intent, 0) + 1
        assert all(count == asked[intent] for intent, count in made.items())

    def _told(self) -> list[Event]:
        """All that is on the disk; read on from where the last look ended."""
        self.told += ledger(self.world, self.told[-1].seq if self.told else 0)
        return self.told

    @invariant()
    def no_budget_is_passed(self) -> None:
        hourly = sum(
            fleet.intent.price * (len(fleet.instances) or len(fleet.intent.nodes))
            for fleet in self.world.state.fleets.values()
        )
        assert hourly <= HOURLY * 1_000_000

    # --- the end --------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        world = self.world
        try:
            self._make_well()
            world.pass_s(3600, step=60)
            assert world.sky.alive() == [], "something leaks"
            assert world.state.fleets == {}
            assert [node.name for node in world.state.nodes.values()] == []
            self._books_are_right()
        finally:
            world.kill_controller()
            self.folder.cleanup()

    def _make_well(self) -> None:
        world = self.world
        world.sky.script, world.sky.hide_s = [], 0
        world.sky.blind = world.sky.stubborn = False
        world.sky.remember_s = 3600
        world.do(commands.ApplyCluster(spec_of(MOST, 0), "user:root"))
        for job_id in list(world.state.jobs):
            world.do(commands.CancelJob(job_id, "user:alice", now=True))
        world.sync_agents()
        world.settle(4)
        for node in list(world.state.nodes.values()):
            for mark in [mark for mark in node.marks if mark.kind is MarkKind.CORDONED]:
                world.do(commands.UncordonNode(node.name, "user:root", mark.kind))

    def _books_are_right(self) -> None:
        """Each instance that the ledger has known is billed there, no less than the cloud bills it."""
        known = {
            one.id
            for event in self._told()
            if isinstance(event.body, events.CapacityLaunched)
            for one in event.body.instances
        }
        billed = sum(
            machine.billed_s(machine.ended_us)
            for machine in self.world.sky.machines.values()
            if machine.id in known
        )
        assert self.world.billed_s() >= billed


@pytest.mark.property
def test_nothing_leaks_and_nothing_is_doubled_whatever_happens() -> None:
    run_state_machine_as_test(
        Elasticity, settings=settings(max_examples=30, stateful_step_count=40, deadline=None)
    )
