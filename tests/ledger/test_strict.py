"""The fold believes nothing: for each kind of event the states that it refuses, with seq, type and subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from orchestrator.ledger import events
from orchestrator.ledger.apply import HANDLERS, LedgerError, apply
from orchestrator.ledger.events import TYPE_OF, Event
from orchestrator.ledger.state import State
from orchestrator.model.apply import Outcome
from orchestrator.model.array import Array, read_tasks
from orchestrator.model.attempt import EndCause, JobState, Placement, RankResult
from orchestrator.model.capacity import Instance, Intent, OfferingKey, Shape
from orchestrator.model.change import PlanStep, StepKind
from orchestrator.model.dependency import On, Wait
from orchestrator.model.ids import AttemptId
from orchestrator.model.node import Contact, Mark, MarkKind
from orchestrator.model.protocol import EndOrder, Holding
from tests.autoscale.scene import Scene
from tests.builders import ALICE, EPOCH, T0, Fold, cluster, facts, job, pool, queue

ONE, TWO = Placement("p-1", (0,), 1, 1), Placement("p-2", (0,), 1, 1)
ORDER = EndOrder("cancelled")
FIRST = AttemptId(1, 1)


# --- states -----------------------------------------------------------------------------------------------------


def ready() -> Fold:
    """Two nodes of two GPUs."""
    return Fold(cluster(pool("p", nodes=2, gpus=2, cores=4)))


def metered() -> Fold:
    """A queue has GPU-hours, and the month is known."""
    fold = Fold(cluster(pool("p"), queues=(queue("default", max_gpu_hours_per_month=1),)))
    fold(events.MonthBegan(T0, T0 + 10**10))
    return fold


def waiting() -> Fold:
    fold = ready()
    fold.submit(job(tasks=2))
    return fold


def held() -> Fold:
    fold = waiting()
    fold(events.JobHeld(1, "why"))
    return fold


def gang() -> Fold:
    """Allocated on both nodes."""
    fold = waiting()
    fold(events.AttemptAllocated(FIRST, (ONE, TWO), "127.0.0.1", 20000))
    return fold


def prepared() -> Fold:
    fold = gang()
    fold(events.AttemptPrepared(FIRST, "p-1"))
    return fold


def asked() -> Scene:
    """One node of the pool `burst` is asked for: intent-4."""
    scene = Scene()
    scene.submit(job(nodes=1, gpus=8))
    scene.carry_out()
    return scene


def launched() -> Scene:
    """It is the instance i-1."""
    scene = asked()
    scene.launch()
    return scene


def bought() -> Scene:
    """It is proved, and being ended."""
    scene = launched()
    scene.join("burst-1")
    scene(events.CapacityReleasing("intent-4", ("i-1",), "why"))
    return scene


def intended(number: int, *nodes: str) -> events.CapacityIntended:
    key = OfferingKey("burst", "p5.48xlarge", "spot", "a")
    return events.CapacityIntended(Intent(f"intent-{number}", "use1", key, nodes, 1, Shape(8, 96, 1)))


def committed() -> Fold:
    fold = prepared()
    fold(events.AttemptPrepared(FIRST, "p-2"))
    fold(events.AttemptCommitted(FIRST))
    return fold


def started() -> Fold:
    fold = committed()
    fold(events.AttemptStarted(FIRST, "p-1"))
    return fold


def started_apply(seq: int) -> events.ApplyStarted:
    steps = (PlanStep("s1", StepKind.CONFIGURE, "why"), PlanStep("s2", StepKind.ACCEPT, "why"))
    return events.ApplyStarted(f"apply-{seq}", "alice@ctl", "digest", steps, T0)


def applying() -> Fold:
    fold = ready()
    fold(started_apply(fold.state.seq + 1))
    return fold


def stepped() -> Fold:
    fold = applying()
    name = fold.state.applies[-1].id
    fold(events.ApplyStepStarted(name, "s1"))
    fold(events.ApplyStepEnded(name, "s1", True))
    return fold


def stuck() -> Fold:
    fold = started()
    fold(events.AttemptStuck(FIRST, "p-1", "frozen"))
    return fold


def failing() -> Fold:
    fold = started()
    fold(events.AttemptRankFailed(FIRST, "p-1", RankResult(0, 1)))
    return fold


def ending() -> Fold:
    fold = gang()
    fold(events.AttemptEnding(FIRST, EndCause.CANCELLED, ORDER))
    return fold


def half_gone() -> Fold:
    fold = ending()
    fold(events.AttemptPartEnded(FIRST, "p-1"))
    return fold


def all_gone() -> Fold:
    fold = half_gone()
    fold(events.AttemptPartEnded(FIRST, "p-2"))
    return fold


def between() -> Fold:
    """The attempt has ended, the job not yet."""
    fold = all_gone()
    fold(events.AttemptEnded(FIRST, EndCause.CANCELLED))
    return fold


def over() -> Fold:
    fold = between()
    fold(events.JobEnded(1, JobState.CANCELLED))
    return fold


def wants_cancel() -> Fold:
    fold = waiting()
    fold(events.JobCancelRequested(1))
    return fold


def with_token() -> Fold:
    fold = ready()
    fold(events.TokenCreated("t", "0" * 64, "admin", "alice"))
    return fold


def behind_another() -> Fold:
    """Job 2 waits for job 1."""
    fold = waiting()
    fold(events.JobSubmitted(2, job(), ALICE, waits=(Wait(1, On.OK),)))
    return fold


def with_array() -> Fold:
    fold = ready()
    fold(events.JobSubmitted(1, job(array=Array(read_tasks("0-2"))), ALICE))
    return fold


class Refusal(NamedTuple):
    state: Callable[[], Fold]
    body: Any
    problem: str


MARK = Mark(MarkKind.CORDONED, "why", "user:root", T0)
RECOVERED = events.AttemptRecovered(FIRST, job(tasks=2), ALICE, (ONE, TWO), T0)
REFUSALS = [
    Refusal(with_token, events.TokenCreated("t", "1" * 64, "read", "bob"), "token t exists already"),
    Refusal(ready, events.TokenRevoked("t"), "nothing is known of 't'"),
    Refusal(ready, events.LedgerRecovered(), "it is not a restored ledger"),
    # nodes
    Refusal(ready, events.NodeJoined("x", facts(pool("p")), "o"), "nothing is known of 'x'"),
    Refusal(ready, events.NodeContact("x", Contact.OK), "nothing is known of 'x'"),
    Refusal(ready, events.NodeMarked("x", MARK), "nothing is known of 'x'"),
    Refusal(ready, events.NodeUnmarked("x", MarkKind.CORDONED), "nothing is known of 'x'"),
    # jobs
    Refusal(waiting, events.JobSubmitted(1, job(), ALICE), "job 1 exists already"),
    Refusal(over, events.JobSubmitted(1, job(), ALICE), "job 1 exists already"),
    Refusal(waiting, events.JobSubmitted(2, job(), ALICE, waits=(Wait(3, On.OK),)), "3, which is not there"),
    Refusal(
        waiting, events.JobSubmitted(2, job(), ALICE, waits=(Wait(1, On.OK, True),)), "1, which is not there"
    ),
    Refusal(with_array, events.JobSubmitted(3, job(), ALICE), "job 3 exists already"),
    Refusal(waiting, events.ArrayThrottled(1, 4), "nothing is known of 1"),
    Refusal(with_array, events.ArrayThrottled(1, -1), "array 1 can't have -1 task(s) at a time"),
    Refusal(behind_another, events.AttemptAllocated(AttemptId(2, 1), (ONE,)), "job 2 waits for other jobs"),
    Refusal(ready, events.JobHeld(1, "why"), "nothing is known of 1"),
    Refusal(held, events.JobHeld(1, "why"), "job 1 is held already"),
    Refusal(gang, events.JobHeld(1, "why"), "job 1 has a live attempt"),
    Refusal(over, events.JobHeld(1, "why"), "nothing is known of 1"),
    Refusal(ready, events.JobReleased(1), "nothing is known of 1"),
    Refusal(waiting, events.JobReleased(1), "job 1 is not held"),
    Refusal(gang, events.JobReleased(1), "job 1 is not held"),
    Refusal(ready, events.JobPrioritized(1, 5), "nothing is known of 1"),
    Refusal(gang, events.JobPrioritized(1, 5), "job 1 has a live attempt"),
    Refusal(over, events.JobPrioritized(1, 5), "nothing is known of 1"),
    Refusal(ready, events.JobCancelRequested(1), "nothing is known of 1"),
    Refusal(wants_cancel, events.JobCancelRequested(1), "the end of job 1 is wanted already"),
    Refusal(over, events.JobCancelRequested(1), "nothing is known of 1"),
    Refusal(ready, events.JobRequeued(1, "why"), "nothing is known of 1"),
    Refusal(waiting, events.JobRequeued(1, "why"), "job 1 has had no attempt just now"),
    Refusal(held, events.JobRequeued(1, "why"), "job 1 has had no attempt just now"),
    Refusal(gang, events.JobRequeued(1, "why"), "job 1 has had no attempt just now"),
    Refusal(ready, events.JobEnded(1, JobState.FAILED), "nothing is known of 1"),
    Refusal(gang, events.JobEnded(1, JobState.FAILED), "job 1 has a live attempt"),
    Refusal(over, events.JobEnded(1, JobState.FAILED), "nothing is known of 1"),
    Refusal(between, events.JobEnded(1, JobState.RUNNING), "running is not the end of a job"),
    # the way up
    Refusal(ready, events.AttemptAllocated(FIRST, (ONE,)), "nothing is known of 1"),
    Refusal(held, events.AttemptAllocated(FIRST, (ONE,)), "job 1 does not wait"),
    Refusal(gang, events.AttemptAllocated(FIRST, (ONE,)), "job 1 does not wait"),
    Refusal(between, events.AttemptAllocated(AttemptId(1, 2), (ONE,)), "job 1 does not wait"),
    Refusal(over, events.AttemptAllocated(AttemptId(1, 2), (ONE,)), "nothing is known of 1"),
    Refusal(waiting, events.AttemptAllocated(AttemptId(1, 2), (ONE,)), "attempt 1/2 is not the next one"),
    Refusal(waiting, events.AttemptAllocated(FIRST, (Placement("x", (0,)),)), "nothing is known of 'x'"),
    Refusal(waiting, events.AttemptAllocated(FIRST, (Placement("p-1", (2,)),)), "devices 0b100 are not free"),
    Refusal(waiting, events.AttemptAllocated(FIRST, (ONE, ONE)), "devices 0b1 are not free"),
    Refusal(waiting, events.AttemptPrepared(FIRST, "p-1"), "attempt 1/1 is not alive"),
    Refusal(gang, events.AttemptPrepared(AttemptId(1, 2), "p-1"), "attempt 1/2 is not alive"),
    Refusal(gang, events.AttemptPrepared(FIRST, "x"), "attempt 1/1 has no live part on x"),
    Refusal(prepared, events.AttemptPrepared(FIRST, "p-1"), "attempt 1/1 is prepared on p-1 already"),
    Refusal(started, events.AttemptPrepared(FIRST, "p-1"), "attempt 1/1 is started on p-1 already"),
    Refusal(half_gone, events.AttemptPrepared(FIRST, "p-1"), "attempt 1/1 has no live part on p-1"),
    Refusal(waiting, events.AttemptPrepareFailed(FIRST, "p-1", "c", "e"), "attempt 1/1 is not alive"),
    Refusal(
        half_gone, events.AttemptPrepareFailed(FIRST, "p-1", "c", "e"), "attempt 1/1 has no live part on p-1"
    ),
    Refusal(waiting, events.AttemptCommitted(FIRST), "attempt 1/1 is not alive"),
    Refusal(committed, events.AttemptCommitted(FIRST), "attempt 1/1 can't be committed"),
    Refusal(ending, events.AttemptCommitted(FIRST), "attempt 1/1 can't be committed"),
    Refusal(between, events.AttemptCommitted(FIRST), "attempt 1/1 is not alive"),
    Refusal(waiting, events.AttemptStarted(FIRST, "p-1"), "attempt 1/1 is not alive"),
    Refusal(gang, events.AttemptStarted(FIRST, "p-1"), "attempt 1/1 was never committed"),
    Refusal(prepared, events.AttemptStarted(FIRST, "p-1"), "attempt 1/1 was never committed"),
    Refusal(started, events.AttemptStarted(FIRST, "p-1"), "attempt 1/1 is started on p-1 already"),
    Refusal(stuck, events.AttemptStarted(FIRST, "p-1"), "attempt 1/1 is stuck on p-1 already"),
    Refusal(half_gone, events.AttemptStarted(FIRST, "p-1"), "attempt 1/1 has no live part on p-1"),
    # the way down
    Refusal(waiting, events.AttemptRankFailed(FIRST, "p-1", RankResult(0, 1)), "attempt 1/1 is not alive"),
    Refusal(
        failing,
        events.AttemptRankFailed(FIRST, "p-1", RankResult(1, 1)),
        "has a first failure on p-1 already",
    ),
    Refusal(half_gone, events.AttemptRankFailed(FIRST, "p-1", RankResult(0, 1)), "no live part on p-1"),
    Refusal(waiting, events.AttemptEnding(FIRST, EndCause.CANCELLED, ORDER), "attempt 1/1 is not alive"),
    Refusal(between, events.AttemptEnding(FIRST, EndCause.CANCELLED, ORDER), "attempt 1/1 is not alive"),
    Refusal(waiting, events.AttemptStuck(FIRST, "p-1", "e"), "attempt 1/1 is not alive"),
    Refusal(half_gone, events.AttemptStuck(FIRST, "p-1", "e"), "attempt 1/1 has no live part on p-1"),
    Refusal(waiting, events.AttemptPartEnded(FIRST, "p-1"), "attempt 1/1 is not alive"),
    Refusal(gang, events.AttemptPartEnded(FIRST, "x"), "attempt 1/1 has no live part on x"),
    Refusal(half_gone, events.AttemptPartEnded(FIRST, "p-1"), "attempt 1/1 has no live part on p-1"),
    Refusal(waiting, events.AttemptEnded(FIRST, EndCause.COMPLETED), "attempt 1/1 is not alive"),
    Refusal(gang, events.AttemptEnded(FIRST, EndCause.COMPLETED), "1/1 is not gone everywhere"),
    Refusal(half_gone, events.AttemptEnded(FIRST, EndCause.COMPLETED), "1/1 is not gone everywhere"),
    Refusal(stuck, events.AttemptEnded(FIRST, EndCause.COMPLETED), "1/1 is not gone everywhere"),
    Refusal(between, events.AttemptEnded(FIRST, EndCause.COMPLETED), "attempt 1/1 is not alive"),
    # applies
    Refusal(applying, started_apply(99), "apply-6 is under way"),
    Refusal(ready, started_apply(99), "apply-99 does not name its event"),
    Refusal(ready, events.ApplyLeased("apply-6", T0), "apply-6 is not under way"),
    Refusal(applying, events.ApplyLeased("apply-3", T0), "apply-3 is not under way"),
    Refusal(applying, events.ApplyStepStarted("apply-6", "x"), "apply-6 has no step x"),
    Refusal(stepped, events.ApplyStepStarted("apply-6", "s1"), "step s1 is done"),
    Refusal(applying, events.ApplyStepEnded("apply-6", "s1", True), "step s1 is pending, not started"),
    Refusal(stepped, events.ApplyStepEnded("apply-6", "s1", True), "step s1 is done, not started"),
    Refusal(ready, events.ApplyEnded("apply-6", Outcome.DONE), "apply-6 is not under way"),
    Refusal(ready, events.NodeConfigured("p-1", "ab"), "nothing recorded has the digest ab"),
    Refusal(ready, events.NodeConfigured("x", ""), "nothing is known of 'x'"),
    # months
    Refusal(metered, events.MonthBegan(T0, T0), "it is not a month after the one before"),
    Refusal(metered, events.MonthBegan(T0, T0 + 10**10), "it is not a month after the one before"),
    Refusal(metered, events.MonthBegan(T0 - 10**10, T0 + 10**9), "it is not a month after the one before"),
    # what is bought
    Refusal(asked, events.ClusterNamed("other"), "the cluster's uid is k3j9x0q2m5a7 already"),
    Refusal(asked, events.CapacityReset("x"), "there is no pool x"),
    Refusal(asked, intended(9, "burst-2"), "intent-9 does not name its event"),
    Refusal(asked, intended(5), "intent-5 is for no node"),
    Refusal(asked, intended(5, "burst-1"), "the name burst-1 is not free"),
    Refusal(launched, intended(6, "burst-1"), "the name burst-1 is not free"),
    Refusal(asked, intended(5, "burst-2", "burst-2"), "the name burst-2 is not free"),
    Refusal(asked, events.CapacityLaunched("intent-9", ()), "nothing is known of 'intent-9'"),
    Refusal(asked, events.CapacityLaunched("intent-4", ()), "intent-4 was for ('burst-1',), not for []"),
    Refusal(asked, events.CapacityLaunched("intent-4", (Instance("i-1", "burst-2"),)), "not for ['burst-2']"),
    Refusal(asked, events.CapacityRefused("intent-9"), "nothing is known of 'intent-9'"),
    Refusal(launched, events.CapacityRefused("intent-4"), "instances exist for intent-4"),
    Refusal(asked, events.CapacityProved("intent-4", "i-1"), "intent-4 has no instance i-1"),
    Refusal(bought, events.CapacityProved("intent-4", "i-1"), "i-1 is proved already"),
    Refusal(asked, events.CapacityReleasing("intent-4", ("i-1",), "why"), "intent-4 has no instance i-1"),
    Refusal(bought, events.CapacityReleasing("intent-4", ("i-1",), "why"), "i-1 is being ended already"),
    Refusal(launched, events.CapacityGone("intent-4", "i-2", T0, 60), "intent-4 has no instance i-2"),
    # orphans
    Refusal(ready, events.AttemptOrphaned("x", Holding(FIRST, None)), "nothing is known of 'x'"),
    Refusal(ready, events.AttemptOrphanGone(FIRST, "p-1"), "p-1 has no orphan 1/1"),
    Refusal(gang, RECOVERED, "1/1 is known already"),
    Refusal(between, RECOVERED, "1/1 is known already"),
    Refusal(
        gang,
        events.AttemptRecovered(AttemptId(2, 1), job(), ALICE, (ONE,), T0),
        "device 0 is held already",
    ),
]


@pytest.mark.parametrize(
    "case", REFUSALS, ids=lambda case: f"{TYPE_OF[type(case.body)][0]} when {case.state.__name__}"
)
def test_what_the_state_contradicts_is_refused_with_its_place(case: Refusal) -> None:
    fold = case.state()
    with pytest.raises(LedgerError) as caught:
        fold(case.body, "the/subject")
    name = TYPE_OF[type(case.body)][0]
    assert str(caught.value).startswith(f"event {fold.state.seq + 1} ({name}, the/subject): ")
    assert case.problem in str(caught.value)


# What any state takes: the record says so, or replaces what was said before.
NEVER_REFUSED = {"controller.started", "ledger.restored", "cluster.applied"}


def test_every_kind_of_event_has_a_state_that_refuses_it() -> None:
    refused = {TYPE_OF[type(case.body)][0] for case in REFUSALS}
    assert refused | NEVER_REFUSED == {name for name, _ in TYPE_OF.values()}
    assert not refused & NEVER_REFUSED


def test_every_kind_of_event_has_a_handler() -> None:
    assert set(HANDLERS) == set(TYPE_OF)


@pytest.mark.parametrize("seq", [0, 1, 3, -1])
def test_a_gap_or_a_repetition_is_refused(seq: int) -> None:
    state = State(seq=1, t_us=T0, epoch=EPOCH)
    with pytest.raises(LedgerError, match=rf"event {seq} follows event 1: the ledger has a gap"):
        apply(state, Event(seq, T0, EPOCH, seq, "s", "b", events.ControllerStarted("", "")))
    assert state.seq == 1


@pytest.mark.parametrize(("t_us", "epoch"), [(T0 - 1, EPOCH), (T0, EPOCH - 1)])
def test_time_and_epoch_never_go_back(t_us: int, epoch: int) -> None:
    state = State(seq=1, t_us=T0, epoch=EPOCH)
    with pytest.raises(LedgerError, match=r"event 2 \(controller.started, s\): it is older than"):
        apply(state, Event(2, t_us, epoch, 2, "s", "b", events.ControllerStarted("", "")))
