"""Every format of a list: the same items, an envelope for programs, YAML that both rule sets read alike."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.job_words import listing
from orchestrator.cli.output import document, to_json, to_yaml
from orchestrator.cli.session import Session
from orchestrator.spec.tree import read_tree
from tests.cli.fakes import NOW, ago, reason, summary

JOBS = [
    summary(3, "waiting", reason=reason(), node_names=[], name="big|one"),
    summary(2, "running"),
    summary(1, "failed", exit_code=1, ended_at=ago(0), started_at=ago(60), why="rank 3 failed", owner="bob"),
]


def shown(form: str, headers: bool = True) -> str:
    return listing(NOW).text(JOBS, Session(output=form, headers=headers))


def test_table() -> None:
    assert shown("table").split("\n") == [
        "ID  NAME     USER   QUEUE    STATE    GPUS  RANKS    TIME  NODES(WHY)",
        " 3  big|one  alice  default  waiting    16     16  10m00s  (wait.gpus)",
        " 2  train    alice  default  running    16     16   3m05s  n[1-2]",
        " 1  train    bob    default  failed     16     16   1m00s  exit 1",
    ]


def test_no_headers() -> None:
    assert (
        shown("table", headers=False).split("\n")[0]
        == "3  big|one  alice  default  waiting  16  16  10m00s  (wait.gpus)"
    )


def test_wide_has_more_columns_and_the_reason_in_words() -> None:
    lines = shown("wide").split("\n")

    assert "PRIORITY" in lines[0]
    assert lines[1].endswith("it needs 4 node(s) with 8 free GPU(s) each; 2 of 4 have them")
    assert lines[3].endswith("rank 3 failed")


def test_name() -> None:
    assert shown("name") == "3\n2\n1"


def test_markdown_escapes_what_would_end_a_cell() -> None:
    lines = shown("markdown").split("\n")

    assert lines[0].startswith("| ID | NAME |")
    assert lines[1].startswith("| ---: | --- |")
    assert "big\\|one" in lines[2]


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_documents_have_the_envelope_and_all_items(form: str, read: object) -> None:
    found = read(shown(form))  # type: ignore[operator]

    assert (found["apiVersion"], found["kind"]) == ("gangline/v1", "JobList")
    assert [item["id"] for item in found["items"]] == [3, 2, 1]
    assert found["items"][0]["reason"]["code"] == "wait.gpus"
    assert found["items"][1]["ended_at"] is None
    assert found["items"][1]["submitted_at"] == "2026-11-30T11:50:00Z"


def test_an_empty_document_is_a_document() -> None:
    assert json.loads(listing(NOW).text([], Session(output="json")))["items"] == []


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), TREES, max_size=4))
def test_yaml_reads_back_under_the_rules_of_1_1(value: dict[str, object]) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "22:30",
        "1e3",
        "0o17",
        "~",
        "2026-11-30",
        "",
        " a",
        "a: b",
        "#x",
        "y",
        "-",
        "null",
        "0x1F",
        "1_000",
    ],
)
def test_yaml_texts_stay_texts_under_the_rules_of_1_2(text: str) -> None:
    root = read_tree(to_yaml({"key": text})).root

    assert root is not None
    assert root.value == {"key": text}


@given(st.text())
def test_json_shows_no_control_character_and_reads_back(text: str) -> None:
    made = to_json({"name": text})

    assert json.loads(made) == {"name": text}
    assert not any(0x7F <= ord(char) < 0xA0 or (ord(char) < 32 and char != "\n") for char in made)


def test_document_chooses_the_form() -> None:
    assert document({"a": 1}, "yaml") == "a: 1"
    assert json.loads(document({"a": 1}, "json")) == {"a": 1}


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_documents_hold_no_character_that_acts_on_a_terminal(form: str) -> None:
    loud = {"name": "a\u202eb\u061c\u200b\x9b31m\x7f\U000e0041c"}

    written = document(loud, form)

    assert written.isascii()
    assert (json.loads(written) if form == "json" else yaml.safe_load(written)) == loud
