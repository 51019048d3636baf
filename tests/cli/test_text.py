"""Numbers, times and names as people see them; nothing that others named drives the terminal."""

from __future__ import annotations

import sys
import unicodedata
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli import text
from orchestrator.cli.session import note
from tests.cli.fakes import NOW


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (185, "3m05s"),
        (3600, "1h00m"),
        (86399, "23h59m"),
        (273600, "3d4h"),
        (-5, "0s"),
    ],
)
def test_span(seconds: float, shown: str) -> None:
    assert text.span(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "-"),
        (512, "512B"),
        (960 << 30, "960GiB"),
        (1536 << 30, "1.5TiB"),
        (25247981568, "23.5GiB"),
        (1 << 60, "1024PiB"),
    ],
)
def test_size(count: int, shown: str) -> None:
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain", "plain"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("two\nlines\t", "two\\nlines\\t"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202edef", "abc\\u202edef"),
        ("häuser 漢字", "häuser 漢字"),
    ],
)
def test_safe(name: str, shown: str) -> None:
    assert text.safe(name) == shown


def test_no_format_character_reaches_a_terminal() -> None:
    """They reorder what follows, or hide: U+061C and U+200B as well as the well-known ones."""
    every = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    acting = [char for char in every if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")]

    assert [char for char in acting if char in text.safe(char)] == []


@given(st.text())
def test_safe_text_holds_no_control_character(name: str) -> None:
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in text.safe(name))


def test_safe_lines_keeps_lines_and_tabs() -> None:
    assert text.safe_lines("a\tb\n\x1bc\n") == "a\tb\n\\x1bc\n"


@given(st.text(), st.integers(0, 40))
def test_middle_is_never_wider_than_asked(name: str, most: int) -> None:
    cut = text.middle(name, most)

    assert text.width(cut) <= most or (cut == name and text.width(name) <= most)


def test_middle_keeps_both_ends() -> None:
    assert text.middle("pretrain-7b-final-v7", 12) == "pretra…al-v7"


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n1", "n2", "n3", "n7"], "n[1-3,7]"),
        (["h100-01", "h100-02", "h100-10"], "h100-[01-02,10]"),
        (["n1", "n2", "gate"], "gate,n[1-2]"),
        (["a1", "b1"], "a1,b1"),
        (["n9", "n10"], "n[9-10]"),
        (["n10", "n9", "n2", "n2"], "n[2,9-10]"),
        (["n09", "n10", "n8"], "n[8,09-10]"),
        (["b2", "a1", "b1", "a2"], "a[1-2],b[1-2]"),
    ],
)
def test_fold_names(names: list[str], shown: str) -> None:
    assert text.fold_names(names) == shown


@given(st.lists(st.integers(0, 200), max_size=30))
def test_fold_names_the_same_numbers(numbers: list[int]) -> None:
    found: set[int] = set()
    for part in filter(None, text.fold(numbers).split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))

    assert found == set(numbers)


def test_times() -> None:
    assert text.ago(NOW - timedelta(minutes=3), NOW) == "3m00s"
    assert text.ago(None, NOW) == text.left(None, NOW) == text.instant(None) == "-"
    assert text.left(NOW + timedelta(hours=2), NOW) == "2h00m"
    assert text.instant(NOW) == "2026-11-30T12:00:00Z"


def test_emulated_gpus_are_called_that() -> None:
    assert text.fold_models([("H100", True), ("H100", True), ("emulated", True)]) == "emulated H100, emulated"
    assert text.fold_models([("H100", False)]) == "H100"


def test_a_note_does_not_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Hosts' words and commits of records end up in notes."""
    note("h1: \x1b]0;owned\x07\u202e\nnext\tline")
    assert capsys.readouterr().err == "h1: \\x1b]0;owned\\x07\\u202e\nnext\tline\n"


def test_a_line_that_is_too_wide_is_broken_between_words() -> None:
    said = "steps:\n  pool h100 batch 1: cordon, drain, configure (base+agent), accept: h100-[01-04]"
    assert text.fitted(said, 0) == said
    assert text.fitted(said, 50).splitlines() == [
        "steps:",
        "  pool h100 batch 1: cordon, drain, configure",
        "        (base+agent), accept: h100-[01-04]",
    ]
    assert all(len(line) <= 50 for line in text.fitted(said, 50).splitlines())
