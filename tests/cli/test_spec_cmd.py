"""`validate` and `init`: the fixed envelope, several files, annotations; copies that overwrite nothing."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import bundled
from orchestrator.cli.spec_cmd import renamed
from tests.cli.conftest import Said

Run = Callable[..., Said]

GOOD = """apiVersion: gangline/v1
kind: Cluster
metadata: {name: lab}
sites: [{name: here, kind: local}]
pools: [{name: p, site: here, nodes: "n[1-2]"}]
"""
BAD = GOOD.replace("nodes:", "gpuz: 4, nodes:")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    return tmp_path


def test_a_valid_file(folder: Path, gangline: Run) -> None:
    assert gangline("validate", "good.yaml") == (0, "good.yaml: valid\n", "")


def test_json_is_the_fixed_envelope(folder: Path, gangline: Run) -> None:
    said = gangline("validate", "bad.yaml", "-o", "json")

    assert (said.code, said.err) == (2, "")
    found = json.loads(said.out)
    assert {key: found[key] for key in ("apiVersion", "kind", "valid")} == {
        "apiVersion": "gangline/v1",
        "kind": "ValidationResult",
        "valid": False,
    }
    assert set(found) == {"apiVersion", "kind", "valid", "errors"}
    for error in found["errors"]:
        assert list(error) == ["file", "line", "column", "path", "code", "message", "hint"]
    first = found["errors"][0]
    assert (first["file"], first["line"], first["column"], first["code"]) == (
        "bad.yaml",
        5,
        31,
        "spec.unknown-field",
    )


def test_json_of_a_valid_file(folder: Path, gangline: Run) -> None:
    assert json.loads(gangline("validate", "good.yaml", "-o", "json").out) == {
        "apiVersion": "gangline/v1",
        "kind": "ValidationResult",
        "valid": True,
        "errors": [],
    }


def test_text_has_place_caret_and_hint(folder: Path, gangline: Run) -> None:
    said = gangline("validate", "bad.yaml")

    assert said.code == 2
    assert said.out.split("\n") == [
        "bad.yaml:5:31: pools[p].gpuz: unknown field [spec.unknown-field]",
        '  5 | pools: [{name: p, site: here, gpuz: 4, nodes: "n[1-2]"}]',
        "    |                               ^^^^",
        "  hint: did you mean 'gpu'?",
        "",
    ]
    assert "1 error in 1 file" in said.err


def test_several_files_are_one_result(folder: Path, gangline: Run) -> None:
    said = gangline("validate", "good.yaml", "bad.yaml", "missing.yaml", "-o", "json")

    assert said.code == 2
    assert {error["file"] for error in json.loads(said.out)["errors"]} == {"bad.yaml", "missing.yaml"}


def test_github_annotations(folder: Path, gangline: Run) -> None:
    said = gangline("validate", "bad.yaml", "-o", "github")

    assert said.out.split("\n")[0] == (
        "::error file=bad.yaml,line=5,col=31,title=spec.unknown-field::"
        "pools[p].gpuz: unknown field. did you mean 'gpu'?"
    )


def test_standard_input(folder: Path, gangline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    assert "<stdin>:5:31:" in gangline("validate", "-").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert "spec.not-utf8" in gangline("validate", "-").out


@pytest.mark.parametrize("example", ["local-demo", "atlas"])
def test_init_copies_an_example_that_is_valid_under_its_new_name(
    folder: Path, gangline: Run, example: str
) -> None:
    said = gangline("init", "mine", "--example", example)

    assert said.code == 0
    assert "mine/cluster.yaml" in said.out.splitlines()
    sources = {path.name for path in bundled.find("inventories", example).iterdir()}
    assert {path.name for path in (folder / "mine").iterdir()} == sources
    assert "name: mine" in (folder / "mine" / "cluster.yaml").read_text()
    for name in said.out.splitlines():
        if name.endswith(("cluster.yaml", "job.yaml")):
            assert gangline("validate", name).code == 0


def test_init_overwrites_nothing(folder: Path, gangline: Run) -> None:
    (folder / "mine").mkdir()

    said = gangline("init", "mine")

    assert said.code == 1
    assert "init.exists" in said.err
    assert list((folder / "mine").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["init", "Bad_Name"], "init.bad-name"), (["init", "x", "--example", "moon"], "init.no-example")],
)
def test_init_refuses(folder: Path, gangline: Run, arguments: list[str], code: str) -> None:
    said = gangline(*arguments)

    assert said.code == 2
    assert code in said.err


def test_init_list(folder: Path, gangline: Run) -> None:
    assert {"atlas", "local-demo"} <= set(gangline("init", "--list").out.split())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("metadata: {name: old, timezone: UTC}\n", "metadata: {name: new, timezone: UTC}\n"),
        ("metadata:\n  name: old\n", "metadata:\n  name: new\n"),
        ("metadata: {name: older}\n", "metadata: {name: older}\n"),
        ("pools: [{name: old}]\n", "pools: [{name: old}]\n"),
    ],
)
def test_only_the_clusters_own_name_changes(text: str, wanted: str) -> None:
    assert renamed(text, "old", "new") == wanted
