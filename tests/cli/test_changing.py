"""What a plan is made from on the controller's side: jobs that run and wait, nodes as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from orchestrator.cli import changing
from orchestrator.model.cluster import ClusterSpec, Pool, Site, SiteKind
from orchestrator.model.codec import encode
from orchestrator.model.host import HostFacts
from orchestrator.planning.world import NodeNow, Running, Waiting, Workload
from orchestrator.wire.api import micros_of
from tests.cli.fakes import ago, summary


class Jobs:
    """A controller that has only these jobs, and is asked for those that are not over."""

    def __init__(self, *jobs: Any) -> None:
        self.all = jobs

    def jobs(self, *, states: tuple[str, ...]) -> list[Any]:
        return [job for job in self.all if job.state in states]


def test_all_jobs_that_are_not_over_are_in_the_plan() -> None:
    """Also those that are starting or ending: they hold their nodes."""
    client: Any = Jobs(
        summary(1, "running"),
        summary(2, "running", time_limit_s=3600),
        summary(3, "starting", node_names=["n3"]),
        summary(4, "ending", node_names=["n4"]),
        summary(5, "waiting"),
        summary(6, "succeeded"),
    )
    until = micros_of(ago(185)) + 3600 * 1_000_000

    assert changing.workload_of(client) == Workload(
        (
            Running(1, "alice", "default", ("n1", "n2"), 16),
            Running(2, "alice", "default", ("n1", "n2"), 16, until),
            Running(3, "alice", "default", ("n3",), 16),
            Running(4, "alice", "default", ("n4",), 16),
        ),
        (Waiting(5, "alice", "default", 16),),
    )


def test_without_a_controller_nothing_runs() -> None:
    assert changing.workload_of(None) == Workload()


def node(name: str, contact: str = "ok", *, opened: bool = True, marks: tuple[str, ...] = ()) -> Any:
    kinds = [SimpleNamespace(kind=kind) for kind in marks]
    return SimpleNamespace(name=name, contact=contact, open=opened, marks=kinds, pool="p")


def test_nodes_are_taken_as_the_controller_has_them() -> None:
    """One that never called has not come in; only an apply's own mark is an apply's."""
    spec = ClusterSpec(
        "lab", sites=(Site("hall", SiteKind.METAL),), pools=(Pool("p", "hall", ("a", "b", "c", "d")),)
    )
    facts = HostFacts("m-a", "boot")
    client: Any = SimpleNamespace(
        recorded=lambda: SimpleNamespace(spec=encode(spec), hosts={"a": encode(facts)}, pools={}, desired=[]),
        nodes=lambda: [
            node("a"),
            node("b", opened=False, marks=("updating",)),
            node("c", "unreachable", opened=False, marks=("cordoned",)),
            node("d", "never", opened=False),
        ],
        applies=list,
    )

    found = changing.recorded_of(client)

    assert found.spec == spec
    assert found.nodes == (
        NodeNow("a", ready=True, host=facts, pool="p"),
        NodeNow("b", ready=False, cordoned=True, pool="p"),
        NodeNow("c", ready=False, pool="p"),
    )
