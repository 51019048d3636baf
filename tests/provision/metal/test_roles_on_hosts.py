"""Roles and check on real hosts: bare ones become as wanted, stay so, and every sabotage is found, named and healed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.model.clock import SystemClock
from orchestrator.model.cluster import (
    ClusterSpec,
    Emulate,
    GpuSpec,
    Host,
    Identity,
    IdentitySource,
    Pool,
    Site,
    SiteKind,
    Ssh,
    System,
    User,
)
from orchestrator.model.host import Desired, ItemKind, RoleState, Step
from orchestrator.planning.desired import Resolved, desired
from orchestrator.provision.metal import ansible, archive, render
from orchestrator.provision.metal.channel import Channel, Way
from orchestrator.provision.metal.check import Checked, Target, check
from orchestrator.provision.metal.ssh import Access, lay
from tests.provision.metal.sabotages import FILES, SABOTAGES, extra, extra_items
from tests.testbed.bed import Bed
from tests.testbed.bed import Host as Machine
from tests.testbed.debs import repository

pytestmark = pytest.mark.testbed
RESOLVED = Resolved(archive.agent_archive().sha256, "http://127.0.0.1:9", "", "test")


def spec_of(hosts: Sequence[Machine], ssh: Ssh) -> ClusterSpec:
    system = System(
        packages=(("gl-held", "1.0"), ("gl-new", "2.0"), ("logrotate", "")),
        sysctls=(("net.core.somaxconn", "4096"), ("vm.max_map_count", "1048576")),
        time_servers=("time.example.org",),
    )
    users = (User("alice", 1500), User("bob", 1501), User("carol", 1502, ("research",)))
    site = Site(
        "hall",
        SiteKind.METAL,
        ssh=ssh,
        system=system,
        hosts=tuple(Host(host.name, host.address) for host in hosts),
    )
    pool = Pool("h100", "hall", tuple(host.name for host in hosts), gpu=GpuSpec("H100", 8, Emulate.ALWAYS))
    return ClusterSpec(
        "atlas", identity=Identity(IdentitySource.PUSHED, users=users), sites=(site,), pools=(pool,)
    )


def wanted_of(spec: ClusterSpec) -> Desired:
    """What the spec wants, and more files and units to sabotage."""
    base, agent = desired(spec, spec.pools[0], RESOLVED).roles
    return Desired((replace(base, items=(*base.items, *extra_items())), agent))


@dataclass
class Applied:
    """Hosts, what they must have, the folder that is rendered for them, and the two things that are done with them."""

    hosts: list[Machine]
    wanted: Desired
    folder: Path
    access: Access
    key: str  # reference to the private key of the user that Gangline comes in as

    def check(self) -> dict[str, Checked]:
        """Over Gangline's own SSH; first contacts record keys."""

        async def look() -> list[Checked]:
            channel = Channel(self.access)
            await channel.run_on([host.name for host in self.hosts], ["true"], way=Way(first=True))
            targets = [Target(host.name, self.wanted, host.address) for host in self.hosts]
            return await check(targets, channel, SystemClock())

        checked = {each.sight.host: each for each in asyncio.run(look())}
        assert {each.sight.reached for each in checked.values()} == {Step.DONE}, checked
        return checked

    def drift(self) -> dict[str, set[tuple[str, ItemKind, str, str]]]:
        return {
            host: {(each.role, each.kind, each.name, each.value) for each in checked.sight.drift}
            for host, checked in self.check().items()
        }

    def play(self, *roles: str, check: bool = False) -> dict[str, ansible.HostRun]:
        told: list[ansible.Progress] = []
        tokens = {"gangline_join_tokens": {host.name: "a-join-token" for host in self.hosts}}
        names = [host.name for host in self.hosts]
        wanted = ansible.Play(self.folder, hosts=names, roles=roles, check=check, secret_vars=tokens)
        runs = asyncio.run(ansible.play(wanted, told.append))
        assert {each.host for each in told} == set(names)
        return runs


def no_more(before: Desired, after: Desired) -> Desired:
    """As `let_go`, with the files and units to sabotage, which don't have Gangline's name."""
    kept = {(role.role, item.kind, item.name) for role in after.roles for item in role.items}
    return Desired(
        tuple(
            RoleState(
                role.role, tuple(one for one in role.items if (role.role, one.kind, one.name) not in kept)
            )
            for role in before.roles
        )
    )


def applied(
    hosts: list[Machine], spec: ClusterSpec, wanted: Desired, place: Path, before: Desired | None = None
) -> Applied:
    """Render for these hosts; what was wanted before and is no more is undone."""
    access = lay(spec.sites[0], place, os.environ)
    leaving = {"h100": no_more(before, wanted)} if before is not None else {}
    rendering = render.Rendering(spec, {"h100": wanted}, leaving, ssh_configs={"hall": access.config})
    render.write(place / "out", render.render(rendering, archive.agent_archive()))
    return Applied(hosts, wanted, place / "out", access, spec.sites[0].ssh.key)


@pytest.fixture(scope="module")
def site(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    """Two bare hosts, Debian 12 and 13, and a folder that is rendered for them."""
    hosts = testbed.fresh(2, "12", "13")
    for host in hosts:
        host.inside(repository("gl-held", "gl-new")).check()
    spec = spec_of(hosts, Ssh(user="ops", key=f"file:{testbed.key}"))
    return applied(hosts, spec, wanted_of(spec), tmp_path_factory.mktemp("metal"))


def test_bare_hosts_become_as_wanted_and_stay_so(site: Applied) -> None:
    before = site.drift()
    tried = site.play(check=True)
    assert site.drift() == before, "check mode changes nothing"
    assert {host: run.ok for host, run in tried.items()} == {host.name: True for host in site.hosts}

    made = site.play()
    assert {host: (run.ok, run.error) for host, run in made.items()} == {
        host.name: (True, "") for host in site.hosts
    }
    assert all(run.changed > 0 for run in made.values())
    assert site.drift() == {host.name: set() for host in site.hosts}

    again = site.play()
    assert {host: (run.changed, run.error) for host, run in again.items()} == {
        host.name: (0, "") for host in site.hosts
    }
    for host in site.hosts:
        assert host.inside("stat -c %a /etc/gangline/join").check() == "600"
        assert host.inside(f"cat {extra('edited')}").check() == f"edited on {host.name}"
        notes = " ".join(site.check()[host.name].notes)
        assert "vm.max_map_count" in notes, "what a container can't set is told"


def test_every_sabotage_is_found_named_and_healed_by_its_role(site: Applied) -> None:
    assert site.drift() == {host.name: set() for host in site.hosts}, "begins as wanted"
    expected: set[tuple[str, ItemKind, str, str]] = set()
    for sabotage in SABOTAGES:
        for host in site.hosts:
            host.inside(sabotage.command).check()
        expected.add(sabotage.key)
        for name, checked in site.check().items():
            drift = {(each.role, each.kind, each.name, each.value): each for each in checked.sight.drift}
            key = sabotage.key
            assert key in drift, (sabotage.title, name, sorted(drift))
            assert sabotage.found in drift[key].found, (sabotage.title, name, drift[key])
            assert {each[:3] for each in drift} == {each[:3] for each in expected}, (sabotage.title, name)

    healed = site.play("base")
    assert {run.error for run in healed.values()} == {""}
    assert {role for drift in site.drift().values() for role, *_ in drift} == {"agent"}, (
        "the other role's stays"
    )
    healed = site.play("agent")
    assert {run.error for run in healed.values()} == {""}
    assert site.drift() == {host.name: set() for host in site.hosts}


def test_what_is_wanted_no_more_is_undone_once(site: Applied, tmp_path: Path) -> None:
    """Units, files, holds and accounts; packages, homes and what people wrote stay."""
    spec = spec_of(site.hosts, Ssh(user="ops", key=site.key))
    slim = replace(
        spec,
        identity=Identity(IdentitySource.PUSHED, users=(User("alice", 1500),)),
        sites=(replace(spec.sites[0], system=System()),),
    )
    less = desired(slim, slim.pools[0], RESOLVED)
    later = applied(site.hosts, slim, less, tmp_path, before=site.wanted)
    told = later.play("base", check=True)
    assert all("unit gl-stopped.service: stopped and disabled" in run.changes for run in told.values())
    assert site.drift() == {host.name: set() for host in site.hosts}, "check mode undoes nothing"

    undone = later.play("base")
    assert {(run.ok, run.error) for run in undone.values()} == {(True, "")}
    for host in site.hosts:
        for name in ("gl-masked", "gl-stopped", "gl-disabled"):
            assert host.inside(f"systemctl is-active {name}").out.strip() == "inactive"
            assert host.inside(f"systemctl cat {name}").code != 0, "its file went with it"
        assert host.inside(f"ls {' '.join(extra(name) for name in FILES)}").code != 0
        assert host.inside("apt-mark showhold").check() == ""
        assert host.inside("dpkg-query -W -f '${Version} ' gl-held gl-new").check().split() == ["1.0", "2.0"]
        assert host.inside("getent passwd bob carol").out == ""
        assert host.inside("stat -c %u /home/bob /home/carol").check().split() == ["1501", "1502"]
        assert host.inside("getent passwd alice").code == 0
    assert later.drift() == {host.name: set() for host in site.hosts}
    assert {run.changed for run in later.play("base").values()} == {0}
