"""The lease's file: extended while there is contact, and never again once it has run out."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.lease import Lease, Term, read_lease
from orchestrator.model.clock import SECOND, ManualClock

LEASE_S = 60


@pytest.fixture
def clock() -> ManualClock:
    made = ManualClock()
    made.advance(1000)
    return made


def heard(lease: Lease, clock: ManualClock, lease_s: int = LEASE_S) -> str:
    """Contact now; the file that has it."""
    lease.heard(clock.monotonic_us(), lease_s)
    lease.write()
    return lease.path


def left_s(path: str, clock: ManualClock) -> int:
    return (read_lease(path).end_us - clock.monotonic_us()) // SECOND


def test_contact_extends_the_lease_in_its_file(tmp_path: Path, clock: ManualClock) -> None:
    lease = Lease(str(tmp_path), clock)
    path = heard(lease, clock)
    clock.advance(LEASE_S - 1)
    assert left_s(path, clock) == 1
    assert heard(lease, clock) == path
    assert left_s(path, clock) == LEASE_S


def test_a_lease_that_ran_out_is_never_extended(tmp_path: Path, clock: ManualClock) -> None:
    """A shepherd that was held up in between would else take the next one for its own."""
    lease = Lease(str(tmp_path), clock)
    old = heard(lease, clock)
    clock.advance(LEASE_S)
    new = heard(lease, clock)
    assert new != old
    assert left_s(new, clock) == LEASE_S
    assert read_lease(old) == Term(0, 0)
    assert [str(path) for path in tmp_path.iterdir()] == [new]


def test_an_answer_that_comes_late_shortens_nothing(tmp_path: Path, clock: ManualClock) -> None:
    lease = Lease(str(tmp_path), clock)
    path = heard(lease, clock)
    lease.heard(clock.monotonic_us() - 30 * SECOND, LEASE_S)
    lease.write()
    assert left_s(path, clock) == LEASE_S


def test_a_shorter_lease_counts_from_the_first_answer_that_has_it(tmp_path: Path, clock: ManualClock) -> None:
    lease = Lease(str(tmp_path), clock)
    path = heard(lease, clock)
    assert heard(lease, clock, 10) == path
    assert left_s(path, clock) == 10


@pytest.mark.parametrize(("away_s", "goes_on"), [(LEASE_S - 1, True), (LEASE_S, False)])
def test_an_agent_that_starts_again_goes_on_with_what_has_not_run_out(
    tmp_path: Path, clock: ManualClock, away_s: int, goes_on: bool
) -> None:
    path = heard(Lease(str(tmp_path), clock), clock)
    clock.advance(away_s)
    assert (heard(Lease(str(tmp_path), clock), clock) == path) is goes_on


def test_the_file_of_an_agent_that_had_one_for_all_goes_on(tmp_path: Path, clock: ManualClock) -> None:
    """Its shepherds run under this one."""
    path = tmp_path / "lease"
    path.write_text(f"{clock.monotonic_us() + SECOND} {LEASE_S * SECOND}\n")
    assert heard(Lease(str(tmp_path), clock), clock) == str(path)
    assert left_s(str(path), clock) == LEASE_S


def test_what_may_be_begun_has_a_while_before_it_is_asked_to_end() -> None:
    term = Term(60 * SECOND, 60 * SECOND)
    assert (term.begins_until_us(0), term.asks_at_us(300), term.asks_at_us(5)) == (
        45 * SECOND,
        45 * SECOND,
        55 * SECOND,
    )
