"""What the usual work of a cluster says: worth of remainders, spare cores, scarce models, what counts as typical."""

from __future__ import annotations

from dataclasses import fields
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.ask import DEVICE, Ask
from orchestrator.scheduler.cutting import MICRO, MOST_SIZES, worths
from orchestrator.scheduler.mix import SHIFT, Kind, tables, typical
from orchestrator.scheduler.presets import FILLING, STANDARD, Preset
from tests.scheduler.mixed import GIB, mixes

THIRD = MICRO // 3
ONLY_SPARE = Preset(worth=0, strand=0, spare=1000, scarcity=0, fragment=0, fill=0, rank=0)
ONE_KIND = [Kind(model=0, gpus=4, cores=32, memory=256 * GIB, nodes=10)]


# --- worth of a remainder ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "wanted"),
    [
        pytest.param({500: 1}, {499: 0, 500: MICRO // 2, 999: MICRO // 2, 1000: MICRO}, id="halves"),
        pytest.param({810: 7}, {190: 0, 809: 0, 810: MICRO, 1000: MICRO}, id="nothing fits beside it"),
        pytest.param({500: 1, 600: 1}, {500: MICRO // 2, 600: MICRO, 400: 0}, id="no pair with the larger"),
        pytest.param({700: 1, 300: 3}, {300: THIRD, 600: 2 * THIRD, 700: 2 * THIRD}, id="both patterns cut"),
        pytest.param({125: 1}, {124: 0, 125: MICRO // 8, 875: 7 * MICRO // 8}, id="eighths, exactly"),
        pytest.param({}, {999: 0, 1000: MICRO}, id="no shares at all"),
        pytest.param({300: 0}, {999: 0, 1000: MICRO}, id="a share of weight 0"),
    ],
)
def test_worth(shares: dict[int, int], wanted: dict[int, int]) -> None:
    found = worths(shares)

    assert {free: pytest.approx(found[free], abs=1) for free in wanted} == wanted


SHARES = st.dictionaries(st.integers(1, DEVICE - 1), st.integers(1, 10_000), max_size=12)


@pytest.mark.property
@given(SHARES)
def test_two_remainders_are_never_worth_more_than_both_in_one(shares: dict[int, int]) -> None:
    """So no way to cut a device is worth more than the device."""
    worth = np.array(worths(shares))

    assert worth[0] == 0
    assert worth[DEVICE] <= MICRO
    for free in range(1, DEVICE):
        assert (worth[: DEVICE + 1 - free] + worth[free] <= worth[free:] + 1).all()  # 1: each is rounded down


@pytest.mark.property
@given(st.dictionaries(st.integers(200, DEVICE - 1), st.integers(1, 1000), min_size=1, max_size=4))
def test_worth_of_all_shares_is_the_fewest_devices_that_hold_them(shares: dict[int, int]) -> None:
    """Strong duality: some mixture of patterns, each worth a whole device, holds every share exactly."""
    worth, sizes = worths(shares), sorted(shares)
    counts = [range(DEVICE // size + 1) for size in sizes]
    patterns = [
        cut for cut in product(*counts) if sum(n * size for n, size in zip(cut, sizes, strict=True)) <= DEVICE
    ]
    tight = [
        cut
        for cut in patterns
        if sum(n * worth[size] for n, size in zip(cut, sizes, strict=True)) >= MICRO - DEVICE
    ]

    for at, size in enumerate(sizes):
        assert worth[size] == 0 or any(cut[at] for cut in tight), "worth something, but in no full pattern"


def test_many_sizes_are_thinned_out_to_the_heaviest() -> None:
    shares = {size: 1000 - size for size in range(10, 10 + 10 * (MOST_SIZES + 30), 10)}

    worth = worths(shares)

    assert worth[10] > 0
    assert worth[DEVICE] == MICRO


# --- typical shapes ---------------------------------------------------------------------------------------------------


def test_typical_shapes_cover_the_share_and_no_more() -> None:
    common, rare, rarest = Ask(gpus=1), Ask(gpus=2), Ask(gpus=8)

    assert typical({rarest: 4, common: 90, rare: 6}) == {common: 90, rare: 6}
    assert typical({common: 96, rare: 4}) == {common: 96}
    assert typical({}) == {}


# --- spare cores ------------------------------------------------------------------------------------------------------


@pytest.mark.property
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(0, 30),
)
def test_spare_cores_are_those_that_no_combination_uses(
    shapes: list[tuple[int, int]], devices: int, cores: int
) -> None:
    mix = {Ask(gpus=gpus, cores=each): 1 for gpus, each in [*shapes, (1, 9)]}
    made = tables(mix, ONE_KIND, ONLY_SPARE)
    milli, beside = sum(ask.device_milli for ask in mix), sum(ask.cores for ask in mix if ask.gpus)
    last = made.spare.shape[2] - 1

    spare = cores - max(total for used, total in _totals(mix, cores) if used <= devices)

    assert made.core_bits == 0
    wanted = spare * 1000 * milli // beside if cores < last else 0
    assert made.spare[made.spare_of[1], devices * 10, min(cores, last)] == wanted


def _totals(mix: dict[Ask, int], cores: int) -> list[tuple[int, int]]:
    """Devices and cores of every multiset of shapes with no more cores than these."""
    found = {(0, 0)}
    new = found
    while new:
        new = {(d + ask.gpus, c + ask.cores) for d, c in new for ask in mix if c + ask.cores <= cores} - found
        found |= new
    return sorted(found)


def test_what_fits_exactly_leaves_no_core_spare_on_a_coarse_grid() -> None:
    """Two of 11,908 milli-cores in 23,816: the grid rounds both down, so they still fit."""
    made = tables({Ask(gpus=1, cores=11_908): 1, Ask(gpus=1, cores=17_000): 2}, ONE_KIND, ONLY_SPARE)
    assert made.core_bits > 0

    assert made.spare[made.spare_of[1], 20, 23_816 >> made.core_bits] <= 1000 << made.core_bits


def test_models_with_the_same_shapes_share_a_table() -> None:
    kinds = [Kind(model, 4, 32, 256 * GIB) for model in range(3)]
    made = tables({Ask(gpus=1, cores=8): 5, Ask(gpus=1, cores=4, models=(2,)): 1}, kinds, FILLING)

    assert made.spare_of[1] == made.spare_of[2] != made.spare_of[3]


# --- rates ------------------------------------------------------------------------------------------------------------


def test_a_model_that_work_insists_on_is_scarce() -> None:
    """Half of all demand wants model 1, which is a quarter of the devices: twice as much as its share."""
    kinds = [Kind(0, 3, 32, GIB), Kind(1, 1, 32, GIB)]
    made = tables({Ask(gpus=1): 1, Ask(gpus=1, models=(1,)): 1}, kinds, FILLING)

    assert made.scarcity.tolist() == [0, 0, FILLING.scarcity * 2000]


@pytest.mark.parametrize("unit", [1, 1000], ids=["cores", "milli-cores"])
def test_a_core_serves_as_many_devices_as_the_mix_has_for_it(unit: int) -> None:
    made = tables({Ask(gpus=1, cores=8 * unit): 3, Ask(cores=99 * unit): 9}, ONE_KIND, FILLING)

    assert 8 * unit * made.per_core >> SHIFT == pytest.approx(DEVICE * FILLING.strand, abs=unit)


def test_without_work_the_nodes_themselves_are_the_mix() -> None:
    made = tables({}, ONE_KIND, STANDARD)

    assert 32 * made.per_core >> SHIFT == 4 * DEVICE * STANDARD.strand
    assert made.worth[DEVICE] == MICRO
    assert not made.spare.any()
    assert not made.usable.any()


def test_shapes_without_cores_strand_nothing() -> None:
    assert tables({Ask(gpus=1): 1}, ONE_KIND, FILLING).strand == 0


@pytest.mark.property
@given(mixes(), st.randoms(use_true_random=False))
def test_tables_do_not_depend_on_the_order_of_the_mix(mix: dict[Ask, int], dice: object) -> None:
    kinds = [Kind(model, 8, 128, 1024 * GIB, nodes=model + 1) for model in range(3)]
    shuffled = sorted(mix.items())
    dice.shuffle(shuffled)  # type: ignore[attr-defined]

    one, other = tables(mix, kinds, STANDARD), tables(dict(shuffled), kinds, STANDARD)

    for part in fields(one):
        assert np.array_equal(getattr(one, part.name), getattr(other, part.name)), part.name


def test_work_that_names_a_model_and_takes_no_device_makes_nothing_scarce() -> None:
    found = tables({Ask(cores=4, models=(0,)): 3}, [Kind(0, 8, 64, 1 << 30, 2)], STANDARD)
    assert found.scarcity.tolist() == [0, 0]
