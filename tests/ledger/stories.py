"""Random stories that could have happened: valid events, one after the other, from dice alone.

Comes in: a seed and a length. Goes out: a Fold with that many events. Called by: property tests of the fold, also in
processes of their own under another hash seed (`python -m tests.ledger.stories SEED LENGTH` prints the snapshot).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from orchestrator.ledger import events
from orchestrator.ledger.apply_changes import open_apply
from orchestrator.ledger.capacity import lowest
from orchestrator.ledger.hours import Month
from orchestrator.ledger.records import Attempt, Fleet, Job
from orchestrator.ledger.snapshot import to_plain
from orchestrator.ledger.state import State
from orchestrator.model.apply import HostResult, Outcome, StepState
from orchestrator.model.array import Array, read_tasks
from orchestrator.model.attempt import EndCause, JobState, PartState, Placement, RankResult
from orchestrator.model.capacity import (
    NEVER_US,
    ErrorClass,
    Instance,
    Intent,
    OfferingKey,
    Shape,
    billed_s,
)
from orchestrator.model.change import PlanStep, StepKind
from orchestrator.model.cluster import Budget, ClusterSpec, Scope
from orchestrator.model.dependency import On, Wait
from orchestrator.model.host import Desired, HostFacts, PoolDesired, RoleState
from orchestrator.model.ids import AttemptId
from orchestrator.model.node import Contact, Mark, MarkKind
from orchestrator.model.protocol import EndOrder, GangPart, Holding, Launch
from orchestrator.model.standing import PoolPrice
from tests.autoscale.scene import elastic
from tests.builders import ALICE, BOB, T0, Fold, cluster, facts, job, pool, queue

BOUGHT = elastic("e", most=3, site="here")
LIMITED = queue("small", max_running_jobs=2, max_gpus_per_user=4, max_gpu_hours_per_month=5)
BUDGETS = (
    Budget("site", scope=Scope(site="here"), microusd_per_hour=1000),
    Budget("of-small", scope=Scope(queue="small"), microusd_per_hour=100),
)
CLUSTERS = (
    cluster(
        pool("a", nodes=3, gpus=4, cores=8),
        pool("b", nodes=2, gpus=0, cores=4),
        BOUGHT,
        queues=(queue("default"), LIMITED),
    ),
    cluster(pool("a", nodes=2, gpus=4, cores=8), pool("b", nodes=2, gpus=0, cores=4)),
    cluster(
        pool("c", nodes=1, gpus=2, cores=2),
        pool("a", nodes=3, gpus=4, cores=6),
        BOUGHT,
        queues=(LIMITED, queue("default")),
    ),
)


PAID = tuple(PoolPrice(name, price, Shape(gpus, 0, 0)) for name, price, gpus in (("a", 37, 4), ("b", 11, 0)))


class Teller:
    """Each step picks one of the things that can happen now."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.fold = Fold(CLUSTERS[0])
        self.t_us = T0
        self.made = 0

    @property
    def state(self) -> State:
        return self.fold.state

    def step(self) -> None:
        """One event more."""
        self.t_us += self.dice.choice((0, 1, 10**6, 3600 * 10**6))
        options: list[Callable[[], Any]] = [self._person, self._node, self._capacity, self._job, self._job]
        before = self.state.seq
        while self.state.seq == before:
            body = self.dice.choice(options)()
            if body is not None:
                self.fold(body, "story", self.t_us)

    # --- what is bought -----------------------------------------------------------------------------------------

    def _capacity(self) -> Any:
        """A new intent, or whatever can happen to one that there is."""
        fleets, dice = list(self.state.fleets.values()), self.dice
        if not self.state.uid:
            return events.ClusterNamed("k3j9x0q2m5a7")
        if not fleets or dice.random() < 0.2:
            return self._intend() if dice.random() < 0.9 else events.CapacityReset("a")
        fleet = dice.choice(fleets)
        name = fleet.intent.id
        if fleet.asked:
            return self._answer(fleet)
        one = dice.choice(fleet.instances)
        proved = None if one.proved_us else events.CapacityProved(name, one.id)
        late = dice.random() < 0.3
        releasing = events.CapacityReleasing(name, (one.id,), "why", late, self.t_us + 60)
        seconds = billed_s(one.launched_us, self.t_us)
        return dice.choice(
            (
                proved,
                None if one.releasing_us else releasing,
                events.CapacityGone(name, one.id, max(self.t_us, one.launched_us), seconds),
                events.CapacityLaunched(name, (Instance(one.id, one.node, f"10.0.0.{dice.randint(1, 9)}"),)),
            )
        )

    def _intend(self) -> Any:
        taken = [*self.state.nodes, *(n for f in self.state.fleets.values() for n in f.intent.nodes)]
        free = [name for name in (f"e-{number}" for number in range(1, 7)) if name not in taken]
        if not free:
            return None
        nodes = tuple(free[: self.dice.randint(1, 2)])
        market, zone = self.dice.choice(("spot", "on_demand")), self.dice.choice(("a", "b"))
        key = OfferingKey("e", "p5.48xlarge", market, zone)
        seq, price = self.state.seq + 1, self.dice.randint(1, 99)
        queue = self.dice.choice(("", "default", "small"))
        return events.CapacityIntended(
            Intent(f"intent-{seq}", "here", key, nodes, price, Shape(8, 96, 1), 1, queue)
        )

    def _answer(self, fleet: Fleet) -> Any:
        """Launched, unless its names were taken meanwhile; or refused for some reason, or for none."""
        name, nodes = fleet.intent.id, fleet.intent.nodes
        if self.dice.random() < 0.6 and not any(node in self.state.nodes for node in nodes):
            begun_us = self.dice.choice((0, fleet.since_us))
            bought = tuple(Instance(f"i-{name}-{node}", node, "", begun_us) for node in nodes)
            return events.CapacityLaunched(name, bought)
        fault = self.dice.choice([None, *ErrorClass])
        return events.CapacityRefused(name, fault, "words", self.dice.choice((self.t_us, NEVER_US)))

    # --- people and nodes ---------------------------------------------------------------------------------------

    def _person(self) -> Any:
        self.made += 1
        name = f"t{self.made}"
        tokens = list(self.state.tokens)
        return self.dice.choice(
            (
                events.ControllerStarted("1.0", "host"),
                events.TokenCreated(name, name * 8, "submit", "alice"),
                events.TokenRevoked(self.dice.choice(tokens)) if tokens else None,
                events.ClusterApplied(self._cluster(), name),
                events.ClusterApplied(self._cluster(), name, self._desired(), "0123abc", prices=PAID),
                self._apply(),
                self._apply(),
                self._month(),
                events.LedgerRecovered()
                if self.state.recovering
                else events.LedgerRestored(self.state.next_job + 3, 1),
                self._submit(),
                self._submit(),
            )
        )

    def _month(self) -> Any:
        """One that is over sooner than a calendar's, or the one before with other ends."""
        before = self.state.month
        begin_us = self.t_us - self.dice.randint(0, 10**10)
        month = Month(begin_us, self.t_us + self.dice.randint(1, 10**11))
        if before is not None and self.dice.random() < 0.3:
            month = Month(before.begin_us - 10**9, before.ends_us - self.dice.choice((-1, 1)) * 10**9)
        if self.state.hours is None or not month.may_follow(before):
            return None
        return events.MonthBegan(month.begin_us, month.ends_us)

    def _desired(self) -> tuple[PoolDesired, ...]:
        digest = f"desired-{self.dice.randint(1, 3)}"
        return (PoolDesired("a", digest, Desired((RoleState(digest, ()),))),)

    def _apply(self) -> Any:
        """A new apply, or whatever can happen to the one under way."""
        found, dice = open_apply(self.state), self.dice
        if found is None:
            steps = tuple(PlanStep(f"s{number}", StepKind.CONFIGURE, "why") for number in range(2))
            return events.ApplyStarted(f"apply-{self.state.seq + 1}", "alice@ctl", "d", steps, self.t_us + 60)
        step = dice.choice(found.steps)
        if step.state is StepState.STARTED:
            results = (HostResult("a-1", dice.random() < 0.5, "e", 1),)
            return events.ApplyStepEnded(found.id, step.step.id, dice.random() < 0.5, results)
        return dice.choice(
            (
                events.ApplyLeased(found.id, self.t_us + 60),
                events.ApplyStepStarted(found.id, step.step.id) if step.state is not StepState.DONE else None,
                events.ApplyEnded(found.id, dice.choice(list(Outcome)), "why"),
            )
        )

    def _configured(self, node: str) -> Any:
        digest = self.dice.choice(["", *self.state.desired])
        host = HostFacts("machine", "boot") if self.dice.random() < 0.5 else None
        return events.NodeConfigured(node, digest, host)

    def _cluster(self) -> ClusterSpec:
        found = self.dice.choice(CLUSTERS)
        return replace(found, budgets=BUDGETS) if self.dice.random() < 0.7 else found

    def _submit(self) -> Any:
        dice = self.dice
        where = (
            dice.choice([each.name for each in self.state.cluster.queues])
            if self.state.cluster
            else "default"
        )
        spec = job(
            tasks=dice.randint(1, 3),
            gpus=dice.choice((0, 1, 2)),
            priority=dice.randint(-1, 1),
            hold=dice.random() < 0.2,
            queue=where,
            name=dice.choice(("j", "k", "l")),
            singleton=dice.random() < 0.1,
            array=Array(read_tasks(dice.choice(("0", "3-5", "1-9:4"))), dice.choice((0, 1, 2)))
            if dice.random() < 0.2
            else None,
        )
        key = f"key-{self.state.next_job}" if dice.random() < 0.4 else ""
        return events.JobSubmitted(
            self.state.next_job,
            spec,
            dice.choice((ALICE, BOB)),
            key,
            "digest" if key else "",
            self._waits(),
            "never" if dice.random() < 0.05 else "",
        )

    def _waits(self) -> tuple[Wait, ...]:
        """For a job or an array that is there, now and then."""
        dice, found = self.dice, list[Wait]()
        if self.state.jobs and dice.random() < 0.3:
            found.append(Wait(dice.choice(list(self.state.jobs)), dice.choice(list(On))))
        if self.state.arrays and dice.random() < 0.3:
            found.append(Wait(dice.choice(list(self.state.arrays)), dice.choice(list(On)), True))
        return tuple(found)

    def _node(self) -> Any:
        dice, state = self.dice, self.state
        node = dice.choice(list(state.nodes.values()))
        home = state.pool(node.pool) or pool("x")
        fewer = pool(home.name, gpus=dice.randint(0, 4), cores=dice.choice((2, 8)))
        mark = Mark(dice.choice(list(MarkKind)), "why", "user:root", self.t_us, dice.choice((0, 1)))
        return dice.choice(
            (
                events.NodeJoined(
                    node.name, facts(fewer, f"boot-{dice.randint(1, 3)}"), dice.choice(("o1", "o2"))
                ),
                events.NodeJoined(node.name, facts(home), node.outbox or "o"),
                events.NodeContact(node.name, dice.choice(list(Contact))),
                events.NodeMarked(node.name, mark),
                events.NodeUnmarked(node.name, dice.choice(list(MarkKind)), dice.choice((0, 1))),
                events.NodeUnmarked(node.name, MarkKind.UNPROVED),
                self._orphan(node.name),
                self._configured(node.name),
            )
        )

    def _orphan(self, node: str) -> Any:
        """Of a job that is not known, or of a known one's next attempt."""
        known = [each for each in self.state.jobs.values() if each.attempt is None]
        number, at = self.state.next_job, 1
        if known and self.dice.random() < 0.5:
            each = self.dice.choice(known)
            number, at = each.id, each.attempts + 1
        launch = Launch(job(), ALICE, (GangPart(node, node, 0, 1),), 0, (self.dice.randint(0, 5),), 1)
        return events.AttemptOrphaned(node, Holding(AttemptId(number, at), launch, True, True, self.t_us))

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _job(self) -> Any:
        if self.state.orphans and self.dice.random() < 0.2:
            return self._recover()
        if not self.state.jobs:
            return self._submit()
        if self.state.arrays and self.dice.random() < 0.1:
            return events.ArrayThrottled(
                self.dice.choice(list(self.state.arrays)), self.dice.choice((0, 1, 5))
            )
        if self.state.doomed and self.dice.random() < 0.7:
            return events.JobEnded(next(iter(self.state.doomed)), JobState.CANCELLED)
        each = self.dice.choice(list(self.state.jobs.values()))
        if each.attempt is not None:
            return self._attempt(each, each.attempt)
        if each.state is JobState.ENDING:
            return self.dice.choice(
                (
                    events.JobRequeued(each.id, "again"),
                    events.JobEnded(each.id, JobState.FAILED, 1),
                    events.JobEnded(each.id, JobState.SUCCEEDED),
                )
            )
        if self.dice.random() < 0.1:
            return events.JobEnded(each.id, JobState.CANCELLED) if each.cancel_why else self._cancel(each)
        if self.dice.random() < 0.1:
            return events.JobPrioritized(each.id, self.dice.randint(-2, 2))
        if each.state is JobState.HELD:
            return events.JobReleased(each.id)
        if each.blocked and self.dice.random() < 0.9:
            return None
        return (
            self._allocate(each)
            if self.dice.random() < 0.9 and not each.blocked
            else events.JobHeld(each.id, "why")
        )

    def _cancel(self, each: Job) -> Any:
        return events.JobCancelRequested(each.id, "enough") if each.cancel_why is None else None

    def _recover(self) -> Any:
        orphan = self.dice.choice(list(self.state.orphans.values()))
        if self.dice.random() < 0.3:
            return events.AttemptOrphanGone(orphan.attempt, orphan.node)
        known, launch = self.state.jobs.get(orphan.attempt.job), orphan.holding.launch
        if known is not None and (known.attempt is not None or known.attempts >= orphan.attempt.number):
            return None
        node = self.state.nodes.get(orphan.node)
        if node is None or launch is None or any(slot in node.holders for slot in launch.slots):
            return None
        part = Placement(orphan.node, launch.slots, 1, launch.cores)
        port = self.dice.choice((0, 20000))
        return events.AttemptRecovered(
            orphan.attempt, launch.job, ALICE, (part,), T0, "127.0.0.1", port, 60, (orphan.node,)
        )

    def _allocate(self, each: Job) -> Any:
        request = each.spec.request
        parts: list[Placement] = []
        for name in self.state.capacity.names:
            node = self.state.capacity.at(name)
            if len(parts) < request.tasks and node.open and node.free.bit_count() >= request.per_task.gpus:
                parts.append(Placement(name, lowest(node.free, request.per_task.gpus), 1, 1))
        if len(parts) < request.tasks:
            return None
        port = 20000 + each.id % 3 if len(parts) > 1 else 0
        return events.AttemptAllocated(
            AttemptId(each.id, each.attempts + 1),
            tuple(parts),
            f"address-{each.id}",
            port,
            self.dice.choice((0, 60)),
        )

    def _attempt(self, each: Job, attempt: Attempt) -> Any:
        alive = [part for part in attempt.parts if part.state is not PartState.ENDED]
        if not alive:
            return events.AttemptEnded(
                attempt.id, EndCause.CANCELLED, 1, "", self.dice.choice(("", "job_failure"))
            )
        part = self.dice.choice(alive)
        node = part.placement.node
        up: list[Any] = []
        if part.state is PartState.WAITING and not attempt.committed_us:
            up.append(events.AttemptPrepared(attempt.id, node, self.dice.randint(1, 99)))
        if all(one.state is PartState.PREPARED for one in attempt.parts) and not (
            attempt.committed_us or attempt.ending
        ):
            up.append(events.AttemptCommitted(attempt.id))
        if part.state in (PartState.WAITING, PartState.PREPARED) and attempt.committed_us:
            up.append(events.AttemptStarted(attempt.id, node, (1, 2), self.dice.randint(1, 99)))
        if up and self.dice.random() < 0.8:
            return self.dice.choice(up)
        return self._downwards(each, attempt, node)

    def _downwards(self, each: Job, attempt: Attempt, node: str) -> Any:
        part = attempt.part(node)
        result = RankResult(0, self.dice.randint(0, 2), 0, self.dice.randint(0, 9))
        cause = self.dice.choice((EndCause.CANCELLED, EndCause.RANK_FAILED))
        order = EndOrder("told", grace_s=self.dice.choice((0, 5, 30)))
        failed = (
            None
            if part is None or part.failure
            else events.AttemptRankFailed(attempt.id, node, result, "tail")
        )
        return self.dice.choice(
            (
                events.AttemptPartEnded(attempt.id, node, True, (result,), "", "", "tail"),
                events.AttemptPartEnded(attempt.id, node, False),
                events.AttemptPrepareFailed(attempt.id, node, "code", "error"),
                events.AttemptStuck(attempt.id, node, "frozen"),
                events.AttemptEnding(attempt.id, cause, order),
                failed,
                self._cancel(each),
            )
        )


def story(seed: int, length: int) -> Fold:
    """Events from a seed."""
    teller = Teller(seed)
    for _ in range(length):
        teller.step()
    return teller.fold


if __name__ == "__main__":
    told = story(int(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(json.dumps(to_plain(told.state)))
