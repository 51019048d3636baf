"""What hosts must have: which items, in which files, for which users, and that it depends on the file alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.model.cluster import ClusterSpec, Pool
from orchestrator.model.host import Desired, Item, ItemKind, RoleState
from orchestrator.model.installed import (
    AGENT_ARCHIVE,
    AGENT_CONFIG,
    AGENT_UNIT,
    AGENT_UNIT_FILE,
)
from orchestrator.planning.desired import (
    SYSCTL_FILE,
    TIME_FILE,
    desired,
    hosts_of,
    let_go,
)
from tests.planning.scene import GONE, RESOLVED, Edits, base, document, load


def items(state: Desired) -> dict[tuple[ItemKind, str], Item]:
    return {(item.kind, item.name): item for role in state.roles for item in role.items}


def of(pool: str = "h100", edits: Edits | None = None) -> dict[tuple[ItemKind, str], Item]:
    spec = load(document(edits)) if edits else base()
    return items(desired(spec, spec.pool(pool), RESOLVED))


def content(found: dict[tuple[ItemKind, str], Item], path: str) -> str:
    return dict(found[ItemKind.FILE, path].values)["content"]


def test_packages_are_those_of_the_file_and_what_gangline_needs() -> None:
    found = {name: dict(item.values) for (kind, name), item in of().items() if kind is ItemKind.PACKAGE}

    assert found == {
        "chrony": {"version": ""},
        "htop": {"version": ""},
        "libnccl2": {"held": "yes", "version": "2.28.9-1+cuda13.0"},
        "python3": {"version": ""},
    }


def test_a_version_of_the_file_wins_over_what_gangline_needs() -> None:
    found = of(edits={"sites[hall].system.packages.chrony": "4.3-2"})

    assert dict(found[ItemKind.PACKAGE, "chrony"].values) == {"held": "yes", "version": "4.3-2"}


@pytest.mark.parametrize(
    ("name", "reboots", "disturbs"),
    [
        ("linux-image-amd64", True, True),
        ("nvidia-driver", False, True),
        ("libnvidia-ml1", False, True),
        ("htop", False, False),
    ],
)
def test_kernels_and_drivers_weigh_on_work(name: str, reboots: bool, disturbs: bool) -> None:
    item = of(edits={f"sites[hall].system.packages.{name}": "1.0"})[ItemKind.PACKAGE, name]

    assert (item.reboots, item.disturbs) == (reboots, disturbs)


def test_kernel_settings_stand_in_one_file_and_are_in_force() -> None:
    found = of()

    assert content(found, SYSCTL_FILE).splitlines()[1:] == [
        "net.core.rmem_max = 67108864",
        "vm.swappiness = 10",
    ]
    assert dict(found[ItemKind.SYSCTL, "vm.swappiness"].values) == {"value": "10"}


def test_files_stay_when_nothing_is_left_in_them() -> None:
    found = of(edits={"sites[hall].system": GONE})

    assert content(found, SYSCTL_FILE).count("\n") == 1
    assert content(found, TIME_FILE).count("\n") == 1


def test_time_comes_from_the_servers_of_the_file() -> None:
    found = of()

    assert content(found, TIME_FILE).splitlines()[1:] == [
        "server ntp1.example.org iburst",
        "server ntp2.example.org iburst",
    ]
    assert found[ItemKind.FILE, TIME_FILE].restarts == ("chrony.service",)
    assert dict(found[ItemKind.UNIT, "chrony.service"].values)["active"] == "yes"


def test_users_are_made_where_nothing_else_makes_them() -> None:
    pushed, elsewhere = of(), of(edits={"identity": {"source": "sssd"}})

    assert dict(pushed[ItemKind.USER, "alice"].values) == {
        "groups": "docker,research",
        "home": "/home/alice",
        "shell": "/bin/bash",
        "system": "no",
        "uid": "2001",
    }
    assert [name for kind, name in elsewhere if kind is ItemKind.USER] == []


def test_the_agent_is_told_what_it_is() -> None:
    found = of()
    config = json.loads(content(found, AGENT_CONFIG))

    assert config == {
        "node": "@NODE@",
        "url": "https://full.example.org:7443",
        "ca": "/etc/gangline/ca.pem",
        "join_token_file": "/etc/gangline/join",
        "state_dir": "/var/lib/gangline-agent",
        "gpus": {"emulate": "never", "model": "H100-SXM5-80GB", "count": 8, "memory": 0},
        "cores": 192,
        "memory": 2 << 40,
        "min_uid": 2000,
    }
    assert dict(found[ItemKind.ARCHIVE, AGENT_ARCHIVE].values) == {"sha256": RESOLVED.archive_sha256}


def test_the_config_is_one_that_the_agent_reads(tmp_path: object) -> None:
    from pathlib import Path

    from orchestrator.agent.config import load as load_config

    path = Path(str(tmp_path)) / "agent.json"
    path.write_text(content(of(), AGENT_CONFIG).replace("@NODE@", "h100-01"))

    config = load_config(str(path))

    assert (config.node, config.gpus.count, config.min_uid) == ("h100-01", 8, 2000)


def test_the_address_is_the_resolved_one_where_the_file_has_none() -> None:
    assert json.loads(content(of(edits={"controller": GONE}), AGENT_CONFIG))["url"] == RESOLVED.controller_url


def test_gpus_are_emulated_only_where_the_pool_says_so() -> None:
    assert json.loads(content(of("old"), AGENT_CONFIG))["gpus"]["emulate"] == "never"
    tried = of("old", {"pools[old].gpu.emulate": "always"})
    assert json.loads(content(tried, AGENT_CONFIG))["gpus"]["emulate"] == "always"


def test_the_unit_lets_jobs_outlive_the_agent_and_hides_nothing_from_them() -> None:
    lines = content(of(), AGENT_UNIT_FILE).splitlines()

    assert {"Restart=always", "KillMode=process", "Delegate=yes", "OOMPolicy=continue"} <= set(lines)
    bound = (
        "PrivateTmp",
        "ProtectSystem",
        "ProtectHome",
        "NoNewPrivileges",
        "DevicePolicy",
        "PrivateDevices",
    )
    assert [line for line in lines if line.startswith(bound)] == []
    assert f"ExecStart=/usr/bin/python3 -I {AGENT_ARCHIVE} --config {AGENT_CONFIG}" in lines


def test_whatever_changes_the_agent_restarts_it() -> None:
    found = of()
    again = [
        found[key].restarts
        for key in (
            (ItemKind.ARCHIVE, AGENT_ARCHIVE),
            (ItemKind.FILE, AGENT_CONFIG),
            (ItemKind.FILE, AGENT_UNIT_FILE),
        )
    ]

    assert again == [(AGENT_UNIT,)] * 3
    assert not any(item.disturbs or item.reboots for item in found.values())


def test_hosts_of_one_site_share_a_base_and_pools_differ_in_the_agent_alone() -> None:
    spec = base()
    first, second = (desired(spec, spec.pool(name), RESOLVED) for name in ("h100", "old"))

    assert first.roles[0] == second.roles[0]
    assert first.roles[1] != second.roles[1]
    assert [role.role for role in first.roles] == ["base", "agent"]


def test_sites_of_other_kinds_are_not_configured() -> None:
    spec = base()
    assert desired(spec, spec.pool("desk"), RESOLVED) == Desired(())
    assert desired(spec, spec.pool("burst"), RESOLVED) == Desired(())


def test_every_value_is_sorted_and_each_item_there_once() -> None:
    spec = base()
    for pool in spec.pools:
        state = desired(spec, pool, RESOLVED)
        listed = [(role.role, item.kind, item.name) for role in state.roles for item in role.items]
        assert len(listed) == len(set(listed))
        for role in state.roles:
            for item in role.items:
                assert list(item.values) == sorted(item.values)


def test_hosts_are_those_of_the_inventory_or_go_by_their_names() -> None:
    spec = base()
    assert [host.address for host in hosts_of(spec, spec.pool("h100"))][:3] == [
        "10.0.0.1",
        "10.0.0.2",
        "h100-03",
    ]
    bare = replace(spec, sites=tuple(replace(site, hosts=()) for site in spec.sites))
    assert _names(bare, spec.pool("old")) == ["a100-1", "a100-2"]


def _names(spec: ClusterSpec, pool: Pool) -> list[str]:
    return [host.address for host in hosts_of(spec, pool)]


def test_what_is_let_go_is_what_no_role_keeps_any_more() -> None:
    before = desired(base(), base().pool("h100"), RESOLVED)
    edits: Edits = {"identity.users[bob]": GONE, "sites[hall].system.packages.libnccl2": GONE}
    spec = load(document(edits))
    after = desired(spec, spec.pool("h100"), RESOLVED)

    gone = items(let_go(before, after, base().identity))

    assert sorted(name for _, name in gone) == ["bob", "libnccl2"]
    assert let_go(before, before, base().identity) == Desired(())


def test_what_was_never_ganglines_is_never_let_go_whatever_was_recorded() -> None:
    """An operator records what hosts are said to have, and root undoes what is wanted no more."""
    strange = (
        Item(ItemKind.FILE, "/etc/passwd", (("content", ""),)),
        Item(ItemKind.FILE, "/etc/gangline/../passwd", (("content", ""),)),
        Item(ItemKind.FILE, "/home/alice/gangline.txt", (("content", ""),)),
        Item(ItemKind.ARCHIVE, "/usr/bin/python3", ()),
        Item(ItemKind.UNIT, "ssh.service", ()),
        Item(ItemKind.USER, "carol", ()),
    )
    own = (
        Item(ItemKind.FILE, "/etc/sysctl.d/90-gangline.conf", ()),
        Item(ItemKind.FILE, "/opt/gangline/old.pyz", ()),
        Item(ItemKind.UNIT, "gangline-old.service", ()),
        Item(ItemKind.USER, "bob", ()),
        Item(ItemKind.PACKAGE, "libnccl2", ()),
    )
    before = Desired((RoleState("base", (*strange, *own)),))
    gone = let_go(before, Desired(()), base().identity)
    assert gone == Desired((RoleState("base", own),))
