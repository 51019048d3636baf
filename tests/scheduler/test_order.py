"""Whose turn it is: against the order said plainly, on worlds of one-GPU jobs, and in what each line promises."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger import events
from orchestrator.model.attempt import EndCause, JobState
from orchestrator.model.cluster import ClusterSpec, FairShare, Queue, QueueLimits, Share
from orchestrator.model.decisions import Start
from orchestrator.model.job import Owner
from orchestrator.scheduler import Policy, decide
from tests.builders import ALICE, BOB, Fold, cluster, job, pool
from tests.scheduler.exhaustive import Paper
from tests.scheduler.fuzz import Story, Told, small
from tests.scheduler.naive_order import World, in_line

pytestmark = pytest.mark.property
SEEDS = st.integers(0, 10**9)
PEOPLE = (ALICE, BOB, Owner("carol", 1003, 1003))


def a_flat_world(dice: random.Random) -> ClusterSpec:
    """One pool, up to five queues, of which some stand below others: jobs are only in those at the bottom."""
    names = ["a", "b", "c", "d", "e"][: dice.randint(1, 5)]
    parents = {name: dice.choice(["", *names[:at]]) for at, name in enumerate(names)}
    queues = tuple(
        Queue(
            name,
            parents[name],
            (Share(dice.randint(1, 6), "p"),) if dice.random() < 0.4 else (),
            (Share(dice.randint(0, 4), "p"),) if dice.random() < 0.3 else (),
            weight=dice.randint(1, 3),
            limits=QueueLimits(
                max_running_jobs=dice.choice((0, 0, 3)), max_gpus_per_user=dice.choice((0, 0, 2))
            ),
        )
        for name in names
    )
    return cluster(pool(nodes=dice.randint(1, 2), gpus=dice.choice((4, 8))), queues=queues)


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_the_order_is_the_one_that_is_said_plainly(seed: int) -> None:
    """Passes of random worlds: the same jobs start, in the same order."""
    dice = random.Random(seed)
    spec = a_flat_world(dice)
    fold = Fold(spec)
    policy = Policy(fair_share=dice.choice((FairShare.OFF, FairShare.INSTANT)), kept=dice.choice((0, 8)))
    leaves = [one.name for one in spec.queues if one.name not in {other.parent for other in spec.queues}]
    for _ in range(5):
        for _ in range(dice.randint(0, 12)):
            asked = job(queue=dice.choice(leaves), priority=dice.choice((0, 0, 1)))
            fold.submit(asked, dice.choice(PEOPLE))
        _end_some(fold, dice)
        _prioritize_some(fold, dice)
        want = World.of(fold.state).run(policy.fair_share is not FairShare.OFF)
        decisions = decide(fold.state, policy, 0, 10_000, Told())
        assert [start.attempt.job for start in decisions] == want
        for start in decisions:
            fold(events.AttemptAllocated(start.attempt, start.placements, "", 0, 0))


def _end_some(fold: Fold, dice: random.Random) -> None:
    for one in list(fold.state.jobs.values()):
        if one.attempt is not None and dice.random() < 0.3:
            for part in list(one.attempt.parts):
                fold(events.AttemptPartEnded(one.attempt.id, part.placement.node))
            fold(events.AttemptEnded(one.attempt.id, EndCause.COMPLETED))
            fold(events.JobEnded(one.id, JobState.SUCCEEDED))


def _prioritize_some(fold: Fold, dice: random.Random) -> None:
    for one in fold.state.jobs.values():
        if one.attempt is None and dice.random() < 0.1:
            fold(events.JobPrioritized(one.id, dice.choice((-1, 0, 2))))


def nobody_is_overtaken_in_line(story: Story, decisions: tuple[Start, ...]) -> None:
    """Of one person and queue: when a job starts, none that stands before it could start in its stead."""
    paper, state = Paper(story.state, seconds=story.seconds), story.state
    started = {start.attempt.job for start in decisions}
    left = [one for one in state.jobs.values() if one.state is JobState.WAITING and one.id not in started]
    guarantees = any(queue.guarantee for queue in story.spec.queues)
    for start in () if guarantees else decisions:
        mine = state.jobs[start.attempt.job]
        line = [one for one in left if (one.spec.queue, one.owner) == (mine.spec.queue, mine.owner)]
        for one in line:
            if in_line(one) < in_line(mine):
                assert not paper.starts(one), f"{mine.id} has overtaken {one.id}"
        paper.start(mine, start)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_nobody_is_overtaken_in_line(seed: int) -> None:
    Story(random.Random(seed), nobody_is_overtaken_in_line, small, kept=0).play(8)
