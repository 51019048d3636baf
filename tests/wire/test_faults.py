"""The registry of faults: complete, used, and worded as people need it."""

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

import pytest

from orchestrator.wire import faults

ROOMS = [Path(faults.__file__).parent, Path(faults.__file__).parents[1] / "spec"]
CODE = re.compile(r"(spec|job)\.[a-z0-9]+(-[a-z0-9]+)*")


def used_codes() -> set[str]:
    """The codes that the two rooms report, which are arguments of calls."""
    found: set[str] = set()
    for room in ROOMS:
        for path in room.glob("*.py"):
            if path.name == "faults.py" or path.name.startswith("api"):  # the API's own codes are its own
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    found |= {
                        argument.value
                        for argument in node.args
                        if isinstance(argument, ast.Constant)
                        and isinstance(argument.value, str)
                        and CODE.fullmatch(argument.value)
                    }
    return found


def test_every_reported_code_is_registered_and_every_registered_one_reported() -> None:
    used = used_codes()
    assert used <= set(faults.FAULTS)
    assert set(faults.FAULTS) <= used


@pytest.mark.parametrize("fault", faults.FAULTS.values(), ids=faults.FAULTS)
def test_sentences_fit_into_a_line_of_an_error(fault: faults.Fault) -> None:
    assert CODE.fullmatch(fault.code)
    assert fault.sentence
    assert fault.hint
    assert not fault.sentence.endswith(".")
    assert not fault.hint.endswith(".")
    fields = {name for _, name, _, _ in string.Formatter().parse(fault.sentence + fault.hint) if name}
    assert all(name.isidentifier() for name in fields)


def test_a_sentence_without_one_of_its_values_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        faults.problem("spec.bad-name")


@pytest.mark.parametrize(
    ("word", "known", "wanted"),
    [
        ("gpuz", ["gpu", "cores"], "did you mean 'gpu'?"),
        ("GPU", ["gpu", "cores"], "did you mean 'gpu'?"),
        ("time-limit", ["time_limit"], "did you mean 'time_limit'?"),
        ("num_workers", ["nodes", "name", "site"], ""),
        ("x", ["a", "b"], ""),
        ("", ["a"], ""),
        ("y" * 10_000, ["yyy"], ""),
    ],
)
def test_a_word_is_suggested_only_if_it_is_near(word: str, known: list[str], wanted: str) -> None:
    assert faults.did_you_mean(word, known) == wanted


def test_without_a_near_word_the_known_ones_are_listed_shortly() -> None:
    assert faults.suggestion("zz", [], "pool") == "no pool is defined"
    assert faults.suggestion("zz", ["aaa", "bbb"], "pool") == "known: aaa, bbb"
    assert faults.suggestion("zz", [f"pool{n}" for n in range(20)], "pool").endswith("pool7, …")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("a", "'a'"),
        ("a\x1b[0m\n", "'a\\x1b[0m\\x0a'"),
        ("\u202e", "'\\u202e'"),
        ("\U000e0001", "'\\U000e0001'"),
        (None, "null"),
        (True, "true"),
        (5, "the number 5"),
        (10**500, "the number of more than 77 digits"),
        ([], "a list"),
        ({}, "a mapping"),
        ("x" * 100, "'" + "x" * 59 + "…'"),
    ],
)
def test_values_are_shown_shortly_and_safely(value: object, wanted: str) -> None:
    assert faults.shown(value) == wanted
