"""A ledger written by any released version opens: stored events and a whole ledger, kept as they were first written.

A golden file is made once (`python -m tests.ledger.samples`, `python -m tests.ledger.golden_story`) and never changed.
A new version of a type adds a file; its upcaster must read the old one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest

from orchestrator.ledger import events
from orchestrator.ledger.apply import apply
from orchestrator.ledger.events import (
    CLASS_OF,
    TYPE_OF,
    UPCASTERS,
    Event,
    StoredEvent,
    from_stored,
    to_stored,
)
from orchestrator.ledger.snapshot import VERSION, from_plain, to_plain
from orchestrator.ledger.state import State
from orchestrator.model.codec import CodecError, encode
from tests.controller.invariants import check_state
from tests.ledger.samples import GOLDEN, SAMPLES, golden_file, read

# Fields with a default that a type has got since its golden file was written.
ADDED = {
    ("controller.started", 1): {"lease_s"},
    ("cluster.applied", 1): {"desired", "commit", "watts", "prices"},
    ("job.submitted", 1): {"waits", "doom"},
    ("attempt.recovered", 1): {"held_on", "array", "array_index"},
    ("token.created", 1): {"key", "instance", "address"},
}
# What a fold keeps since the golden snapshot was written; one without it opens all the same.
ADDED_TO_SNAPSHOTS = ("demand",)
FILES = sorted(GOLDEN.glob("*-v*.json"))


def test_every_registered_type_and_version_has_a_file_and_a_sample() -> None:
    assert {path.name for path in FILES} == {golden_file(*key).name for key in SAMPLES}
    assert set(TYPE_OF.values()) <= set(SAMPLES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_event_is_read_as_it_was_meant(path: Any) -> None:
    stored = read(path)
    assert golden_file(stored.type, stored.v) == path
    assert from_stored(stored) == SAMPLES[stored.type, stored.v]


@pytest.mark.parametrize("cls", TYPE_OF, ids=lambda cls: cls.__name__)
def test_the_present_version_is_written_as_it_was(cls: type) -> None:
    """Whoever changes this must raise the version, since older readers are out there."""
    key = TYPE_OF[cls]
    assert to_stored(SAMPLES[key]) == read(golden_file(*key))


@pytest.mark.parametrize("key", SAMPLES, ids=lambda key: f"{key[0]}-v{key[1]}")
def test_a_sample_gives_every_field_that_it_had_then(key: tuple[str, int]) -> None:
    """Every field that a golden file lacks was added later, so that it must have a default."""
    body = SAMPLES[key].body
    added = {each.name for each in fields(body)} - set(encode(body)) - ADDED.get(key, set())
    assert not added, (
        "give the new field of a golden event in a new version, or list it here with its release"
    )


# --- versions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Toy:
    """Version 3 of a type that only this test knows. v1: `n`; v2: `number`; v3: `number` and a unit."""

    number: int
    unit: str


@pytest.fixture
def _toy() -> Iterator[None]:
    events.event_type("toy.played", 3)(Toy)
    UPCASTERS[("toy.played", 1)] = lambda body: {"number": body["n"]}
    UPCASTERS[("toy.played", 2)] = lambda body: {**body, "unit": "toys"}
    yield
    del TYPE_OF[Toy], CLASS_OF["toy.played"], UPCASTERS[("toy.played", 1)], UPCASTERS[("toy.played", 2)]


def stored(v: int, body: dict[str, Any], name: str = "toy.played") -> StoredEvent:
    return StoredEvent(1, 2, 3, name, v, "s", 1, "b", body)


@pytest.mark.usefixtures("_toy")
@pytest.mark.parametrize(
    ("v", "body"), [(1, {"n": 4}), (2, {"number": 4}), (3, {"number": 4, "unit": "toys"})]
)
def test_older_bodies_go_up_step_by_step(v: int, body: dict[str, Any]) -> None:
    event = from_stored(stored(v, body))
    assert event == Event(1, 2, 3, 1, "s", "b", Toy(4, "toys"))
    assert (event.type, to_stored(event).v) == ("toy.played", 3)
    assert body in ({"n": 4}, {"number": 4}, {"number": 4, "unit": "toys"}), (
        "an upcaster changed its argument"
    )


@pytest.mark.usefixtures("_toy")
def test_a_newer_version_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"event 1: toy.played version 4 was written by a newer Gangline"):
        from_stored(stored(4, {}))


def test_an_unknown_type_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"event 1: toy.played version 1 was written by a newer Gangline"):
        from_stored(stored(1, {}))


def test_a_body_that_is_damaged_is_named_by_its_place() -> None:
    with pytest.raises(ValueError, match=r"event 1 \(job.released\): job: expected int, got str") as caught:
        from_stored(stored(1, {"job": "x"}, "job.released"))
    assert isinstance(caught.value.__cause__, CodecError)


def test_every_step_to_the_present_version_has_an_upcaster() -> None:
    wanted = {(name, v) for name, now in TYPE_OF.values() for v in range(1, now)}
    assert set(UPCASTERS) == wanted


# --- a whole ledger ---------------------------------------------------------------------------------------------


def golden_ledger() -> list[StoredEvent]:
    lines = (GOLDEN / "ledger.jsonl").read_text().splitlines()
    return [StoredEvent(**json.loads(line)) for line in lines]


def test_a_golden_ledger_folds_to_its_golden_snapshot() -> None:
    state = State()
    for each in golden_ledger():
        apply(state, from_stored(each))
    snapshot = json.loads((GOLDEN / f"snapshot-{VERSION}.json").read_text())
    folded = json.loads(json.dumps(to_plain(state)))
    assert {name: folded[name] for name in folded if name not in ADDED_TO_SNAPSHOTS} == snapshot
    check_state(state)


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_golden_snapshot_opens_and_is_written_in_the_present_form(version: int) -> None:
    state = from_plain(json.loads((GOLDEN / f"snapshot-{version}.json").read_text()))
    snapshot = json.loads((GOLDEN / f"snapshot-{VERSION}.json").read_text())
    assert json.loads(json.dumps(to_plain(state))) == snapshot
    check_state(state)


def test_the_golden_ledger_is_a_story_worth_keeping() -> None:
    told = golden_ledger()
    assert len(told) >= 60
    assert [each.seq for each in told] == list(range(1, len(told) + 1))
    kinds = {each.type for each in told}
    assert len(kinds) >= 22, sorted(kinds)
