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
                name: (node.taken, node.free, node.free_cores, node.free_memory, node.open)
                for name, node in capacity.nodes.items()
            },
            {name: home.buckets for name, home in capacity.pools.items()},
            {name: scope.used for name, scope in state.limits.scopes.items()},
            state.ports,
        )
    )


PLACES = st.builds(
    Placement,
    st.sampled_from(["p-1", "p-2", "c-1"]),
    st.sets(st.integers(0, 3), max_size=2).map(lambda slots: tuple(sorted(slots))),
    st.just(1),
    st.integers(0, 2),
    st.integers(0, 5),
)
TAKES = st.lists(
    st.tuples(st.lists(PLACES, min_size=1, max_size=3).map(tuple), st.sampled_from([0, 20000, 20001])),
    max_size=8,
)


@pytest.mark.property
@given(takes=TAKES, data=st.data())
def test_rollback_to_any_checkpoint_restores_everything_exactly(
    takes: list[tuple[tuple[Placement, ...], int]], data: st.DataObject
) -> None:
    mine = state()
    statement = Statement(mine)
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
