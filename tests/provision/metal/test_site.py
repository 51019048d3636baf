"""Hosts of several sites as an apply uses them: whose agent is stopped, and what a key that is gone keeps from whom.

Comes in: hosts on paper behind a channel on paper. Goes out: proof that nothing is done to a machine that is another
node by now, and that one site's fault is not another's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.clock import ManualClock
from orchestrator.model.cluster import ClusterSpec, Controller, Host, Pool, Site, SiteKind, Ssh
from orchestrator.model.errors import InputError
from orchestrator.model.host import Step
from orchestrator.provision.metal import probe
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

        async def run_on(self, names: Iterable[str], argv: Sequence[str], script: bytes) -> dict[str, Any]:
            return {name: there.run(name, script.decode()) for name in names}

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
    wishes = Wishes({}, controller_url="https://c:7443")
    return MetalHosts(spec, tmp_path, wishes, environment, ManualClock(), before=before)


def config(node: str, url: str = "https://c:7443/") -> str:
    return json.dumps({"node": node, "url": url}, indent=2)


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


def test_an_agent_that_another_cluster_has_taken_over_is_left_alone(tmp_path: Path, hosts: Hosts) -> None:
    hosts.configs = {"a1": config("a1", "https://other:7443"), "a2": config("a2", "https://old:7443")}
    spec = cluster(hall("a", "a1", "a2"))
    before = replace(spec, controller=Controller("https://old:7443"))
    found = metal(tmp_path, spec, before).retire(["a1", "a2"])
    assert [one.ok for one in found] == [False, True]
    assert "another controller's by now (https://other:7443)" in found[0].error
    assert hosts.stopped == ["a2"], "the address that this cluster had is its own"


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


def test_hosts_of_a_site_without_an_inventory_go_by_their_names(tmp_path: Path, hosts: Hosts) -> None:
    hosts.configs = {"n1": config("n1"), "n2": config("n2")}
    site = Site("a", SiteKind.METAL, hosts=(Host("n1", "10.0.0.1"),))
    spec = ClusterSpec("test", sites=(site,), pools=(Pool("p", "a", ("n1", "n2")),))
    assert [one.ok for one in metal(tmp_path, spec).retire(["n1", "n2"])] == [True, True]
    text = (tmp_path / "ssh" / "a" / "config").read_text()
    assert "Host n1\n  HostName 10.0.0.1\n" in text
    assert "Host n2\n  HostName n2\n" in text


def test_no_key_is_believed_before_all_names_are_known(
    tmp_path: Path, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    believed: list[str] = []

    async def accept(channel: Any, name: str) -> None:
        believed.append(name)

    monkeypatch.setattr(probe, "accept_host_key", accept)
    both = metal(tmp_path, cluster(hall("a", "a1", "a2")))
    with pytest.raises(InputError, match="no metal pool has a host a3"):
        both.accept_host_keys(["a1", "a3"])
    assert believed == []
    both.accept_host_keys(["a1", "a2"])
    assert believed == ["a1", "a2"]
