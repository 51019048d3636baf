"""Ids: their text forms, back and forth, and what is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.ids import AttemptId, parse_attempt, parse_unit

IDS = st.builds(AttemptId, st.integers(1, 10**12), st.integers(1, 10**6))


@pytest.mark.property
@given(IDS)
def test_both_forms_come_back(attempt: AttemptId) -> None:
    assert parse_attempt(str(attempt)) == attempt
    assert parse_unit(attempt.unit) == attempt


def test_the_forms() -> None:
    assert str(AttemptId(1234, 2)) == "1234/2"
    assert f"{AttemptId(1234, 2)}" == "1234/2"
    assert AttemptId(1234, 2).unit == "gangline-1234-2"


NO_ATTEMPTS = [
    "",
    "1",
    "1/",
    "/2",
    "1/2/3",
    "a/2",
    "1/-2",
    " 1/2",
    "1/2 ",
    "+1/2",
    "1_0/2",
    "1.0/2",
    "²/2",
    "١/٢",
]
NO_UNITS = [
    "",
    "gangline",
    "gangline-1",
    "gangline-1-2.service",
    "gangline-1-2-3",
    "other-1-2",
    "gangline-1-٢",
]


@pytest.mark.parametrize("text", [*NO_ATTEMPTS, "01/2", "1/02", "0/1", "1/0"])
def test_what_is_no_attempt(text: str) -> None:
    with pytest.raises(ValueError, match="not an attempt id") as caught:
        parse_attempt(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "text", [*NO_UNITS, "gangline-01-2", "gangline-0-1", "gangline--1-2", "gangline-1-x"]
)
def test_what_is_no_unit(text: str) -> None:
    with pytest.raises(ValueError, match="not a unit") as caught:
        parse_unit(text)
    assert repr(text) in str(caught.value)


@pytest.mark.property
@pytest.mark.parametrize(
    ("parse", "render"), [(parse_attempt, str), (parse_unit, lambda attempt: attempt.unit)]
)
@given(text=st.text(max_size=12) | st.from_regex(r"(gangline-)?[0-9٠-٩]{1,3}[/-][0-9]{1,3}", fullmatch=True))
def test_only_the_canonical_text_is_an_id(
    parse: Callable[[str], AttemptId], render: Callable[[AttemptId], str], text: str
) -> None:
    """Two texts of one id would be two directories of one attempt."""
    try:
        attempt = parse(text)
    except ValueError:
        return
    assert render(attempt) == text


def test_ids_sort_by_job_then_number() -> None:
    assert sorted([AttemptId(10, 1), AttemptId(2, 9), AttemptId(2, 10)]) == [(2, 9), (2, 10), (10, 1)]
