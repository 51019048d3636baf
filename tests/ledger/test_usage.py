"""What was used of late: older counts less, by whole numbers only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.usage import Used, weight_of
from orchestrator.model.clock import SECOND

HOUR = 3600
ONE = 1 << 32


@pytest.mark.parametrize(
    ("past_s", "share"), [(0, 1.0), (HOUR, 0.5), (2 * HOUR, 0.25), (HOUR // 2, 0.7071), (100 * HOUR, 0.0)]
)
def test_a_half_life_halves(past_s: int, share: float) -> None:
    assert weight_of(past_s * SECOND, HOUR) / ONE == pytest.approx(share, abs=1e-4)


def test_held_gpus_count_while_they_are_held() -> None:
    """Eight GPUs for a minute are close to 480 GPU-seconds, and for ever they come to 1.443 half-lives of eight."""
    used = Used(0, 0, 8000)
    assert used.at(60 * SECOND, 100 * HOUR) / 1000 == pytest.approx(480, rel=0.01)
    assert used.at(1000 * HOUR * SECOND, HOUR) / 1000 == pytest.approx(8 * HOUR * 1.4427, rel=0.001)


def test_what_was_given_back_fades() -> None:
    used = Used(0, 0, 8000)
    used.hold(0, HOUR * SECOND, HOUR)
    after = used.amount
    assert used.at(2 * HOUR * SECOND, HOUR) == pytest.approx(after / 2, rel=1e-6)


@given(
    held=st.integers(0, 10**7),
    cuts=st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    half_life_s=st.integers(60, 10**7),
)
def test_looking_in_between_changes_little(held: int, cuts: list[int], half_life_s: int) -> None:
    """Each look rounds down once, and lines between steps are not the curve."""
    once, often, now = Used(0, 0, held), Used(0, 0, held), 0
    for cut in cuts:
        now += cut * SECOND
        often.hold(held, now, half_life_s)
    whole = once.at(now, half_life_s)
    assert abs(whole - often.amount) <= whole // 50 + held * len(cuts) // 100 + 2 * len(cuts)


@given(st.integers(0, 10**15), st.integers(1, 10**8))
def test_the_past_never_counts_more_later(past_us: int, half_life_s: int) -> None:
    assert 0 <= weight_of(past_us + SECOND, half_life_s) <= weight_of(past_us, half_life_s) <= ONE
