"""Where the least is wasted: scenes of few nodes, and costs against their definition."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.ask import DEVICE, Ask
from orchestrator.scheduler import waste
from orchestrator.scheduler.mix import SHIFT, Tables, tables
from orchestrator.scheduler.presets import FILLING, STANDARD, Preset
from orchestrator.scheduler.waste import NO_FIT
from tests.scheduler.mixed import GIB, Node, Nodes, Scene, scenes

UNRANKED = replace(FILLING, rank=0)
SHARES = {
    Ask(milli=milli, cores=4): weight
    for milli, weight in ((160, 1), (320, 10), (470, 20), (650, 10), (810, 30))
}
EIGHTS = {Ask(gpus=1, cores=8): 8, Ask(gpus=8, cores=64): 1}
EMPTY8 = Node(milli=(DEVICE,) * 8)


@dataclass
class Case:
    """An ask and nodes of which the first one named must be chosen, with the devices there."""

    ask: Ask
    nodes: list[Node]
    wanted: int
    slots: tuple[int, ...] = ()
    mix: dict[Ask, int] | None = None
    preset: Preset = UNRANKED


CASES = {
    "a small share goes where nothing else of the mix fits": Case(
        Ask(milli=160, cores=4), [Node(milli=(470,)), Node(milli=(190, 0))], 1, (0,), SHARES
    ),
    "a share goes beside the one that it fills a device with": Case(
        Ask(milli=320, cores=4), [Node(milli=(530,)), Node(milli=(350,))], 1, (0,), SHARES
    ),
    "the same among devices of one node": Case(
        Ask(milli=320, cores=4), [Node(milli=(1000, 530, 350))], 0, (2,), SHARES
    ),
    "of devices that cost the same, the fuller one": Case(
        Ask(milli=160, cores=4), [Node(milli=(1000, 310, 190, 190))], 0, (2,), SHARES
    ),
    "work with many cores stays off nodes whose devices need them": Case(
        Ask(gpus=1, cores=24), [Node(cores=32), Node(cores=64)], 1, (0,), EIGHTS
    ),
    "work without devices goes where cores are left over": Case(
        Ask(cores=16), [Node(cores=32), Node(cores=64)], 1, (), EIGHTS
    ),
    "work that takes any model leaves the scarce one alone": Case(
        Ask(gpus=1, cores=8),
        [Node(model=1), Node(model=0)],
        1,
        (0,),
        {**EIGHTS, Ask(gpus=1, cores=8, models=(1,)): 9},
    ),
    "work that insists on the scarce model gets it": Case(
        Ask(gpus=1, cores=8, models=(1,)), [Node(model=0), Node(model=1)], 1, (0,), EIGHTS
    ),
    "of equal nodes the first in order": Case(
        Ask(gpus=2, cores=8), [Node(), Node()], 0, (0, 1), EIGHTS, FILLING
    ),
    "a later node in order, if it wastes less": Case(
        Ask(milli=320, cores=4),
        [Node(milli=(530,)), Node(milli=(350,)), *[Node(milli=())] * 20],
        1,
        (0,),
        SHARES,
        FILLING,
    ),
    "whole devices: the lowest free ones": Case(
        Ask(gpus=2), [Node(milli=(0, 1000, 500, 1000, 1000))], 0, (1, 3)
    ),
    "where work ends, whole nodes are kept": Case(
        Ask(gpus=1, cores=8), [EMPTY8, Node(milli=(1000, 1000, 0, 0, 0, 0, 0, 0))], 1, (0,), EIGHTS, STANDARD
    ),
    "devices with enough memory": Case(
        Ask(milli=100, device_bytes=20 * GIB),
        [Node(milli=(200, 900), device_bytes=(10 * GIB, 30 * GIB))],
        0,
        (1,),
        SHARES,
    ),
    "whole devices with enough memory": Case(
        Ask(gpus=1, device_bytes=60 * GIB),
        [Node(milli=(1000, 1000), device_bytes=(40 * GIB, 80 * GIB))],
        0,
        (1,),
    ),
}


def made_for(mix: dict[Ask, int], nodes: list[Node], preset: Preset) -> Tables:
    return tables(mix, [node.kind for node in nodes], preset)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_chosen(case: Case) -> None:
    arrays = Nodes(case.nodes)
    made = made_for(case.mix or {}, case.nodes, case.preset)

    costs = waste.costs(made, arrays, case.ask)

    assert int(costs.argmin()) == case.wanted
    assert waste.slots(made, arrays, case.ask, case.wanted) == case.slots


NO_ROOM = {
    "cores": (Ask(gpus=1, cores=9), Node(cores=8)),
    "memory": (Ask(gpus=1, memory=9 * GIB), Node(memory=8 * GIB)),
    "whole devices": (Ask(gpus=2), Node(milli=(1000, 999, 0))),
    "a share": (Ask(milli=600), Node(milli=(590, 599))),
    "model": (Ask(gpus=1, models=(1, 2)), Node(model=0)),
    "no devices, a share": (Ask(milli=10), Node(milli=(), model=-1)),
    "no devices, any model": (Ask(gpus=1), Node(milli=(), model=-1)),
    "memory of a shared device": (
        Ask(milli=100, device_bytes=20 * GIB),
        Node(milli=(900,), device_bytes=(10 * GIB,)),
    ),
    "memory of whole devices": (
        Ask(gpus=2, device_bytes=60 * GIB),
        Node(milli=(1000, 1000), device_bytes=(40 * GIB, 80 * GIB)),
    ),
}


@pytest.mark.parametrize("preset", [FILLING, STANDARD], ids=["filling", "standard"])
@pytest.mark.parametrize(("ask", "node"), NO_ROOM.values(), ids=NO_ROOM.keys())
def test_no_room(ask: Ask, node: Node, preset: Preset) -> None:
    others = [Node(model=model) for model in range(3)]
    made = made_for(EIGHTS, [node, *others], preset)

    found = waste.costs(made, Nodes([node, *others]), ask).tolist()

    assert found[0] == NO_FIT
    assert min(found[1:]) < NO_FIT


def test_rows_are_answered_in_their_order() -> None:
    nodes = [Node(), Node(milli=(1000, 0)), Node(cores=0), EMPTY8]
    made = made_for(EIGHTS, nodes, STANDARD)
    every = waste.costs(made, Nodes(nodes), Ask(gpus=1, cores=4))

    some = waste.costs(made, Nodes(nodes), Ask(gpus=1, cores=4), np.array([3, 0, 2]))

    assert some.tolist() == every[[3, 0, 2]].tolist()
    assert waste.costs(made, Nodes(nodes), Ask(gpus=1), np.array([], dtype=np.int64)).tolist() == []


# --- against the definition -------------------------------------------------------------------------------------------


def fits_shape(shape: Ask, cores: int, model: int) -> bool:
    return cores >= shape.cores and model >= 0 and (not shape.models or model in shape.models)


def fragment(scene: Scene, milli: list[int], cores: int, model: int) -> int:
    """FGD's measure, in thousandths of a milli: idle devices that each shape of the mix can't use, on average."""
    total, lost = sum(scene.mix.values()), 0
    for shape, weight in scene.mix.items():
        need = shape.milli or DEVICE
        usable = [free for free in milli if shape.device_milli and free >= need]
        if not fits_shape(shape, cores, model) or len(usable) < max(shape.gpus, 1):
            usable = []
        lost += weight * (sum(milli) - sum(usable))
    return lost * 1000 // total if total else sum(milli) * 1000


def wasted(scene: Scene, made: Tables, milli: list[int], free: tuple[int, int], model: int) -> int:
    """Micro-GPU."""
    cores, memory = free
    served = cores * made.per_core
    if made.per_mib:
        served = min(served, (memory >> 20) * made.per_mib)
    stranded = max(0, sum(milli) * made.strand - (served >> SHIFT))
    table = made.spare[made.spare_of[model + 1]] if made.spare.shape[2] > 1 else np.zeros((81, 1))
    spare = int(table[sum(milli) // 100, min(cores >> made.core_bits, table.shape[1] - 1)])
    return stranded + spare + fragment(scene, milli, cores, model) * scene.preset.fragment // 1000


def defined(scene: Scene, made: Tables, row: int, slots: tuple[int, ...]) -> int:
    """The cost of taking these devices, from the state of the node before and after."""
    ask, node = scene.ask, scene.nodes[row]
    after = [free - (ask.milli or DEVICE) if slot in slots else free for slot, free in enumerate(node.milli)]
    free = (node.cores - ask.cores, node.memory - ask.memory)
    cost = wasted(scene, made, after, free, node.model)
    cost -= wasted(scene, made, list(node.milli), (node.cores, node.memory), node.model)
    if ask.milli:
        cost += int(made.worth[node.milli[slots[0]]] - made.worth[after[slots[0]]])
    any_model = not ask.models or set(ask.models) >= set(range(made.models))
    if ask.device_milli and any_model:
        cost += int(made.scarcity[node.model + 1]) * ask.device_milli // DEVICE
    cost += sum(after) * scene.preset.fill // max(1, len(node.milli))
    return cost + (scene.ranks[row] * made.rank_step >> SHIFT)


@pytest.mark.property
@given(scenes())
def test_costs_are_as_defined(scene: Scene) -> None:
    arrays = Nodes(scene.nodes, scene.ranks)
    made = made_for(scene.mix, scene.nodes, scene.preset)
    slack = 64 * (1 + scene.preset.fragment)  # tables round each device down, the definition the node

    for row, cost in enumerate(waste.costs(made, arrays, scene.ask).tolist()):
        slots = waste.slots(made, arrays, scene.ask, row) if cost < NO_FIT else ()
        if cost < NO_FIT:
            assert len(slots) == (scene.ask.gpus or bool(scene.ask.milli))
            assert cost == pytest.approx(defined(scene, made, row, slots), abs=slack)


@pytest.mark.property
@given(scenes(), st.integers(1, DEVICE - 1))
def test_the_device_of_a_share_is_the_cheapest_that_has_room(scene: Scene, milli: int) -> None:
    ask = Ask(milli=milli, device_bytes=1, cores=scene.ask.cores)
    arrays = Nodes(scene.nodes, scene.ranks)
    made = made_for(scene.mix, scene.nodes, scene.preset)
    costs, room = waste.costs(made, arrays, ask), arrays.device_bytes.copy()

    for row in np.flatnonzero(costs < NO_FIT).tolist():
        found: list[tuple[int, int, int]] = []
        for slot in np.flatnonzero(room[row]).tolist():
            arrays.device_bytes[row] = 0
            arrays.device_bytes[row, slot] = room[row, slot]  # no other device has room
            alone = int(waste.costs(made, arrays, ask, np.array([row]))[0])
            found.append((alone, int(arrays.milli[row, slot]), slot))
        arrays.device_bytes[row] = room[row]

        assert min(found)[0] == costs[row]
        assert waste.slots(made, arrays, ask, row) == (min(found)[2],)
