"""What a job may wait for in other jobs, and when that is met or can be met no more.

Comes in: how a job, or the jobs of an array, have done so far. Goes out: `Dependency` (as asked for), `Wait` (for jobs
that are known), verdicts. Called by: spec (builds), ledger (keeps and settles), controller (resolves at submit).

The rule for a job that was cancelled before any process of it ran: it counts as neither a success nor a failure. What
was to follow either is cancelled as well, and what was to follow its start or its end goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.attempt import JobState
from orchestrator.model.base import Word


class On(Word):
    """What of the other job is waited for."""

    START = "start"  # that it has started, or is over
    OK = "ok"  # that it has succeeded
    FAILED = "failed"  # that it has failed, or was cancelled while it ran
    END = "end"  # that it is over, however


class Outcome(Word):
    """How an ended job counts."""

    OK = "ok"
    FAILED = "failed"
    NEVER_RAN = "never_ran"


@dataclass(frozen=True, slots=True)
class Dependency:
    """As people write it: `job` 1234, or the task with `index` 7 of array 1234 (None: all its tasks, or no array)."""

    job: int
    on: On = On.OK
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that has to happen first: to the job of that id, or to the `whole` array of that id."""

    job: int
    on: On
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """How the tasks of an array stand: not over, never started and not over, ended by how they count."""

    live: int
    unstarted: int
    failed: int
    never_ran: int


def outcome(state: JobState, exit_code: int) -> Outcome:
    """Of an ended job. A cancelled one that ran has a code; one that never did has 0."""
    if state is JobState.SUCCEEDED:
        return Outcome.OK
    return Outcome.NEVER_RAN if state is JobState.CANCELLED and not exit_code else Outcome.FAILED


def of_job(on: On, how: Outcome) -> bool:
    """Whether the end of a job meets it; if not, nothing ever will."""
    if on is On.OK:
        return how is Outcome.OK
    return how is Outcome.FAILED if on is On.FAILED else True


def of_array(on: On, tally: Tally) -> bool | None:
    """Whether an array meets it; False: it never will, None: that is open. `failed` wants all over, and a failure."""
    if on is On.START:
        return None if tally.unstarted > 0 else True
    if on is On.OK and (tally.failed or tally.never_ran):
        return False
    if tally.live:
        return None
    return bool(tally.failed) if on is On.FAILED else True


_WANTED = {
    (On.OK, False): "job {job} succeeded",
    (On.FAILED, False): "job {job} failed",
    (On.OK, True): "all tasks of array {job} succeeded",
    (On.FAILED, True): "a task of array {job} failed",
}
_HAPPENED = {
    Outcome.OK: "succeeded",
    Outcome.FAILED: "failed",
    Outcome.NEVER_RAN: "was cancelled before it ran",
}


def never_words(wait: Wait, how: Outcome) -> str:
    """Why it can be met no more, as the end of the job that had it."""
    wanted = _WANTED[wait.on, wait.whole].format(job=wait.job)
    if not wait.whole:
        happened = f"it {_HAPPENED[how]}"
    elif wait.on is On.FAILED:
        happened = "none of them did"
    else:
        happened = f"one of them {_HAPPENED[how]}"
    return f"its dependency can't be met: it was to start if {wanted}, and {happened}"


_AWAITED = {On.START: "start", On.OK: "succeed", On.FAILED: "fail", On.END: "end"}


def wait_words(wait: Wait) -> str:
    """`job 12 to succeed`, `array 1234 to end`."""
    return f"{'array' if wait.whole else 'job'} {wait.job} to {_AWAITED[wait.on]}"
