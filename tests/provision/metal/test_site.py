"""Hosts of several sites as an apply uses them: whose agent is stopped, and what a key that is gone keeps from whom.

Comes in: hosts on paper behind a channel on paper. Goes out: proof that nothing is done to a machine that is another
node by now, and that one site's fault is not another's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.clock import ManualClock
from orchestrator.model.cluster import ClusterSpec, Host, Pool, Site, SiteKind, Ssh
from orchestrator.model.errors import InputError
from orchestrator.model.host import Step
from orchestrator.provision.metal import site as module
from orchestrator.provision.metal.diagnosis import Unreached
from orchestrator.provision.metal.site import NO_CONFIG, MetalHosts, Wishes


@dataclass
class Answer:
    code: int
    stdout: bytes = b""
    stderr: bytes = b""


@dataclass
class Hosts:
    """What agents' configs say on hosts, by name: a text, None for no file; `lost` ones do not answer."""

    configs: dict[str, str | None]
    lost: frozenset[str] = frozenset()
    stopped: list[str] = field(default_factory=list)

    def run(self, name: str, command: str) -> Answer | Unreached:
        if name in self.lost:
            return Unreached(Step.TCP, name, f"{name} does not answer", "")
        if "systemctl" in command:
            self.stopped.append(name)
            return Answer(0)
        text = self.configs[name]
        return Answer(NO_CONFIG) if text is None else Answer(0, text.encode())


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    there = Hosts({})

    class Channel:
        def __init__(self, access: Any, clock: Any) -> None:
            self.access = access

        async def run_on(self, names: Iterable[str], argv: Sequence[str]) -> dict[str, Any]:
            return {name: there.run(name, argv[-1]) for name in names}

    monkeypatch.setattr(module, "Channel", Channel)
    return there


def cluster(*sites: Site) -> ClusterSpec:
    pools = tuple(Pool(f"pool-{site.name}", site.name, tuple(h.name for h in site.hosts)) for site in sites)
    return ClusterSpec("test", sites=sites, pools=pools)


def hall(name: str, *hosts: str, key: str = "") -> Site:
    made = tuple(Host(host, f"10.0.0.{number}") for number, host in enumerate(hosts, 1))
    return Site(name, SiteKind.METAL, hosts=made, ssh=Ssh(key=key))


def metal(tmp_path: Path, spec: ClusterSpec, before: ClusterSpec | None = None) -> MetalHosts:
    environment = {"XDG_RUNTIME_DIR": ""}
    return MetalHosts(spec, tmp_path, Wishes({}), environment, ManualClock(), before=before)


def config(node: str) -> str:
    return json.dumps({"node": node, "url": "https://c"}, indent=2)


def test_only_an_agent_of_that_very_node_is_stopped(tmp_path: Path, hosts: Hosts) -> None:
    names = ("own", "renamed", "bare", "spoilt", "silent")
    hosts.configs = {"own": config("own"), "renamed": config("n7"), "bare": None, "spoilt": "{"}
    hosts.lost = frozenset({"silent"})
    results = metal(tmp_path, cluster(hall("a", *names))).retire(names)
    assert hosts.stopped == ["own", "spoilt"]
    assert [(one.host, one.ok) for one in results] == [
        ("own", True),
        ("renamed", True),
        ("bare", True),
        ("spoilt", True),
        ("silent", False),
    ]
    assert results[-1].error == "silent does not answer"


def test_a_site_that_goes_can_go_without_its_key(tmp_path: Path, hosts: Hosts) -> None:
    """What is to be removed may be gone already: it is told of its own hosts, and hinders no other."""
    hosts.configs = {"b1": config("b1")}
    before = cluster(hall("a", "a1", key="file:/nowhere/key"), hall("b", "b1"))
    found = metal(tmp_path, cluster(hall("b", "b1")), before).retire(["a1", "b1"])
    assert [(one.host, one.ok) for one in found] == [("a1", False), ("b1", True)]
    assert "the private key /nowhere/key can't be read" in found[0].error


def test_a_scoped_run_needs_no_key_of_another_site(tmp_path: Path, hosts: Hosts) -> None:
    spec = cluster(hall("a", "a1", key="env:NOT_SET"), hall("b", "b1"))
    hosts.configs = {"b1": config("b1")}
    both = metal(tmp_path, spec)
    assert [one.ok for one in both.retire(["b1"])] == [True]
    with pytest.raises(InputError, match="NOT_SET is not set"):
        both.sights(["a1"])
