"""Whether a queue lets so many jobs more wait.

Comes in: State, a queue, how many. Goes out: nothing, or an error for the person. Called by: intake (submit), what_if.
"""

from __future__ import annotations

from orchestrator.ledger.state import State
from orchestrator.model.errors import Refused, Unavailable


def check(state: State, name: str, tasks: int) -> None:
    """Refused if the queue never lets as many wait, Unavailable if it is too full now."""
    queue = state.queue(name)
    most = queue.limits.max_waiting_jobs if queue is not None else 0
    if not most:
        return
    if tasks > most:
        raise Refused(
            "submit.array-over-queue",
            f"the array has {tasks} tasks, and queue {name} lets {most} job(s) wait",
            "submit it in parts, or use another queue",
        )
    waiting = state.blocked.get(name, 0) + sum(
        len(found.waiting) for key, found in state.classes.items() if key.queue == name
    )
    if waiting + tasks > most:
        more = f"; the array has {tasks} tasks" if tasks > 1 else ""
        raise Unavailable(
            "submit.queue-full",
            f"queue {name} has {waiting} waiting job(s), and allows {most}{more}",
            "submit again when some have started",
        )
