"""One attempt on this node as the agent sees it: its folder, its worker process, what its records say.

Comes in: an attempt id and the agent's state folder. Goes out: the local state, new events, ways to signal the
worker. Called by: the daemon. The unit itself decides nothing.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from orchestrator.agent import layout, procfs
from orchestrator.agent.outcome import Outcome
from orchestrator.agent.plan import Plan
from orchestrator.agent.reconcile import Local
from orchestrator.agent.status import read_records
from orchestrator.agent.worker import boot_id
from orchestrator.model.codec import decode, encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import EndOrder

Plain = dict[str, Any]


class Unit:
    """State of one attempt. `pidfd` is -1 while no worker is known to live; it becomes readable at its death."""

    def __init__(self, attempt: AttemptId, state_dir: str, local: Local = Local.UNKNOWN) -> None:
        self.attempt = attempt
        self.directory = layout.attempt_dir(state_dir, attempt)
        self.local = local
        self.outcome = Outcome(attempt, boot=boot_id())
        self._assumed_started = False
        self.loss = ""  # why it counts as ended by the node, if that is known beforehand
        self.offset = 0  # how much of the status file was read
        self.pidfd = -1
        self.doing = ""  # what the worker was asked to do, from the request to its death
        self.order: EndOrder | None = None
        self.fence = False
        self.orphan = False  # on the node, and in no record
        self.asks = 0  # workers asked for, in this life of the agent
        self.tries = 0
        self.pid = 0  # of the worker; `pidfd` is what counts
        self.request = (
            0  # the number of the request that the worker was made for, 0 in another life of the agent
        )
        self.asked_us = self.ordered_us = self.killed_us = 0  # monotonic; 0: not yet

    # --- its folder ------------------------------------------------------------------------------------------------

    def write_plan(self, plan: Plan) -> None:
        """Make the folder and the plan in it. Others may pass through to the working folder, and see nothing else."""
        try:
            os.mkdir(self.directory)
            os.chmod(self.directory, layout.PASSABLE)
        except FileExistsError:
            pass
        _write(os.path.join(self.directory, layout.PLAN), encode(plan))

    def has_plan(self) -> bool:
        """Whether its folder is as the agent left it."""
        return os.path.exists(os.path.join(self.directory, layout.PLAN))

    def claimed(self) -> bool:
        """Whether a worker ever took it to run or to mop."""
        return os.path.exists(os.path.join(self.directory, layout.STATUS))

    def write_order(self, order: EndOrder) -> None:
        """What the shepherd reads when it is signalled, and when it starts."""
        self.order = order
        _write(os.path.join(self.directory, layout.ORDER), encode(order))

    def read_order(self) -> None:
        """The order of an earlier life of the agent."""
        try:
            with open(os.path.join(self.directory, layout.ORDER), encoding="utf-8") as file:
                self.order = decode(EndOrder, json.load(file))
        except FileNotFoundError:
            self.order = None

    # --- its records -----------------------------------------------------------------------------------------------

    def news(self, after: int) -> list[tuple[Plain, int]]:
        """Events of records that were not read yet, each with the offset after it; those up to `after` are known."""
        records, self.offset = read_records(os.path.join(self.directory, layout.STATUS), self.offset)
        events: list[tuple[Plain, int]] = []
        for offset, record in records:
            event = self.outcome.feed(record)
            if event is not None and offset > after:
                events.append((event, offset))
        return events

    def assume(self, *, started: bool = False, loss: str = "") -> None:
        """What is known of it besides its records; see `Outcome`."""
        self._assumed_started, self.loss = started, loss
        self.reread()

    def reread(self) -> None:
        """Read all records again: what was made of them could not be written down."""
        self.offset = 0
        self.outcome = Outcome(
            self.attempt, assumed_started=self._assumed_started, known_loss=self.loss, boot=boot_id()
        )

    def forget_preparation(self) -> None:
        """What an earlier preparer found holds no longer."""
        try:
            os.unlink(os.path.join(self.directory, layout.PREPARE))
        except FileNotFoundError:
            pass

    def preparation(self) -> Plain | None:
        """The preparer's last record, if it came to a result."""
        records, _ = read_records(os.path.join(self.directory, layout.PREPARE))
        last = records[-1][1] if records else None
        return last if last is not None and last["k"] in ("prepared", "refused") else None

    # --- its worker ------------------------------------------------------------------------------------------------

    def attach(self, pid: int, start: int) -> bool:
        """Hold the worker by a descriptor that outlives its number; False if it is gone already."""
        self.detach()
        self.pid, self.killed_us = pid, 0
        try:
            self.pidfd = os.pidfd_open(pid)
        except OSError:
            return False
        if procfs.start_of(pid) != start:
            self.detach()
            return False
        return True

    def attach_recorded(self) -> bool:
        """Hold the worker that the records name; False if it is of another boot or gone."""
        worker = self.outcome.worker
        if worker is None or worker["boot"] != boot_id():
            return False
        return self.attach(worker["pid"], worker["start"])

    def detach(self) -> None:
        """Let go of the worker."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def signal(self, number: int) -> None:
        """To the worker, if it lives."""
        if self.pidfd < 0:
            return
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            pass


def _write(path: str, plain: Any) -> None:
    """Whole or not at all."""
    draft = path + ".new"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(json.dumps(plain, separators=(",", ":")))  # not json.dump, which has no C encoder
    os.rename(draft, path)
