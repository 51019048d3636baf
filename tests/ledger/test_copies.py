"""Copies of records: what is folded after a copy was taken must not be in it, whatever it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger import records
from orchestrator.ledger.copies import _copier, copy_of
from orchestrator.ledger.records import Attempt, Job, Part
from orchestrator.ledger.snapshot import Frozen, freeze, to_plain
from orchestrator.ledger.state import State
from orchestrator.model.attempt import AttemptState, Placement
from orchestrator.model.ids import AttemptId
from tests.builders import ALICE, job
from tests.ledger.stories import Teller


def plain(frozen: Frozen) -> str:
    """What it says, in full."""
    sections = {key: list(items) for key, items in frozen.sections().items()}
    return json.dumps({**frozen.rest, **sections}, sort_keys=True)


def now(state: State) -> str:
    return json.dumps(to_plain(state), sort_keys=True)


@pytest.mark.property
@settings(max_examples=40)
@given(seed=st.integers(0, 10**9), length=st.integers(2, 150), every=st.integers(1, 20))
def test_what_comes_later_is_in_no_copy(seed: int, length: int, every: int) -> None:
    teller = Teller(seed)
    taken: list[tuple[str, Frozen]] = []
    for step in range(length):
        if step % every == 0:
            taken.append((now(teller.state), freeze(teller.state)))
        teller.step()

    assert [plain(frozen) for _, frozen in taken] == [then for then, _ in taken]


def test_a_copy_has_its_own_lists_and_records() -> None:
    part = Part(Placement("n1", (0,)))
    original = Job(1, job(), ALICE, 5, 5, attempt=Attempt(AttemptId(1, 1), [part], AttemptState.ALLOCATED, 7))

    copied = copy_of(original)
    original.failures["node"] = 1
    part.error = "later"
    assert original.attempt is not None
    original.attempt.parts.append(part)

    assert copied.spec is original.spec  # it never changes
    assert copied.failures == {}
    assert copied.attempt is not None
    assert [each.error for each in copied.attempt.parts] == [""]


def test_what_never_changes_is_shared() -> None:
    assert copy_of(ALICE) is ALICE


@dataclass(slots=True)
class Odd:
    """A record with something of which nobody knows."""

    thing: object = field(default_factory=object)


@dataclass(frozen=True, slots=True)
class HalfFrozen:
    """One that looks as if it never changed."""

    names: list[str]


@pytest.mark.parametrize("record", [Odd(), HalfFrozen([])], ids=["unknown", "half frozen"])
def test_a_type_that_nobody_has_thought_of_is_refused(record: object) -> None:
    with pytest.raises(TypeError, match="change"):
        copy_of(record)


@pytest.mark.parametrize("cls", [records.Job, records.Node, records.TaskArray, records.Apply, records.Fleet])
def test_every_large_record_can_be_copied(cls: type) -> None:
    assert _copier(cls) is not None
