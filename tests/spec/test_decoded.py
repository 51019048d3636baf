"""Texts of a spec that came without a document: what no document could have said is found, wherever it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.cluster import (
    ClusterSpec,
    Controller,
    Host,
    Identity,
    Pool,
    PosixGroup,
    Site,
    SiteKind,
    Ssh,
    System,
    User,
)
from orchestrator.spec import text_faults

HALL = Site(
    "hall",
    SiteKind.METAL,
    ssh=Ssh("ops", "file:/home/me/a key", "bastion"),
    system=System((("jq", ""), ("numactl", "2.0.16-1")), (("net.core.somaxconn", "4096"),), ("ntp.example",)),
    hosts=(Host("h1", "10.0.0.1"), Host("h2", "fd00::2")),
)
SOUND = ClusterSpec(
    "atlas",
    controller=Controller("https://[fd00::1]:7443", state="/srv/my ledger"),
    identity=Identity(users=(User("alice", 2001, ("research",)),), groups=(PosixGroup("research", 2100),)),
    sites=(HALL,),
    pools=(Pool("p", "hall", ("h1", "h2")),),
)


def test_a_sound_spec_has_no_faults() -> None:
    assert list(text_faults(SOUND)) == []
    assert list(text_faults(ClusterSpec("a"))) == []


def at_site(**values: object) -> ClusterSpec:
    return replace(SOUND, sites=(replace(HALL, **values),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        (at_site(ssh=Ssh(user="a\n  ProxyCommand id")), "spec.sites.ssh.user"),
        (at_site(ssh=Ssh(user="-l")), "spec.sites.ssh.user"),
        (at_site(ssh=Ssh(jump="-oProxyCommand=id")), "spec.sites.ssh.jump"),
        (at_site(ssh=Ssh(key="/etc/shadow")), "spec.sites.ssh.key"),
        (at_site(hosts=(Host("h1", "-oProxyCommand=id"),)), "spec.sites.hosts"),
        (at_site(hosts=(Host("h 1"),)), "spec.sites.hosts"),
        (at_site(hosts=(Host("h1", rack="a\rb"),)), "spec.sites.hosts.rack"),
        (at_site(name="../x"), "spec.sites.name"),
        (at_site(system=System(packages=(("-o", ""),))), "spec.sites.system.packages"),
        (at_site(system=System(packages=(("jq", "1 /x"),))), "spec.sites.system.packages"),
        (at_site(system=System(sysctls=(("--system", "1"),))), "spec.sites.system.sysctls"),
        (at_site(system=System(sysctls=(("a.b", "1\nc.d = 2"),))), "spec.sites.system.sysctls"),
        (at_site(system=System(time_servers=("x iburst",))), "spec.sites.system.time_servers"),
        (replace(SOUND, pools=(Pool("../p", "hall"),)), "spec.pools.name"),
        (replace(SOUND, pools=(Pool("p", "hall", ("-n",)),)), "spec.pools.nodes"),
        (replace(SOUND, name="a b"), "spec.name"),
        (replace(SOUND, controller=Controller("https://u@h")), "spec.controller.address"),
        (replace(SOUND, controller=Controller(state="/var/../etc")), "spec.controller.state"),
        (replace(SOUND, identity=Identity(users=(User("a:b", 2001),))), "spec.identity.users"),
        (replace(SOUND, identity=Identity(groups=(PosixGroup("-g", 2001),))), "spec.identity.groups"),
        (replace(SOUND, timezone="\ud800"), "spec.timezone"),
    ],
)
def test_what_no_document_could_say_is_named(spec: ClusterSpec, where: str) -> None:
    assert any(fault.startswith(f"{where} ") for fault in text_faults(spec)), list(text_faults(spec))
