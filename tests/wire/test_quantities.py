"""Quantities: what texts and numbers mean in base units, what is none, and that writing and reading are inverse."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.wire import quantities as q


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("30s", 30),
        ("10m", 600),
        ("4h", 14400),
        ("3d", 259200),
        ("1h30m", 5400),
        ("2w", 1209600),
        ("0s", 0),
        ("1d2h3m4s", 93784),
        ("90m", 5400),
        ("100d", 8640000),
        ("", None),
        ("5", None),
        ("h", None),
        ("1.5h", None),
        ("30m1h", None),
        ("1h1h", None),
        ("-1h", None),
        ("1 h", None),
        ("1H", None),
        ("1h\n", None),
        ("٣h", None),
        ("9999999999s", None),
        ("999999999w", None),
    ],
)
def test_durations(text: str, wanted: int | None) -> None:
    assert q.seconds(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("960GiB", 960 * 2**30),
        ("80GB", 80 * 10**9),
        ("1B", 1),
        ("512MiB", 512 * 2**20),
        ("2TiB", 2**41),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("1PiB", 2**50),
        ("0GiB", 0),
        ("", None),
        ("5", None),
        ("GiB", None),
        ("1.5GiB", None),
        ("1gib", None),
        ("1Gi", None),
        ("1G", None),
        ("-1GB", None),
        ("1 GB", None),
        ("9999999PiB", None),
        ("1EiB", None),
        ("1GiB\n", None),
        ("1iB", None),
    ],
)
def test_sizes(text: str, wanted: int | None) -> None:
    assert q.size_bytes(text) == wanted


@pytest.mark.parametrize(
    ("number", "scale", "wanted"),
    [
        (160, 1000, 160_000),
        (44.5, 1000, 44_500),
        (0.001, 1000, 1),
        (0.0005, 1000, None),
        (0.18, 10**6, 180_000),
        (21.957642, 10**6, 21_957_642),
        (0.1 + 0.2, 1000, None),
        (1e3, 1000, 10**6),
        (-1.5, 1000, -1500),
        (math.inf, 1000, None),
        (-math.inf, 1000, None),
        (math.nan, 1000, None),
        (1e300, 1, int(1e300)),
        (10**30, 10, 10**31),
    ],
)
def test_numbers_are_scaled_exactly_or_not_at_all(number: float, scale: int, wanted: int | None) -> None:
    scaled = q.scaled(number, scale)
    assert scaled == wanted or (wanted == int(1e300) and scaled is not None and math.isclose(scaled, 1e300))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("00:00", 0),
        ("17:00", 1020),
        ("23:59", 1439),
        ("24:00", 1440),
        ("24:01", None),
        ("7:00", None),
        ("17:60", None),
        ("", None),
    ],
)
def test_times_of_day(text: str, wanted: int | None) -> None:
    assert q.minutes_of_day(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("mon-fri", (0, 1, 2, 3, 4)),
        ("sun", (6,)),
        ("sat,sun", (5, 6)),
        ("fri-mon", (0, 4, 5, 6)),
        ("mon-sun", tuple(range(7))),
        ("mon,mon-tue", (0, 1)),
        ("mon, wed", (0, 2)),
        ("", None),
        ("mon-", None),
        ("monday", None),
        ("Mon", None),
        ("mon;tue", None),
        ("mon\n", None),
    ],
)
def test_days(text: str, wanted: tuple[int, ...] | None) -> None:
    assert q.days_of_week(text) == wanted


pytestmark = pytest.mark.property


@given(st.integers(0, q.MOST_SECONDS))
def test_durations_are_written_as_they_are_read(total: int) -> None:
    assert q.seconds(q.seconds_text(total)) == total


@given(
    st.integers(0, q.MOST_BYTES)
    | st.integers(0, 2**20).map(lambda n: n * 2**30)
    | st.integers(0, 10**6).map(lambda n: n * 10**9)
)
def test_sizes_are_written_as_they_are_read(total: int) -> None:
    assert q.size_bytes(q.size_text(total)) == total


@given(st.integers(-(10**15), 10**15), st.sampled_from([1000, 10**6]))
def test_numbers_are_written_as_they_are_read(whole: int, scale: int) -> None:
    assert q.scaled(q.unscaled(whole, scale), scale) == whole


@given(st.integers(0, 1440), st.sets(st.integers(0, 6), min_size=1))
def test_times_and_days_are_written_as_they_are_read(minute: int, days: set[int]) -> None:
    assert q.minutes_of_day(q.day_time_text(minute)) == minute
    assert q.days_of_week(q.days_text(tuple(sorted(days)))) == tuple(sorted(days))
