"""GPUs of this machine, from NVML if it is there, else emulated ones that say so.

Comes in: the `gpus` part of the agent's config. Goes out: `Found` devices in PCI order, and the processes that
compute on them. Called by: facts (discovery), the epilog gate (processes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.model.node import Device

EMULATED_MODEL = "emulated"
GIB = 1 << 30
GONE = (6, 15)  # NVML_ERROR_NOT_FOUND, NVML_ERROR_GPU_IS_LOST (nvml.h)


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


def discover(config: GpuConfig, known: Mapping[str, int] | None = None) -> tuple[Found, ...]:
    """This node's devices, numbered from 0 in PCI order. `known`: slots by PCI address as they were numbered since the
    boot; they stay so when one falls off the bus, since the ledger knows devices by them."""
    if config.emulate != "always":
        real = _chosen(_nvml_devices(), config.only, known or {})
        if real or known or config.emulate == "never":
            return real
    return tuple(
        Found(Device(slot, config.model, config.memory, emulated=True), slot) for slot in range(config.count)
    )


def _chosen(
    devices: list[Device], only: tuple[int, ...] | None, known: Mapping[str, int]
) -> tuple[Found, ...]:
    """Those of this node in the order of their slots; one that is new comes after all others."""
    slots = dict(known)
    found: list[Found] = []
    for ordinal, device in enumerate(devices):
        if device.pci not in slots:
            if only is not None and (known or ordinal not in only):
                continue  # places count at the first look alone: later they may have moved
            slots[device.pci] = max(slots.values(), default=-1) + 1
        found.append(Found(_in_slot(device, slots[device.pci]), ordinal))
    return tuple(sorted(found, key=lambda each: each.device.slot))


def _in_slot(device: Device, slot: int) -> Device:
    return replace(device, slot=slot)


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
    """All GPUs that answer, in PCI order. One that fell off the bus is still counted, and says nothing any more."""
    nvml = _nvml()
    if nvml is None:
        return []
    try:
        found = (_describe(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
        return sorted((device for device in found if device is not None), key=lambda device: device.pci)
    finally:
        nvml.nvmlShutdown()


def _describe(nvml: Any, index: int) -> Device | None:
    try:
        return _described(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError:
        return None


def _described(nvml: Any, handle: Any) -> Device:
    pci = _text(nvml.nvmlDeviceGetPciInfo(handle).busId).lower()
    return Device(
        slot=0,
        model=_text(nvml.nvmlDeviceGetName(handle)),
        memory=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        pci=pci,
        numa=numa_of(pci),
    )


def numa_of(pci: str, sysfs: str = "/sys/bus/pci/devices") -> int:
    """The NUMA node of a PCI address as NVML writes it (eight digits of domain; sysfs has four); -1 if nothing says."""
    domain, _, rest = pci.partition(":")
    try:
        with open(f"{sysfs}/{domain[-4:]}:{rest}/numa_node", encoding="ascii") as file:
            return max(int(file.read()), -1)
    except (OSError, ValueError):
        return -1


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
    """None on a device that is gone: nothing computes there."""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError as error:
        if error.value in GONE:
            return []
        raise
    return sorted(int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
