"""What is said of a job that nobody has submitted is what would come of it.

Comes in: random stories of a cluster, and small scenes. Goes out: proof that a real submit and its pass give the same
start or the same reason, that nothing of State has changed, and that the pass after it decides as if nobody had asked.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger import events
from orchestrator.ledger.snapshot import to_plain
from orchestrator.model.array import Array, read_tasks
from orchestrator.model.decisions import Start
from orchestrator.model.job import JobSpec
from orchestrator.model.node import Mark, MarkKind
from orchestrator.model.reasons import Reason
from orchestrator.scheduler import Policy, decide, refuse
from orchestrator.scheduler.what_if import MOST_TASKS, what_if
from tests.builders import ALICE, BOB, T0, Fold, cluster, job, pool, queue
from tests.controller.invariants import check_state
from tests.scheduler.fuzz import Story, Told, a_job, cold
from tests.scheduler.test_cycle import enact, run

BUDGET = 100_000


def it_says_what_would_come(story: Story, decisions: tuple[Start, ...]) -> None:
    state, dice = story.state, random.Random(story.state.seq)
    asked, owner = a_job(dice, story.spec), dice.choice((ALICE, BOB))
    before = to_plain(state)
    said = what_if(state, story.policy, asked, owner, story.now_us, BUDGET)

    assert to_plain(state) == before
    check_state(state)
    assert said.tasks == (asked.array.count() if asked.array is not None else 1)
    never = refuse.never(state, asked, owner.name)
    if never is not None:
        assert (said.starts, said.why) == ((), never)
        return
    other = Fold()
    other.state = cold(state)
    number = other.submit(asked, owner)
    told = Told()
    real = decide(other.state, story.policy, story.now_us, BUDGET, told)
    starts = tuple(one for one in real if one.attempt.job >= number)
    why = told.waits.get(other.state.class_of(other.state.jobs[number])) if told.waits is not None else None
    if other.state.demand.version == state.demand.version:  # else the submit itself changes where work goes
        assert said.starts == starts
        assert (said.why is None) == (len(starts) == said.tasks)
        assert said.why is None or facts_of(said.why, number) == facts_of(why, number)


def facts_of(why: Reason | None, array: int) -> object:
    """It, with the array called as it is called before it has a number."""
    if why is None:
        return None
    facts = [(name, "the array" if value == f"array {array}" else value) for name, value in why.facts]
    return why.code, facts, facts_of(why.also, array)


def it_changes_no_pass(story: Story, decisions: tuple[Start, ...]) -> None:
    dice = random.Random(story.state.seq)
    asked = a_job(dice, story.spec)
    what_if(story.state, story.policy, asked, dice.choice((ALICE, BOB)), story.now_us, BUDGET)
    told, others = Told(), Told()
    state = cold(story.state)
    assert decide(story.state, story.policy, story.now_us, BUDGET, told) == decisions
    assert decide(state, story.policy, story.now_us, BUDGET, others) == decisions
    waits = told.waits or story.told.waits  # a pass with nothing new tells nothing
    for key in story.state.classes:
        mine = waits.get(key) if waits else None
        assert mine == (others.waits.get(key) if others.waits else None), key


@pytest.mark.property
@given(st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_it_says_what_a_submit_and_its_pass_would_give(seed: int) -> None:
    Story(random.Random(seed), it_says_what_would_come).play(10)


@pytest.mark.property
@given(st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_the_next_pass_decides_as_if_nobody_had_asked(seed: int) -> None:
    Story(random.Random(seed), it_changes_no_pass).play(10)


# --- scenes -----------------------------------------------------------------------------------------------------


def asked(fold: Fold, spec: JobSpec) -> Start | Reason:
    """Of a job that is no array."""
    found = what_if(fold.state, Policy(), spec, ALICE, T0, BUDGET)
    assert (found.tasks, len(found.starts)) == (1, int(found.why is None))
    return found.why or found.starts[0]


def test_a_start_has_its_nodes_and_devices() -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4)))
    fold.submit(job(gpus=1))
    enact(fold, run(fold.state)[0])

    found = asked(fold, job(nodes=2, gpus=2))

    assert isinstance(found, Start)
    assert [(part.node, part.slots) for part in found.placements] == [("p-1", (1, 2)), ("p-2", (0, 1))]
    assert fold.state.next_job == found.attempt.job == 2


def test_who_waits_before_it_counts() -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4)))
    fold.submit(job(gpus=1))
    enact(fold, run(fold.state)[0])
    first = fold.submit(job(nodes=2, gpus=4))

    found = asked(fold, job(gpus=4))

    assert isinstance(found, Reason)
    assert (found.code, found.fact("ahead")) == ("wait.order", first)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (job(nodes=3), "never.nodes"),
        (job(queue="nope"), "never.queue"),
        (job(tasks=2, queue="small"), "never.limit"),
        (job(nodes=2), "wait.nodes-closed"),
    ],
)
def test_else_the_refusal_or_the_reason(spec: JobSpec, code: str) -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4), queues=(queue(), queue("small", max_gpus_per_user=1))))
    fold(events.NodeMarked("p-1", Mark(MarkKind.CORDONED, "", "", 0)))

    found = asked(fold, spec)

    assert isinstance(found, Reason)
    assert found.code == code


def test_a_job_to_be_held_is_looked_at_as_if_it_were_released() -> None:
    assert isinstance(asked(Fold(cluster(pool())), job(hold=True)), Start)


def test_without_a_cluster_or_while_it_recovers_nothing_starts() -> None:
    found = asked(Fold(), job())
    assert isinstance(found, Reason)
    assert found.code == "wait.no-cluster"
    fold = Fold(cluster(pool()))
    fold(events.LedgerRestored(1000, 0))
    found = asked(fold, job())
    assert isinstance(found, Reason)
    assert found.code == "wait.recovering"


# --- arrays -----------------------------------------------------------------------------------------------------


def of_array(fold: Fold, spec: JobSpec) -> tuple[int, str]:
    """How many of its tasks start, and why the next waits."""
    before = to_plain(fold.state)
    found = what_if(fold.state, Policy(), spec, ALICE, T0, BUDGET)
    assert to_plain(fold.state) == before
    check_state(fold.state)
    assert [start.attempt.job for start in found.starts] == [
        fold.state.next_job + at for at in range(len(found.starts))
    ]
    return len(found.starts), found.why.sentence() if found.why is not None else ""


def tasks(text: str, at_most: int = 0) -> Array:
    return Array(read_tasks(text), at_most)


def test_of_an_array_as_many_tasks_start_as_find_room() -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4)))
    starts, why = of_array(fold, job(nodes=1, gpus=2, array=tasks("0-9")))
    assert starts == 4
    assert why.startswith(
        "it needs 1 node(s) with 2 free GPU(s) each; 0 of 2 open node(s) in pool p have them"
    )
    assert of_array(fold, job(gpus=2, array=tasks("5,7-9"))) == (4, "")


def test_its_throttle_counts_and_it_has_no_number_yet() -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4)))
    starts, why = of_array(fold, job(gpus=1, array=tasks("0-9", at_most=3)))
    assert (starts, why) == (
        3,
        "the array may have 3 task(s) at a time and has 3: this job would pass that by 1",
    )
    assert of_array(fold, job(gpus=1, array=tasks("0-2", at_most=3))) == (3, "")


def test_limits_count() -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4), queues=(queue(max_gpus_per_user=3),)))
    starts, why = of_array(fold, job(gpus=1, array=tasks("0-9", at_most=5)))
    assert starts == 3
    assert "alice in queue default" in why


def test_who_waits_before_an_array_counts() -> None:
    fold = Fold(cluster(pool(nodes=2, gpus=4)))
    fold.submit(job(nodes=2, gpus=2))
    assert of_array(fold, job(gpus=1, array=tasks("0-9")))[0] == 4


def test_an_array_that_can_never_run_is_refused_whole() -> None:
    found = what_if(
        Fold(cluster(pool(nodes=1))).state, Policy(), job(nodes=2, array=tasks("0-4")), ALICE, T0, BUDGET
    )
    assert (found.starts, found.tasks, found.why and found.why.code) == ((), 5, "never.nodes")


def test_of_a_very_large_array_the_first_tasks_are_tried() -> None:
    """With no more work than these are, and none of it left behind."""
    fold = Fold(cluster(pool(nodes=1, cores=MOST_TASKS + 1)))
    found = what_if(fold.state, Policy(), job(gpus=0, cores=1, array=tasks("0-99999")), ALICE, T0, BUDGET)
    assert (len(found.starts), found.why, found.tasks, found.tried) == (
        MOST_TASKS,
        None,
        100_000,
        MOST_TASKS,
    )
    assert not fold.state.jobs
    assert not fold.state.arrays
