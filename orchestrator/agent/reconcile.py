"""PURE: what to do next for one attempt, from what it is here and what the controller wants.

Comes in: the local state of an attempt, the controller's wish. Goes out: one `Step`. Called by: the daemon, for
every attempt of every answer and again whenever the local state changed. The table is the whole policy: nothing in
it depends on the order or the number of answers, so lost, repeated and reordered ones are harmless.
"""

from __future__ import annotations

from orchestrator.model.base import Word
from orchestrator.model.protocol import Desired, Phase


class Local(Word):
    """What an attempt is on this node."""

    UNKNOWN = "unknown"  # never heard of
    INTENT = "intent"  # in the journal, and no worker has ever claimed it
    PREPARING = "preparing"  # a preparer works on it
    PREPARED = "prepared"  # set up, nothing started
    RUNNING = "running"  # a shepherd has it, or may have
    ENDING = "ending"  # told to end, or being mopped up
    REFUSED = "refused"  # it could not be set up; nothing is left
    FINISHED = "finished"  # its end is in the journal; its id never starts again


class Step(Word):
    """The next deed."""

    WAIT = "wait"  # nothing, or not yet
    PREPARE = "prepare"
    RUN = "run"
    STOP_PREPARING = "stop_preparing"  # then its state changes, and the table is asked again
    UNDO = "undo"  # make sure that it never starts, and take away what was set up
    ORDER = "order"  # tell the shepherd to end it
    SEARCH = "search"  # nothing is known of it: end whatever is found, then report its end
    CLOSE = "close"  # report the end of what was never started
    ASK = "ask"  # the answer is too old to begin this on: ask what is wanted now
    REPEAT = "repeat"  # the controller has forgotten an end that it had acknowledged: report it again


_TABLE: dict[tuple[Local, Phase], Step] = {
    (Local.INTENT, Phase.PREPARE): Step.PREPARE,
    (Local.INTENT, Phase.RUN): Step.RUN,
    (Local.INTENT, Phase.END): Step.UNDO,
    (Local.PREPARING, Phase.END): Step.STOP_PREPARING,
    (Local.PREPARED, Phase.RUN): Step.RUN,
    (Local.PREPARED, Phase.END): Step.UNDO,
    (Local.RUNNING, Phase.END): Step.ORDER,
    (Local.ENDING, Phase.END): Step.ORDER,  # another order, perhaps with less grace
    (Local.REFUSED, Phase.END): Step.CLOSE,
}


def next_step(
    local: Local, desired: Desired, *, has_launch: bool, forgotten: bool, stale: bool = False
) -> Step:
    """The step for one attempt.

    `has_launch`: whether the answer or the journal says how to run it. `forgotten`: whether the controller had
    acknowledged the attempt's last event before it was asked for this answer. `stale`: whether the attempt ends with
    the lease, and the one that the answer gave is all but over: the controller may have started another one since.
    """
    step = _step(local, desired, has_launch=has_launch, forgotten=forgotten)
    return Step.ASK if stale and step is Step.RUN else step


def _step(local: Local, desired: Desired, *, has_launch: bool, forgotten: bool) -> Step:
    if local is Local.UNKNOWN:
        return _unknown(desired, has_launch)
    if local is Local.FINISHED or (local is Local.REFUSED and desired.phase is not Phase.END):
        return Step.REPEAT if forgotten else Step.WAIT
    return _TABLE.get((local, desired.phase), Step.WAIT)


def _unknown(desired: Desired, has_launch: bool) -> Step:
    """Without a launch it can't be started: the controller left it out since it believes that it is held here, and
    the next request tells it otherwise."""
    if desired.phase is Phase.END or desired.started:
        return Step.SEARCH
    if not has_launch:
        return Step.WAIT
    return Step.PREPARE if desired.phase is Phase.PREPARE else Step.RUN
