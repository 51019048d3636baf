"""Try, check, undo: after a rollback nothing tells that anything was tried."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.state import State, amounts
from orchestrator.ledger.statement import Statement
from orchestrator.model.attempt import Placement
from tests.builders import Fold, cluster, job, pool


def state() -> State:
    fold = Fold(cluster(pool("p", nodes=2, gpus=4, cores=8), pool("c", nodes=1, gpus=0, cores=4)))
    fold.submit(job())
    return fold.state


SCOPE = "queue=default/user=alice"


def seen(state: State) -> Any:
    """All that a statement may touch, in full, with the empty entries too."""
    capacity = state.capacity
    return copy.deepcopy(
        (
            {
                name: (
                    capacity.at(name),
                    capacity.shares_of(name),
                    capacity.whole[row],
                    capacity.milli[row].tolist(),
                    capacity.device_bytes[row].tolist(),
                )
                for row, name in enumerate(capacity.names)
            },
            {name: scope.used for name, scope in state.limits.scopes.items()},
            state.ports,
        )
    )


WHOLE = st.builds(
    Placement,
    st.sampled_from(["p-1", "p-2", "c-1"]),
    st.sets(st.integers(0, 3), max_size=2).map(lambda slots: tuple(sorted(slots))),
    st.just(1),
    st.integers(0, 2),
    st.integers(0, 5),
)
SHARES = st.builds(
    lambda node, slot, milli: Placement(node, (slot,), 1, 1, 0, (milli,), (milli << 20,)),
    st.sampled_from(["p-1", "p-2"]),
    st.integers(0, 3),
    st.sampled_from([250, 500, 1000]),
)
PLACES = st.one_of(WHOLE, WHOLE, SHARES)
TAKES = st.lists(
    st.tuples(st.lists(PLACES, min_size=1, max_size=3).map(tuple), st.sampled_from([0, 20000, 20001])),
    max_size=8,
)


@pytest.mark.property
@given(takes=TAKES, many=st.integers(0, 9), data=st.data())
def test_rollback_to_any_checkpoint_restores_everything_exactly(
    takes: list[tuple[tuple[Placement, ...], int]], many: int, data: st.DataObject
) -> None:
    """Also where it goes back to a copy, and where it passes one."""
    mine = state()
    statement = Statement(mine, many)
    marks = [(statement.checkpoint(), seen(mine))]
    for placements, port in takes:
        try:
            statement.take(SCOPE, placements, amounts(mine, placements), "127.0.0.1", port)
        except ValueError:
            assert seen(mine) == marks[-1][1], "a take that failed left something behind"
            continue
        marks.append((statement.checkpoint(), seen(mine)))
        if data.draw(st.integers(0, 3)) == 0:
            del marks[data.draw(st.integers(1, len(marks))) :]
            statement.rollback(marks[-1][0])
            assert seen(mine) == marks[-1][1]
    while marks:
        to, before = marks.pop()
        statement.rollback(to)
        assert seen(mine) == before


def test_whoever_remembers_rows_looks_at_those_again_that_a_rollback_has_given_back() -> None:
    mine = state()
    statement = Statement(mine, many=1)
    gang = (Placement("p-1", (0, 1)), Placement("p-2", (0, 1)))
    statement.take(SCOPE, gang, amounts(mine, gang))
    remembered = mine.capacity.touches
    statement.rollback(0)
    touched = mine.capacity.since(remembered)
    assert [mine.capacity.names[row] for row in touched.nonzero()[0].tolist()] == ["p-1", "p-2"]


def test_a_take_in_an_unknown_scope_takes_nothing() -> None:
    mine = state()
    before = seen(mine)
    part = (Placement("p-1", (0,)),)
    with pytest.raises(KeyError):
        Statement(mine).take("queue=default/user=carol", part, amounts(mine, part), "127.0.0.1", 20000)
    assert seen(mine) == before


def test_two_takes_may_share_a_port_and_each_gives_back_its_own() -> None:
    mine = state()
    statement = Statement(mine)
    one, two = (Placement("p-1", (0,)),), (Placement("p-1", (1,)),)
    statement.take(SCOPE, one, amounts(mine, one), "127.0.0.1", 20000)
    statement.take(SCOPE, two, amounts(mine, two), "127.0.0.1", 20000)
    statement.rollback(1)
    assert mine.ports == {"127.0.0.1": {20000: 1}}
    statement.rollback(0)
    assert mine.ports == {}
