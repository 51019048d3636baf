"""What must hold at every moment, whatever has happened: DESIGN's promises 1, 2, 4 and 5 in code.

Comes in: a World. Goes out: AssertionErrors that name the promise. Called by: the state machines and scenario tests.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.ledger.capacity import WHOLE
from orchestrator.ledger.records import Attempt, Job
from orchestrator.ledger.snapshot import from_plain, to_plain
from orchestrator.ledger.state import State, amounts, attempt_placements
from orchestrator.model.attempt import JobState, PartState
from orchestrator.model.ids import AttemptId
from tests.controller.world import World
from tests.metered import hours_on_paper
from tests.priced import dollars_on_paper


def live(state: State) -> Iterator[tuple[Job, Attempt]]:
    """Jobs with their live attempts."""
    for job in state.jobs.values():
        if job.attempt is not None:
            yield job, job.attempt


def check_state(state: State) -> None:
    """Promises 1 and 5 on the controller's side."""
    _devices_have_one_holder(state)
    _instances_never_meet(state)
    _usage_is_the_fold(state)
    _what_is_bought_is_known_once(state)
    _indexes_follow_from_records(state)


def _devices_have_one_holder(state: State) -> None:
    whole: dict[tuple[str, int], AttemptId] = {}
    shares: dict[tuple[str, int], dict[AttemptId, int]] = {}
    for _, attempt in live(state):
        for part in attempt.parts:
            if part.state is PartState.ENDED:
                continue
            for at, slot in enumerate(part.placement.slots):
                place = (part.placement.node, slot)
                assert place not in whole, f"promise 1: {place} has {whole.get(place)} and {attempt.id}"
                if part.placement.milli:
                    shares.setdefault(place, {})[attempt.id] = part.placement.milli[at]
                else:
                    whole[place] = attempt.id
    for place, milli in shares.items():
        assert place not in whole, f"promise 1: {place} is shared and has {whole[place]}"
        assert sum(milli.values()) <= WHOLE, f"promise 1: {place} is shared by {milli}"
    for name, node in state.nodes.items():
        mine = {slot: attempt for (where, slot), attempt in whole.items() if where == name}
        assert node.holders == mine, f"promise 1: holders of {name}"
        others = {slot: sorted(found) for (where, slot), found in shares.items() if where == name}
        assert {slot: sorted(found) for slot, found in node.sharers.items()} == others


def _instances_never_meet(state: State) -> None:
    """Each memory slice of a divided GPU is one instance's."""
    held: dict[tuple[str, int], int] = {}
    for _, attempt in live(state):
        for part in attempt.parts:
            for one in part.placement.instances if part.state is not PartState.ENDED else ():
                place = (part.placement.node, one.slot)
                assert not held.get(place, 0) & one.bits, f"promise 1: {one} of {attempt.id} meets another"
                held[place] = held.get(place, 0) | one.bits
    for name in state.capacity.names:
        mine = sorted((slot, mask) for (where, slot), mask in held.items() if where == name)
        assert list(state.capacity.slices_of(name)) == mine, f"promise 1: slices of {name}"


def _usage_is_the_fold(state: State) -> None:
    wanted: dict[tuple[str, str], int] = {}
    for job, attempt in live(state):
        for scope in state.limits.path(state.scope(job)):
            for dimension, amount in amounts(state, attempt_placements(attempt)):
                wanted[scope.name, dimension] = wanted.get((scope.name, dimension), 0) + amount
    wanted |= _watts(from_plain(to_plain(state))) | dollars_on_paper(state) | hours_on_paper(state)
    used = {
        (scope.name, dimension): amount
        for scope in state.limits.scopes.values()
        for dimension, amount in scope.used.items()
        if amount
    }
    assert used == wanted, "promise 5: usage is not the sum over live attempts"


def _watts(state: State) -> dict[tuple[str, str], int]:
    """What is committed of power, where the state was read back: each GPU that is held, once."""
    scopes = state.power.scopes if state.power is not None else ()
    return {(one.name, "watts"): one.used["watts"] for one in scopes if one.used.get("watts")}


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
    assert state.capacity.names == again.capacity.names
    for name in state.capacity.names:
        assert state.capacity.at(name) == again.capacity.at(name)
        assert state.capacity.shares_of(name) == again.capacity.shares_of(name), name
        assert state.capacity.slices_of(name) == again.capacity.slices_of(name), name
        assert _plain(state, name) == _plain(again, name), name
        assert state.capacity.is_empty(name) == again.capacity.is_empty(name), name
    assert {key: found.waiting for key, found in state.classes.items()} == {
        key: found.waiting for key, found in again.classes.items()
    }
    assert (state.blocked, state.dependents, state.doomed) == (again.blocked, again.dependents, again.doomed)
    assert state.lines == again.lines
    waiting = {place.job for found in state.classes.values() for place in found.waiting}
    assert waiting == {
        job.id for job in state.jobs.values() if job.state is JobState.WAITING and not job.blocked
    }
    assert {address: ports for address, ports in state.ports.items() if ports} == again.ports


def _plain(state: State, name: str) -> tuple[int, int]:
    """What work without GPUs may still have of a node."""
    row = state.capacity.index[name]
    return int(state.capacity.plain_cores[row]), int(state.capacity.plain_memory[row])


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
