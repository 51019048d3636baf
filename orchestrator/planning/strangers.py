"""Hosts that are somebody else's: another cluster's, or another machine than the inventory means.

Comes in: the roster, what is this cluster's own. Goes out: `Change`s for hosts that are about to come in. Called by:
hosts; plan, which tells it what is this cluster's own. Once a host has come in it is known by its machine id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.model.change import Change, ChangeKind, Source, UpdateClass
from orchestrator.model.cluster import ClusterSpec, Host
from orchestrator.model.host import HostFacts
from orchestrator.planning.roster import Roster

SHOWN = 4  # MACs of a host that are told


@dataclass(frozen=True, slots=True)
class Ours:
    """Where this cluster's controller answers or answered, and what its inventories say of hosts by name."""

    urls: frozenset[str] = frozenset()
    hosts: Mapping[str, Host] = field(default_factory=dict)


NOTHING_OF_OURS = Ours()


def ours_of(wanted: ClusterSpec, recorded: ClusterSpec | None, url: str) -> Ours:
    """From both specs; `url` is what agents are told now."""
    urls = (url, wanted.controller.address, recorded.controller.address if recorded is not None else "")
    hosts = {host.name: host for site in wanted.sites for host in site.hosts}
    return Ours(frozenset(map(_plain, urls)) - {""}, hosts)


def strangers(nodes: Roster, ours: Ours) -> Iterator[Change]:
    """What must not come in as it is, by host in their order."""
    for name in nodes.new:
        sight = nodes.sights.get(name)
        if sight is None or sight.facts is None or name in nodes.unseen or nodes.joined(name):
            continue
        yield from _other_cluster(nodes, name, sight.facts, ours)
        yield from _other_card(nodes, name, sight.facts, ours)


def _other_cluster(nodes: Roster, name: str, facts: HostFacts, ours: Ours) -> Iterator[Change]:
    """Its agent calls another controller, which may run jobs there."""
    if facts.agent_url and _plain(facts.agent_url) not in ours.urls:
        yield Change(
            f"host[{name}].controller",
            ChangeKind.CHANGED,
            UpdateClass.REPLACE,
            Source.DRIFT,
            facts.agent_url,
            ", ".join(sorted(ours.urls)) or "this cluster",
            "it is a node of another controller, which may have work on it: it is taken away from there",
            consent=f"host/{name}",
            pool=nodes.new[name].name,
            nodes=(name,),
        )


def _other_card(nodes: Roster, name: str, facts: HostFacts, ours: Ours) -> Iterator[Change]:
    """No card of it has the MAC that the inventory gives: something else answers at its address."""
    host = ours.hosts.get(name)
    if host is None or not host.mac or not facts.macs or host.mac in facts.macs:
        return
    more = f" and {len(facts.macs) - SHOWN} more" if len(facts.macs) > SHOWN else ""
    yield Change(
        f"host[{name}].mac",
        ChangeKind.CHANGED,
        UpdateClass.REFUSED,
        Source.DRIFT,
        ", ".join(facts.macs[:SHOWN]) + more,
        host.mac,
        "another machine answers at its address: no network card of it has the MAC that the inventory gives",
        "correct the address or the MAC in the inventory",
        pool=nodes.new[name].name,
        nodes=(name,),
    )


def _plain(url: str) -> str:
    return url.rstrip("/")
