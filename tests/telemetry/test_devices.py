"""Devices by config and by NVML, played by a module of that name; facts of this host."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from orchestrator.model.codec import decode, encode
from orchestrator.model.node import Device, NodeFacts
from orchestrator.telemetry import host
from orchestrator.telemetry.devices import GpuConfig, compute_pids, discover, numa_of
from orchestrator.telemetry.facts import node_facts

UUIDS = ["GPU-c", "GPU-a", "GPU-b"]  # NVML's own order is not the PCI order
BUSES = [b"00000000:C1:00.0", b"00000000:01:00.0", b"00000000:41:00.0"]


class PlayedNvml(ModuleType):
    """Three devices; `broken` as without a driver. Answers bytes, as older releases do."""

    class NVMLError(Exception):
        value = 15  # the device is lost

    def __init__(self, broken: bool = False) -> None:
        super().__init__("pynvml")
        self.broken = broken
        self.open = 0
        self.lost: set[str] = set()  # still counted, and silent

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own names
        if self.broken:
            raise self.NVMLError("driver not loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return self.nvmlDeviceGetHandleByUUID(UUIDS[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        if uuid in self.lost:
            raise self.NVMLError("GPU is lost")
        return UUIDS.index(uuid)

    def nvmlDeviceGetName(self, _handle: int) -> bytes:  # noqa: N802
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:  # noqa: N802
        return UUIDS[handle].encode()

    def nvmlDeviceGetMemoryInfo(self, _handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=80 << 30)

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=BUSES[handle])

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=77), SimpleNamespace(pid=5)] if handle == 1 else []


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> PlayedNvml:
    played = PlayedNvml()
    monkeypatch.setitem(sys.modules, "pynvml", played)
    return played


def test_real_devices_in_pci_order(nvml: PlayedNvml) -> None:
    found = discover(GpuConfig(count=8))
    assert [(each.device.slot, each.device.uuid, each.ordinal) for each in found] == [
        (0, "GPU-a", 0),
        (1, "GPU-b", 1),
        (2, "GPU-c", 2),
    ]
    first = found[0].device
    assert (first.model, first.memory, first.pci) == ("NVIDIA H100 80GB HBM3", 80 << 30, "00000000:01:00.0")
    assert not first.emulated
    assert nvml.open == 0


def test_nodes_that_share_a_machine_take_their_own_devices(nvml: PlayedNvml) -> None:
    found = discover(GpuConfig(only=(1, 2)))
    assert [(each.device.slot, each.device.uuid, each.ordinal) for each in found] == [
        (0, "GPU-b", 1),
        (1, "GPU-c", 2),
    ]
    assert discover(GpuConfig(only=(), emulate="never")) == ()


def test_slots_stay_when_a_device_falls_off_the_bus(nvml: PlayedNvml) -> None:
    known = {each.device.pci: each.device.slot for each in discover(GpuConfig())}
    nvml.lost = {"GPU-a"}
    found = discover(GpuConfig(), known)
    assert [(each.device.slot, each.device.uuid, each.ordinal) for each in found] == [
        (1, "GPU-b", 0),
        (2, "GPU-c", 1),
    ]
    nvml.lost = set()
    assert [each.device.slot for each in discover(GpuConfig(), known)] == [0, 1, 2]
    assert nvml.open == 0


def test_a_device_that_comes_later_takes_no_other_ones_slot(nvml: PlayedNvml) -> None:
    nvml.lost = {"GPU-a"}
    known = {each.device.pci: each.device.slot for each in discover(GpuConfig())}
    nvml.lost = set()
    slots = {each.device.uuid: each.device.slot for each in discover(GpuConfig(), known)}
    assert slots == {"GPU-b": 0, "GPU-c": 1, "GPU-a": 2}


def test_a_share_of_a_machine_stays_what_it_was(nvml: PlayedNvml) -> None:
    """The first of all is lost, and places move: this node's devices are the same ones."""
    mine = GpuConfig(only=(1,))
    known = {each.device.pci: each.device.slot for each in discover(mine)}
    nvml.lost = {"GPU-a"}
    assert [(each.device.uuid, each.ordinal) for each in discover(mine, known)] == [("GPU-b", 0)]
    nvml.lost = {"GPU-b"}
    assert discover(mine, known) == ()


def test_lost_devices_are_not_replaced_by_emulated_ones(nvml: PlayedNvml) -> None:
    known = {each.device.pci: each.device.slot for each in discover(GpuConfig(count=8))}
    nvml.lost = set(UUIDS)
    assert discover(GpuConfig(count=8), known) == ()


def test_nothing_computes_on_a_device_that_is_gone(nvml: PlayedNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.lost = {"GPU-a"}
    assert compute_pids(["GPU-a", "GPU-b"]) == {"GPU-a": [], "GPU-b": []}
    monkeypatch.setattr(PlayedNvml.NVMLError, "value", 999)
    with pytest.raises(PlayedNvml.NVMLError):
        compute_pids(["GPU-a"])


def test_emulated_ones_say_so(nvml: PlayedNvml) -> None:
    found = discover(GpuConfig("always", "H100", 2, 80 << 30))
    assert [each.device for each in found] == [
        Device(0, "H100", 80 << 30, emulated=True),
        Device(1, "H100", 80 << 30, emulated=True),
    ]


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", PlayedNvml(broken=True))
    assert [each.device.emulated for each in discover(GpuConfig(count=3))] == [True] * 3
    assert discover(GpuConfig("never", count=3)) == ()
    assert compute_pids(["GPU-a"]) == {}


def test_without_pynvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert discover(GpuConfig()) == ()


def test_processes_on_devices(nvml: PlayedNvml) -> None:
    assert compute_pids(["GPU-a", "GPU-b"]) == {"GPU-a": [5, 77], "GPU-b": []}
    assert compute_pids([]) == {}
    assert nvml.open == 0


def test_facts_of_this_host() -> None:
    found = discover(GpuConfig("always", count=1))
    facts = node_facts(found, supervisor="cgroup2", run_as_self=True)
    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert (facts.boot_id, facts.hostname, facts.run_as) == (
        host.boot_id(),
        host.hostname(),
        host.user_name(),
    )
    assert not facts.can_switch_user
    assert decode(NodeFacts, encode(facts)) == facts


def test_facts_that_the_config_overrides() -> None:
    facts = node_facts((), supervisor="process-tree", run_as_self=False, cores=3, memory=4)
    assert (facts.cores, facts.memory) == (3, 4)
    assert facts.can_switch_user == (os.geteuid() == 0)


@pytest.mark.parametrize(
    ("text", "want"),
    [("1\n", 1), ("0\n", 0), ("-1\n", -1), ("", -1), (None, -1)],
    ids=["the second", "the first", "one that has none", "nothing", "no such file"],
)
def test_the_numa_node_of_a_device_is_the_systems_word(tmp_path: Path, text: str | None, want: int) -> None:
    if text is not None:
        (tmp_path / "0000:c1:00.0").mkdir()
        (tmp_path / "0000:c1:00.0" / "numa_node").write_text(text)
    assert numa_of("00000000:c1:00.0", str(tmp_path)) == want
