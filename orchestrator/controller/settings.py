"""How a controller behaves: numbers that operators may change, with their defaults.

Comes in: the `server run` options. Goes out: `Settings`. Called by: service, loop, beats, outcome. Seconds unless the
name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults suit one controller with up to a few thousand nodes."""

    lease_s: int = 180  # without contact for so long a node is suspect; for twice that it is unreachable
    poll_s: int = 90  # the longest an idle sync is held; jittered by a third either way (60-120 s)
    failure_grace_s: int = 1  # from the first failed rank to SIGKILL of the gang's others
    work_budget: int = 100_000  # probes per pass
    snapshot_every: int = 20_000  # events
    snapshot_after: int = 2_000  # events that a start had to read; so many are not left to the next one
    keep_days: int = 30  # of ledger segments
    most_per_cycle: int = 2_000  # commands taken into one group commit
    # Of them, unless hundreds wait. Each is work for both threads, and what nodes tell meanwhile waits for the whole
    # cycle: with 32 the turnaround of a device was half as long again on a busy machine; with 8 submits wait too long.
    submits_per_cycle: int = 16
    faulty_nodes: int = 2  # nodes on which a job fails to prepare until the job is at fault
    version: str = ""
    host: str = ""

    @property
    def idle_s(self) -> int:
        """How long an idle sync is held on average: a third more must still be well within the lease."""
        return max(1, min(self.poll_s, self.lease_s // 2))
