"""What a cluster's usual work says about placement, as integer tables.

Comes in: typical shapes with weights, the cluster's kinds of nodes, a preset. Goes out: `Tables`. Called by: whoever
keeps the mix (scheduler, benchmarks); waste and kernel read the tables.

All costs are micro-GPU (1,000,000 is one device) with the preset's weight already in them. The tables are a pure
function of the arguments, in whole numbers throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.ask import DEVICE, Ask
from orchestrator.scheduler.cutting import worths
from orchestrator.scheduler.presets import Preset

Mix = Mapping[Ask, int]  # typical shapes with their weights
Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]

SHIFT = 16  # fixed point of the rates below
MOST_RATE = 1 << 38  # times 2^24 MiB or cores is still less than 2^63
MIB_BITS = 20  # memory is counted in MiB
TENTHS = 10  # idle devices are looked up in tenths
SPARE_DEVICES = 4  # cores beyond those of so many devices are never counted as spare
SPARE_CELLS = 2048  # at most so many steps of cores in the table of spare cores
MOST_STEPS = 63  # distinct numbers of cores in the fragmentation table; more are rounded up to one of these


class Kind(NamedTuple):
    """Nodes that are alike."""

    model: int  # -1: no devices
    gpus: int
    cores: int  # in the unit of the asks
    memory: int  # bytes
    nodes: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Read by waste and compiled. An axis "of model" starts with nodes without devices; model m is at m + 1."""

    worth: Ints  # [1001] of a device with r milli free
    strand: int  # per idle milli
    per_core: int  # idle devices that a core can serve, << SHIFT
    per_mib: int  # the same for a MiB; 0 where memory is no matter
    core_bits: int  # a cell of `spare` is 1 << core_bits cores
    spare_of: Ints  # [of model] its place in `spare`
    spare: Narrow  # [place, idle tenths, cells + 1] cores that no combination uses
    scarcity: Ints  # [of model] per device, for asks that take any model
    fragment: int  # per idle milli; 0: the next three are empty
    core_bins: Ints  # [steps] ascending numbers of cores
    usable: Narrow  # [of model, steps + 1, 1001] what the mix could use of a device with r milli free
    usable_many: Narrow  # [of model, steps + 1, devices + 1] the same, of whole ones by several at once
    fill: int  # per idle milli of a node with one device
    rank_step: int  # per place in the order of the nodes, << SHIFT
    models: int
    memo: dict[Ask, Any] = field(default_factory=dict)  # by waste: what an ask means under these tables


def typical(counts: Mapping[Ask, int], per_mille: int = 950) -> dict[Ask, int]:
    """The commonest shapes that together make up so much of all; ties by the shape itself."""
    wanted = sum(counts.values()) * per_mille
    kept: dict[Ask, int] = {}
    seen = 0
    for ask, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        if seen * 1000 >= wanted:
            break
        kept[ask] = count
        seen += count
    return kept


def tables(mix: Mix, kinds: Sequence[Kind], preset: Preset) -> Tables:
    """The tables of a mix on a cluster. An empty mix is taken to be like the cluster's own nodes."""
    models = 1 + max((kind.model for kind in kinds), default=-1)
    gpus = max((kind.gpus for kind in kinds), default=0)
    cores, memory, milli = _per_device(mix, kinds)
    core_bits, spare_of, spare = _spare(mix, models, gpus, preset.spare, cores, milli)
    bins, usable, usable_many = _usable(mix, models, gpus, preset.fragment)
    return Tables(
        worth=_ints([preset.worth * worth // 1000 for worth in worths(_shares(mix))]),
        strand=preset.strand if cores else 0,
        per_core=min((preset.strand * milli << SHIFT) // max(cores, 1), MOST_RATE),
        per_mib=min((preset.strand * milli << SHIFT + MIB_BITS) // memory, MOST_RATE) if memory else 0,
        core_bits=core_bits,
        spare_of=spare_of,
        spare=spare,
        scarcity=_ints([0, *(preset.scarcity * part for part in _scarcity(mix, kinds, models))]),
        fragment=preset.fragment,
        core_bins=bins,
        usable=usable,
        usable_many=usable_many,
        fill=preset.fill,
        rank_step=(preset.rank * 1000 << SHIFT) // max(1, sum(kind.nodes for kind in kinds)),
        models=models,
    )


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _shares(mix: Mix) -> dict[int, int]:
    shares: dict[int, int] = {}
    for ask, weight in mix.items():
        if ask.milli:
            shares[ask.milli] = shares.get(ask.milli, 0) + weight
    return shares


def _per_device(mix: Mix, kinds: Sequence[Kind]) -> tuple[int, int, int]:
    """Cores and memory beside so many milli of devices, on average."""
    with_devices = [(ask, weight) for ask, weight in mix.items() if ask.device_milli]
    if not with_devices:
        return (
            sum(kind.cores * kind.nodes for kind in kinds if kind.gpus),
            0,
            sum(kind.gpus * DEVICE * kind.nodes for kind in kinds),
        )
    return (
        sum(ask.cores * weight for ask, weight in with_devices),
        sum(ask.memory * weight for ask, weight in with_devices),
        sum(ask.device_milli * weight for ask, weight in with_devices),
    )


def _takes(ask: Ask, model: int) -> bool:
    return not ask.models or model in ask.models


def _scarcity(mix: Mix, kinds: Sequence[Kind], models: int) -> list[int]:
    """Per model, in thousandths: demand that insists on it, relative to its share of all devices."""
    devices = [0] * models
    for kind in kinds:
        if kind.gpus:
            devices[kind.model] += kind.gpus * kind.nodes
    demand = sum(ask.device_milli * weight for ask, weight in mix.items())
    parts = [Fraction(0)] * models
    for ask, weight in mix.items():
        named = sorted(set(ask.models))
        of = sum(devices[model] for model in named if model < models)
        for model in named if of and demand else ():  # work without GPUs may name a model, too
            if model < models:
                parts[model] += Fraction(ask.device_milli * weight * sum(devices), demand * of)
    return [int(part * 1000) for part in parts]


# --- spare cores ------------------------------------------------------------------------------------------------------


def _spare(mix: Mix, models: int, gpus: int, weight: int, cores: int, milli: int) -> tuple[int, Ints, Narrow]:
    """Bits of a cell's cores; which table a model has; tables by idle tenths of devices and cells of free cores."""
    limit = SPARE_DEVICES * DEVICE * cores // max(milli, 1)
    bits = max(0, limit // SPARE_CELLS).bit_length()
    cells = limit >> bits
    if not weight or not cells or not mix:
        return bits, np.zeros(models + 1, dtype=np.int64), np.zeros((1, 1, 1), dtype=np.int32)
    each = [_items(mix, model, bits, cells) for model in range(-1, models)]
    distinct = {items: number for number, items in enumerate(dict.fromkeys(each))}
    table = np.zeros((len(distinct), gpus * TENTHS + 1, cells + 1), dtype=np.int32)
    for items, number in distinct.items():
        for tenths, reached in enumerate(_reachable(items, gpus * TENTHS, cells)):
            table[number, tenths, :cells] = (_gaps(reached, cells) << bits) * weight * milli // cores
    return bits, _ints([distinct[items] for items in each]), table


def _items(mix: Mix, model: int, bits: int, cells: int) -> tuple[tuple[int, int], ...]:
    """Distinct (tenths of devices, cells of cores) of the shapes that a model's nodes take.

    Cores are rounded down, as those of a node are: rounded up, what fits exactly would count as not fitting.
    """
    found = dict.fromkeys(
        (-(-ask.device_milli * TENTHS // DEVICE), max(1, ask.cores >> bits))
        for ask in mix
        if ask.cores and (_takes(ask, model) if ask.device_milli else True)
    )
    return tuple(sorted(item for item in found if item[1] <= cells))


def _reachable(items: Sequence[tuple[int, int]], tenths: int, cells: int) -> list[int]:
    """For each number of idle tenths, a bit mask of the totals of cores that some multiset of items has."""
    mask = (1 << cells + 1) - 1
    reached = [1] * (tenths + 1)
    for devices, cores in items:
        for idle in range(devices, tenths + 1):
            if devices:
                reached[idle] |= reached[idle - devices] << cores & mask
            else:
                reached[idle] = _repeated(reached[idle], cores, mask)
    return reached


def _repeated(totals: int, cores: int, mask: int) -> int:
    """Any number of times the same item."""
    while (cores < mask.bit_length()) and (more := totals | totals << cores & mask) != totals:
        totals, cores = more, cores * 2
    return totals


def _gaps(totals: int, cells: int) -> Ints:
    """Distance from each cell down to the nearest total."""
    found = np.frombuffer(totals.to_bytes(cells // 8 + 1, "little"), dtype=np.uint8)
    bits = np.unpackbits(found, bitorder="little")[:cells]
    at = np.arange(cells, dtype=np.int64)
    gaps: Ints = at - np.maximum.accumulate(np.where(bits, at, 0))
    return gaps


# --- fragmentation ----------------------------------------------------------------------------------------------------


def _usable(mix: Mix, models: int, gpus: int, weight: int) -> tuple[Ints, Narrow, Narrow]:
    """What the mix could use on average, by model, steps of free cores, and a device's (or the node's) free part."""
    if not weight:
        return _ints([]), np.zeros((1, 1, 1), np.int32), np.zeros((1, 1, 1), np.int32)
    bins = _bins(mix)
    one = np.zeros((models + 1, len(bins) + 1, DEVICE + 1), dtype=np.int64)
    many = np.zeros((models + 1, len(bins) + 1, gpus + 1), dtype=np.int64)
    for ask, share in mix.items():
        if not ask.device_milli:
            continue
        at = int(np.searchsorted(bins, ask.cores, side="left")) + 1
        for model in (m for m in range(models) if _takes(ask, m)):
            if ask.gpus > 1:
                many[model + 1, at:, ask.gpus :] += share
            else:
                one[model + 1, at:, ask.device_milli :] += share
    total = max(1, sum(mix.values()))
    free = np.arange(DEVICE + 1, dtype=np.int64)
    whole = np.arange(gpus + 1, dtype=np.int64) * DEVICE
    return (
        bins,
        (one * free * weight // total).astype(np.int32),
        (many * whole * weight // total).astype(np.int32),
    )


def _bins(mix: Mix) -> Ints:
    """Ascending numbers of cores that shapes with devices ask for, thinned out to MOST_STEPS with the largest kept."""
    found = sorted(dict.fromkeys(ask.cores for ask in mix if ask.device_milli))
    every = -(-len(found) // MOST_STEPS)
    return _ints(found[::-1][::every][::-1] if found else [])
