"""The simulated controller: facts as they fall due, folded; then one pass for all of an instant; then the next
instant.

Comes in: a cluster as wanted, a trace, a policy, `Settings`. Goes out: a `Book`, samples, commitments, all in `World`.
Called by: run (for the command), the benchmarks, tests.

Facts become events of the same kinds as a controller's, and State is the fold over them, so that limits, placement and
reasons are the scheduler's own. What a person, an agent or a node would do is here, in lives and in machines.
"""

from __future__ import annotations

import gc
import heapq
from array import array
from collections.abc import Callable
from typing import Any

from orchestrator.ledger import events
from orchestrator.ledger.ends import CALM
from orchestrator.ledger.events import Event, job_subject
from orchestrator.ledger.state import ClassKey, State, class_key
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.decisions import Reasons, Start
from orchestrator.model.reasons import Reason
from orchestrator.scheduler import Policy, policy_of, refuse
from orchestrator.simulate import lives, machines
from orchestrator.simulate.book import REFUSED, Book
from orchestrator.simulate.commitment import Commitment
from orchestrator.simulate.sampler import Sampler
from orchestrator.simulate.settings import Core, Settings
from orchestrator.simulate.trace import Trace

BY_USER, BY_CONTROLLER, BY_SCHEDULER = "user", "controller", "scheduler"
EPOCH = 1
NEVER_US = 1 << 62
PATIENCE_US = 90 * 86_400 * 1_000_000  # for lost nodes or a new month, when only they could let a job start
_CALM = frozenset(CALM)

Due = tuple[int, int, Callable[..., None], Any]  # when, in which order, what happens, to whom


class WaitReporter:
    """Keeps what the last two passes that looked at anything have told, and asks each of them once about a class."""

    __slots__ = ("_asked", "_before", "_waits", "left_over", "wake_us")

    def __init__(self) -> None:
        self._waits: Reasons | None = None
        self._before: Reasons | None = None
        self._asked: dict[ClassKey, str] = {}
        self.left_over = False
        self.wake_us = NEVER_US

    def begin(self) -> None:
        """A pass begins."""
        self.left_over, self.wake_us = False, NEVER_US
        if self._before is not self._waits:
            self._before, self._asked = self._waits, {}

    def waiting(self, reasons: Reasons) -> None:
        """Why those wait that wait now."""
        self._waits, self.left_over, self.wake_us = reasons, reasons.left_over, reasons.wake_us

    def code(self, key: ClassKey) -> str:
        """The code of a class's reason, as it was when this pass began; empty if none was known."""
        found = self._asked.get(key)
        if found is None:
            reason = self._before.get(key) if self._before is not None else None
            found = self._asked[key] = reason.code if reason is not None else ""
        return found


class World:
    """One simulation, from an empty ledger to the last end. `now_us` counts from the trace's zero."""

    def __init__(
        self,
        cluster: ClusterSpec,
        trace: Trace,
        policy: Policy | None = None,
        settings: Settings | None = None,
        core: Core | None = None,
        sink: Callable[[Event], None] | None = None,
    ) -> None:
        self.cluster = cluster
        self.trace = trace
        self.policy = policy or policy_of(cluster)
        self.settings = settings or Settings()
        self.core = core or Core()
        self.sink = sink
        self.state = State()
        self.book = Book(len(trace))
        self.reporter = WaitReporter()
        self.sampler = Sampler(cluster, trace, self.settings.samples)
        self.commitment = Commitment(self.settings.commitments)
        self.lives: dict[int, lives.Life] = {}  # by job
        self.down: dict[str, int] = {}  # nodes that are away, and since when
        self.done_us: dict[int, int] = {}  # by index: work that checkpoints have kept, of the plain run time
        self.index_of = array("q", [-1])  # of a job, by its id
        self.before_pass: Callable[[World], None] | None = None  # a benchmark's own hand in it
        self.now_us = 0
        self.stirred = True
        self._heap: list[Due] = []
        self._serial = 0
        self._batch = 0
        self._next = 0  # of the trace
        self._pass_us = NEVER_US  # when the next pass is due
        self._wake_us = NEVER_US  # when one is due though nothing has happened
        self.before_us = self._passed_us = -NEVER_US  # of the last two passes
        self._refusals: dict[tuple[int, int], Reason | None] = {}
        self._classes: dict[tuple[int, int], ClassKey] = {}

    # --- time -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Play the trace to its end, or to `until_us`."""
        enabled = gc.isenabled()
        gc.disable()  # nothing here is made of circles, and a collection would look at all that is kept
        try:
            machines.begin(self)
            while (at_us := self._next_us()) != NEVER_US and not self._over(at_us):
                self._instant(max(at_us, self.now_us))  # what fell due during a pass has waited for its end
            self.sampler.until(self.now_us + 1)
            lives.close(self)
        finally:
            if enabled:
                gc.enable()
        self.book.last_us = self.now_us
        self.sampler.close(self.now_us)

    def at(self, at_us: int, what: Callable[..., None], whom: Any) -> int:
        """Have `what(self, whom, serial)` happen then; the serial by which it may be told that it is not to."""
        self._serial += 1
        heapq.heappush(self._heap, (at_us, self._serial, what, whom))
        return self._serial

    def _next_us(self) -> int:
        at_us = self._heap[0][0] if self._heap else NEVER_US
        if self._next < len(self.trace):
            at_us = min(at_us, self.trace.submit_us[self._next])
        return min(at_us, self._pass_us, self._wake_us)

    def _over(self, at_us: int) -> bool:
        """Whether nothing of the trace is left that could still happen: nodes alone would come and go for ever."""
        until_us = self.settings.until_us
        if until_us and at_us > until_us:
            self.now_us = until_us
            return True
        if self.lives or self._next < len(self.trace) or self._pass_us != NEVER_US:
            return False
        hopeless = bool(self.state.jobs) and at_us - self.book.moved_us > PATIENCE_US
        awaited = bool(self.down) or self.state.hours is not None  # a node, or the next month
        return not awaited or not self.state.jobs or hopeless

    def _instant(self, at_us: int) -> None:
        """All facts that are due, then a pass if one is."""
        self.sampler.until(at_us)
        self.now_us, self._batch = at_us, self.state.seq + 1
        heap = self._heap
        while heap and heap[0][0] <= at_us:
            _, serial, what, whom = heapq.heappop(heap)
            what(self, whom, serial)
        self._submit_due()
        self.stirred = self.stirred or self._wake_us <= at_us
        if self.stirred and self._pass_us == NEVER_US:
            self._pass_us = self._grid_us(at_us)
        if self._pass_us <= at_us:
            self._pass()
        self.commitment.note(self.state, self.now_us)

    def _grid_us(self, at_us: int) -> int:
        """The first time from now on at which a pass may be made."""
        grid_us = self.settings.grid_us
        at_us = max(at_us, self._passed_us + self.settings.rest_us)
        return -(-at_us // grid_us) * grid_us if grid_us else at_us

    # --- facts ----------------------------------------------------------------------------------------------

    def record(self, body: Any, subject: str, by: str = BY_CONTROLLER) -> None:
        """The next event of this body, folded."""
        state = self.state
        t_us = self.settings.start_us + self.now_us
        event = Event(state.seq + 1, t_us, EPOCH, self._batch, subject, by, body)
        self.core.apply(state, event)
        if type(body) not in _CALM:
            self.stirred = True
        if self.sink is not None:
            self.sink(event)

    def _submit_due(self) -> None:
        trace, index = self.trace, self._next
        submit_us, last = trace.submit_us, len(trace)
        while index < last and submit_us[index] <= self.now_us:
            self._submit(index)
            index += 1
        self._next = index

    def _submit(self, index: int) -> None:
        trace = self.trace
        never = self._never(trace.shape[index], trace.owner[index])
        if never is not None:
            self.book.reason[index] = never.code
            self.book.ended(index, self.now_us, REFUSED)
            return
        job_id = self.state.next_job
        spec, owner = trace.spec(index), trace.owners[trace.owner[index]]
        self.record(events.JobSubmitted(job_id, spec, owner), job_subject(job_id), BY_USER)
        self.book.moved_us = self.now_us
        self.index_of.append(index)
        self.sampler.waits(trace.shape[index], 1)

    def _never(self, shape: int, owner: int) -> Reason | None:
        """Why such a job is refused, asked once for all that are alike."""
        key = (shape, owner)
        if key not in self._refusals:
            spec, person = self.trace.shapes[shape], self.trace.owners[owner]
            self._refusals[key] = refuse.never(self.state, spec, person.name)
        return self._refusals[key]

    def class_of(self, index: int) -> ClassKey:
        """The class of a job, made once for all that are alike."""
        alike = (self.trace.shape[index], self.trace.owner[index])
        found = self._classes.get(alike)
        if found is None:
            person = self.trace.owners[alike[1]].name
            found = self._classes[alike] = class_key(self.trace.shapes[alike[0]], person)
        return found

    # --- the pass -------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        """Decide, and start what was decided."""
        if self.before_pass is not None:
            self.before_pass(self)
        core, reporter = self.core, self.reporter
        self.before_us, self._passed_us, self._pass_us = self._passed_us, self.now_us, NEVER_US
        reporter.begin()
        begun = core.clock_ns()
        now_us = self.settings.start_us + self.now_us
        decisions = core.decide(self.state, self.policy, now_us, self.settings.work_budget, reporter)
        self.book.pass_ns.append(core.clock_ns() - begun)
        self.book.passes += 1
        starts = [one for one in decisions if isinstance(one, Start)]
        self.now_us += self._took_us(starts)
        self._batch = self.state.seq + 1
        started = [lives.start(self, one) for one in starts]
        self._batch = self.state.seq + 1
        for life in started:
            lives.launch(self, life)
        self._wake_us = min(reporter.wake_us - self.settings.start_us, NEVER_US)
        self.stirred = reporter.left_over
        if self.stirred:
            self._pass_us = self._grid_us(self.now_us + (1 if self.settings.grid_us else 0))

    def _took_us(self, starts: list[Start]) -> int:
        """What the controller takes for such a pass. One that starts nothing is over at once: what it kept waiting was
        recorded with that wait."""
        if not starts:
            return 0
        special = self.trace.special.get(self.index_of[starts[0].attempt.job])
        if special is None or special.decide_us is None:
            return self.trace.decide_us
        return special.decide_us
