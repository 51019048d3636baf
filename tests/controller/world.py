"""A whole cluster in one thread: the real core on a virtual clock, with model agents and a network that a test bends.

Comes in: a cluster spec, and what the test does to it. Goes out: State, views, and what the model nodes have run.
Called by: tests of the controller. The store is the real one in a temporary folder. The agents are models (called so):
they keep the protocol's rules with a journal that survives their own restart, and record every start, so that a test
can say "never twice". Nothing waits: `cycle` runs the loop body once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.controller import commands
from orchestrator.controller.beats import Beats
from orchestrator.controller.inbox import Inbox, Item
from orchestrator.controller.loop import Core
from orchestrator.controller.settings import Settings
from orchestrator.controller.view import JobView, View
from orchestrator.ledger.state import State
from orchestrator.model.attempt import RankResult
from orchestrator.model.clock import SECOND, ManualClock
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import decode, encode
from orchestrator.model.ids import AttemptId
from orchestrator.model.instance import Ending
from orchestrator.model.job import JobSpec, OnLost, Owner
from orchestrator.model.protocol import (
    AgentEvent,
    Desired,
    EventKind,
    Holding,
    Launch,
    Phase,
    SyncAnswer,
    SyncRequest,
)
from tests.builders import ALICE, facts
from tests.ledgers import open_quickly


class Answered:
    """A future of one thread: holds what the core answered."""

    def __init__(self) -> None:
        self.result: Any = None
        self.answered = False

    def done(self) -> bool:
        return self.answered

    def set_result(self, result: Any) -> None:
        self.result, self.answered = result, True

    def set_exception(self, error: BaseException) -> None:
        self.result, self.answered = error, True


class _Here:
    """An event loop that calls at once."""

    def call_soon_threadsafe(self, call: Callable[..., Any], *args: Any) -> None:
        call(*args)


@dataclass
class Held:
    """What a model node has of an attempt."""

    launch: Launch | None
    prepared: bool = False
    started: bool = False
    ended: AgentEvent | None = None


@dataclass
class ModelAgent:
    """One node's agent as the protocol demands it; `journal` survives its restart, and so do running processes."""

    name: str
    outbox: str
    facts: Any
    journal: dict[AttemptId, Held] = field(default_factory=dict)
    events: list[AgentEvent] = field(default_factory=list)
    last_n: int = 0
    epoch: int = 0
    seen: str = ""
    tell_facts: bool = True
    tell_inventory: bool = False
    starts: list[AttemptId] = field(default_factory=list)
    running: dict[AttemptId, bool] = field(default_factory=dict)
    refuse: dict[int, str] = field(default_factory=dict)  # job -> why it can't be prepared here
    unkillable: bool = False
    heard_us: int = 0  # when it last had an answer, by the clock that leases run on
    ending: Ending | None = None  # what its cloud has told it of its end

    def fence(self, now_us: int, lease_us: int) -> None:
        """Its lease ran out: jobs that chose `self_fence` end. (A process that can't be killed breaks that choice; the
        model leaves this out, as the docs of `on_lost` say that people must.)"""
        for attempt in list(self.running):
            held = self.journal[attempt]
            fences = held.launch is not None and held.launch.job.on_lost is OnLost.SELF_FENCE
            if fences and now_us - self.heard_us >= lease_us:
                self._end(attempt, held, cause="fenced")

    def request(self) -> SyncRequest:
        """The next beat."""
        return SyncRequest(
            node=self.name,
            outbox=self.outbox,
            boot_id=self.facts.boot_id,
            epoch=self.epoch,
            events=tuple(self.events),
            held=tuple(attempt for attempt, held in self.journal.items() if held.ended is None),
            seen=self.seen,
            facts=self.facts if self.tell_facts else None,
            inventory=self._inventory() if self.tell_inventory else None,
            ending=self.ending,
        )

    def _inventory(self) -> tuple[Holding, ...]:
        return tuple(
            Holding(attempt, held.launch, held.prepared, held.started, 0, held.ended)
            for attempt, held in self.journal.items()
            if held.launch is not None
        )

    def take(self, answer: SyncAnswer, age_us: int = 0) -> None:
        """Apply an answer, however late or often it comes. `age_us`: how long ago it was asked for."""
        if answer.epoch < self.epoch:
            return
        self.epoch, self.seen = answer.epoch, answer.revision
        self.tell_facts, self.tell_inventory = answer.want_facts, answer.want_inventory
        self.events = [event for event in self.events if event.n > answer.acked]
        too_late = age_us >= answer.lease_s * SECOND
        for desired in answer.desired:
            if not (too_late and self._begins_with_lease(desired)):
                self._want(desired)

    def _begins_with_lease(self, desired: Desired) -> bool:
        """Whether it is told to run what ends with the lease: on an answer as old as that, the controller may have
        taken it for ended, and told nobody, since nobody held it."""
        held = self.journal.get(desired.attempt)
        launch = desired.launch or (held.launch if held is not None else None)
        fences = launch is not None and launch.job.on_lost is OnLost.SELF_FENCE
        return fences and desired.phase is Phase.RUN

    def _want(self, desired: Desired) -> None:
        attempt, held = desired.attempt, self.journal.get(desired.attempt)
        if held is not None and held.ended is not None:
            if all(event.attempt != attempt for event in self.events):
                self._say(replace(held.ended, n=0))  # it was lost on the controller's side
            return
        if held is None:
            held = self.journal[attempt] = Held(desired.launch)
            if desired.started or desired.phase is Phase.END:
                self._end(attempt, held, cause="node_failed" if desired.started else "")
                return
            if attempt.job in self.refuse:
                why = self.refuse[attempt.job]
                held.ended = self._event(EventKind.PREPARE_FAILED, attempt, error=why, code="refused")
                self._say(held.ended)
                return
        if desired.phase is Phase.END:
            if not (self.unkillable and attempt in self.running):
                self._end(attempt, held)
            else:
                self._say(self._event(EventKind.STUCK, attempt, error="process 1 is frozen"))
        elif desired.phase is Phase.RUN and not held.started:
            held.prepared = held.started = True
            self.starts.append(attempt)
            self.running[attempt] = True
            self._say(self._event(EventKind.STARTED, attempt, started=True, pids=(1,)))
        elif desired.phase is Phase.PREPARE and not held.prepared:
            held.prepared = True
            self._say(self._event(EventKind.PREPARED, attempt))

    def finish(self, attempt: AttemptId, code: int = 0, *, tell_failure: bool = True) -> None:
        """The processes leave by themselves."""
        held = self.journal[attempt]
        first = held.launch.parts[held.launch.index].first_rank if held.launch else 0
        result = RankResult(first, code, 0, 1)
        if code and tell_failure:
            self._say(self._event(EventKind.RANK_FAILED, attempt, started=True, results=(result,)))
        self._end(attempt, held, results=(result,))

    def reboot(self) -> None:
        """Everything that ran is gone; the journal is not."""
        self.facts = replace(self.facts, boot_id=self.facts.boot_id + "+")
        self.tell_facts = True
        for attempt in list(self.running):
            self._end(attempt, self.journal[attempt], cause="node_failed")

    def lose_journal(self) -> None:
        """The state folder was wiped and the machine rebooted."""
        self.reboot()
        self.outbox += "'"
        self.journal, self.events, self.last_n, self.epoch, self.seen = {}, [], 0, 0, ""

    def _end(
        self, attempt: AttemptId, held: Held, *, cause: str = "", results: tuple[RankResult, ...] = ()
    ) -> None:
        self.running.pop(attempt, None)
        if held.started and not results and not cause:
            results = (RankResult(0, 0, 15, 2),)
        held.ended = self._event(EventKind.ENDED, attempt, started=held.started, results=results, cause=cause)
        self._say(held.ended)

    def _event(self, kind: EventKind, attempt: AttemptId, **rest: Any) -> AgentEvent:
        return AgentEvent(0, 0, kind, attempt, **rest)

    def _say(self, event: AgentEvent) -> None:
        self.last_n += 1
        self.events.append(replace(event, n=self.last_n))


class World:
    """The core, the nodes, and the wire between them."""

    def __init__(self, path: Path, spec: ClusterSpec, settings: Settings | None = None) -> None:
        self.path = path
        self.spec = spec
        self.settings = settings or Settings(lease_s=60)
        self.clock = ManualClock()
        self.agents: dict[str, ModelAgent] = {}
        for each in spec.pools:
            for name in each.nodes:
                self.agents[name] = ModelAgent(name, f"outbox-{name}", facts(each))
        self.start_controller()
        self.do(commands.ApplyCluster(spec, "test"))

    # --- the controller -------------------------------------------------------------------------------------

    def start_controller(self) -> None:
        """A new controller on the same ledger; whatever the last one had in memory is gone."""
        self.store = open_quickly(self.path)
        self.inbox, self.view = Inbox(), View()
        self.beats = Beats(self.clock, self.settings)
        self.core = Core(self.store, self.clock, self.settings, self.inbox, self.view, self.beats)
        self.core.connect(_Here(), lambda jobs, nodes: None, lambda: None)  # type: ignore[arg-type]
        self.core._open()

    def kill_controller(self) -> None:
        """As kill -9: no snapshot, no goodbye."""
        self.store.close()

    @property
    def state(self) -> State:
        return self.core._desk.state

    def cycle(self) -> None:
        """The loop body once, without waiting."""
        self.core._wait_s = 0
        self.core._cycle()

    def do(self, command: commands.Command) -> Any:
        """Put one command and run a cycle; its result, or the error as a value."""
        reply = Answered()
        self.inbox.put(Item(command, reply))  # type: ignore[arg-type]
        self.cycle()
        assert reply.answered
        return reply.result

    def submit(self, spec: JobSpec, owner: Owner = ALICE, key: str = "") -> int:
        """A job's id."""
        result = self.do(commands.Submit(spec, owner, f"user:{owner.name}", key, "d" if key else ""))
        assert isinstance(result, commands.Submitted), result
        return result.job

    def job(self, job_id: int) -> JobView | None:
        """The live job as published."""
        return self.view.jobs.get(job_id)

    # --- the wire -------------------------------------------------------------------------------------------

    def ask(self, node: str) -> SyncAnswer | None:
        """One beat up to the answer, through the plain forms; None if the controller refused it."""
        request = decode(SyncRequest, encode(self.agents[node].request()))
        self.beats.heard(node, request.epoch == self.view.epoch)
        reply = None
        if self.beats.has_news(request):
            reply = self.do(commands.Sync(request))
            if isinstance(reply, Exception):
                return None
            self.beats.noted(request, reply)
        answer = self.beats.answer(request, reply, self.view.epoch, ())
        return decode(SyncAnswer, encode(answer))

    def take(self, node: str, answer: SyncAnswer, asked_us: int) -> None:
        """The node gets an answer to what it asked at that time: its lease runs from then, not from now, and so does
        what the answer may begin."""
        self.agents[node].heard_us = max(self.agents[node].heard_us, asked_us)
        self.agents[node].take(answer, self.clock.monotonic_us() - asked_us)

    def wait(self, seconds: int) -> None:
        """Time passes, on the nodes first."""
        self.clock.advance(seconds)
        for agent in self.agents.values():
            agent.fence(self.clock.monotonic_us(), self.settings.lease_s * SECOND)
        self.cycle()

    def beat(self, *nodes: str) -> None:
        """Beats that nothing happens to, of these nodes or all."""
        for node in nodes or tuple(self.agents):
            answer = self.ask(node)
            if answer is not None:
                self.take(node, answer, self.clock.monotonic_us())

    def settle(self, beats: int = 6) -> None:
        """Enough undisturbed beats for everything that can happen to have happened."""
        for _ in range(beats):
            self.beat()
            self.cycle()
