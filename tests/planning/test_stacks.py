"""The lasting things of aws sites in a plan: a table of what previews found and what is done about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from orchestrator.model.change import Change, ChangeKind, ChangeSet, PlanStep, Source, StepKind, UpdateClass
from orchestrator.model.cluster import Acceptance, ClusterSpec, Pool, PoolSize, Site, SiteKind, Update
from orchestrator.model.stack_sight import StackOp, StackRow, StackSight
from orchestrator.planning.digest import digest_of
from orchestrator.planning.stack_digest import stack_digest
from orchestrator.planning.stacks import Around, ending, with_stacks
from orchestrator.planning.world import NO_CHOICE, Choices, Recorded, Running, Workload
from tests.planning.scene import told

CREATE, UPDATE, REPLACE, DELETE = StackOp.CREATE, StackOp.UPDATE, StackOp.REPLACE, StackOp.DELETE
USE1 = Site("use1", SiteKind.AWS, region="us-east-1")
RECORD = PlanStep("record", StepKind.RECORD, "the controller takes the file over")
METAL = PlanStep("h100.1.configure", StepKind.CONFIGURE, "a change", "h100", ("h1",), ("base",), 1)
QUEUE = Change("queues[q]", ChangeKind.ADDED, UpdateClass.CONTROLLER, Source.SPEC, "", "q")
NOW = 1_800_000_000_000_000


def spec(*nodes: str) -> ClusterSpec:
    pool = Pool("train", "use1", nodes=nodes, update=Update(max_unavailable=2))
    return ClusterSpec("atlas", sites=(USE1,), pools=(pool,))


def row(op: StackOp, name: str, *paths: str, kind: str = "aws:ec2/vpc:Vpc", data: bool = False) -> StackRow:
    return StackRow(op, kind, name, paths, data)


INSTANCE = "aws:ec2/instance:Instance"


def node(op: StackOp, name: str) -> StackRow:
    return StackRow(op, INSTANCE, name, ("launchTemplate",), node=name)


BEFORE = spec("t1", "t2", "t3")


@dataclass(frozen=True)
class Scene:
    name: str
    want: str
    rows: tuple[StackRow, ...] = ()
    drift: tuple[StackRow, ...] = ()
    faults: tuple[str, ...] = ()
    error: str = ""
    old: ClusterSpec | None = BEFORE
    new: ClusterSpec = BEFORE
    told: bool = True  # whether changes of the file are in the plan
    brought: bool = False  # whether the stack was last brought to this very file
    running: tuple[Running, ...] = ()
    choices: Choices = NO_CHOICE

    def plan(self) -> ChangeSet:
        wanted = digest_of(self.new)
        of_file = () if self.brought or not self.told else (QUEUE,)
        rest = ChangeSet("atlas", wanted, "r", "o", changes=of_file, steps=(RECORD, METAL))
        sight = StackSight(
            "use1",
            self.rows,
            self.drift,
            self.error,
            faults=self.faults,
            spec=stack_digest(self.new, "use1") if self.brought else "",
        )
        around = Around(self.new, Recorded(self.old), Workload(self.running), self.choices, NOW)
        made = with_stacks(rest, around, (sight,))
        return replace(made, changes=tuple(one for one in made.changes if one is not QUEUE))


MINE = "h100.1: configure(base) h1"
SCENES = (
    Scene("nothing to do", f"record: record\n{MINE}", brought=True),
    Scene(
        "everything for the first time",
        f"""
        record: record
        stack: stack t[1-3]
        stack.use1.train: accept t[1-3]
        {MINE}
        """,
        rows=(row(CREATE, "vpc"), node(CREATE, "t1"), node(CREATE, "t2"), node(CREATE, "t3")),
        old=None,
    ),
    Scene(
        "what no node notices",
        f"record: record\nstack: stack\n{MINE}",
        rows=(row(UPDATE, "vpc", "tags"),),
    ),
    Scene(
        "the middle node goes",
        f"""
        record: record
        stack: stack
        stack.use1.train.1: cordon drain stack t2
        {MINE}
        job 7 blocks on t2
        """,
        rows=(node(DELETE, "t2"),),
        new=spec("t1", "t3"),
        running=(Running(7, "alice", "q", ("t1", "t2")), Running(8, "bob", "q", ("t3",))),
    ),
    Scene(
        "all nodes anew, two at a time",
        f"""
        record: record
        stack: stack
        stack.use1.train.1: cordon drain stack accept uncordon t[1-2]
        stack.use1.train.2: cordon drain stack accept uncordon t3
        {MINE}
        """,
        rows=tuple(node(REPLACE, name) for name in ("t1", "t2", "t3")),
    ),
    Scene(
        "an apply that did not get so far",
        f"""
        stack[use1]: 1 to create -> as the file says [controller-only]
        record: record
        stack: stack
        {MINE}
        """,
        rows=(row(CREATE, "vpc"),),
        told=False,
    ),
    Scene(
        "only the facts have to follow",
        f"record: record\nstack: stack\n{MINE}",
    ),
    Scene(
        "somebody's hand",
        f"""
        stack[use1].Vpc[vpc]: tags -> as the file says [in-place] (drift)
        record: record
        stack: stack
        {MINE}
        """,
        drift=(row(UPDATE, "vpc", "tags"),),
        rows=(row(UPDATE, "vpc", "tags"),),
        brought=True,
    ),
    Scene(
        "this version makes it otherwise",
        f"""
        stack[use1].Vpc[vpc]: enableDns -> as the file says [in-place] (gangline)
        record: record
        stack: stack
        {MINE}
        """,
        rows=(row(UPDATE, "vpc", "enableDns"),),
        brought=True,
    ),
    Scene(
        "the same, put off",
        f"""
        stack[use1].Vpc[vpc]: enableDns -> as the file says [in-place] (gangline) deferred
        record: record
        {MINE}
        """,
        rows=(row(UPDATE, "vpc", "enableDns"),),
        brought=True,
        choices=Choices(defer=True),
    ),
    Scene(
        "the same, put off, beside somebody's hand",
        f"""
        stack[use1].Vpc[vpc]: tags -> as the file says [in-place] (drift)
        stack[use1].Vpc[other]: enableDns -> as the file says [in-place] (gangline) deferred
        record: record
        stack: stack
        {MINE}
        """,
        drift=(row(UPDATE, "vpc", "tags"),),
        rows=(row(UPDATE, "other", "enableDns"),),
        brought=True,
        choices=Choices(defer=True),
    ),
    Scene(
        "a pool that leaves with all its nodes",
        f"""
        record: record
        stack: stack
        stack.use1.train.1: cordon drain stack t[1-3]
        {MINE}
        job 7 blocks on t[1-2]
        """,
        rows=tuple(node(DELETE, name) for name in ("t1", "t2", "t3")),
        new=ClusterSpec("atlas", sites=(USE1,)),
        running=(Running(7, "alice", "q", ("t1", "t2")),),
    ),
    Scene(
        "nodes whose pool asks for no proof",
        f"record: record\nstack: stack t[1-3]\n{MINE}",
        rows=tuple(node(CREATE, name) for name in ("t1", "t2", "t3")),
        old=None,
        new=replace(BEFORE, pools=(replace(BEFORE.pools[0], acceptance=Acceptance.SKIP),)),
    ),
    Scene(
        "storage is never replaced unseen",
        f"""
        record: record
        stack: stack
        {MINE}
        blocked: site use1
        """,
        rows=(row(REPLACE, "fast", "subnetIds", data=True),),
    ),
    Scene(
        "storage goes by consent",
        f"record: record\nstack: stack\n{MINE}",
        rows=(row(DELETE, "fast", data=True),),
        choices=Choices(("storage/fast",)),
    ),
    Scene(
        "the controller's instance is never replaced unseen",
        f"record: record\nstack: stack\n{MINE}\nblocked: site use1",
        rows=(row(REPLACE, "controller", "rootBlockDevice", kind=INSTANCE),),
    ),
    Scene(
        "the controller's instance goes by consent",
        f"record: record\nstack: stack\n{MINE}",
        rows=(row(DELETE, "controller", kind=INSTANCE),),
        choices=Choices(("controller/instance",)),
    ),
    Scene(
        "what EC2 would refuse",
        f"record: record\nstack: stack\n{MINE}\nblocked: site use1",
        rows=(row(CREATE, "vpc"),),
        faults=("the image ami-1 is gone",),
    ),
    Scene(
        "a site that can't be looked at",
        f"record: record\n{MINE}\nunseen: site use1: no route",
        error="no route",
    ),
)


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
def test_the_plan_is(scene: Scene) -> None:
    assert lines(told(scene.plan())) == lines(scene.want)


def test_the_consent_is_named() -> None:
    (blocker,) = next(one for one in SCENES if one.name == "storage is never replaced unseen").plan().blockers
    assert "replaced by an empty one, with all that is in it" in blocker
    assert "`--consent storage/fast`" in blocker


def test_the_controllers_instance_has_a_consent_of_its_own() -> None:
    name = "the controller's instance is never replaced unseen"
    (blocker,) = next(one for one in SCENES if one.name == name).plan().blockers
    assert "the controller's instance would be replaced for rootBlockDevice" in blocker
    assert "`--consent controller/instance`" in blocker


def test_a_saved_plan_depends_on_what_was_seen_there() -> None:
    seen = Scene("x", "", rows=(row(UPDATE, "vpc", "tags"),))
    other = replace(seen, rows=(row(UPDATE, "vpc", "cidrBlock"),))
    assert seen.plan().observed == replace(seen, faults=("x",)).plan().observed
    assert seen.plan().observed != other.plan().observed
    assert replace(seen, rows=()).plan().observed != replace(seen, rows=(), error="no route").plan().observed


def test_a_cluster_that_ends_gives_back_what_it_bought_at_once() -> None:
    """Whatever its floor and its idle time are; nodes of a local site stay what they are."""
    bought = Pool("burst", "use1", size=PoolSize(2, 8, 600, 1500))
    here = Pool("here", "lab", nodes=("n1",))
    sites = (USE1, Site("lab", SiteKind.LOCAL))
    ends = ending(ClusterSpec("atlas", sites=sites, pools=(*BEFORE.pools, bought, here)))
    assert [(one.name, one.nodes, one.size) for one in ends.kept.pools] == [
        ("train", (), None),
        ("burst", (), PoolSize(0, 0, 0, 1500)),
        ("here", ("n1",), None),
    ]
    assert [one.name for one in ends.rest.sites] == ["lab"]
    assert [one.name for one in ends.rest.pools] == ["here"]


def test_without_a_sight_nothing_is_added() -> None:
    rest = ChangeSet("atlas", "w", "r", "o", steps=(RECORD, METAL))
    around = Around(BEFORE, Recorded(BEFORE), Workload(), NO_CHOICE, NOW)
    assert with_stacks(rest, around, ()) is rest
