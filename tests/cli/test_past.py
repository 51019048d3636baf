"""What the journal says of hosts that were not let go, and where they stood: in records, newest first.

Comes in: a controller on paper. Goes out: proof that a second destroy finds what the first one left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from orchestrator.cli import past
from orchestrator.model.cluster import ClusterSpec, Host, Pool, Site, SiteKind, Ssh
from orchestrator.model.codec import encode
from orchestrator.model.errors import GanglineError
from orchestrator.model.host import HostFacts
from orchestrator.planning.world import NodeNow
from orchestrator.wire import api_apply as wire


def result(host: str, ok: bool) -> wire.HostResult:
    return wire.HostResult(host=host, ok=ok, changed=0)


def step(kind: str, *nodes: str, results: tuple[wire.HostResult, ...] = ()) -> wire.Step:
    where: dict[str, Any] = {"id": f"retire.p.1.{kind}", "kind": kind, "why": "", "pool": "p", "batch": 1}
    times: dict[str, Any] = {"state": "ended", "started_at": None, "ended_at": None}
    return wire.Step(**where, **times, nodes=list(nodes), roles=[], hosts=list(results))


def apply_of(*steps: wire.Step) -> wire.Apply:
    times: dict[str, Any] = {"started_at": None, "lease_until": None, "ended_at": None}
    who = {"id": "apply-1", "holder": "ann", "by": "ann", "commit": "", "digest": "", "detail": ""}
    return wire.Apply(**who, **times, outcome="partial", steps=list(steps))


def cluster(*nodes: str, kind: SiteKind = SiteKind.METAL) -> ClusterSpec:
    hosts = tuple(Host(name, f"10.0.0.{number}") for number, name in enumerate(nodes, 1))
    return ClusterSpec("c", sites=(Site("hall", kind, hosts=hosts),), pools=(Pool("p", "hall", nodes),))


@dataclass
class Controller:
    """Records by name, newest first, and how often one was read."""

    specs: dict[str, ClusterSpec]
    read: list[str] = field(default_factory=list)

    def records(self) -> list[Any]:
        return [type("Record", (), {"record": name}) for name in self.specs]

    def record(self, name: str) -> Any:
        self.read.append(name)
        return type("Spec", (), {"spec": encode(self.specs[name])})


def left(controller: Controller, *applies: wire.Apply, nodes: tuple[NodeNow, ...] = ()) -> list[str]:
    now = next(iter(controller.specs.values()))
    found = past.left(controller, now, past.steps(applies), nodes)  # type: ignore[arg-type]
    for one in found:
        assert one.name in one.pool.nodes
        assert one.name in [host.name for host in one.site.hosts]
    return [one.name for one in found]


FAILED = apply_of(step("retire", "n1", "n2", results=(result("n1", True), result("n2", False))))


def test_a_host_that_did_not_stop_is_found_where_it_stood() -> None:
    controller = Controller({"r3": cluster(), "r2": cluster("n2"), "r1": cluster("n1", "n2")})
    assert left(controller, FAILED) == ["n2"]
    assert controller.read == ["r3", "r2"], "no further back than it must"


def test_steps_of_later_applies_count_last() -> None:
    controller = Controller({"r2": cluster(), "r1": cluster("n1", "n2")})
    stopped = apply_of(step("retire", "n2", results=(result("n2", True),)))
    assert left(controller, stopped, FAILED) == [], "the newest apply stands first in the list"
    assert left(controller, FAILED, stopped) == ["n2"]


def test_a_killed_apply_left_all_that_it_meant_to_let_go() -> None:
    controller = Controller({"r2": cluster(), "r1": cluster("n1", "n2")})
    assert left(controller, apply_of(step("cordon", "n1", "n2"), step("retire", "n1", "n2"))) == ["n1", "n2"]


def test_what_stands_in_the_file_again_is_not_left() -> None:
    assert left(Controller({"r2": cluster("n2"), "r1": cluster("n1", "n2")}), FAILED) == []


def test_a_configured_node_that_no_pool_names_is_left_whatever_the_journal_forgot() -> None:
    controller = Controller({"r2": cluster("n1"), "r1": cluster("n1", "n9")})
    known = (
        NodeNow("n9", host=HostFacts("m", "b")),
        NodeNow("n1", host=HostFacts("m1", "b1")),
        NodeNow("local-1"),
    )
    assert left(controller, nodes=known) == ["n9"]


def test_who_was_never_on_metal_or_in_no_record_is_nobodys_to_stop() -> None:
    controller = Controller({"r2": cluster(), "r1": cluster("n2", kind=SiteKind.LOCAL)})
    assert left(controller, FAILED) == []
    assert left(Controller({"r1": cluster("n1")}), FAILED) == []


def test_without_a_host_to_find_no_record_is_read() -> None:
    controller = Controller({"r1": cluster("n1")})
    assert left(controller, apply_of(step("cordon", "n1"))) == []
    assert controller.read == []


def test_a_record_that_no_file_can_describe_is_not_acted_on() -> None:
    """A line feed in a user's name would be a line of OpenSSH's config on this machine."""
    spec = cluster("a", "b")
    odd = replace(spec.sites[0], ssh=Ssh(user="root\n  ProxyCommand touch /tmp/x"))
    with pytest.raises(GanglineError) as caught:
        past.spec_in(encode(replace(spec, sites=(odd,))))
    assert caught.value.code == "record.unsound"
    assert past.spec_in(encode(spec)) == spec
