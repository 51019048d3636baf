"""Documents that come again: what they describe is the same, and only so many are kept."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.api import specs
from orchestrator.api.specs import MOST_BYTES, Specs
from orchestrator.spec import InvalidDocument, job_from_document
from tests.api.served import document


def named(name: str) -> dict[str, Any]:
    return document(name=name)


def test_equal_documents_share_what_they_describe() -> None:
    known = Specs()

    first, again = known.read(named("a"), "digest-a", 100), known.read(named("a"), "digest-a", 100)

    assert again is first
    assert first == job_from_document(named("a"))
    assert known.read(named("b"), "digest-b", 100) == job_from_document(named("b"))


def test_what_is_wrong_stays_wrong() -> None:
    known = Specs()
    for _ in range(2):
        with pytest.raises(InvalidDocument):
            known.read({"kind": "Job"}, "digest", 100)


def test_large_documents_are_not_kept() -> None:
    known = Specs()
    first = known.read(named("a"), "digest", MOST_BYTES + 1)
    assert known.read(named("a"), "digest", MOST_BYTES + 1) is not first


def test_the_one_that_nobody_asked_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "MOST_KEPT", 2)
    known = Specs()
    a, b = known.read(named("a"), "a", 100), known.read(named("b"), "b", 100)
    assert known.read(named("a"), "a", 100) is a
    known.read(named("c"), "c", 100)

    assert known.read(named("a"), "a", 100) is a
    assert known.read(named("b"), "b", 100) is not b
