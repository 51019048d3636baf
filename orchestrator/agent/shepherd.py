"""The shepherd: one process per node and attempt that starts the ranks, watches them, ends them, and proves them gone.

Comes in: an attempt's folder with its plan; later an order to end. Goes out: records in the status file, pokes to
the agent. Called by: the nursery (in a fork) or `systemd-run` (exec). It outlives the agent and asks it nothing.

The life of a unit in one page: claim · set up · start · watch (first failure ends the rest; an order, a lease that
ran out) · kill what is left · the epilog gate · record the end.
"""

from __future__ import annotations

import json
import os
import signal

from orchestrator.agent import layout
from orchestrator.agent.boxes import open_box
from orchestrator.agent.containment import Containment
from orchestrator.agent.gate import Gate
from orchestrator.agent.identity import Problem
from orchestrator.agent.lease import read_lease
from orchestrator.agent.plan import Plan
from orchestrator.agent.properties import STOP_SIGNAL
from orchestrator.agent.setup import prepare, undo
from orchestrator.agent.spawn import Rank, start_all
from orchestrator.agent.status import StatusWriter, claim
from orchestrator.agent.worker import become_subreaper, identity_record, read_plan
from orchestrator.model.clock import SECOND, Clock
from orchestrator.model.codec import decode
from orchestrator.model.failpoints import failpoint
from orchestrator.model.protocol import EndOrder

TAIL_BYTES = 4096
ORDER_SIGNAL = signal.SIGUSR1  # "read the order file"; blocked from before the fork, so none is missed
_WATCHED = (signal.SIGCHLD, ORDER_SIGNAL, STOP_SIGNAL)
_MANAGER = 1  # the process whose STOP_SIGNAL counts
_LEASE_LOOK_S = 1.0  # between two looks at the lease file


def run(directory: str, clock: Clock) -> None:
    """The whole life of one unit; returns when it is proved gone, or at once if another worker has claimed it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    while signal.sigtimedwait((STOP_SIGNAL,), 0):
        pass  # it was meant for an earlier attempt of this process
    become_subreaper()
    plan = read_plan(directory)
    path = os.path.join(directory, layout.STATUS)
    status = claim(path, identity_record("run", clock), plan.notices, plan.attempt.unit)
    if status is None or not os.path.exists(os.path.join(directory, layout.PLAN)):
        return
    shepherd = Shepherd(plan, directory, status, clock)
    try:
        shepherd.start()
        shepherd.watch()
    except Problem as problem:
        undo(directory)
        status.add(
            {"k": "refused", "code": problem.code, "error": str(problem), "t": clock.now_us()}, durable=True
        )
    finally:
        shepherd.close()


class Shepherd:
    """The state of one unit. Monotonic times in microseconds, 0 for none."""

    def __init__(self, plan: Plan, directory: str, status: StatusWriter, clock: Clock) -> None:
        self.plan = plan
        self.directory = directory
        self.status = status
        self.clock = clock
        self.box: Containment = open_box(plan, shepherd=os.getpid())
        self.gate = Gate(self.box, directory, plan.gpu_uuids, plan.stuck_s, status, clock)
        self.ranks: list[Rank] = []
        self.live: dict[int, Rank] = {}
        self.childless = False
        self.failed = False
        self.ordered: EndOrder | None = None
        self.kill_us = 0  # when SIGKILL is due
        self.lease_us = 0  # when to look at the lease again
        self.fenced = False

    def start(self) -> None:
        """Set up and start the ranks; Problem if the node can't. None starts after an order to end, and none when the
        lease ran out meanwhile: another attempt may run by now."""
        identity = prepare(self.plan, self.directory)
        failpoint("shepherd.spawn.before")
        self.obey()
        if self.plan.lease and self.ordered is None:
            self.fence_if_due()
        if self.ordered is not None:
            return
        try:
            self.ranks = start_all(self.plan, self.directory, identity, self.box)
        except OSError as error:
            self.abandon()
            raise Problem("start-failed", f"{error.filename or self.directory}: {error.strerror}") from None
        failpoint("shepherd.spawn.after")
        self.live = {rank.pid: rank for rank in self.ranks}
        pids = [rank.pid for rank in self.ranks]
        record = {
            "k": "ranks",
            "ranks": [rank.rank for rank in self.ranks],
            "pids": pids,
            "t": self.clock.now_us(),
        }
        self.status.add(record, hurry=False)

    def abandon(self) -> None:
        """Not all ranks could be started: end those that were."""
        while True:
            self.reap()
            if self.childless and self.gate.passed():
                return
            self.gate.work()
            self.wait()

    def watch(self) -> None:
        """Until nothing is left: children, orders, the lease, deadlines."""
        while True:
            self.reap()
            if not self.live and self.childless and self.gate.passed():
                break
            self.obey()
            self.mind_lease()
            self.enforce()
            self.wait()
        failpoint("shepherd.exit.before-record")
        self.status.add({"k": "ended", "t": self.clock.now_us(), **self.last_words()}, durable=True)

    def wait(self) -> None:
        """Sleep until a signal, or until the next deadline."""
        due = min((at for at in (self.kill_us, self.lease_us, self.gate.retry_us) if at), default=0)
        pause = max(0, due - self.clock.monotonic_us()) / SECOND
        heard = signal.sigtimedwait(_WATCHED, pause) if due else signal.sigwaitinfo(_WATCHED)
        if heard is not None and heard.si_signo == STOP_SIGNAL and heard.si_pid == _MANAGER:
            self.stopped()

    # --- what happens by itself ------------------------------------------------------------------------------------

    def reap(self) -> None:
        """Take the results of all that ended, ranks and adopted orphans alike."""
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            self.childless = False
            if not pid:
                return
            rank = self.live.pop(pid, None)
            if rank is not None:
                self.rank_ended(rank, os.waitstatus_to_exitcode(code))

    def rank_ended(self, rank: Rank, code: int) -> None:
        """Record it; the first that fails by itself ends all others of this node."""
        result = {"rank": rank.rank, "code": max(code, 0), "signal": max(-code, 0), "t": self.clock.now_us()}
        if code and not self.failed and self.ordered is None:
            self.failed = True
            why = (
                {"error": self.out_of_memory(rank)} if code == -signal.SIGKILL and self.box.starved() else {}
            )
            self.status.add({"k": "failed", **result, **why, "tail": tail(rank.output)}, durable=True)
            self.send("SIGTERM", "all")
            self.kill_by(self.plan.failure_grace_s)
        else:
            self.status.add({"k": "exit", **result}, hurry=False)

    def out_of_memory(self, rank: Rank) -> str:
        """For people."""
        gib = self.plan.box.limits.memory / (1 << 30)
        return (
            f"rank {rank.rank} was killed because the job's processes on this node used more than their {gib:.2f} GiB "
            "of memory: ask for more with per_node.memory"
        )

    def stopped(self) -> None:
        """systemd wants the unit's end: the job gets its own stop signal and grace, within which systemd waits."""
        if self.ordered is not None or not self.live:
            return
        why = f"systemd stopped its unit {self.plan.box.unit} (by systemctl stop, or a shutdown of the node)"
        self.status.add({"k": "stopped", "error": why, "t": self.clock.now_us()}, durable=True)
        stop = self.plan.stop
        self.ordered = EndOrder(why, stop.signal, stop.to, stop.grace_s)
        self.send(stop.signal, stop.to)
        self.kill_by(stop.grace_s)

    def mind_lease(self) -> None:
        """A job that chose to be fenced ends by itself when the agent no longer extends the lease."""
        if not self.plan.lease or self.fenced or not self.live:
            self.lease_us = 0
        elif not self.fence_if_due():
            self.lease_us = self.clock.monotonic_us() + int(
                _LEASE_LOOK_S * SECOND
            )  # not at its end: it may have become shorter by then

    def fence_if_due(self) -> bool:
        """End it if the lease has all but run out; whether it has."""
        now, term = self.clock.monotonic_us(), read_lease(self.plan.lease)
        if now < term.asks_at_us(self.plan.stop.grace_s):
            return False
        self.fenced = True
        self.lease_us = 0
        self.status.add({"k": "fenced", "t": self.clock.now_us()}, durable=True)
        self.ordered = EndOrder("the lease ran out", self.plan.stop.signal, self.plan.stop.to)
        self.send(self.ordered.signal, self.ordered.to)
        self.kill_by(max(0, term.end_us - now) / SECOND)
        return True

    # --- what the agent wants --------------------------------------------------------------------------------------

    def obey(self) -> None:
        """Act on the order file if it says something new."""
        order = read_order(self.directory)
        if order is None or order == self.ordered:
            return
        self.ordered = order
        self.send(order.signal, order.to)
        self.kill_by(order.grace_s)

    def send(self, name: str, to: str) -> None:
        """A signal to every rank's group, or to the first rank alone."""
        number = signal.Signals[name] if name in signal.Signals.__members__ else signal.SIGTERM
        chosen = self.ranks[:1] if to == "launcher" else self.ranks
        for rank in chosen:
            if rank.pid in self.live or to != "launcher":
                _signal(rank.pid, number, group=to != "launcher")
                _signal(rank.pid, signal.SIGCONT, group=to != "launcher")  # a stopped one must hear it too

    def kill_by(self, seconds: float) -> None:
        """SIGKILL to all that is left after `seconds`, or earlier if that was decided before."""
        at = self.clock.monotonic_us() + int(seconds * SECOND)
        self.kill_us = min(self.kill_us, at) if self.kill_us else max(at, 1)

    def enforce(self) -> None:
        """Kill when it is due: the grace is over, or all ranks are and something of them is left."""
        if not self.live:
            self.kill_us = 0
            self.gate.work()
        elif self.kill_us and self.clock.monotonic_us() >= self.kill_us:
            for rank in self.live.values():
                _signal(rank.pid, signal.SIGKILL, group=True)
            self.gate.work()
            self.kill_us = self.gate.retry_us

    def close(self) -> None:
        """This process may serve another attempt: nothing of this one stays."""
        for rank in self.ranks:
            os.close(rank.output)
        self.status.close()

    def last_words(self) -> dict[str, str]:
        """The tail of rank 0's output, where it ran here."""
        first = self.ranks[0] if self.ranks else None
        return {"tail": tail(first.output)} if first is not None and first.rank == 0 else {}


def read_order(directory: str) -> EndOrder | None:
    """The order to end, if the agent has given one."""
    try:
        with open(os.path.join(directory, layout.ORDER), encoding="utf-8") as file:
            return decode(EndOrder, json.load(file))
    except FileNotFoundError:
        return None


def tail(fd: int) -> str:
    """The last bytes of an output as text."""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace")
    except OSError:
        return ""


def _signal(pid: int, number: int, *, group: bool) -> None:
    try:
        if group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
