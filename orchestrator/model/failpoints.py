"""Named places where a test may kill the process: between intent, call and record.

Comes in: `GANGLINE_FAILPOINT`, a comma list of `name` or `name:count` (die at the count-th passing, 1 by default).
Goes out: nothing, or SIGKILL to this very process. Called by: store, controller, agent and shepherd at each such
step. Without the variable a passing costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal

# Every name that the code passes, with what has happened before it. A test kills at each of them.
NAMES: dict[str, str] = {
    "controller.intent.before-commit": "facts are folded, not yet written",
    "controller.intent.after-commit": "facts are written, not yet acknowledged",
    "controller.decide.before-commit": "decisions are made, not yet written",
    "controller.decide.after-commit": "decisions are written, not yet published",
    "controller.publish.after": "the view is published",
    "controller.snapshot.before": "a snapshot is due",
    "controller.snapshot.after": "a snapshot is written",
    "agent.prepare.before": "an attempt is heard of, nothing is written",
    "agent.intent.after": "the start of an attempt is in the journal, no unit exists",
    "agent.unit.after": "the unit runs, its start is not recorded",
    "agent.event.before-outbox": "something happened that the outbox does not know",
    "agent.event.after-outbox": "the outbox has an event that was never sent",
    "agent.sync.before-ack": "the controller has answered, the answer is not applied",
    "agent.end.after-signal": "the unit was told to end, nothing is recorded",
    "shepherd.spawn.before": "the shepherd runs, no rank does",
    "shepherd.spawn.after": "the ranks run, their pids are not recorded",
    "shepherd.exit.before-record": "the ranks have ended, their result is not recorded",
    "join.key.made": "the node's private key is on disk, not under its name",
    "join.answer.before-keep": "the controller has let the node in, nothing of its answer is kept",
    "join.identity.after": "the node's key and certificate are kept, its token is not",
    "join.name.after": "a bought node's name is kept, its token is not",
    "join.token.after": "the node's token is kept, its join key has not been put away",
    "apply.start.after": "an apply is in the journal, no step is",
    "apply.step.started": "a step is in the journal, nothing is touched",
    "apply.step.acted": "a step has acted, the journal does not say so",
    "apply.step.ended": "a step's results are in the journal",
    "apply.end.before": "all steps have ended, the apply has not",
}


def _parse(text: str) -> dict[str, int]:
    """Names and counts; a text that could never be hit ends the process, since a test would pass without its kill."""
    counts: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, count = part.partition(":")
        if name not in NAMES or not (count or "1").isdecimal() or int(count or 1) < 1:
            raise SystemExit(f"GANGLINE_FAILPOINT: {text!r} is no list of failpoints: {part!r}")
        counts[name] = int(count or 1)
    return counts


_armed = _parse(os.environ.get("GANGLINE_FAILPOINT", ""))


def failpoint(name: str) -> None:
    """Die here with SIGKILL if the environment says so; nothing runs after it, as after a power cut."""
    if name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
