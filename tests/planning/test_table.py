"""The table of plans: what was recorded and seen, what is wanted, and what is said and done about it.

Comes in: the scenes of `table_*.py`. Goes out: proof that each plan is the one that stands there, and that together
they show every class, source, kind of step and fate of work.
"""

from __future__ import annotations

import re

import pytest

from orchestrator.model.change import ChangeKind, Source, StepKind, UpdateClass, WorkFate
from tests.planning import (
    table_coming,
    table_controller,
    table_drains,
    table_drift,
    table_gangline,
    table_hosts,
    table_limits,
    table_refused,
    table_work,
)
from tests.planning.scene import Scene, dedent, told
from tests.planning.test_stacks import SCENES as STACKS

TABLES = (
    table_controller,
    table_hosts,
    table_drains,
    table_coming,
    table_refused,
    table_drift,
    table_gangline,
    table_work,
    table_limits,
)
SCENES = [scene for table in TABLES for scene in table.SCENES]


@pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
def test_the_plan_is(scene: Scene) -> None:
    assert told(scene.plan()) == dedent(scene.want)


def test_the_table_is_large_and_shows_everything() -> None:
    said = "\n".join(dedent(scene.want) for scene in (*SCENES, *STACKS))

    assert len(SCENES) >= 100
    assert len({scene.name for scene in SCENES}) == len(SCENES)
    assert [cls for cls in UpdateClass if f"[{cls}]" not in said] == []
    assert [source for source in Source if source is not Source.SPEC and f"({source})" not in said] == []
    assert [kind for kind in StepKind if not re.search(rf"^\S+: .*\b{kind}\b", said, re.MULTILINE)] == []
    assert [fate for fate in WorkFate if not re.search(rf"^job \d+ {fate}\b", said, re.MULTILINE)] == []


def test_kinds_follow_from_what_is_absent() -> None:
    for scene in SCENES:
        for change in scene.plan().changes:
            if change.source is not Source.SPEC:
                continue
            wanted = ChangeKind.CHANGED
            if not change.old or not change.new:
                wanted = ChangeKind.ADDED if change.new else ChangeKind.REMOVED
            assert change.kind is wanted, f"{scene.name}: {change.path}"
