"""The first phase of a gang: set everything up on this node and say whether it can run; start nothing.

Comes in: an attempt's folder with its plan. Goes out: one record, `prepared` or `refused`, in the prepare file.
Called by: the nursery, in a process for it alone: a working directory on a dead file server hangs nobody else.
"""

from __future__ import annotations

import os

from orchestrator.agent import layout
from orchestrator.agent.identity import Problem
from orchestrator.agent.setup import prepare, undo
from orchestrator.agent.status import Record, StatusWriter
from orchestrator.agent.worker import read_plan
from orchestrator.model.clock import Clock


def run(directory: str, clock: Clock) -> None:
    """May be run again: the record is written anew."""
    plan = read_plan(directory)
    fd = os.open(os.path.join(directory, layout.PREPARE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    status = StatusWriter(fd, plan.notices, plan.attempt.unit)
    record: Record = {"k": "prepared"}
    try:
        prepare(plan, directory)
    except Problem as problem:
        undo(directory)
        record = {"k": "refused", "code": problem.code, "error": str(problem)}
    status.add({**record, "t": clock.now_us()})
    status.close()
