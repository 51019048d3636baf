"""How much of what could be tried a run tries: examples of hypothesis, mutants of documents.

Comes in: the variables CI and HYPOTHESIS_PROFILE. Goes out: hypothesis' profile of this run, properties with fewer
examples in a quick one and more in a deep one, `some` for tables that are as long as their maker likes. Called by:
pytest, to which tests/conftest.py names this plugin, and tests with such tables.

`quick` is `make test-fast`, which people wait for: a third of the examples, others each time. `make test` and CI try
all (`dev`, `ci`). `deep` is for a long search: twenty times the examples.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

SHARE = 3  # a quick run tries one in so many
LEAST = 3
DEEP = 20  # a deep run tries so many times as much
USED = "_hypothesis_internal_use_settings"  # where `@settings` leaves what it was given

T = TypeVar("T")

# A machine that is busy must not fail a property: no deadline anywhere, counts are gated instead.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", deadline=None, print_blob=True, suppress_health_check=_SLOW)
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True, database=None)
settings.register_profile("quick", parent=settings.get_profile("dev"), max_examples=100 // SHARE)
settings.register_profile("deep", parent=settings.get_profile("dev"), max_examples=100 * DEEP)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
settings.load_profile(PROFILE)


def some(every: Sequence[T]) -> Sequence[T]:
    """All of a table, or in a quick run one row in three: of rows in order, some of each kind and of each place."""
    return every[::SHARE] if PROFILE == "quick" else every


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Scale the examples of properties that name their own number of them too."""
    if PROFILE in ("quick", "deep"):
        for holder, name in dict.fromkeys(place for item in items if (place := _settings_of(item))):
            own: settings = getattr(holder, name)
            if own.max_examples != settings.get_profile(PROFILE).max_examples:
                setattr(holder, name, settings(own, max_examples=scaled(own.max_examples)))


def scaled(examples: int) -> int:
    """So many examples in a run of this profile."""
    return examples * DEEP if PROFILE == "deep" else max(LEAST, examples // SHARE)


def _settings_of(item: pytest.Item) -> tuple[Any, str] | None:
    """Where a property or a state machine has settings of its own; each test of a table has the same place."""
    test = getattr(item, "obj", None)
    test = getattr(test, "__func__", test)
    if hasattr(test, USED):
        return test, USED
    machine = getattr(item, "cls", None)
    return (machine, "settings") if isinstance(getattr(machine, "settings", None), settings) else None
