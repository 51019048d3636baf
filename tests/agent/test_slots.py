"""Slots of devices over losses, restarts of the agent and reboots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.agent.slots import Slots
from orchestrator.model.node import Device
from orchestrator.telemetry.devices import Found


class Bus:
    """Devices by PCI address, numbered as `discover` does."""

    def __init__(self, *there: str) -> None:
        self.there = there

    def __call__(self, known: Mapping[str, int]) -> list[Found]:
        slots = dict(known)
        for pci in self.there:
            slots.setdefault(pci, max(slots.values(), default=-1) + 1)
        return [Found(Device(slots[pci], "G", pci=pci), number) for number, pci in enumerate(self.there)]


def seen(slots: Slots, bus: Bus) -> dict[str, int]:
    return {each.device.pci: each.device.slot for each in slots.look(bus)}


def test_a_lost_device_leaves_its_slot_empty_also_for_the_next_agent(tmp_path: Path) -> None:
    bus = Bus("a", "b", "c")
    first = Slots(str(tmp_path), "boot-1")
    assert seen(first, bus) == {"a": 0, "b": 1, "c": 2}
    bus.there = ("b", "c")
    assert seen(first, bus) == {"b": 1, "c": 2}
    again = Slots(str(tmp_path), "boot-1")
    assert seen(again, bus) == {"b": 1, "c": 2}
    assert again.lacking(again.look(bus))
    bus.there = ("a", "b", "c")
    assert seen(again, bus) == {"a": 0, "b": 1, "c": 2}
    assert not again.lacking(again.look(bus))


@pytest.mark.parametrize(("boot", "only"), [("boot-2", None), ("boot-1", (1, 2))])
def test_another_boot_or_another_share_numbers_anew(
    tmp_path: Path, boot: str, only: tuple[int, ...] | None
) -> None:
    bus = Bus("a", "b", "c")
    seen(Slots(str(tmp_path), "boot-1"), bus)
    bus.there = ("b", "c")
    assert seen(Slots(str(tmp_path), boot, only), bus) == {"b": 0, "c": 1}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"of": {"boot_id": "boot-1", "only": null}}', '{"of": 1, "slots": {}}']
)
def test_a_file_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "slots.json").write_text(text)
    assert seen(Slots(str(tmp_path), "boot-1"), Bus("b", "c")) == {"b": 0, "c": 1}


def test_a_file_that_can_not_be_written_is_no_reason_to_end(tmp_path: Path) -> None:
    slots = Slots(str(tmp_path / "nowhere"), "boot-1")
    bus = Bus("a", "b")
    seen(slots, bus)
    bus.there = ("b",)
    assert seen(slots, bus) == {"b": 1}


def test_emulated_devices_lack_nothing(tmp_path: Path) -> None:
    slots = Slots(str(tmp_path), "boot-1")
    emulated = [Found(Device(0, "G", emulated=True), 0)]
    assert not slots.lacking(slots.look(lambda _: emulated))
    seen(slots, Bus("a"))
    assert not slots.lacking(emulated), "the pool plays them now"
    assert slots.lacking([])
