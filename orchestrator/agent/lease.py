"""The lease: until when the controller counts this node as in contact. Jobs that chose `self_fence` end with it.

Comes in: when what the controller has answered was sent. Goes out: a file for the shepherds of such jobs, which outlive
the agent. Called by: the daemon (writes), shepherds (read).

A lease that has run out has run out for good: by the time of the next contact the job may run elsewhere. What comes
then is another lease in a file of another name, so that a shepherd that was held up in between, or whose processes
are not started yet, can't take it for its own.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass

from orchestrator.agent import layout, log
from orchestrator.model.clock import SECOND, Clock

_NAME = re.compile(rf"{layout.LEASE}(-\d+)?")  # without a number: of agents that had one file for all


@dataclass(frozen=True, slots=True)
class Term:
    """What the file says: the end (CLOCK_BOOTTIME) and the length, both in microseconds."""

    end_us: int
    length_us: int

    def asks_at_us(self, grace_s: int) -> int:
        """When a job is asked to end, so early that it is dead when the lease runs out: the controller relies on
        that."""
        return self.end_us - min(grace_s * SECOND, max(0, self.length_us) // 4)

    def begins_until_us(self, sent_us: int) -> int:
        """Until when what ends with the lease may be begun on an answer to what was sent at that time. Answers that are
        older say what was wanted once: another attempt may run by now. Held polls are at most two thirds of it old,
        and nobody is asked to end before the last quarter."""
        return sent_us + self.length_us * 3 // 4


class Lease:
    """The agent's end of it."""

    def __init__(self, state_dir: str, clock: Clock) -> None:
        self._folder = state_dir
        self._clock = clock
        self._heard_us = 0  # when what the controller has answered last was sent
        self.term, self.path = self._found()

    def heard(self, at_us: int, lease_s: int) -> None:
        """The controller was heard, or is known to be absent, as of then. A shorter lease counts from the first answer
        that has it: the controller goes by no other. Answers may come in another order than they were asked for."""
        now_us = self._clock.monotonic_us()
        if now_us >= self.term.end_us:
            self._drop()
            self.path = os.path.join(self._folder, f"{layout.LEASE}-{now_us}")
        self._heard_us = max(self._heard_us, at_us)
        length_us = lease_s * SECOND
        self.term = Term(self._heard_us + length_us, length_us)

    def write(self) -> None:
        """For the shepherds. Not fsynced: it means nothing after a restart of the node."""
        draft = self.path + ".new"
        try:
            with open(draft, "w", encoding="ascii") as file:
                file.write(f"{self.term.end_us} {self.term.length_us}\n")
            os.rename(draft, self.path)
        except OSError as error:
            log.error(
                f"{self.path}: {error.strerror}; attempts with on_lost self_fence will end when it runs out"
            )

    def _found(self) -> tuple[Term, str]:
        """What an earlier life of the agent has written goes on, unless it has run out."""
        names = [name for name in os.listdir(self._folder) if _NAME.fullmatch(name)]
        paths = [os.path.join(self._folder, name) for name in sorted(names)]
        last = max(paths, key=lambda path: read_lease(path).end_us, default="")
        last = last or os.path.join(self._folder, layout.LEASE)
        return read_lease(last), last

    def _drop(self) -> None:
        """Nobody goes by a file that is not there any more than by one that says a time in the past."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def read_lease(path: str) -> Term:
    """The lease that the agent wrote; one that has run out if there is none."""
    try:
        with open(path, encoding="ascii") as file:
            end, length = file.read().split()
        return Term(int(end), int(length))
    except (OSError, ValueError):
        return Term(0, 0)
