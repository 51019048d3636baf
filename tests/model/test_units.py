"""Texts of quantities: they are what the file's own readers take, and read back to the same."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model import units
from orchestrator.wire import hostlist, quantities

pytestmark = pytest.mark.property


@given(st.integers(0, quantities.MOST_SECONDS))
def test_durations_read_back(total: int) -> None:
    assert quantities.seconds(units.seconds_text(total)) == total


@given(st.integers(0, quantities.MOST_BYTES))
def test_sizes_read_back(total: int) -> None:
    assert quantities.size_bytes(units.size_text(total)) == total


@given(st.integers(0, 1440))
def test_times_of_day_read_back(total: int) -> None:
    assert quantities.minutes_of_day(units.day_time_text(total)) == total


@given(st.sets(st.integers(0, 6), min_size=1))
def test_days_read_back(days: set[int]) -> None:
    assert quantities.days_of_week(units.days_text(sorted(days))) == tuple(sorted(days))


@given(st.integers(0, 10**15), st.sampled_from([1000, 1_000_000]))
def test_scaled_numbers_are_exact_and_plain(whole: int, scale: int) -> None:
    text = units.scaled_text(whole, scale)

    assert Decimal(text) * scale == whole
    assert set(text) <= set("0123456789.")
    assert "." not in text or not text.endswith("0")


@given(
    st.lists(st.from_regex(r"[a-z]{1,3}(-[0-9]{1,3})?", fullmatch=True), min_size=1, max_size=20, unique=True)
)
def test_node_names_read_back(names: list[str]) -> None:
    assert hostlist.expand(units.fold(names)) == names
