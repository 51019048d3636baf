"""Reasons: every code has a maker, every maker gives what its sentence needs, and no sentence has a hole."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import NamedTuple

import pytest

import orchestrator
from orchestrator.ledger.limits import LimitTree
from orchestrator.ledger.state import State
from orchestrator.model.reasons import DIMENSIONS, WORDS, Reason, Wording, dimension_words, reason
from tests.builders import cluster, pool, queue

ROOT = Path(orchestrator.__file__).parent
CATEGORIES = {"order", "capacity", "nodes", "limit", "hold", "dependency", "controller", "refusal"}


class Made(NamedTuple):
    """One call of `reason("...", ...)` in the code."""

    place: str
    code: str
    facts: frozenset[str]


def makers() -> Iterator[Made]:
    """Every literal call; a `**name` is looked up among the dicts that the same function writes out."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if "reason(" not in text:  # nine files of ten, and each process reads them all
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef):
                yield from _makers_in(path, function)


def _makers_in(path: Path, function: ast.FunctionDef) -> Iterator[Made]:
    dicts: dict[str, set[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                dicts[target.id] = {
                    str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)
                }
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reason"):
            continue
        if not node.args or not isinstance(node.args[0], ast.Constant):
            continue  # another function of that name
        facts: set[str] = set()
        for keyword in node.keywords:
            if keyword.arg is not None:
                facts.add(keyword.arg)
            else:
                assert isinstance(keyword.value, ast.Name), f"{path}:{node.lineno}: name the dict"
                facts |= dicts[keyword.value.id]
        place = f"{path.relative_to(ROOT)}:{node.lineno}"
        yield Made(place, str(node.args[0].value), frozenset(facts))


MAKERS = list(makers())


def braces(wording: Wording) -> set[str]:
    """Names of facts in the sentence and the action; `each` is made of several."""
    names = {
        name
        for text in (wording.sentence, wording.action)
        for _, name, _, _ in Formatter().parse(text)
        if name
    }
    return names - {"each"} | ({"gpus", "cores", "memory"} if "each" in names else set())


def test_makers_are_found() -> None:
    assert len(MAKERS) >= 20


def test_every_code_is_made_somewhere_and_every_made_code_has_words() -> None:
    assert {made.code for made in MAKERS} == set(WORDS)


@pytest.mark.parametrize("made", MAKERS, ids=lambda made: f"{made.code} at {made.place}")
def test_a_maker_gives_what_the_words_need(made: Made) -> None:
    assert braces(WORDS[made.code]) <= made.facts
    unsaid = made.facts - braces(WORDS[made.code]) - {"pool"}  # explain looks blockers up by the pool
    assert not unsaid, f"facts that no sentence says: {unsaid}"


@pytest.mark.parametrize("code", WORDS)
def test_the_words_render_with_those_facts(code: str) -> None:
    facts: dict[str, str | int] = {name: f"<{name}>" for name in braces(WORDS[code])}
    made = reason(code, **facts)
    said = made.sentence() + made.action()
    assert all(str(value) in said for value in facts.values())
    assert "{" not in said
    assert WORDS[code].category in CATEGORIES
    assert made.sentence()
    assert made.action()
    assert not made.sentence().endswith((".", "!"))
    assert code.split(".", maxsplit=1)[0] in {"wait", "never", "lost", "end"}
    assert (code.split(".", maxsplit=1)[0] == "never") == (WORDS[code].category == "refusal")


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(KeyError, match=r"wait\.nothing"):
        reason("wait.nothing")


def test_facts_are_found_by_name() -> None:
    made = reason("wait.order", pool="p", ahead=3)
    assert (made.fact("pool"), made.fact("ahead"), made.fact("other")) == ("p", 3, None)
    assert made == Reason("wait.order", (("pool", "p"), ("ahead", 3)))


def test_every_dimension_that_the_limit_tree_can_bind_has_words() -> None:
    limits = {"max_running_jobs": 1, "max_jobs_per_user": 1, "max_gpus_per_user": 1}
    state = State(cluster=cluster(pool("p"), queues=(queue("default", **limits),)))
    state.index_limits()
    assert isinstance(state.limits, LimitTree)
    found = {name for scope in state.limits.scopes.values() for name in scope.ceilings}
    assert found == {"jobs"}
    assert all(dimension_words(name) for name in (*found, *DIMENSIONS, "gpus@p"))
    assert dimension_words("gpus@h100") == "GPU(s) of pool h100"
    assert dimension_words("gpus") == "GPU(s)"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"gpus": 2, "cores": 0, "memory": 0}, "1 task(s) with 2 GPU(s) each"),
        (
            {"gpus": "0.3", "cores": 4, "memory": 3 << 30},
            "1 task(s) with 0.3 GPU(s), 4 core(s), 3GiB of memory each",
        ),
        ({"gpus": 0, "cores": 0, "memory": 1 << 20}, "1 task(s) with 1MiB of memory each"),
        ({"gpus": 0, "cores": 0, "memory": 0}, "1 task(s) with nothing of its own each"),
    ],
)
def test_what_a_task_does_not_ask_for_is_not_said(facts: dict[str, str | int], words: str) -> None:
    assert words in reason("never.tasks", tasks=1, most=0, **facts).sentence()
