"""Slurm's notation of arrays and dependencies, as a document says it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.cli.slurm_words import array_of, dependencies_of
from orchestrator.model.errors import InputError


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0-99", {"tasks": "0-99"}),
        ("0-99%4", {"tasks": "0-99", "at_most": 4}),
        ("1,5,7-9:2%10", {"tasks": "1,5,7-9:2", "at_most": 10}),
    ],
)
def test_arrays(text: str, wanted: dict[str, Any]) -> None:
    assert array_of(text) == wanted


@pytest.mark.parametrize("text", ["0-9%", "0-9%0", "0-9%x", "0-9%4%2", "0-9%-1"])
def test_a_throttle_is_a_number(text: str) -> None:
    with pytest.raises(InputError, match="has no number of tasks after its %"):
        array_of(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("afterok:12", {"depends_on": [{"job": 12, "on": "ok"}]}),
        (
            "afterok:12:13_7,afterany:14",
            {
                "depends_on": [
                    {"job": 12, "on": "ok"},
                    {"job": "13_7", "on": "ok"},
                    {"job": 14, "on": "end"},
                ]
            },
        ),
        ("after:1,afternotok:2", {"depends_on": [{"job": 1, "on": "start"}, {"job": 2, "on": "failed"}]}),
        ("singleton", {"singleton": True}),
        ("singleton,afterany:3", {"singleton": True, "depends_on": [{"job": 3, "on": "end"}]}),
    ],
)
def test_dependencies(text: str, wanted: dict[str, Any]) -> None:
    assert dependencies_of(text) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("afterok:1?afterok:2", "alternatives"),
        ("aftercorr:1", "there is no dependency 'aftercorr'"),
        ("afterok", "'afterok' names no job"),
        ("afterok:", "'afterok:' names no job"),
        ("afterok:x", "'afterok:x' names no job"),
        ("after:12+5", "'12\\+5' asks for a delay"),
        ("", "there is no dependency ''"),
        ("afterok:1,", "there is no dependency ''"),
    ],
)
def test_what_there_is_not_is_refused_with_a_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        dependencies_of(text)
    assert caught.value.hint
