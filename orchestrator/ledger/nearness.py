"""Which free devices of a node a unit gets, so that they are close to each other and leave others close.

Comes in: a mask of free slots, how many are asked for, masks of slots that hang on one NUMA node each. Goes out: slots.
Called by: capacity.

Devices of one NUMA node reach each other, and the host's memory, without the link between sockets. A unit gets the
NUMA node that has just enough, so that small jobs use up one that is begun and a whole one stays for who needs it.
"""

from __future__ import annotations

from functools import lru_cache

from orchestrator.model.node import Device

Groups = tuple[int, ...]  # masks of slots, one for each NUMA node; empty: nothing is known, or all are on one


def groups_of(devices: tuple[Device, ...]) -> Groups:
    """The NUMA nodes of a node's devices, in the order of their lowest slot. A device without one makes all unknown."""
    found: dict[int, int] = {}
    for device in sorted(devices, key=lambda one: one.slot):
        found[device.numa] = found.get(device.numa, 0) | 1 << device.slot
    return tuple(found.values()) if len(found) > 1 and -1 not in found else ()


@lru_cache(maxsize=1 << 14)
def nearest(free: int, each: int, units: int, groups: Groups) -> int:
    """Mask of `each` slots for every one of so many units, out of a mask that has as many."""
    taken = 0
    for _ in range(units):
        taken |= _unit(free & ~taken, each, groups)
    return taken


def _unit(free: int, count: int, groups: Groups) -> int:
    """From the group with the least left that holds all; where none does, all of the one with most left, and so on."""
    taken = 0
    while count:
        left = [free & group & ~taken for group in groups]
        enough = [mask for mask in left if mask.bit_count() >= count]
        if enough:
            return taken | _lowest(min(enough, key=int.bit_count), count)
        most = max(left, key=int.bit_count, default=0)
        if not most:
            return taken | _lowest(free & ~taken, count)
        taken, count = taken | most, count - most.bit_count()
    return taken


def _lowest(mask: int, count: int) -> int:
    left = mask
    for _ in range(count):
        left &= left - 1
    return mask & ~left
