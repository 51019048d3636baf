"""GPUs of this machine, from NVML if it is there, else emulated ones that say so.

Comes in: the `gpus` part of the agent's config. Goes out: `Found` devices in PCI order, and the processes that
compute on them. Called by: facts (discovery), the epilog gate (processes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.model.node import Device

EMULATED_MODEL = "emulated"
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """`emulate`: `auto` (real ones if NVML finds any, else emulated), `always`, `never`. `memory` in bytes.

    `only`: which of the machine's real GPUs (ordinals in PCI order) belong to this node; empty means all of them.
    """

    emulate: str = "auto"
    model: str = EMULATED_MODEL
    count: int = 0
    memory: int = 0
    only: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A device as this node has it, and its `ordinal` in PCI order among all of the machine."""

    device: Device
    ordinal: int


def discover(config: GpuConfig) -> tuple[Found, ...]:
    """This node's devices, numbered from 0 in PCI order."""
    if config.emulate != "always":
        real = _chosen(_nvml_devices(), config.only)
        if real or config.emulate == "never":
            return real
    return tuple(
        Found(Device(slot, config.model, config.memory, emulated=True), slot) for slot in range(config.count)
    )


def _chosen(devices: list[Device], only: tuple[int, ...] | None) -> tuple[Found, ...]:
    ordinals = [number for number in range(len(devices)) if only is None or number in only]
    return tuple(Found(_in_slot(devices[ordinal], slot), ordinal) for slot, ordinal in enumerate(ordinals))


def _in_slot(device: Device, slot: int) -> Device:
    return Device(slot, device.model, device.memory, device.uuid, device.pci)


def _nvml() -> Any:
    """The module, ready to use; None without pynvml or without a driver."""
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _nvml_devices() -> list[Device]:
    """All GPUs that NVML sees, in PCI order."""
    nvml = _nvml()
    if nvml is None:
        return []
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return sorted((_describe(nvml, handle) for handle in handles), key=lambda device: device.pci)
    finally:
        nvml.nvmlShutdown()


def _describe(nvml: Any, handle: Any) -> Device:
    return Device(
        slot=0,
        model=_text(nvml.nvmlDeviceGetName(handle)),
        memory=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        pci=_text(nvml.nvmlDeviceGetPciInfo(handle).busId).lower(),
    )


def _text(value: str | bytes) -> str:
    """Older releases of pynvml answer bytes."""
    return value.decode() if isinstance(value, bytes) else value


def compute_pids(uuids: Sequence[str]) -> dict[str, list[int]]:
    """Processes with a compute context on each device. Empty without NVML: then no device is real."""
    if not uuids:
        return {}
    nvml = _nvml()
    if nvml is None:
        return {}
    try:
        return {uuid: _pids_on(nvml, uuid) for uuid in uuids}
    finally:
        nvml.nvmlShutdown()


def _pids_on(nvml: Any, uuid: str) -> list[int]:
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    return sorted(int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
