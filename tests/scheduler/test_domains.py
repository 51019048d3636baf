"""A gang's nodes, against a plain reading of the rule: the tightest domain that holds it, in it whole inner domains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.scheduler.domains import Candidates, choose

Given = dict[int, int]  # row -> units
NOWHERE = -1


def rooms(units: Given, of: Sequence[int]) -> dict[int, int]:
    """Units by domain."""
    found: dict[int, int] = {}
    for row, count in units.items():
        found[of[row]] = found.get(of[row], 0) + count
    return found


def within(units: Given, wanted: int, levels: Sequence[Sequence[int]]) -> Given:
    """Whole inner domains, the largest first, then the one that is nearest in size to what is left. Rows that are in no
    domain are one together, after all others."""
    if len(units) == 1:
        return dict.fromkeys(units, wanted)
    of = [domain if domain != NOWHERE else len(units) + max(levels[-1]) for domain in levels[-1]]
    found: Given = {}
    by_size = sorted(rooms(units, of).items(), key=lambda pair: (-pair[1], pair[0]))
    for at, (domain, size) in enumerate(by_size):
        left = wanted - sum(found.values())
        if size >= left:
            tight = min((room, number) for number, room in by_size[at:] if room >= left)[1]
            inner = {row: count for row, count in units.items() if of[row] == tight}
            return found | within(inner, left, levels[:-1])
        found |= {row: count for row, count in units.items() if of[row] == domain}
    raise AssertionError("the caller saw to it that there is room")


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Given, int, list[list[int]]]:
    """Units of some rows, how many are wanted, and levels from nodes outwards, with rows that are in no domain."""
    rows = draw(st.integers(1, 24))
    most = draw(st.sampled_from([1, 3]))
    free = draw(st.lists(st.integers(0, most), min_size=rows, max_size=rows))
    units = {row: count for row, count in enumerate(free) if count}
    levels = [list(range(rows))]
    for size in draw(st.sampled_from([(), (3,), (2, 8)])):
        out = draw(st.sets(st.integers(0, rows - 1), max_size=3))
        levels.append([NOWHERE if row in out else row // size for row in range(rows)])
    return units, draw(st.integers(1, 12)), levels


@pytest.mark.property
@given(scene=scenes(), data=st.data())
def test_a_gang_takes_the_tightest_domain_and_in_it_whole_inner_ones(
    scene: tuple[Given, int, list[list[int]]], data: st.DataObject
) -> None:
    units, wanted, levels = scene
    first = data.draw(st.integers(0, len(levels) - 1))
    last = data.draw(st.integers(first, len(levels)))
    rows = np.array(list(units), np.int64)
    candidates = Candidates(rows, np.array(list(units.values()), np.int64), np.zeros(len(rows), np.int32))

    found = choose(candidates, wanted, tuple(np.array(of, np.int32) for of in levels), first, last)

    assert (None if found is None else dict(zip(found.rows.tolist(), found.units.tolist(), strict=True))) == (
        plain(units, wanted, levels, first, last)
    )


def plain(units: Given, wanted: int, levels: list[list[int]], first: int, last: int) -> Given | None:
    """The first level with a domain that holds all decides; past the last one, anywhere."""
    for level in range(first, min(last + 1, len(levels))):
        sizes = {domain: room for domain, room in rooms(units, levels[level]).items() if domain != NOWHERE}
        holding = [(room, domain) for domain, room in sizes.items() if room >= wanted]
        if holding:
            best = min(holding)[1]
            inner = {row: count for row, count in units.items() if levels[level][row] == best}
            return within(inner, wanted, levels[:level]) if level else dict.fromkeys(inner, wanted)
    if last < len(levels) or sum(units.values()) < wanted:
        return None
    return within(units, wanted, levels)
