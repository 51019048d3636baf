"""The table of steps, and what holds for any sequence of answers: no id starts twice, each end is reported once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.reconcile import Local, Step, next_step
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import Desired, EndOrder, Phase

FIRST = AttemptId(1, 1)


@pytest.mark.parametrize(
    ("local", "phase", "want"),
    [
        (Local.UNKNOWN, Phase.PREPARE, Step.PREPARE),
        (Local.UNKNOWN, Phase.RUN, Step.RUN),
        (Local.UNKNOWN, Phase.END, Step.SEARCH),
        (Local.INTENT, Phase.PREPARE, Step.PREPARE),
        (Local.INTENT, Phase.RUN, Step.RUN),
        (Local.INTENT, Phase.END, Step.UNDO),
        (Local.PREPARING, Phase.PREPARE, Step.WAIT),
        (Local.PREPARING, Phase.RUN, Step.WAIT),
        (Local.PREPARING, Phase.END, Step.STOP_PREPARING),
        (Local.PREPARED, Phase.PREPARE, Step.WAIT),
        (Local.PREPARED, Phase.RUN, Step.RUN),
        (Local.PREPARED, Phase.END, Step.UNDO),
        (Local.RUNNING, Phase.PREPARE, Step.WAIT),
        (Local.RUNNING, Phase.RUN, Step.WAIT),
        (Local.RUNNING, Phase.END, Step.ORDER),
        (Local.ENDING, Phase.PREPARE, Step.WAIT),
        (Local.ENDING, Phase.RUN, Step.WAIT),
        (Local.ENDING, Phase.END, Step.ORDER),
        (Local.REFUSED, Phase.PREPARE, Step.WAIT),
        (Local.REFUSED, Phase.RUN, Step.WAIT),
        (Local.REFUSED, Phase.END, Step.CLOSE),
        (Local.FINISHED, Phase.PREPARE, Step.WAIT),
        (Local.FINISHED, Phase.RUN, Step.WAIT),
        (Local.FINISHED, Phase.END, Step.WAIT),
    ],
)
def test_every_state_and_every_wish(local: Local, phase: Phase, want: Step) -> None:
    desired = Desired(FIRST, phase, end=EndOrder("why") if phase is Phase.END else None)
    assert next_step(local, desired, has_launch=True, forgotten=False) is want


@pytest.mark.parametrize("local", list(Local))
@pytest.mark.parametrize("phase", list(Phase))
def test_on_an_answer_that_is_too_old_nothing_runs_and_all_else_is_as_ever(
    local: Local, phase: Phase
) -> None:
    desired = Desired(FIRST, phase, end=EndOrder("why") if phase is Phase.END else None)
    usual = next_step(local, desired, has_launch=True, forgotten=False)
    step = next_step(local, desired, has_launch=True, forgotten=False, stale=True)
    assert step is (Step.ASK if usual is Step.RUN else usual)


@pytest.mark.parametrize("phase", list(Phase))
def test_forgotten_end_is_repeated(phase: Phase) -> None:
    assert next_step(Local.FINISHED, Desired(FIRST, phase), has_launch=False, forgotten=True) is Step.REPEAT


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.RUN])
def test_what_may_have_run_is_never_started(phase: Phase) -> None:
    desired = Desired(FIRST, phase, started=True)
    assert next_step(Local.UNKNOWN, desired, has_launch=True, forgotten=False) is Step.SEARCH


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.RUN])
def test_without_a_launch_the_next_request_tells(phase: Phase) -> None:
    assert next_step(Local.UNKNOWN, Desired(FIRST, phase), has_launch=False, forgotten=False) is Step.WAIT


class Model:
    """One attempt on a node as the steps change it; the workers are the test's."""

    def __init__(self) -> None:
        self.local = Local.UNKNOWN
        self.starts = 0
        self.ends = 0
        self.end_wanted = False

    def answer(self, desired: Desired) -> None:
        """As the daemon does it: a wish to end, once heard by a unit, stays."""
        if self.end_wanted and self.local not in (Local.FINISHED, Local.REFUSED):
            desired = Desired(FIRST, Phase.END)
        self._take(next_step(self.local, desired, has_launch=True, forgotten=False))

    def _take(self, step: Step) -> None:
        if step is Step.RUN:
            self.starts += 1
            self.local = Local.RUNNING
        elif step is Step.PREPARE:
            self.local = Local.PREPARING
        elif step is Step.STOP_PREPARING:
            self.end_wanted = True
        elif step in (Step.UNDO, Step.ORDER, Step.SEARCH):
            self.end_wanted = True
            self.local = Local.ENDING
        elif step is Step.CLOSE:
            self._end()

    def _end(self) -> None:
        self.ends += 1
        self.local = Local.FINISHED

    def worker(self, good: bool) -> None:
        """Whatever works on it comes to its end."""
        if self.local is Local.PREPARING:
            if self.end_wanted:
                self.local = Local.ENDING
            else:
                self.local = Local.PREPARED if good else Local.REFUSED
        elif self.local in (Local.RUNNING, Local.ENDING):
            self._end()

    def restart(self) -> None:
        """The agent is killed: what was only in its memory is lost, workers that prepare with it."""
        if self.local is Local.PREPARING:
            self.local, self.end_wanted = Local.INTENT, False


ANSWERS = st.builds(Desired, st.just(FIRST), st.sampled_from(list(Phase)))
MOVES = st.one_of(ANSWERS, st.booleans(), st.just("restart"))


@pytest.mark.property
@given(st.lists(MOVES, max_size=40))
def test_any_sequence_starts_at_most_once_and_ends_exactly_once(moves: list[Desired | bool | str]) -> None:
    """Lost answers are those left out, repeated and reordered ones are in the lists as they come."""
    model = Model()
    for move in moves:
        if isinstance(move, Desired):
            model.answer(move)
        elif isinstance(move, bool):
            model.worker(move)
        else:
            model.restart()
        assert model.starts <= 1
        assert model.ends <= 1
    for _ in range(4):  # the controller keeps wanting its end until it hears of it
        model.answer(Desired(FIRST, Phase.END))
        model.worker(True)
    assert model.ends == 1
    assert model.local is Local.FINISHED
