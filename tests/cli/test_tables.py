"""Tables: their layout to the column, what is cut and what never is."""

from __future__ import annotations

from orchestrator.cli.tables import Cell, Head, render
from orchestrator.cli.text import width

HEADS = [Head("ID", right=True), Head("NAME", cut=True), Head("STATE"), Head("GPUS", right=True)]
ROWS = [
    [Cell("7"), Cell("train"), Cell("running", "ok"), Cell("16")],
    [Cell("1234"), Cell("a-name-that-is-much-longer-than-others"), Cell("failed", "bad"), Cell("8")],
]


def test_numbers_are_right_names_are_left_two_spaces_between() -> None:
    assert render(HEADS, ROWS) == [
        "  ID  NAME                                    STATE    GPUS",
        "   7  train                                   running    16",
        "1234  a-name-that-is-much-longer-than-others  failed      8",
    ]


def test_a_narrow_terminal_cuts_names_in_the_middle_and_nothing_else() -> None:
    lines = render(HEADS, ROWS, most=40)

    assert lines == [
        "  ID  NAME                 STATE    GPUS",
        "   7  train                running    16",
        "1234  a-name-th…an-others  failed      8",
    ]
    assert {width(line) for line in lines} == {40}


def test_what_can_not_be_cut_is_left_whole() -> None:
    assert render(HEADS, ROWS, most=10)[2] == "1234  a-n…rs  failed      8"


def test_colours_paint_the_state_and_do_not_move_columns() -> None:
    plain = render(HEADS, ROWS)
    painted = render(HEADS, ROWS, colors=True)

    assert painted[1] == plain[1].replace("running", "\x1b[32mrunning\x1b[0m")
    assert [
        line.replace("\x1b[32m", "").replace("\x1b[31m", "").replace("\x1b[0m", "") for line in painted
    ] == plain


def test_glyphs_stand_before_states() -> None:
    assert [line[8:] for line in render(HEADS[2:3], [row[2:3] for row in ROWS], glyphs=True)] == ["", "g", ""]
    assert render(HEADS[2:3], [row[2:3] for row in ROWS], glyphs=True)[1:] == ["● running", "✗ failed"]


def test_no_headers() -> None:
    assert render(HEADS[:1], [[Cell("7")]], headers=False) == ["7"]


def test_control_characters_are_shown_not_obeyed() -> None:
    assert render([Head("NAME")], [[Cell("a\x1b[2Jb")]])[1] == "a\\x1b[2Jb"


def test_wide_characters_take_two_columns() -> None:
    lines = render(
        [Head("NAME", cut=True), Head("X")], [[Cell("漢字"), Cell("1")], [Cell("abcd"), Cell("2")]]
    )

    assert lines[1:] == ["漢字  1", "abcd  2"]
