"""Snapshot and tail give the very state that the whole fold gives, wherever the cut is, and under any hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger.apply import apply
from orchestrator.ledger.events import TYPE_OF, from_stored, to_stored
from orchestrator.ledger.snapshot import from_plain, to_plain
from orchestrator.ledger.state import State
from tests.controller.invariants import check_state
from tests.ledger.stories import story

ROOT = Path(__file__).parents[2]


def everything(state: State) -> Any:
    """Records and indexes; scopes that count nothing are left out, since a snapshot does not know them."""
    capacity = {
        name: (row, state.capacity.pool_of[row], state.capacity.at(name), state.capacity.shares_of(name))
        for row, name in enumerate(state.capacity.names)
    }
    used = {
        name: (scope.parent, scope.ceilings, scope.used)
        for name, scope in state.limits.scopes.items()
        if scope.used
    }
    classes = {key: found.waiting for key, found in state.classes.items()}
    holders = {name: (node.holders, node.sharers) for name, node in state.nodes.items()}
    dependencies = (state.blocked, state.dependents, state.doomed, state.lines)
    indexes = (capacity, used, state.ports, classes, holders, state.instances, *dependencies)
    return json.dumps(to_plain(state), sort_keys=True), *indexes


@pytest.mark.property
@settings(max_examples=60)
@given(seed=st.integers(0, 10**9), length=st.integers(1, 120))
def test_snapshot_and_tail_are_the_whole_fold_at_every_cut(seed: int, length: int) -> None:
    told = story(seed, length)
    check_state(told.state)
    wanted = everything(told.state)
    stored = [to_stored(event) for event in told.events]
    whole = State()
    for cut, each in enumerate(stored):
        apply(whole, from_stored(each))
        if cut % 7 != seed % 7:
            continue
        rest = from_plain(json.loads(json.dumps(to_plain(whole))))
        for later in stored[cut + 1 :]:
            apply(rest, from_stored(later._replace(body=json.loads(json.dumps(later.body)))))
        assert everything(rest) == wanted, f"cut after event {cut + 1}"
    assert everything(whole) == wanted


def test_the_stories_reach_every_kind_of_event() -> None:
    seen = {type(event.body) for seed in range(40) for event in story(seed, 150).events}
    assert seen == set(TYPE_OF)


@pytest.mark.system
def test_the_same_bytes_under_two_hash_seeds() -> None:
    """Order must never come from a set or a hash: a replay would differ."""
    texts = []
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.ledger.stories", "7", "400"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        texts.append(done.stdout)
    assert texts[0] == texts[1] == json.dumps(to_plain(story(7, 400).state))
