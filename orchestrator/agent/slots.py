"""The slots of this node's devices, the same from the boot until the next one.

Comes in: what NVML finds. Goes out: the devices in the slots that the ledger knows them by, whatever falls off the bus
meanwhile and however often the agent is started. Called by: the daemon.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from orchestrator.telemetry.devices import Found


class Slots:
    """Slots by PCI address, in STATE/slots.json with what they are of: the boot, and this node's share of it all."""

    def __init__(self, state_dir: str, boot_id: str, only: Sequence[int] | None = None) -> None:
        """`only` as in GpuConfig: with another share, slots are numbered anew."""
        self._path = os.path.join(state_dir, "slots.json")
        self._of = {"boot_id": boot_id, "only": None if only is None else list(only)}
        self._known = self._read()

    def look(self, discover: Callable[[Mapping[str, int]], Sequence[Found]]) -> tuple[Found, ...]:
        """What is there now, in its slots. A file that can't be written counts until the agent ends."""
        found = tuple(discover(self._known))
        known = {**self._known, **{each.device.pci: each.device.slot for each in found if each.device.pci}}
        if known != self._known:
            self._known = known
            with suppress(OSError):
                self._write()
        return found

    def lacking(self, found: Sequence[Found]) -> bool:
        """Whether a device is not there that was. Emulated ones stand in for none."""
        real = [each for each in found if not each.device.emulated]
        return len(self._known) > len(real) and (bool(real) or not found)

    def _read(self) -> dict[str, int]:
        try:
            with open(self._path, encoding="utf-8") as file:
                plain = json.load(file)
            if plain["of"] != self._of:
                return {}
            return {str(pci): int(slot) for pci, slot in plain["slots"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _write(self) -> None:
        draft = f"{self._path}.new"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump({"of": self._of, "slots": self._known}, file)
        os.replace(draft, self._path)
