"""Node patterns: what they stand for, what is refused, and that folding and expanding are inverse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.wire.hostlist import MOST_NODES, HostlistError, expand, fold


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("head", ["head"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[01-03]", ["n01", "n02", "n03"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[98-101]", ["n98", "n99", "n100", "n101"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("n[99-101]", ["n99", "n100", "n101"]),
        ("n[0-2]", ["n0", "n1", "n2"]),
        ("n[01-16,20]", [*(f"n{n:02}" for n in range(1, 17)), "n20"]),
        ("a[1-2],b, c[5]", ["a1", "a2", "b", "c5"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("n[1-2].example.org", ["n1.example.org", "n2.example.org"]),
        ("n[7]", ["n7"]),
        ("[1-2]n", ["1n", "2n"]),
    ],
)
def test_patterns_stand_for_names_in_order(text: str, wanted: list[str]) -> None:
    assert expand(text) == wanted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("a,,b", "missing"),
        ("a,", "missing"),
        ("n[", "not closed"),
        ("n]", "does not match"),
        ("n[[1]]", "does not match"),
        ("n[]", "not made of numbers"),
        ("n[1-]", "not made of numbers"),
        ("n[a-c]", "not made of numbers"),
        ("n[1:3]", "not made of numbers"),
        ("n[-1]", "not made of numbers"),
        ("n[3-1]", "backwards"),
        ("n[1-03]", "mixes widths"),
        ("n[001-02]", "mixes widths"),
        ("n[1-2],n2", "twice"),
        ("n[1,1]", "twice"),
        ("n[0-999999999]", "more than"),
        ("n[0-9999999999]", "not made of numbers"),
        (f"n[1-{MOST_NODES + 1}]", "more than"),
        (f"n[1-{MOST_NODES}],m", "more than"),
        ("n[1-999][1-999]", "more than"),
        ("n[0-9]" + "[0-9]" * 400, "more than"),
        ("a b", "letters"),
        ("-a", "letters"),
        ("a_", "letters"),
        ("../../etc", "letters"),
        ("a" * 254, "characters"),
        ("a," * 600_000, "longer"),
    ],
)
def test_what_is_no_pattern_has_a_reason(text: str, reason: str) -> None:
    with pytest.raises(HostlistError, match=reason):
        expand(text)


def test_the_largest_pattern_is_allowed() -> None:
    assert len(expand(f"n[1-{MOST_NODES}]")) == MOST_NODES


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ([], ""),
        (["a"], "a"),
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n01", "n02", "n04"], "n[01-02,04]"),
        (["n9", "n10"], "n[9-10]"),
        (["n09", "n10"], "n[09-10]"),
        (["n099", "n100"], "n[099-100]"),
        (["n1", "m1", "n2"], "n1,m1,n2"),
        (["n1", "n01"], "n[1,01]"),
        (["n", "n1"], "n,n1"),
        (["n2", "n1"], "n[2,1]"),
        (["n0", "n1"], "n[0-1]"),
        (["n1.a", "n2.a"], "n1.a,n2.a"),
        (["n1234567890", "n1234567891"], "n1234567890,n1234567891"),
    ],
)
def test_folding_is_short_and_keeps_order(names: list[str], wanted: str) -> None:
    assert fold(names) == wanted


NAMES = st.builds(
    lambda prefix, number, width: f"{prefix}{number:0{width}}",
    st.sampled_from(["n", "gpu-", "r1n", "x.y"]),
    st.integers(0, 130),
    st.integers(1, 3),
)


@pytest.mark.property
@given(st.lists(NAMES, min_size=1, max_size=60, unique=True))
def test_expanding_gives_back_what_was_folded(names: list[str]) -> None:
    assert expand(fold(names)) == names


@pytest.mark.property
@given(st.text(alphabet="n01[]-, x.", max_size=30) | st.text(max_size=20))
def test_any_text_is_a_pattern_or_has_a_reason(text: str) -> None:
    names: list[str] = []
    reason = ""
    try:
        names = expand(text)
    except HostlistError as error:
        reason = str(error)
    assert bool(names) != bool(reason)
    if names:
        assert len(set(names)) == len(names)
        assert expand(fold(names)) == names
