"""The epilog gate: kill what is left, and let a unit count as ended only when nothing of it is left on the node.

Comes in: a box, the attempt's folder, device UUIDs. Goes out: whether the gate is passed; a `stuck` record that says
what holds it. Called by: shepherd (its ranks), mop (what a dead shepherd left).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.agent import procfs
from orchestrator.agent.containment import Containment
from orchestrator.agent.setup import purge_scratch
from orchestrator.agent.status import StatusWriter
from orchestrator.model.clock import SECOND, Clock
from orchestrator.telemetry.devices import compute_pids

FIRST_PAUSE_US = 2_000
LONGEST_PAUSE_US = SECOND


class Gate:
    """Rounds of killing and looking, further apart each time. Monotonic times in microseconds, 0 for none."""

    def __init__(
        self,
        box: Containment,
        directory: str,
        gpu_uuids: Sequence[str],
        stuck_s: float,
        status: StatusWriter,
        clock: Clock,
        users_of: Callable[[Sequence[str]], dict[str, list[int]]] = compute_pids,
    ) -> None:
        self._box = box
        self._directory = directory
        self._gpu_uuids = gpu_uuids
        self._stuck_us = int(stuck_s * SECOND)
        self._status = status
        self._clock = clock
        self._users_of = users_of
        self._since_us = 0
        self._pause_us = FIRST_PAUSE_US
        self._said = ""
        self.retry_us = 0  # when to work again

    def passed(self) -> bool:
        """Whether no process, no scratch and no work on a device is left."""
        return self._box.remove() and not self._remains()

    def _remains(self) -> str:
        """What, besides processes of the box, is in the way; empty if nothing."""
        try:
            purge_scratch(self._directory)
        except OSError as error:
            return f"scratch can't be removed: {error.filename}: {error.strerror}"
        if not self._gpu_uuids:
            return ""
        busy = {uuid: pids for uuid, pids in self._users_of(self._gpu_uuids).items() if pids}
        return "; ".join(
            f"device {uuid} is used by {procfs.describe(pids)}" for uuid, pids in sorted(busy.items())
        )

    def work(self) -> None:
        """One round: SIGKILL to all inside; say what holds the gate when it has held too long."""
        now = self._clock.monotonic_us()
        self._since_us = self._since_us or now
        if now < self.retry_us:
            return
        self._box.kill()
        self.retry_us = now + self._pause_us
        self._pause_us = min(self._pause_us * 2, LONGEST_PAUSE_US)
        if now - self._since_us >= self._stuck_us:
            self._complain()

    def _complain(self) -> None:
        members = self._box.members()
        if members:
            error = f"SIGKILL has not ended {procfs.describe(members)}"
        else:
            error = self._remains()
        if error and error != self._said:
            self._said = error
            self._status.add({"k": "stuck", "error": error, "t": self._clock.now_us()}, durable=True)
