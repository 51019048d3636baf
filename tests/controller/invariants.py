"""What must hold at every moment, whatever has happened: DESIGN's promises 1, 2, 4 and 5 in code.

Comes in: a World. Goes out: AssertionErrors that name the promise. Called by: the state machines and scenario tests.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.ledger.records import Attempt, Job
from orchestrator.ledger.snapshot import from_plain, to_plain
from orchestrator.ledger.state import State, amounts, attempt_placements
from orchestrator.model.attempt import JobState, PartState
from orchestrator.model.ids import AttemptId
from tests.controller.world import World


def live(state: State) -> Iterator[tuple[Job, Attempt]]:
    """Jobs with their live attempts."""
    for job in state.jobs.values():
        if job.attempt is not None:
            yield job, job.attempt


def check_state(state: State) -> None:
    """Promises 1 and 5 on the controller's side."""
    _devices_have_one_holder(state)
    _usage_is_the_fold(state)
    _what_is_bought_is_known_once(state)
    _indexes_follow_from_records(state)


def _devices_have_one_holder(state: State) -> None:
    holders: dict[tuple[str, int], AttemptId] = {}
    for _, attempt in live(state):
        for part in attempt.parts:
            if part.state is not PartState.ENDED:
                for slot in part.placement.slots:
                    place = (part.placement.node, slot)
                    assert place not in holders, (
                        f"promise 1: {place} has {holders.get(place)} and {attempt.id}"
                    )
                    holders[place] = attempt.id
    for name, node in state.nodes.items():
        mine = {slot: attempt for (where, slot), attempt in holders.items() if where == name}
        assert node.holders == mine, f"promise 1: holders of {name}"


def _usage_is_the_fold(state: State) -> None:
    wanted: dict[tuple[str, str], int] = {}
    for job, attempt in live(state):
        for scope in state.limits.path(state.scope(job)):
            for dimension, amount in amounts(state, attempt_placements(attempt)):
                wanted[scope.name, dimension] = wanted.get((scope.name, dimension), 0) + amount
    used = {
        (scope.name, dimension): amount
        for scope in state.limits.scopes.values()
        for dimension, amount in scope.used.items()
        if amount
    }
    assert used == wanted, "promise 5: usage is not the sum over live attempts"


def _what_is_bought_is_known_once(state: State) -> None:
    """Every instance is one node, every name is given once, and the bill is the sum of its hours."""
    known: dict[str, str] = {}
    names: list[str] = []
    for fleet in state.fleets.values():
        names += [one.node for one in fleet.instances] or fleet.intent.nodes
        for one in fleet.instances:
            assert one.id not in known, f"promise 4: instance {one.id} is two nodes"
            known[one.id] = fleet.intent.id
            assert state.nodes[one.node].instance == one.id
            assert not (one.releasing_us and state.nodes[one.node].open), (
                f"{one.node} is open and being ended"
            )
    assert state.instances == known
    assert len(names) == len(set(names)), "promise 4: a name was given twice"
    assert {node.instance for node in state.nodes.values() if node.instance} == set(known)
    for account in state.accounts.values():
        assert sum(amount for _, amount in account.hours) <= account.microusd, "promise 5: dollars"


def _indexes_follow_from_records(state: State) -> None:
    """A snapshot read back derives the very same indexes."""
    again = from_plain(to_plain(state))
    assert to_plain(again) == to_plain(state)
    for name, node in state.capacity.nodes.items():
        other = again.capacity.nodes[name]
        mine = (node.free, node.total, node.free_cores, node.free_memory, node.open)
        assert mine == (other.free, other.total, other.free_cores, other.free_memory, other.open), name
    for name, pool in state.capacity.pools.items():
        assert [bucket for bucket in pool.buckets if bucket] == [
            bucket for bucket in again.capacity.pools[name].buckets if bucket
        ]
    assert {key: found.waiting for key, found in state.classes.items()} == {
        key: found.waiting for key, found in again.classes.items()
    }
    assert {address: ports for address, ports in state.ports.items() if ports} == again.ports


def check_world(world: World) -> None:
    """Promises 1, 2 and 4 on the nodes' side, and reasons for all that waits."""
    check_state(world.state)
    _no_attempt_started_twice(world)
    _one_live_attempt_per_job(world)
    _no_device_used_twice(world)
    _gangs_run_only_when_committed(world)


def _no_attempt_started_twice(world: World) -> None:
    for agent in world.agents.values():
        assert len(agent.starts) == len(set(agent.starts)), f"promise 4: {agent.name} started twice"


def _one_live_attempt_per_job(world: World) -> None:
    running: dict[int, int] = {}
    for agent in world.agents.values():
        for attempt in agent.running:
            number = running.setdefault(attempt.job, attempt.number)
            assert number == attempt.number, f"promise 4: {attempt} and {attempt.job}/{number} both run"


def _no_device_used_twice(world: World) -> None:
    for agent in world.agents.values():
        used: dict[int, AttemptId] = {}
        for attempt in agent.running:
            launch = agent.journal[attempt].launch if attempt in agent.journal else None
            for slot in launch.slots if launch else ():
                assert slot not in used, (
                    f"promise 1: {attempt} and {used.get(slot)} run on {agent.name}:{slot}"
                )
                used[slot] = attempt


def _gangs_run_only_when_committed(world: World) -> None:
    committed = {attempt.id: attempt.committed_us for _, attempt in live(world.state)}
    for agent in world.agents.values():
        for attempt in agent.running:
            assert committed.get(attempt, 1), f"promise 2: {attempt} runs on {agent.name} uncommitted"


def check_reasons(world: World) -> None:
    """Promise 6, its first half: after a cycle every waiting job has one reason with a sentence."""
    for job in world.view.jobs.values():
        if job.state is JobState.WAITING:
            reason = world.view.reason_of(job)
            assert reason.code != "wait.next-pass", f"promise 6: job {job.id} waits without a reason"
            assert reason.sentence()
            assert reason.action()
