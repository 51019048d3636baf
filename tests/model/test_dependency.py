"""What meets a dependency, and what never will: the whole table."""

from __future__ import annotations

import pytest

from orchestrator.model.attempt import JobState
from orchestrator.model.dependency import (
    On,
    Outcome,
    Tally,
    Wait,
    never_words,
    of_array,
    of_job,
    outcome,
    wait_words,
)


@pytest.mark.parametrize(
    ("state", "code", "how"),
    [
        (JobState.SUCCEEDED, 0, Outcome.OK),
        (JobState.FAILED, 1, Outcome.FAILED),
        (JobState.FAILED, 0, Outcome.FAILED),
        (JobState.CANCELLED, 143, Outcome.FAILED),
        (JobState.CANCELLED, 0, Outcome.NEVER_RAN),
    ],
)
def test_how_an_ended_job_counts(state: JobState, code: int, how: Outcome) -> None:
    assert outcome(state, code) is how


@pytest.mark.parametrize(
    ("how", "met"),
    [
        (Outcome.OK, {On.START, On.OK, On.END}),
        (Outcome.FAILED, {On.START, On.FAILED, On.END}),
        (Outcome.NEVER_RAN, {On.START, On.END}),
    ],
)
def test_a_job_that_never_ran_is_neither_a_success_nor_a_failure(how: Outcome, met: set[On]) -> None:
    assert {on for on in On if of_job(on, how)} == met


@pytest.mark.parametrize(
    ("tally", "start", "ok", "failed", "end"),
    [
        (Tally(3, 3, 0, 0), None, None, None, None),
        (Tally(3, 0, 0, 0), True, None, None, None),
        (Tally(2, 1, 1, 0), None, False, None, None),
        (Tally(2, 0, 0, 1), True, False, None, None),
        (Tally(0, 0, 0, 0), True, True, False, True),
        (Tally(0, 0, 1, 0), True, False, True, True),
        (Tally(0, 0, 0, 2), True, False, False, True),
    ],
)
def test_an_array_is_all_of_its_tasks(
    tally: Tally, start: bool | None, ok: bool | None, failed: bool | None, end: bool | None
) -> None:
    found = {on: of_array(on, tally) for on in On}
    assert found == {On.START: start, On.OK: ok, On.FAILED: failed, On.END: end}


@pytest.mark.parametrize(
    ("wait", "how", "words"),
    [
        (Wait(12, On.OK), Outcome.FAILED, "if job 12 succeeded, and it failed"),
        (Wait(12, On.OK), Outcome.NEVER_RAN, "if job 12 succeeded, and it was cancelled before it ran"),
        (Wait(12, On.FAILED), Outcome.OK, "if job 12 failed, and it succeeded"),
        (Wait(12, On.OK, True), Outcome.FAILED, "if all tasks of array 12 succeeded, and one of them failed"),
        (Wait(12, On.FAILED, True), Outcome.NEVER_RAN, "if a task of array 12 failed, and none of them did"),
    ],
)
def test_why_it_can_be_met_no_more(wait: Wait, how: Outcome, words: str) -> None:
    assert never_words(wait, how) == f"its dependency can't be met: it was to start {words}"


def test_what_is_waited_for_in_words() -> None:
    assert [wait_words(Wait(1, on)) for on in On] == [
        "job 1 to start",
        "job 1 to succeed",
        "job 1 to fail",
        "job 1 to end",
    ]
    assert wait_words(Wait(7, On.END, True)) == "array 7 to end"
