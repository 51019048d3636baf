"""What the ledger must say when all is over: read from its file, event by event, by nobody who wrote it.

Comes in: a controller's state folder. Goes out: the folded State and a history of each job; AssertionErrors that name
what is lost, doubled or still taken. Called by: harness, tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.ledger import events
from orchestrator.ledger.apply import apply
from orchestrator.ledger.events import Event, from_stored
from orchestrator.ledger.snapshot import to_plain
from orchestrator.ledger.state import State
from orchestrator.model.attempt import EndCause, JobState
from orchestrator.store.open import open_store
from tests.controller.invariants import check_state

# Causes after which another attempt of the same job is right.
RETRYING = (
    EndCause.NODE_FAILED,
    EndCause.FENCED,
    EndCause.RANK_FAILED,
    EndCause.PREPARE_FAILED,
    EndCause.REQUEUED,
)


@dataclass(slots=True)
class Attempted:
    """One attempt in the ledger: where it was allocated, on which nodes it started, how it ended ('' if it has not)."""

    number: int
    nodes: tuple[str, ...]
    started_on: list[str] = field(default_factory=list)
    cause: str = ""
    detail: str = ""
    retry_class: str = ""


@dataclass(slots=True)
class History:
    """A job as the ledger's events tell it."""

    job: int
    name: str
    attempts: list[Attempted] = field(default_factory=list)
    state: str = ""

    def attempt(self, number: int) -> Attempted:
        """One attempt by its number."""
        return next(each for each in self.attempts if each.number == number)


@dataclass(slots=True)
class Ledger:
    """What the events add up to."""

    state: State
    events: list[Event]
    histories: dict[int, History]


def read_events(folder: Path) -> list[Event]:
    """Every event from the first on. The controller may run, or not."""
    store = open_store(folder)
    try:
        return [from_stored(each) for each in store.tail(0)]
    finally:
        store.close()


def read_ledger(folder: Path) -> Ledger:
    """Fold every event from the first on. The controller may run, or not."""
    state = State()
    histories: dict[int, History] = {}
    found = read_events(folder)
    for event in found:
        apply(state, event)
        _note(histories, event.body)
    return Ledger(state, found, histories)


def _note(histories: dict[int, History], body: object) -> None:
    if isinstance(body, events.JobSubmitted):
        assert body.job not in histories, f"job {body.job} was submitted twice"
        histories[body.job] = History(body.job, body.spec.name)
    elif isinstance(body, events.AttemptRecovered):
        history = histories.setdefault(body.attempt.job, History(body.attempt.job, body.spec.name))
        nodes = tuple(placement.node for placement in body.placements)
        history.attempts.append(Attempted(body.attempt.number, nodes, list(body.started_on)))
    elif isinstance(body, events.JobEnded):
        assert not histories[body.job].state, f"job {body.job} ended twice"
        histories[body.job].state = str(body.state)
    elif isinstance(body, events.AttemptAllocated):
        history = histories[body.attempt.job]
        last = history.attempts[-1].number if history.attempts else 0
        assert body.attempt.number == last + 1, f"attempt {body.attempt} is out of order"
        nodes = tuple(placement.node for placement in body.placements)
        history.attempts.append(Attempted(body.attempt.number, nodes))
    elif isinstance(body, events.AttemptStarted):
        attempted = histories[body.attempt.job].attempt(body.attempt.number)
        assert body.node not in attempted.started_on, f"{body.attempt} started twice on {body.node}"
        attempted.started_on.append(body.node)
    elif isinstance(body, events.AttemptEnded):
        attempted = histories[body.attempt.job].attempt(body.attempt.number)
        assert not attempted.cause, f"{body.attempt} ended twice"
        attempted.cause, attempted.detail = str(body.cause), body.detail
        attempted.retry_class = body.retry_class


def check_histories(histories: Iterable[History]) -> None:
    """Each job ended once, by its last attempt; every earlier one ended for a cause that retries."""
    for history in histories:
        assert history.state, f"job {history.job} ({history.name}) has not ended"
        for attempted in history.attempts:
            assert attempted.cause, f"attempt {history.job}/{attempted.number} has not ended"
        good = [each for each in history.attempts if each.cause == EndCause.COMPLETED]
        for earlier in history.attempts[:-1]:
            assert earlier.cause in RETRYING, (
                f"{history.job}/{earlier.number} ended {earlier.cause} and was repeated"
            )
        assert len(good) == (history.state == JobState.SUCCEEDED), f"job {history.job}: {history}"


def check_one_attempt_each(ledger: Ledger) -> None:
    """No attempt was repeated: the death of a controller, an agent or a nursery ends none."""
    repeated = [history for history in ledger.histories.values() if len(history.attempts) != 1]
    assert not repeated, f"{len(repeated)} jobs with other than one attempt: {repeated[:5]}"


def check_submits(ledger: Ledger, acknowledged: dict[str, int]) -> None:
    """Every acknowledged submit is there under the id that was told, and each key (a job's name) made one job."""
    made: dict[str, list[int]] = {}
    for history in ledger.histories.values():
        made.setdefault(history.name, []).append(history.job)
    for name, job in acknowledged.items():
        assert made.get(name) == [job], (
            f"{name} was acknowledged as job {job}; the ledger has {made.get(name)}"
        )
    doubled = {name: jobs for name, jobs in made.items() if len(jobs) > 1}
    assert not doubled, f"keys with several jobs: {doubled}"


def check_nothing_held(state: State) -> None:
    """Usage is zero, every device is free, no port is in use; and the books are right."""
    check_state(state)
    used = {scope.name: scope.used for scope in state.limits.scopes.values() if any(scope.used.values())}
    assert not used, f"usage that nobody has: {used}"
    for node in state.nodes.values():
        assert not node.holders, f"devices of {node.name} are held: {node.holders}"
        capacity = state.capacity.at(node.name)
        assert capacity.free == capacity.total, node.name
        assert (capacity.free_cores, capacity.free_memory) == (capacity.cores, capacity.memory), node.name
    assert not any(state.ports.values()), f"ports in use: {state.ports}"
    assert not state.jobs, f"jobs that are not over: {sorted(state.jobs)}"


def check_snapshot(folder: Path, ledger: Ledger) -> None:
    """The newest snapshot, if there is one, is what the events up to it fold to."""
    store = open_store(folder)
    try:
        snapshot = store.load_snapshot()
    finally:
        store.close()
    if snapshot is None:
        return
    state = State()
    for event in ledger.events[: snapshot.seq]:
        apply(state, event)
    assert to_plain(state) == snapshot.body, f"the snapshot after event {snapshot.seq} is not its fold"
