"""An apply: a plan being carried out by whoever has the credentials, journalled in the ledger step by step.

Comes in: nothing. Goes out: words and results of steps. Called by: ledger (records them), controller, provision
(carries steps out), api, client, cli.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.base import Word


class Outcome(Word):
    """How an apply ended."""

    DONE = "done"
    PARTIAL = "partial"  # some hosts are not as wanted yet; running it again converges
    FAILED = "failed"
    GIVEN_UP = "given-up"  # its lease ran out, or its holder began anew; the next apply looks again


class StepState(Word):
    """How far a step is."""

    PENDING = "pending"
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class HostResult:
    """What a step came to on one host. `changed` counts items that were not as wanted before."""

    host: str
    ok: bool
    error: str = ""
    changed: int = 0
