"""Promise 11: what another version recorded for the same file is carried on by changes in place, or not at all.

Comes in: the states that versions recorded (golden/), and states as no version recorded them. Goes out: proof that
nothing is drained, replaced or destroyed, that what work would notice waits, and that all of it can be put off.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import catalog
from orchestrator.model.change import ChangeSet, Source, StepKind, UpdateClass
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import decode
from orchestrator.model.host import Desired, Item, PoolDesired, RoleState
from orchestrator.planning.desired import Resolved
from orchestrator.planning.plan import plan
from orchestrator.planning.render import recorded_as
from orchestrator.planning.roster import pools_by_node
from orchestrator.planning.world import Choices, Observed, Recorded, Running, Workload
from tests.planning.scene import NOW, RESOLVED, base, node, recorded_desired, sight

FILES = sorted((Path(__file__).parent / "golden").glob("*.json"))


@dataclass(frozen=True)
class State:
    """What a version recorded for a cluster."""

    spec: ClusterSpec
    desired: tuple[PoolDesired, ...]
    resolved: Resolved


def read(path: Path) -> list[State]:
    plain = json.loads(path.read_text(encoding="utf-8"))
    resolved = decode(Resolved, plain["resolved"])
    return [
        State(
            decode(ClusterSpec, one["spec"]),
            tuple(decode(PoolDesired, pool) for pool in one["desired"]),
            resolved,
        )
        for one in plain["states"]
    ]


def now(state: State, choices: Choices = Choices(), **rest: str) -> ChangeSet:  # noqa: B008 - frozen
    """What this version plans for the same file, with work on every node."""
    names = tuple(pools_by_node(state.spec))
    work = tuple(Running(number, "alice", "research", (name,), 1) for number, name in enumerate(names))
    return plan(
        state.spec,
        Recorded(state.spec, state.desired, tuple(node(name) for name in names)),
        Observed(tuple(sight(name) for name in names)),
        catalog.load(),
        Workload(work),
        NOW,
        replace(state.resolved, **rest),
        choices,
    )


def keeps_its_promise(made: ChangeSet) -> None:
    """Nothing but changes in place of this version's own; no job notices; nothing stands in the way."""
    assert {change.cls for change in made.changes} <= {UpdateClass.IN_PLACE}
    assert {change.source for change in made.changes} <= {Source.GANGLINE}
    assert {step.kind for step in made.steps} <= {StepKind.RECORD, StepKind.CONFIGURE}
    assert (made.work, made.blockers) == ((), ())


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_what_a_version_recorded_is_carried_on_in_place(path: Path) -> None:
    states = read(path)
    assert states
    for state in states:
        keeps_its_promise(now(state))
        keeps_its_promise(now(state, archive_sha256="cc" * 32, gangline_version="9.9.9"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_all_of_it_can_be_put_off(path: Path) -> None:
    for state in read(path):
        made = now(state, Choices(defer=True), archive_sha256="cc" * 32)

        assert made.changes
        assert all(change.deferred for change in made.changes)
        assert made.empty()
        assert made.steps == ()
        assert made.desired == state.desired


def test_the_first_kept_states_are_there() -> None:
    """`0.1.0-first` is what 0.1.0 recorded while it was made, before it gave groups their numbers."""
    assert {"0.1.0-first", "0.1.0"} <= {path.stem for path in FILES}


# --- states that no version recorded ---------------------------------------------------------------------------------

ITEMS = [item for one in recorded_desired(base()) for role in one.desired.roles for item in role.items]


@st.composite
def other_states(draw: st.DrawFn) -> tuple[PoolDesired, ...]:
    """What is recorded now, with items that are absent, have other values, or weigh on work."""
    found = []
    for one in recorded_desired(base()):
        roles = []
        for role in one.desired.roles:
            items = [draw(_other(item)) for item in role.items]
            more = draw(st.lists(st.sampled_from(ITEMS), max_size=2))
            added = tuple(replace(item, name=f"{item.name}-older") for item in dict.fromkeys(more))
            roles.append(RoleState(role.role, (*(item for item in items if item is not None), *added)))
        found.append(recorded_as(one.pool, Desired(tuple(roles))))
    return tuple(found)


@st.composite
def _other(draw: st.DrawFn, item: Item) -> Item | None:
    what = draw(st.sampled_from(["same", "same", "absent", "value", "heavy"]))
    if what == "absent":
        return None
    if what == "value":
        key, _ = item.values[0]
        return replace(item, values=((key, "older"), *item.values[1:]))
    if what == "heavy":
        return replace(
            item, values=(*item.values, ("older", "yes")), disturbs=draw(st.booleans()), reboots=True
        )
    return item


@pytest.mark.property
@given(other_states())
def test_whatever_was_recorded_is_carried_on_in_place(recorded: tuple[PoolDesired, ...]) -> None:
    state = State(base(), recorded, RESOLVED)

    made = now(state)
    again = now(replace(state, desired=made.desired))

    keeps_its_promise(made)
    assert again.empty()
    assert again.desired == made.desired
    deferred = [change for change in made.changes if change.deferred]
    assert [change.path for change in again.changes] == [change.path for change in deferred]
