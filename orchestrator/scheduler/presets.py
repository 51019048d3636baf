"""How much each part of the expected waste counts: the two weightings that Gangline ships.

Comes in: nothing. Goes out: `Preset`, `FILLING`, `STANDARD`. Called by: mix, which puts the weights into its tables.

The parts and their first weights come from runs on the openb traces (docs/benchmarks.md). FILLING wins where work never
ends and every node gets filled; it walks the nodes in one order and would starve wide work where holes appear
everywhere. STANDARD is for clusters where work ends: nearly no walk, whole nodes kept free, fragmentation counted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """Weights in thousandths; each part is in micro-GPU."""

    worth: int  # what a share takes from the worth of its device's remainder
    strand: int  # idle devices for which the node has no cores (or memory) left
    spare: int  # cores, counted in devices, that no combination of the mix could use beside the idle devices
    scarcity: int  # a model that some work insists on, given to work that would take any
    fragment: int  # idle devices that the mix cannot use on this node (the FGD measure)
    fill: int  # share of the node's devices that stays idle
    rank: int  # place in the fixed order of the nodes, 0 to 1


FILLING = Preset(worth=1000, strand=300, spare=330, scarcity=500, fragment=0, fill=0, rank=1000)
STANDARD = Preset(worth=1000, strand=150, spare=110, scarcity=500, fragment=500, fill=100, rank=50)
