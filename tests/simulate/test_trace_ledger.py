"""A recorded ledger as a trace: what came, as it came."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger import events
from orchestrator.ledger.events import Event
from orchestrator.model.array import Array, read_tasks
from orchestrator.model.attempt import EndCause, JobState
from orchestrator.model.dependency import Dependency
from orchestrator.model.job import JobSpec
from orchestrator.scheduler import Policy
from orchestrator.simulate.trace import Special, Trace
from orchestrator.simulate.trace_ledger import read_ledger
from tests.builders import ALICE, cluster, job, pool
from tests.scheduler.scenes import Stage
from tests.simulate.stories import Row, played, trace

S = 1_000_000


class Recorded(Stage):
    """A ledger of jobs that start in the pass after their submit and run for ten seconds."""

    def __init__(self, nodes: int = 1) -> None:
        super().__init__(cluster(pool(nodes=nodes, gpus=8)))

    def play(self) -> None:
        """A pass, and ten seconds of work for all that it starts."""
        started = self.look()
        for number, start in started.items():
            self(events.AttemptCommitted(start.attempt), f"job/{number}", self.now_us)
            for part in start.placements:
                self(events.AttemptStarted(start.attempt, part.node), f"job/{number}", self.now_us)
        self.now_us += 10 * S
        for number in started:
            self.end(number)

    def submit_now(self, spec: JobSpec) -> int:
        """As `submit`, at the time of the scene."""
        number = self.state.next_job
        self(events.JobSubmitted(number, spec, ALICE), f"job/{number}", self.now_us)
        return number

    def trace(self) -> Trace:
        """What is read of it."""
        found = read_ledger(self.events)
        assert found.left_out == 0
        return found.trace


def test_a_job_has_the_priority_that_it_had_in_the_end() -> None:
    stage = Recorded()
    number = stage.submit_now(job(priority=2))
    stage(events.JobPrioritized(number, -4))
    stage.play()
    assert [stage.trace().spec(0).priority, stage.trace().run_us[0]] == [-4, 10 * S]


def test_each_task_of_an_array_is_a_job_of_its_own() -> None:
    stage = Recorded()
    first = stage.submit_now(job(gpus=1, array=Array(read_tasks("3-5"), at_most=2), singleton=True))
    stage(events.JobPrioritized(first + 2, 9))
    for _ in range(3):
        stage.play()
    trace = stage.trace()
    assert len(trace) == 3
    assert [trace.name(each) for each in range(3)] == [str(first + at) for at in range(3)]
    assert {trace.submit_us[each] for each in range(3)} == {0}
    assert [trace.spec(each).priority for each in range(3)] == [0, 0, 9]
    assert all(spec.array is None and not spec.singleton for spec in trace.shapes)


def test_each_node_of_a_gang_is_free_when_it_was() -> None:
    stage = Recorded(nodes=2)
    number = stage.submit_now(job(nodes=2, gpus=8))
    (start,) = stage.look().values()
    stage(events.AttemptCommitted(start.attempt), f"job/{number}", stage.now_us)
    for after_s, part in zip((3, 4), start.placements, strict=True):
        stage(events.AttemptStarted(start.attempt, part.node), f"job/{number}", stage.now_us + after_s * S)
    for after_s, part in zip((15, 20), reversed(start.placements), strict=True):
        stage(events.AttemptPartEnded(start.attempt, part.node), t_us=stage.now_us + after_s * S)
    stage(events.AttemptEnded(start.attempt, EndCause.COMPLETED), t_us=stage.now_us + 20 * S)
    stage(events.JobEnded(number, JobState.SUCCEEDED), t_us=stage.now_us + 20 * S)
    trace = stage.trace()
    assert trace.run_us[0] == 17 * S
    assert trace.special[0] == Special(launch_us=3 * S, sooner_us=(0, 5 * S), decide_us=0)


def test_passes_take_as_long_as_the_median_one_did() -> None:
    stage = Recorded()
    for took_us in (7_000, 4_000, 900_000):
        stage.submit_now(job())
        stage.submit_now(job())
        stage.now_us += took_us
        stage.play()  # starts both: a pass counts once
    assert stage.trace().decide_us == 7_000


def test_a_job_says_what_the_pass_took_that_started_it() -> None:
    stage = Recorded()
    for took_us in (7_000, 4_000):
        stage.submit_now(job())
        stage.now_us += took_us
        stage.play()
    trace = stage.trace()
    assert [trace.special[each].decide_us for each in range(2)] == [7_000, 4_000]


def test_what_one_commit_tells_is_told_at_once() -> None:
    """A pass sees all of a commit, or nothing: nodes of a gang that it tells of together are free together."""
    stage = Recorded(nodes=2)
    first, second = (stage.submit_now(job(nodes=2, gpus=8)) for _ in range(2))
    (start,) = stage.look().values()
    stage(events.AttemptCommitted(start.attempt), f"job/{first}", stage.now_us)
    for part in start.placements:
        stage(events.AttemptStarted(start.attempt, part.node), f"job/{first}", stage.now_us)
    told = [
        *(events.AttemptPartEnded(start.attempt, part.node) for part in start.placements),
        events.AttemptEnded(start.attempt, EndCause.COMPLETED),
        events.JobEnded(first, JobState.SUCCEEDED),
    ]
    told_at = len(stage.events)
    for late_us, body in enumerate(told):
        stage(body, f"job/{first}", stage.now_us + 10 * S + late_us)
    batch = stage.events[told_at].batch
    stage.events[told_at:] = [event._replace(batch=batch) for event in stage.events[told_at:]]
    stage.now_us += 10 * S + 9_000
    stage.play()
    trace = stage.trace()
    assert [trace.special[0].sooner_us, trace.run_us[0]] == [(), 10 * S + 3]
    assert [trace.name(1), trace.special[1].decide_us] == [str(second), 9_000 - 3]


TIMES_US = st.integers(0, 40_000)
SOONER_US = st.integers(0, 9_000)
SHAPES = (  # what it asks for, and how much sooner than its last node each is free
    st.tuples(st.sampled_from([job(gpus=1), job(gpus=3), job(gpus=4)]), st.just(())),
    st.tuples(st.just(job(nodes=2, gpus=4)), st.tuples(SOONER_US, st.just(0))),
    st.tuples(st.just(job(nodes=3, gpus=2)), st.tuples(SOONER_US, st.just(0), SOONER_US)),
)


@st.composite
def row(draw: st.DrawFn) -> Row:
    """A job at most 40 ms after the trace's zero, that runs for up to 60 ms."""
    spec, sooner_us = draw(st.one_of(SHAPES))
    special = Special(launch_us=draw(TIMES_US), decide_us=draw(TIMES_US), sooner_us=sooner_us)
    return draw(TIMES_US) / S, draw(st.integers(9_001, 60_000)) / S, spec, special


@settings(max_examples=40)
@given(rows=st.lists(row(), min_size=1, max_size=10), kept=st.sampled_from((0, 1, 8)))
def test_a_recorded_ledger_plays_as_it_went(rows: list[Row], kept: int) -> None:
    """Under its own policy each job starts and ends when it did, on the nodes on which it did."""
    spec, policy = cluster(pool(nodes=3, gpus=4)), Policy(kept=kept)
    told: list[Event] = []
    went = played(spec, trace(*rows), policy=policy, sink=told.append)
    again = played(spec, read_ledger(told).trace, policy=policy)
    zero_us = went.trace.submit_us[0]
    for there, here in (
        (went.book.first_start_us, again.book.first_start_us),
        (went.book.end_us, again.book.end_us),
    ):
        assert [at_us + zero_us for at_us in here] == list(there)
    assert again.book.placed == went.book.placed


def test_what_a_job_waited_for_is_not_asked_for_again() -> None:
    """The ids are of the ledger, and mean others in the simulation."""
    stage = Recorded()
    first = stage.submit_now(job())
    stage.play()
    stage.submit_now(job(depends_on=(Dependency(first),)))
    stage.play()
    trace = stage.trace()
    assert [trace.submit_us[each] for each in range(2)] == [0, 10 * S]
    assert not any(spec.depends_on for spec in trace.shapes)
