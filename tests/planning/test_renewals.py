"""Which bought nodes a plan says it renews, and what that does to the jobs on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.change import Change, ChangeKind, ChangeSet, Source, UpdateClass, WorkFate
from orchestrator.model.cluster import Drain, DrainThen, Pool, Update
from orchestrator.planning.renewals import with_renewals
from orchestrator.planning.world import NodeNow, Running, Workload
from tests.autoscale.scene import elastic, hybrid

NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000
NODES = (NodeNow("burst-1", pool="burst"), NodeNow("burst-2", pool="burst"), NodeNow("more-1", pool="more"))
DAY_LONG = Running(7, "alice", "default", ("burst-2",), until_us=NOW + 30 * HOUR)


def change(path: str, cls: UpdateClass = UpdateClass.REPLACE, source: Source = Source.SPEC) -> Change:
    return Change(path, ChangeKind.CHANGED, cls, source, "old", "new")


def planned(
    *changes: Change, then: DrainThen = DrainThen.WAIT, running: tuple[Running, ...] = ()
) -> ChangeSet:
    update = Update(drain=Drain(24 * 3600, then))
    spec = hybrid(elastic(update=update), elastic("more"), Pool("metal", "here", nodes=("h1",)))
    plan = ChangeSet("test", "w", "r", "o", changes=changes)
    return with_renewals(plan, spec, NODES, Workload(running), NOW)


@pytest.mark.parametrize(
    ("made", "nodes"),
    [
        (change("pools[burst].image"), ("burst-1", "burst-2")),
        (change("sites[use1].image"), ("burst-1", "burst-2", "more-1")),
        (change("sites[here].image"), ()),
        (change("pools[metal].image"), ()),
        (change("pools[burst].size.max", UpdateClass.CONTROLLER), ()),
        (change("pools[burst].image", source=Source.DRIFT), ()),
    ],
    ids=lambda one: one.path if isinstance(one, Change) else "",
)
def test_a_change_names_the_bought_nodes_that_it_renews(made: Change, nodes: tuple[str, ...]) -> None:
    (found,) = planned(made).changes
    assert found == replace(made, nodes=nodes)


@pytest.mark.parametrize(
    ("then", "until_us", "fates"),
    [
        (DrainThen.WAIT, DAY_LONG.until_us, []),
        (DrainThen.REQUEUE, NOW + 20 * HOUR, []),
        (DrainThen.REQUEUE, DAY_LONG.until_us, [WorkFate.STOPPED]),
        (DrainThen.CANCEL, 0, [WorkFate.STOPPED]),
    ],
)
def test_only_a_job_that_the_drain_would_end_is_named(
    then: DrainThen, until_us: int, fates: list[WorkFate]
) -> None:
    job = replace(DAY_LONG, until_us=until_us)
    found = planned(change("pools[burst].image"), then=then, running=(job,)).work
    assert [one.fate for one in found] == fates
    for one in found:
        assert one.nodes == ("burst-2",)
        assert one.until_us == NOW + 24 * HOUR
        assert one.why.startswith("burst-2 is renewed for pools[burst].image; after ")
