"""What one unit of a job asks of one node, in the numbers that placement counts in.

Comes in: nothing. Goes out: `Ask`. Called by: capacity (does it fit), scheduler (what does it cost where), benchmarks.
"""

from __future__ import annotations

from typing import NamedTuple

DEVICE = 1000  # milli of a whole device


class Ask(NamedTuple):
    """One unit: whole devices, or a share of one device, or neither.

    Cores may be in any integer unit, as long as the nodes and every ask of a mix use the same one.
    """

    gpus: int = 0  # whole devices; 0 where `milli` is given
    milli: int = 0  # share of one device, 1 to 999; 0 where `gpus` is given
    device_bytes: int = 0  # free memory that each of its devices must have
    cores: int = 0
    memory: int = 0  # bytes
    models: tuple[int, ...] = ()  # numbers of the GPU models that it takes; empty: any

    @property
    def device_milli(self) -> int:
        """All that it takes of the node's devices, in milli."""
        return self.gpus * DEVICE + self.milli
