"""What a node remembers of another cluster, set aside before it works for this one: both count their jobs from 1.

Comes in: the state folder, a journal, pins of join tokens. Goes out: a state folder as of a new node, with what was
there in STATE/former/TIME. Called by: the daemon, when it starts.

Without this the first jobs of a host's next cluster would be answered with the ends and the output of the last one's.
Nothing is set aside while something of it lives here, has not ended, or is not told yet: then the controller may well
be the same one with a new certificate authority.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from orchestrator.agent import layout, log
from orchestrator.agent.journal import Journal
from orchestrator.agent.trust import Trust
from orchestrator.model.clock import SECOND, Clock
from orchestrator.model.ids import AttemptId

REMEMBERED = ("journal.jsonl", "started.ids", "history.jsonl", "attempts", "controller.json")


def is_anothers(trust: Trust, journal: Journal, live: Sequence[AttemptId]) -> bool:
    """Whether the join token leads to another controller than the one that the journal is about, and nothing here is
    still of any use to that one."""
    if not trust.other_controller():
        return False
    memory = journal.memory
    open_ones = [attempt for attempt, record in memory.records.items() if record.final is None]
    if live or open_ones or memory.events:
        log.error(
            "the join token is for another controller than before, and what that one does not know yet is kept "
            f"here: {len(live)} attempts run, {len(open_ones)} have not ended, {len(memory.events)} events are not "
            "told; jobs of the same numbers can't run here until then"
        )
        return False
    return True


def set_aside(folder: str, clock: Clock) -> str:
    """Move it. Returns where to; a kill on the way leaves the rest to the next start: the pins go last."""
    place = os.path.join(folder, "former", str(clock.now_us() // SECOND))
    os.makedirs(place, mode=0o700, exist_ok=True)
    for name in REMEMBERED:
        try:
            os.rename(os.path.join(folder, name), os.path.join(place, name))
        except FileNotFoundError:
            continue
    attempts = os.path.join(folder, "attempts")
    os.makedirs(attempts, exist_ok=True)
    os.chmod(attempts, layout.PASSABLE)
    log.info(f"this node was another controller's: what it remembers of its jobs is in {place}")
    return place
