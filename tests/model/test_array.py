"""Indices of arrays: what people write, what they come to, and which place an index has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.array import MOST_TASKS, Array, Range, read_tasks


@pytest.mark.parametrize(
    ("text", "indices", "written"),
    [
        ("7", [7], "7"),
        ("0-3", [0, 1, 2, 3], "0-3"),
        ("0-9:4", [0, 4, 8], "0-8:4"),
        ("9,1,4", [1, 4, 9], "1,4,9"),
        ("1-3, 2-5", [1, 2, 3, 4, 5], "1-5"),
        ("0-8:2,1-9:2", list(range(10)), "0-9"),
        ("5,5,5", [5], "5"),
        ("10-12,0-2", [0, 1, 2, 10, 11, 12], "0-2,10-12"),
    ],
)
def test_what_people_write(text: str, indices: list[int], written: str) -> None:
    array = Array(read_tasks(text))
    assert list(array.indices()) == indices
    assert (array.count(), array.text()) == (len(indices), written)
    assert [array.place_of(index) for index in indices] == list(range(len(indices)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no index"),
        ("a", "'a' is no index and no range of them"),
        ("1,", "is no index"),
        ("-1", "is no index"),
        ("1-", "is no index"),
        ("5-3", "ends before it begins"),
        ("1-5:0", "has a step of 0"),
        ("1-3%2", "is no index"),
        ("1234567890", "is no index"),
        ("\N{ARABIC-INDIC DIGIT ONE}", "is no index"),
        ("0-100000", f"it names 100001 tasks, and an array has at most {MOST_TASKS}"),
        ("0-999999999", "it names 1000000000 tasks"),
        (",".join(["1"] * 600), "it has 1199 characters, and at most 1000 are taken"),
    ],
)
def test_what_is_refused_has_its_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_tasks(text)


def test_the_largest_array_is_taken() -> None:
    assert Array(read_tasks("0-99999")).count() == MOST_TASKS


RANGES = st.builds(
    lambda first, more, step: f"{first}-{first + more}:{step}",
    st.integers(0, 200),
    st.integers(0, 60),
    st.integers(1, 9),
)


@pytest.mark.property
@given(st.lists(RANGES, min_size=1, max_size=8))
def test_each_index_is_one_task_whatever_overlaps(pieces: list[str]) -> None:
    wanted = sorted({index for piece in pieces for index in read_one(piece)})
    array = Array(read_tasks(",".join(pieces)))
    assert list(array.indices()) == wanted
    assert read_tasks(array.text()) == array.tasks
    assert all(array.place_of(index) == place for place, index in enumerate(wanted))
    for index in range(wanted[-1] + 3):
        assert (array.place_of(index) is None) == (index not in wanted)


def read_one(piece: str) -> list[int]:
    (found,) = read_tasks(piece)
    assert isinstance(found, Range)
    return list(range(found.first, found.last + 1, found.step))
