"""Failpoints: the process dies by SIGKILL at the count that was asked for, and every name is a place in the code."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import orchestrator
from orchestrator.model import failpoints

ROOT = Path(orchestrator.__file__).parent
PASSES = """
from orchestrator.model.failpoints import failpoint
for number in range(5):
    failpoint("agent.unit.after")
    print(number, flush=True)
    failpoint("agent.prepare.before")
"""


def run(armed: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GANGLINE_FAILPOINT": armed, "PYTHONPATH": str(ROOT.parent)}
    return subprocess.run(
        [sys.executable, "-c", PASSES],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.system
@pytest.mark.parametrize(
    ("armed", "printed"),
    [
        ("agent.unit.after", []),
        ("agent.unit.after:1", []),
        ("agent.unit.after:3", ["0", "1"]),
        ("agent.prepare.before", ["0"]),
        ("agent.prepare.before:2, agent.unit.after:4", ["0", "1"]),
    ],
)
def test_it_dies_at_the_count(armed: str, printed: list[str]) -> None:
    done = run(armed)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == printed


@pytest.mark.system
@pytest.mark.parametrize("armed", ["", "agent.unit.after:6", "shepherd.spawn.before"])
def test_it_lives_where_nothing_is_reached(armed: str) -> None:
    done = run(armed)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "1", "2", "3", "4"])


@pytest.mark.system
@pytest.mark.parametrize(
    "armed", ["agent.unti.after", *(f"agent.unit.after:{count}" for count in ("x", 0, -1))]
)
def test_a_name_or_count_that_can_never_be_hit_is_refused_at_once(armed: str) -> None:
    """A kill test with a typing error would pass without a kill."""
    done = run(armed)
    assert done.returncode == 1
    assert f"GANGLINE_FAILPOINT: {armed!r}" in done.stderr


def passed() -> Counter[str]:
    """Every literal name in the code, and how often it stands there."""
    found: Counter[str] = Counter()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "failpoint":
                assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}: a literal name"
                found[str(node.args[0].value)] += 1
    return found


def test_every_name_stands_in_the_code_and_the_other_way_round() -> None:
    assert set(passed()) == set(failpoints.NAMES)


def test_names_say_room_step_and_side() -> None:
    assert all(name.count(".") == 2 and words for name, words in failpoints.NAMES.items())
