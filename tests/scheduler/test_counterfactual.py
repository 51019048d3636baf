"""Promise 6: reasons are true in the counterfactual: without what one names the job starts, with it it does not.

Stories are random: shares, topology, trees of queues, closed nodes, kept nodes. A reason may say what else is in the
way (`also`); then both are taken away.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger import events
from orchestrator.ledger.records import Job
from orchestrator.ledger.state import State
from orchestrator.model.attempt import EndCause
from orchestrator.model.decisions import Start
from orchestrator.model.node import MarkKind
from orchestrator.model.reasons import Reason
from orchestrator.scheduler import decide
from tests.builders import Fold
from tests.scheduler.exhaustive import Paper
from tests.scheduler.fuzz import Story, Told, cold, small
from tests.scheduler.test_exhaustive import waiting

pytestmark = pytest.mark.property
OPENED = {"wait.nodes-closed"}
FREED = {
    "wait.gpus",
    "wait.tasks",
    "wait.cores",
    "wait.memory",
    "wait.share",
    "wait.mig",
    "wait.device-memory",
    "wait.domain",
    "wait.alone",
    "wait.kept-for-gpus",
    "wait.segments",
    "wait.groups",
}


def reasons_are_true(story: Story, decisions: tuple[Start, ...]) -> None:
    """Of each class: what is named, taken away in a world of its own, lets its first job start, and it alone counts."""
    if decisions:
        return  # the next pass tells of the same, with the starts in the ledger
    empty = Paper(story.state, empty=True)
    for _, job, reason in waiting(story, decisions):
        if not any(pool for pool in empty.ever(job.spec)):
            continue  # nothing of what is there would help: an end of other work least of all
        codes: set[str] = set()
        told: Reason | None = reason
        while told is not None:
            codes.add(told.code)
            told = told.also
        assert starts(story, job, codes), f"{reason} of job {job.id}: it waits all the same"
        assert not starts(story, job, set()), f"{reason} of job {job.id}: it starts anyway"


def starts(story: Story, job: Job, without: set[str]) -> bool:
    """Whether the job starts in a world without what these reasons name; whoever stands before it stays for others."""
    world = Fold()
    world.state = cold(story.state)
    if without:
        _take_away(world, job.id, without)
    policy = story.policy if not without else replace(story.policy, kept=0)
    told = decide(world.state, policy, story.now_us, 100_000, Told())
    return job.id in {start.attempt.job for start in told}


def _take_away(world: Fold, job_id: int, codes: set[str]) -> None:
    state = world.state
    for other in list(state.jobs.values()):
        if other.id != job_id and other.attempt is None:
            world(events.JobHeld(other.id, "out of the way"))
        elif other.attempt is not None and codes & FREED:
            _end(world, other)
    if codes & OPENED:
        for name, node in state.nodes.items():
            if node.marks:
                world(events.NodeUnmarked(name, MarkKind.CORDONED))
        for other in list(state.jobs.values()):
            if other.attempt is not None:
                _end(world, other)
    if "wait.software" in codes:
        _make_alike(world)  # reckons power anew
    if "wait.power" in codes:
        state.power = state.memory = None
    if codes & {"wait.limit", "wait.lent", "wait.spending", "wait.gpu-hours"}:
        _lift_limits(state)


def _make_alike(world: Fold) -> None:
    """The change has gone through, and what ran meanwhile is over."""
    for other in list(world.state.jobs.values()):
        if other.attempt is not None:
            _end(world, other)
    for node in world.state.nodes.values():
        node.configured = ""
    world.state.rebuild()


def _end(world: Fold, job: Job) -> None:
    assert job.attempt is not None
    attempt = job.attempt.id
    for part in list(job.attempt.parts):
        world(events.AttemptPartEnded(attempt, part.placement.node))
    world(events.AttemptEnded(attempt, EndCause.COMPLETED))


def _lift_limits(state: State) -> None:
    for scope in list(state.limits.scopes.values()):
        state.limits.add(scope.name, scope.parent, {})
    state.limits.lending = None
    state.memory = None


@given(st.integers(0, 10**9))
@settings(max_examples=40, deadline=None)
def test_without_what_a_reason_names_the_job_starts(seed: int) -> None:
    Story(random.Random(seed), reasons_are_true, small).play(8)
