"""Ends what is left of a unit that has no shepherd: killed, never started, or of another boot.

Comes in: an attempt's folder with a plan (perhaps a bare one: only how the unit is kept together). Goes out: the
last records of the status file, after which no shepherd can ever start this attempt. Called by: the nursery.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from orchestrator.agent import layout
from orchestrator.agent.boxes import open_box
from orchestrator.agent.gate import Gate
from orchestrator.agent.outcome import RESTARTED
from orchestrator.agent.plan import Plan
from orchestrator.agent.procfs import Traces
from orchestrator.agent.status import Record, StatusWriter, claim, read_records, reopen
from orchestrator.agent.worker import boot_id, identity_record, read_crash, read_plan
from orchestrator.model.clock import SECOND, Clock


def run(directory: str, clock: Clock, siblings: frozenset[int] = frozenset()) -> None:
    """Claim or take over the status file, kill, wait until nothing is left, record the end.

    `siblings`: the living shepherds of the same nursery, which are none of what is left.
    """
    plan = read_plan(directory)
    path = os.path.join(directory, layout.STATUS)
    status = claim(path, identity_record("mop", clock), plan.notices, plan.attempt.unit)
    records: list[Record] = []
    if status is None:
        status = reopen(path, plan.notices, plan.attempt.unit)
        if status is None:
            return  # its worker lives, and ends it
        records = [record for _, record in read_records(path)[0]]
        if any(record["k"] in ("ended", "refused") for record in records):
            return
    _clean(plan, directory, status, _Past(records, siblings), clock)


@dataclass(frozen=True, slots=True)
class _Past:
    """What is known of the unit's life."""

    records: list[Record]
    siblings: frozenset[int]

    def workers(self) -> list[Record]:
        """All that had it before, in this boot or another."""
        return [record for record in self.records if record["k"] == "worker"]

    def same_boot(self) -> bool:
        """Whether its processes may live."""
        return any(record["boot"] == boot_id() for record in self.workers())

    def traces(self) -> Traces:
        """By what its processes can be recognised."""
        if not self.same_boot():
            return Traces()
        since = min(int(record["start"]) for record in self.workers() if record["boot"] == boot_id())
        pids = [pid for record in self.records if record["k"] == "ranks" for pid in record["pids"]]
        return Traces(frozenset(pids), since, os.getppid(), self.siblings)


def _clean(plan: Plan, directory: str, status: StatusWriter, past: _Past, clock: Clock) -> None:
    box = open_box(plan, past.traces())
    found = len(box.members())
    if any(record["do"] == "run" for record in past.workers()):
        why = _why(directory, past.same_boot())
        status.add({"k": "lost", "error": why, "t": clock.now_us()}, durable=True)
    gate = Gate(box, directory, plan.gpu_uuids, plan.stuck_s, status, clock)
    while not gate.passed():
        gate.work()
        time.sleep(max(0, gate.retry_us - clock.monotonic_us()) / SECOND)
    status.add({"k": "ended", "found": found, "t": clock.now_us()}, durable=True)


def _why(directory: str, same_boot: bool) -> str:
    if not same_boot:
        return RESTARTED
    return read_crash(directory) or "the shepherd was killed"
