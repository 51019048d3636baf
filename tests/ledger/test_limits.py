"""The limit tree against a model that adds up by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.limits import Amounts, Binding, LimitTree


def tree() -> LimitTree:
    """cluster > research > alice, bob; ceilings at each level."""
    limits = LimitTree()
    limits.add("cluster", "", {"gpus": 10})
    limits.add("research", "cluster", {"gpus": 8, "jobs": 2})
    limits.add("alice", "research", {"gpus": 4})
    limits.add("bob", "research", {})
    return limits


JOB4: Amounts = (("jobs", 1), ("gpus", 4))

BINDING = [
    # taken before, by; asked for, by; what binds
    ([], "alice", JOB4, None),
    ([], "alice", (("gpus", 5),), Binding("alice", "gpus", 4, 0, 1)),
    ([], "bob", (("gpus", 9),), Binding("research", "gpus", 8, 0, 1)),
    ([("bob", (("gpus", 6),))], "alice", JOB4, Binding("research", "gpus", 8, 6, 2)),
    ([("bob", (("jobs", 2),))], "alice", JOB4, Binding("research", "jobs", 2, 2, 1)),
    ([("alice", JOB4)], "alice", (("gpus", 1),), Binding("alice", "gpus", 4, 4, 1)),
    ([("cluster", (("gpus", 9),))], "alice", (("gpus", 2),), Binding("cluster", "gpus", 10, 9, 1)),
    ([("bob", (("watts", 10**9),))], "bob", (("watts", 1),), None),
    ([("alice", (("gpus", 4),))], "alice", (("gpus", 0),), None),
    ([("cluster", (("gpus", 50),))], "alice", (("gpus", -1),), None),
]


@pytest.mark.parametrize(("taken", "who", "asked", "binds"), BINDING)
def test_the_innermost_limit_binds(
    taken: list[tuple[str, Amounts]], who: str, asked: Amounts, binds: Binding | None
) -> None:
    limits = tree()
    for scope, amounts in taken:
        limits.take(scope, amounts)
    assert limits.binding(who, asked) == binds


def test_more_than_was_taken_is_never_given_back_and_changes_nothing() -> None:
    limits = tree()
    limits.take("alice", JOB4)
    limits.take("research", (("jobs", 1),))
    before = {name: dict(scope.used) for name, scope in limits.scopes.items()}
    with pytest.raises(ValueError, match="limit alice: gpus would fall to -1"):
        limits.release("alice", (("jobs", 1), ("gpus", 5)))
    assert {name: scope.used for name, scope in limits.scopes.items()} == before


def test_changed_ceilings_keep_the_use() -> None:
    limits = tree()
    limits.take("alice", JOB4)
    limits.add("alice", "cluster", {"gpus": 3})
    assert limits.binding("alice", (("gpus", 1),)) == Binding("alice", "gpus", 3, 4, 2)
    assert [scope.name for scope in limits.path("alice")] == ["alice", "cluster"]


def test_a_parent_may_be_made_after_its_child() -> None:
    limits = LimitTree()
    limits.add("child", "parent", {})
    limits.add("parent", "", {"jobs": 0})
    assert limits.binding("child", (("jobs", 1),)) == Binding("parent", "jobs", 0, 0, 1)


def test_an_unknown_scope_is_an_error() -> None:
    with pytest.raises(KeyError):
        tree().binding("carol", JOB4)


PARENTS = {"a": "", "b": "a", "c": "b", "d": "b", "e": "a"}
AMOUNTS = st.lists(
    st.tuples(st.sampled_from(["jobs", "gpus"]), st.integers(0, 3)), max_size=2, unique_by=lambda a: a[0]
)
STEPS = st.lists(st.tuples(st.sampled_from(list(PARENTS)), AMOUNTS.map(tuple)), max_size=12)


@pytest.mark.property
@given(
    ceilings=st.fixed_dictionaries(
        {name: st.dictionaries(st.sampled_from(["jobs", "gpus"]), st.integers(0, 6)) for name in PARENTS}
    ),
    steps=STEPS,
    back=st.data(),
)
def test_it_counts_as_a_naive_sum_does(
    ceilings: dict[str, dict[str, int]], steps: list[tuple[str, Amounts]], back: st.DataObject
) -> None:
    limits = LimitTree()
    for name, parent in PARENTS.items():
        limits.add(name, parent, ceilings[name])
    taken: list[tuple[str, Amounts]] = []

    def used(at: str, dimension: str) -> int:
        return sum(
            amount
            for name, amounts in taken
            if at in _line(name)
            for what, amount in amounts
            if what == dimension
        )

    def fits(name: str, amounts: Amounts) -> bool:
        return all(
            used(at, what) + amount <= ceilings[at].get(what, 10**9) or amount == 0
            for at in _line(name)
            for what, amount in amounts
        )

    for name, amounts in steps:
        assert (limits.binding(name, amounts) is None) == fits(name, amounts)
        limits.take(name, amounts)
        taken.append((name, amounts))
        if back.draw(st.booleans()):
            limits.release(*taken.pop(back.draw(st.integers(0, len(taken) - 1))))
        for at in PARENTS:
            for dimension in ("jobs", "gpus"):
                assert limits.scopes[at].used.get(dimension, 0) == used(at, dimension)


def _line(name: str) -> list[str]:
    return [name, *_line(PARENTS[name])] if name else []
