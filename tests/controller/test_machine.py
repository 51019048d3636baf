"""Promises 1, 2, 4, 5 and 6 under anything: submits, ends, node losses, restarts, and a wire that loses, repeats and
reorders. At the end everything heals, and every job must come to its end."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orchestrator.controller import commands
from orchestrator.controller.settings import Settings
from orchestrator.model.attempt import JobState
from orchestrator.model.job import OnLost
from orchestrator.model.node import MarkKind
from orchestrator.store.base import HistoryQuery
from tests.builders import ALICE, BOB, cluster, job, pool, queue
from tests.controller.invariants import check_reasons, check_world
from tests.controller.world import World

NODES = ("a-1", "a-2", "a-3", "b-1", "b-2")
SPEC = cluster(
    pool("a", nodes=3, gpus=4, cores=8),
    pool("b", nodes=2, gpus=2, cores=4, model="L40S-48GB"),
    queues=(queue("default"), queue("small", max_running_jobs=2, max_gpus_per_user=4)),
    ports=(20000, 20003),
)


class Machine(RuleBasedStateMachine):
    """Rules are what people, nodes, time and the wire can do."""

    refusals: tuple[str, ...] = ("never.",)

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="machine-"))
        self.world = World(self.folder, SPEC, Settings(lease_s=60, snapshot_every=40))
        self.late: list[tuple[str, str, Any, int]] = []
        self.acknowledged: set[int] = set()
        self.world.beat()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.heal()
        finally:
            self.world.kill_controller()
            shutil.rmtree(self.folder)

    # --- people ---------------------------------------------------------------------------------------------

    @rule(
        shape=st.sampled_from(["task", "tasks", "nodes", "wide", "cpu"]),
        size=st.integers(1, 3),
        priority=st.integers(-1, 1),
        where=st.sampled_from(["default", "small"]),
        owner=st.sampled_from([ALICE, BOB]),
        fence=st.booleans(),
        retries=st.integers(0, 1),
    )
    def submit(
        self, shape: str, size: int, priority: int, where: str, owner: Any, fence: bool, retries: int
    ) -> None:
        ask: dict[str, Any] = {
            "task": {"tasks": 1, "gpus": size},
            "tasks": {"tasks": size * 3, "gpus": 1},
            "nodes": {"nodes": size, "gpus": 2},
            "wide": {"nodes": 3, "gpus": 4},
            "cpu": {"tasks": size, "gpus": 0, "cores": 2},
        }[shape]
        spec = job(
            priority=priority,
            queue=where,
            job_failures=retries,
            on_lost=OnLost.SELF_FENCE if fence else OnLost.WAIT_FOR_PROOF,
            **ask,
        )
        answer = self.world.do(commands.Submit(spec, owner, f"user:{owner.name}"))
        if isinstance(answer, commands.Submitted):
            self.acknowledged.add(answer.job)
        else:
            assert answer.code.startswith(self.refusals), answer

    def _pick(self, at: int) -> int | None:
        jobs = list(self.world.state.jobs)
        return jobs[at % len(jobs)] if jobs else None

    @rule(
        at=st.integers(0, 50), what=st.sampled_from(["cancel", "now", "hold", "release", "requeue", "raise"])
    )
    def tell(self, at: int, what: str) -> None:
        job_id = self._pick(at)
        if job_id is None:
            return
        table: dict[str, commands.Command] = {
            "cancel": commands.CancelJob(job_id, "user:alice"),
            "now": commands.CancelJob(job_id, "user:alice", now=True),
            "hold": commands.HoldJob(job_id, "user:alice"),
            "release": commands.ReleaseJob(job_id, "user:alice"),
            "requeue": commands.RequeueJob(job_id, "user:alice"),
            "raise": commands.PrioritizeJob(job_id, 1 + at % 3, "user:alice"),
        }
        self.world.do(table[what])

    @rule(node=st.sampled_from(NODES), on=st.booleans())
    def cordon(self, node: str, on: bool) -> None:
        kind = commands.CordonNode if on else commands.UncordonNode
        self.world.do(kind(node, "user:root"))

    # --- nodes ----------------------------------------------------------------------------------------------

    @rule(
        node=st.sampled_from(NODES), at=st.integers(0, 9), code=st.sampled_from([0, 0, 3]), told=st.booleans()
    )
    def finish(self, node: str, at: int, code: int, told: bool) -> None:
        agent = self.world.agents[node]
        running = list(agent.running)
        if running and not agent.unkillable:
            agent.finish(running[at % len(running)], code, tell_failure=told)

    @rule(
        node=st.sampled_from(NODES),
        how=st.sampled_from(["reboot", "wipe", "freeze", "thaw", "refuse", "allow"]),
    )
    def upset(self, node: str, how: str) -> None:
        agent = self.world.agents[node]
        if how == "reboot":
            agent.reboot()
        elif how == "wipe":
            agent.lose_journal()
        elif how in ("freeze", "thaw"):
            agent.unkillable = how == "freeze"
        elif how == "refuse":
            agent.refuse = dict.fromkeys(self.world.state.jobs, "no such directory")
        else:
            agent.refuse = {}

    # --- the wire -------------------------------------------------------------------------------------------

    @rule(node=st.sampled_from(NODES))
    def beat(self, node: str) -> None:
        self.world.beat(node)

    @rule()
    def beat_all(self) -> None:
        self.world.beat()

    @rule(node=st.sampled_from(NODES))
    def lose_answer(self, node: str) -> None:
        answer = self.world.ask(node)
        if answer is not None:
            self.late.append((node, self.world.agents[node].outbox, answer, self.world.clock.monotonic_us()))

    @rule(at=st.integers(0, 20))
    def late_answer(self, at: int) -> None:
        if not self.late:
            return
        node, outbox, answer, asked_us = self.late[at % len(self.late)]
        if self.world.agents[node].outbox == outbox:  # a wiped agent has no connection of before
            self.world.take(node, answer, asked_us)

    # --- the controller and time ----------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.world.kill_controller()
        self.world.start_controller()
        self.world.cycle()

    @rule(seconds=st.sampled_from([1, 30, 70, 200, 20000]))
    def wait(self, seconds: int) -> None:
        self.world.wait(seconds)

    @invariant()
    def promises(self) -> None:
        if not hasattr(self, "world"):
            return
        check_world(self.world)
        check_reasons(self.world)
        self._nothing_lost()

    def _nothing_lost(self) -> None:
        reader = self.world.store.reader()
        try:
            ended = {row.job for row in reader.page(HistoryQuery(limit=1000))}
        finally:
            reader.close()
        known = set(self.world.state.jobs)
        assert self.acknowledged <= known | ended, "an acknowledged job is lost"
        assert not known & ended, "a job is both alive and over"

    def heal(self) -> None:
        """Everything mends: what can run ends well, and nothing is left."""
        world = self.world
        for node, agent in world.agents.items():
            agent.unkillable, agent.refuse = False, {}
            world.do(commands.UncordonNode(node, "user:root"))
        for _ in range(60):
            world.settle(2)
            for agent in world.agents.values():
                for attempt in list(agent.running):
                    agent.finish(attempt)
            self._people_help()
            check_world(world)
            if not world.state.jobs:
                break
        assert not world.state.jobs, f"never came to an end: {world.state.jobs}"
        self._nothing_lost()
        assert all(not node.holders for node in world.state.nodes.values())

    def _people_help(self) -> None:
        """What is kept back until a person has looked at it, though it was mended before: the word of a preparation
        that had failed by then may come only now."""
        for job_id, held in list(self.world.state.jobs.items()):
            if held.state is JobState.HELD:
                self.world.do(commands.ReleaseJob(job_id, "user:alice"))
        for node in list(self.world.state.nodes.values()):
            if any(mark.kind is MarkKind.PREPARE_FAILED for mark in node.marks):
                self.world.do(commands.UncordonNode(node.name, "user:root", MarkKind.PREPARE_FAILED))


Machine.TestCase.settings = settings(max_examples=30, stateful_step_count=40)
TestMachine = pytest.mark.property(Machine.TestCase)
