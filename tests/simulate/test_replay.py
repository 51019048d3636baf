"""Replay: a recorded ledger decides the same again, and the first difference is told."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.ledger import events
from orchestrator.ledger.apply import apply
from orchestrator.ledger.events import Event
from orchestrator.ledger.snapshot import from_plain, to_plain
from orchestrator.ledger.state import State
from orchestrator.model.job import DEFAULT_TIME_LIMIT_S
from orchestrator.scheduler import Policy, policy_of
from orchestrator.simulate.replay import BY_SCHEDULER, replay
from orchestrator.simulate.settings import Faults, Settings
from tests.builders import cluster, job, pool
from tests.scheduler.scenes import Stage
from tests.simulate.stories import S, played, trace

BUDGET = 100_000
SHAPES = (job(gpus=1), job(nodes=2, gpus=8), job(gpus=3), job(gpus=0, cores=2))


def recorded() -> list[Event]:
    """A ledger of two hundred jobs on nodes that fail."""
    told: list[Event] = []
    jobs = trace(*[(9 * n % 700, 40 + 7 * n % 90, SHAPES[n % 4]) for n in range(200)])
    faults = Faults(mtbf_us=3000 * S, repair_us=100 * S, boot_us=20 * S)
    played(cluster(pool(nodes=3)), jobs, Settings(faults=faults, launch_us=S), sink=told.append)
    return told


def test_a_simulated_ledger_decides_the_same_again() -> None:
    told = recorded()
    found = replay(State(), told, policy_of, BUDGET)

    assert found.difference is None
    assert found.events == len(told)
    assert found.starts == sum(isinstance(event.body, events.AttemptAllocated) for event in told) >= 200
    assert found.passes > 50


def test_it_goes_on_from_a_snapshot() -> None:
    told = recorded()
    state = State()
    for event in told[:300]:
        apply(state, event)
    while told[state.seq].batch != told[state.seq].seq:  # a snapshot is taken between commits
        apply(state, told[state.seq])
    found = replay(from_plain(to_plain(state)), told[state.seq :], policy_of, BUDGET)

    assert found.difference is None
    assert found.passes > 20


def test_other_priorities_are_replayed() -> None:
    """Of equal jobs on one GPU the last ones are put first, before a pass that starts one of them."""
    stage = Stage(cluster(pool(nodes=1, gpus=1)))
    jobs = [stage.submit(job()) for _ in range(4)]
    stage.look()
    for number in reversed(jobs[1:]):
        stage(events.JobPrioritized(number, number))
    stage.end(jobs[0])
    stage.look()
    assert stage.state.jobs[jobs[-1]].attempt is not None
    told = [
        event._replace(by=BY_SCHEDULER if isinstance(event.body, events.AttemptAllocated) else event.by)
        for event in stage.events
    ]
    found = replay(State(), told, policy_of, BUDGET)
    assert (found.difference, found.starts) == (None, 2)


def test_the_first_difference_is_told() -> None:
    told = recorded()
    at = [number for number, event in enumerate(told) if isinstance(event.body, events.AttemptAllocated)][40]
    body = told[at].body
    told[at] = told[at]._replace(body=replace(body, master_port=body.master_port + 1))
    found = replay(State(), told, policy_of, BUDGET)

    assert found.starts == 40
    difference = found.difference
    assert difference is not None
    assert difference.seq + 1 == told[at].batch
    assert difference.recorded is not None
    assert difference.decided is not None
    assert difference.recorded.master_port == difference.decided.master_port + 1


def test_a_start_that_was_not_made_is_a_difference() -> None:
    """A pass with two starts, of which the ledger has one."""
    told: list[Event] = []
    played(
        cluster(pool(nodes=1)),
        trace((0, 9, job(gpus=1)), (0, 9, job(gpus=1))),
        Settings(until_us=5 * S),
        sink=told.append,
    )
    first = next(
        number for number, event in enumerate(told) if isinstance(event.body, events.AttemptAllocated)
    )
    found = replay(State(), told[: first + 2], policy_of, BUDGET)

    assert found.difference is not None
    assert (found.difference.at, found.difference.recorded) == (2, None)


def test_another_policy_decides_otherwise() -> None:
    policy = Policy(default_time_limit_s=tuple((workload, 77) for workload in DEFAULT_TIME_LIMIT_S))
    found = replay(State(), recorded(), lambda _: policy, BUDGET)

    assert (found.passes, found.starts) == (1, 0)
    assert found.difference is not None
