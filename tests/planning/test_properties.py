"""What holds for every plan: order and format give nothing, what was applied is done, promises are kept on the way.

Comes in: the full document written in many ways, changes put together at random, pools of any size and state. Goes out:
proof of what the issue and DESIGN section 4 promise of plans.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator import catalog, spec
from orchestrator.model.change import ChangeSet, PlanStep, StepKind, UpdateClass
from orchestrator.model.cluster import ClusterSpec, GpuSpec, Pool, Site, SiteKind, Software, Update
from orchestrator.model.host import ItemKind, Sight
from orchestrator.planning.diff import diff
from orchestrator.planning.needs import HEAVY
from orchestrator.planning.plan import plan
from orchestrator.planning.roster import pools_by_node
from orchestrator.planning.world import Choices, NodeNow, Observed, Recorded, Running, Workload
from tests.planning.scene import (
    FULL,
    NOW,
    RESOLVED,
    Scene,
    base,
    document,
    drifted,
    load,
    lost,
    node,
    recorded_desired,
    sight,
)
from tests.planning.test_leaves import TURNS
from tests.planning.test_table import SCENES

pytestmark = pytest.mark.property

# --- order, comments, format -----------------------------------------------------------------------------------------

# Lists whose order says something: policies, levels from inside out, types of an offering.
RANKED = {"offerings", "at_limit", "levels", "type"}


def shuffled(value: Any, dice: Random, key: str = "") -> Any:
    """The same value with its mappings and lists in another order."""
    if isinstance(value, dict):
        names = list(value)
        dice.shuffle(names)
        return {name: shuffled(value[name], dice, name) for name in names}
    if isinstance(value, list):
        items = [shuffled(item, dice) for item in value]
        if key not in RANKED:
            dice.shuffle(items)
        return items
    return value


@settings(max_examples=40)  # each reads a document
@given(st.randoms(use_true_random=False), st.booleans(), st.integers(20, 200), st.booleans())
def test_order_format_and_comments_give_nothing(dice: Random, flow: bool, width: int, notes: bool) -> None:
    data = shuffled(document(), dice)
    text = yaml.safe_dump(data, default_flow_style=flow, sort_keys=False, width=width)
    if notes:
        text = "# first\n\n" + text.replace("\nsites:", "\n# where nodes come from\nsites:  # all of them")

    loaded = spec.load_cluster_text(text, str(FULL), base=str(FULL))

    assert loaded.cluster is not None, spec.render(loaded.errors)
    assert diff(base(), loaded.cluster) == ()
    made = _plan(loaded.cluster, _settled(base()), Observed(looked=False))
    assert (made.changes, made.steps, made.blockers) == ((), (), ())


# --- plan, apply, plan -----------------------------------------------------------------------------------------------

DRIFTS = (
    sight("h100-03", drifted(ItemKind.SYSCTL, "vm.swappiness", "value", "10", "60")),
    sight("a100-1", drifted(ItemKind.PACKAGE, "chrony", "present", "yes", "")),
    sight("h100-07", reboot_needed=True),
    lost("h100-05"),
)


def _plan(
    wanted: ClusterSpec,
    recorded: Recorded,
    observed: Observed,
    workload: Workload = Workload(),  # noqa: B008 - frozen
    consents: tuple[str, ...] = (),
) -> ChangeSet:
    choices = Choices(consents)
    return plan(wanted, recorded, observed, catalog.load(), workload, NOW, RESOLVED, choices)


def _settled(wanted: ClusterSpec, made: ChangeSet | None = None) -> Recorded:
    """What is recorded when all of a plan was done."""
    desired = made.desired if made is not None else recorded_desired(wanted)
    return Recorded(wanted, desired, tuple(node(name) for name in pools_by_node(wanted)))


def _seen(wanted: ClusterSpec, *other: Sight) -> Observed:
    found = {name: sight(name) for name in pools_by_node(wanted)} | {one.host: one for one in other}
    return Observed(tuple(found.values()))


@settings(max_examples=40)  # each reads two documents
@given(
    st.lists(st.sampled_from(TURNS), min_size=1, max_size=6), st.lists(st.sampled_from(DRIFTS), max_size=3)
)
def test_what_was_applied_is_done(turns: Any, sights: list[Sight]) -> None:
    edits = {path: value for turn in turns for path, value in {**turn.with_, turn.path: turn.value}.items()}
    wanted = _loaded(edits)
    assume(wanted is not None)
    assert wanted is not None
    made = _plan(
        wanted, _settled(base()), _seen(wanted, *sights), consents=("storage/home", "storage/scratch")
    )
    assume(not made.blockers)

    again = _plan(wanted, _settled(wanted, made), _seen(wanted))

    assert (again.changes, again.steps, again.work, again.blockers) == ((), (), (), ())


def _loaded(edits: dict[str, Any]) -> ClusterSpec | None:
    try:
        data = document(edits)
    except (KeyError, IndexError):  # one edit took away what another one changes
        return None
    return spec.load_cluster_text(yaml.safe_dump(data), str(FULL), base=str(FULL)).cluster


@pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
def test_a_scene_applied_is_done(scene: Scene) -> None:
    """Also those with drift, unfinished applies and another version; what is put off stays so and asks for nothing."""
    made = scene.plan()
    if made.blockers:
        return
    wanted = load(document(scene.new)) if scene.new else base()
    for _ in range(2):
        made = plan(
            wanted,
            _settled(wanted, made),
            _seen(wanted),
            catalog.load(),
            Workload(),
            NOW,
            scene.resolved,
            scene.choices,
        )
        assert made.empty()
        assert made.steps == ()


@settings(max_examples=40)  # each reads documents
@given(st.sampled_from(SCENES))
def test_the_same_is_planned_from_the_same(scene: Scene) -> None:
    assert scene.plan() == scene.plan()


# --- rolling changes -------------------------------------------------------------------------------------------------


@st.composite
def pools(draw: st.DrawFn) -> tuple[ClusterSpec, ClusterSpec, Recorded, Observed, Workload]:
    """A pool whose driver changes, with nodes that are ready, not ready, unseen or new, and gangs on some."""
    count = draw(st.integers(1, 12))
    names = tuple(f"n{number}" for number in range(count))
    update = Update(max_unavailable=draw(st.integers(1, 5)))
    site = Site("hall", SiteKind.METAL)
    pool = Pool("p", "hall", names, GpuSpec("H100-SXM5-80GB", 8), update=update)
    before = ClusterSpec("c", sites=(site,), pools=(pool,))
    after = replace(before, pools=(replace(pool, software=Software("580.1.1")),))
    ready = [draw(st.booleans()) for _ in names]
    joined = [draw(st.integers(0, 9)) > 0 for _ in names]
    seen = [draw(st.integers(0, 9)) > 0 for _ in names]
    now = tuple(NodeNow(name, up) for name, up, came in zip(names, ready, joined, strict=True) if came)
    sights = tuple(sight(name) if there else lost(name) for name, there in zip(names, seen, strict=True))
    gangs = draw(st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True), max_size=4))
    jobs = tuple(Running(number, "a", "q", tuple(gang), 8) for number, gang in enumerate(gangs))
    recorded = Recorded(before, recorded_desired(before), now)
    return before, after, recorded, Observed(sights), Workload(jobs)


@given(pools())
def test_never_fewer_are_ready_than_promised(
    scene: tuple[ClusterSpec, ClusterSpec, Recorded, Observed, Workload],
) -> None:
    _, after, recorded, observed, workload = scene
    made = _plan(after, recorded, observed, workload)
    assert recorded.nodes is not None
    unseen = {one.partition(":")[0] for one in made.unseen}
    up = {one.name for one in recorded.nodes if one.ready and one.name not in unseen}
    down = {one.name for one in recorded.nodes} - up
    (pool,) = after.pools

    for step in made.steps:
        if step.kind is StepKind.CORDON and up & set(step.nodes):
            assert len(up & set(step.nodes)) + len(down) <= pool.update.max_unavailable, step.id
        if step.kind is StepKind.UNCORDON:
            down -= set(step.nodes)
    _each_once(made)


def _each_once(made: ChangeSet) -> None:
    """Each node that must be drained is in one batch, unless the plan says that it is stuck."""
    heavy = [name for change in made.changes if change.cls in HEAVY for name in change.nodes]
    cordoned = [name for step in made.steps if step.kind is StepKind.CORDON for name in step.nodes]
    new = {name for step in made.steps if step.kind is StepKind.ENROL for name in step.nodes}
    unseen = {one.partition(":")[0] for one in made.unseen}
    assert len(cordoned) == len(set(cordoned))
    if not made.blockers:
        assert set(heavy) - new - unseen <= set(cordoned)


@given(pools())
def test_steps_are_in_order(scene: tuple[ClusterSpec, ClusterSpec, Recorded, Observed, Workload]) -> None:
    _, after, recorded, observed, workload = scene
    made = _plan(after, recorded, observed, workload)
    order = list(StepKind)
    batches: dict[tuple[str, int], list[PlanStep]] = {}
    for step in made.steps:
        batches.setdefault((step.pool, step.batch), []).append(step)

    assert made.steps[0].kind is StepKind.RECORD
    assert len({step.id for step in made.steps}) == len(made.steps)
    for steps in batches.values():
        assert [order.index(step.kind) for step in steps] == sorted(order.index(step.kind) for step in steps)


@given(st.integers(2, 30), st.data())
def test_a_node_taken_from_the_middle_touches_no_other(count: int, data: st.DataObject) -> None:
    names = tuple(f"n{number:02}" for number in range(count))
    gone = data.draw(st.sampled_from(names))
    pool = Pool("p", "hall", names, GpuSpec("H100-SXM5-80GB", 8))
    before = ClusterSpec("c", sites=(Site("hall", SiteKind.METAL),), pools=(pool,))
    left = replace(pool, nodes=tuple(name for name in names if name != gone))
    after = replace(before, pools=(left,))
    running = tuple(Running(number, "a", "q", (name,), 8) for number, name in enumerate(names))

    recorded = Recorded(before, recorded_desired(before), tuple(node(name) for name in names))
    made = _plan(after, recorded, _seen(after), Workload(running))

    assert [change.nodes for change in made.changes] == [(gone,)]
    assert {step.nodes for step in made.steps} == {(), (gone,)}
    assert [effect.nodes for effect in made.work] == [(gone,)]
    assert made.changes[0].cls is UpdateClass.RECONFIGURE
