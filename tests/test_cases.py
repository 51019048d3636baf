"""Every test that tests/CASES.md names exists: modules, functions and scenes of tables, by reading their syntax."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TEXT = (HERE / "CASES.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`((?:[a-z_]+/)+test_[a-z_0-9]+\.py)::(test_[A-Za-z_0-9]+)(?:\[([^`]+)\])?`")
NAMES = sorted(set(NAMED.findall(TEXT)))


@functools.cache
def read(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The functions and the texts of a module."""
    found = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    functions = frozenset(
        node.name for node in found if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    texts = frozenset(
        node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return functions, texts


def scenes_beside(module: Path) -> frozenset[str]:
    """Texts of a test module and of the tables beside it."""
    return frozenset().union(*(read(path)[1] for path in (module, *module.parent.glob("table_*.py"))))


@pytest.mark.parametrize(("module", "function", "scene"), NAMES)
def test_what_is_named_exists(module: str, function: str, scene: str) -> None:
    path = HERE / module
    assert path.is_file(), f"{module} is not there"
    assert function in read(path)[0], f"{module} has no {function}"
    assert not scene or scene in scenes_beside(path), f"no table has the scene '{scene}'"


def test_each_row_names_its_kind_what_is_done_and_a_test() -> None:
    rows = [
        line for line in TEXT.splitlines() if line.startswith("|") and not line.startswith(("| kind", "|---"))
    ]
    assert len(rows) >= 50
    for row in rows:
        kind, behaviour, tests = (cell.strip() for cell in row.strip("|").split("|"))
        assert kind
        assert behaviour
        assert re.sub(NAMED, "", tests).strip() == "", f"not the name of a test: {tests}"
        assert NAMED.search(tests), f"no test for: {kind}"
    assert len({row.split("|")[1] for row in rows}) == len(rows)
