"""What the controller's own host must have: its unit's text, its items, and that both come from the file alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.cli import paths
from orchestrator.model.cluster import ClusterSpec, Controller, Host, Queue, Site, SiteKind
from orchestrator.model.host import ItemKind
from orchestrator.planning.desired_controller import (
    ARCHIVE,
    PORT,
    SOCKET,
    UNIT,
    UNIT_FILE,
    desired_controller,
    names_of,
    place_of,
    unit_text,
)

SITE = Site("hall", SiteKind.METAL, hosts=(Host("c1", "10.0.0.9"), Host("n1", "10.0.0.1")))
URL = "https://10.0.0.9:7443"


def spec_of(address: str = URL, state: str = "") -> ClusterSpec:
    return ClusterSpec("atlas", controller=Controller(address=address, host="c1", state=state), sites=(SITE,))


def lines(spec: ClusterSpec) -> dict[str, list[str]]:
    """The unit's settings by name."""
    found: dict[str, list[str]] = {}
    for line in unit_text(spec).splitlines():
        name, sign, value = line.partition("=")
        if sign:
            found.setdefault(name, []).append(value)
    return found


def test_the_archive_and_the_unit_restart_it_and_nothing_else_does() -> None:
    (role,) = desired_controller(spec_of(), "ab" * 32).roles
    assert {item.name for item in role.items if item.restarts} == {ARCHIVE, UNIT_FILE}
    assert {unit for item in role.items for unit in item.restarts} == {UNIT}
    assert [item.name for item in role.items if item.kind is ItemKind.UNIT][-1] == UNIT
    assert role.items[-1].name == UNIT, "it starts when all that it reads is there"


def test_queues_and_access_are_no_part_of_the_host() -> None:
    other = replace(spec_of(), queues=(Queue("research"),))
    assert desired_controller(other, "ab" * 32) == desired_controller(spec_of(), "ab" * 32)


def test_it_runs_closed_in_as_a_user_of_its_own_with_a_watchdog() -> None:
    found = lines(spec_of())
    wanted = {
        "Type": "notify",
        "User": "gangline",
        "WatchdogSec": "30",
        "Restart": "always",
        "StateDirectory": "gangline",
        "StateDirectoryMode": "0700",
        "ProtectSystem": "strict",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
    }
    assert {name: found[name] for name in wanted} == {name: [value] for name, value in wanted.items()}
    assert "ReadWritePaths" not in found
    (start,) = found["ExecStart"]
    assert start.endswith(
        "server run --cluster atlas --state /var/lib/gangline/atlas --listen 10.0.0.9:7443 "
        f"--socket {SOCKET} --own-ca 10.0.0.9 --own-ca localhost --own-ca 127.0.0.1"
    )


@pytest.mark.parametrize(
    ("address", "listen"),
    [
        ("https://10.0.0.9:7443", "10.0.0.9:7443"),
        ("https://192.0.2.1:7443", "0.0.0.0:7443"),  # something stands in between
        ("https://atlas.example.org", f"0.0.0.0:{PORT}"),
        ("https://[2001:db8::1]:7000", "[::]:7000"),
    ],
)
def test_it_listens_where_the_address_leads(address: str, listen: str) -> None:
    assert f" --listen {listen} " in lines(spec_of(address))["ExecStart"][0]


def test_a_port_of_roots_needs_one_capability_and_no_other() -> None:
    found = lines(spec_of("https://atlas.example.org:443"))
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == ["CAP_NET_BIND_SERVICE"]


def test_a_ledger_elsewhere_may_be_written_and_is_the_controllers() -> None:
    spec = spec_of(state="/srv/my ledgers/100%")
    found = lines(spec)
    assert found["ReadWritePaths"] == ['"/srv/my ledgers/100%%"']
    assert '--state "/srv/my ledgers/100%%" ' in found["ExecStart"][0]
    (role,) = desired_controller(spec, "ab" * 32).roles
    (folder,) = [dict(item.values) for item in role.items if item.name == spec.controller.state]
    assert folder == {"group": "gangline", "mode": "0700", "owner": "gangline"}


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://Atlas:1", ("atlas", 1)),
        ("http://atlas/", ("atlas", PORT)),
        ("https://[::1]:2", ("::1", 2)),
        ("ssh://x", ("", PORT)),
    ],
)
def test_an_address_has_a_host_and_a_port(url: str, place: tuple[str, int]) -> None:
    assert place_of(url) == place


def test_the_certificate_is_for_the_address_and_this_host() -> None:
    assert names_of(URL) == ("10.0.0.9", "localhost", "127.0.0.1")
    assert names_of("https://127.0.0.1:1") == ("127.0.0.1", "localhost")


def test_the_command_finds_the_socket_where_the_unit_puts_it() -> None:
    assert str(paths.MACHINE_SOCKET) == SOCKET
