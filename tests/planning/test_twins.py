"""Words about hosts that share a machine id: which of the three cases it is, and what would let each pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.change import Change, UpdateClass
from orchestrator.model.host import HostFacts, Sight
from tests.planning.scene import Scene, facts, sight


def seen(name: str, machine: str, boot: str) -> Sight:
    return replace(sight(name), facts=replace(facts(name), machine_id=machine, boot_id=boot))


def refused(*sights: Sight, absent: tuple[str, ...] = ()) -> list[Change]:
    scene = Scene("twins", sights=sights, nodes=dict.fromkeys(absent))
    return [change for change in scene.plan().changes if change.cls is UpdateClass.REFUSED]


def test_one_machine_under_two_names() -> None:
    (change,) = refused(seen("h100-01", "m", "b"), seen("h100-02", "m", "b"), absent=("h100-01", "h100-02"))
    assert (change.path, change.why) == (
        "host[h100-02].machine-id",
        "it is the machine of h100-01: both names lead to it",
    )
    assert "correct the address" in change.unblock


def test_two_machines_of_one_image() -> None:
    (change,) = refused(seen("h100-01", "m", "b1"), seen("h100-02", "m", "b2"), absent=("h100-01", "h100-02"))
    assert "one is a copy of the other" in change.why
    assert "systemd-machine-id-setup" in change.unblock


def test_the_one_that_works_keeps_its_name() -> None:
    """The later name in the file is the one that is there already: the new one is told."""
    new = seen("h100-01", "machine-h100-02", "b")
    (change,) = refused(new, absent=("h100-01",))
    assert change.nodes == ("h100-01",)


@pytest.mark.parametrize("count", [3, 5])
def test_a_whole_rack_of_one_image(count: int) -> None:
    names = [f"h100-0{number}" for number in range(1, count + 1)]
    found = refused(*(seen(name, "m", f"b-{name}") for name in names), absent=tuple(names))
    assert [change.nodes for change in found] == [(name,) for name in names[1:]]
    assert all("machine id of h100-01" in change.why for change in found)


def test_hosts_that_say_nothing_of_themselves_are_no_twins() -> None:
    nothing = HostFacts("", "")
    assert not refused(
        *(replace(sight(name), facts=nothing) for name in ("h100-01", "h100-02")),
        absent=("h100-01", "h100-02"),
    )
