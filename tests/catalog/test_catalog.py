"""The catalog's data: complete, dated, with sources, and of one mind with itself."""

from __future__ import annotations

import datetime as dt

import pytest

from orchestrator import catalog
from orchestrator.model.catalog import Catalog, GpuModel, InstanceType
from orchestrator.model.codec import decode, encode
from orchestrator.model.prices import day_of

CATALOG = catalog.load()


def test_it_is_dated_and_has_sources() -> None:
    for day in (CATALOG.gpus_as_of, CATALOG.instances_as_of):
        assert dt.date.fromisoformat(day) >= dt.date(2026, 7, 20)
    assert len(CATALOG.sources) >= 4
    assert not any("://" in source for source in CATALOG.sources)


@pytest.mark.parametrize("gpu", CATALOG.gpus.values(), ids=CATALOG.gpus)
def test_gpu_models_have_plausible_figures(gpu: GpuModel) -> None:
    assert 8 * 2**30 <= gpu.memory <= 512 * 2**30
    assert 50 <= gpu.max_watts <= 2000
    assert all(len(one) == 4 and int(one, 16) for one in gpu.pci_ids)
    nominal = int(gpu.name.rsplit("-", 1)[1].removesuffix("GB"))
    assert 0.9 * nominal * 10**9 <= gpu.memory <= 1.2 * nominal * 10**9


@pytest.mark.parametrize("one", CATALOG.instances.values(), ids=CATALOG.instances)
def test_instance_types_have_known_gpus(one: InstanceType) -> None:
    assert one.gpu_model in CATALOG.gpus
    assert one.gpus in (1, 4, 8)
    assert one.vcpus >= 4
    assert one.memory >= 2**34
    assert all(price.microusd_per_hour > 100_000 and price.source for price in one.prices)


@pytest.mark.parametrize("one", CATALOG.instances.values(), ids=CATALOG.instances)
def test_network_cards_carry_the_interfaces_that_are_said(one: InstanceType) -> None:
    assert one.cards >= 1
    assert one.efa <= one.cards
    assert len(one.efa_cards()) == one.efa
    if one.efa:
        assert one.enis >= 2  # one of the first card is the plain one, beside an EFA
        assert one.network >= 25_000
    assert one.ebs >= 1000
    assert one.nvme >= 10**11


def test_efa_is_on_all_cards_but_where_the_first_has_none() -> None:
    assert list(CATALOG.instances["p5en.48xlarge"].efa_cards()) == list(range(16))
    assert list(CATALOG.instances["p6-b300.48xlarge"].efa_cards()) == list(range(1, 17))
    assert list(CATALOG.instances["g5.48xlarge"].efa_cards()) == [0]
    assert not CATALOG.instances["g5.xlarge"].efa_cards()


def test_pci_ids_name_one_model() -> None:
    ids = [one for gpu in CATALOG.gpus.values() for one in gpu.pci_ids]
    assert len(set(ids)) == len(ids)


def test_some_figures_that_designs_rest_on() -> None:
    assert CATALOG.gpus["H100-SXM5-80GB"].max_watts == 700
    (price,) = CATALOG.instances["p5.48xlarge"].prices
    assert (price.region, price.microusd_per_hour, day_of(price)) == ("us-east-1", 55_040_000, "2026-07-20")
    assert CATALOG.instances["p5e.48xlarge"].prices == ()


def test_it_survives_the_codec() -> None:
    assert decode(Catalog, encode(CATALOG)) == CATALOG


def test_idle_gpus_draw_something_and_less_than_busy_ones() -> None:
    known = {gpu.name: gpu.idle_watts for gpu in catalog.load().gpus.values() if gpu.idle_watts}
    assert known["H100-SXM5-80GB"] == 70
    assert all(watts < catalog.load().gpus[name].max_watts / 2 for name, watts in known.items())
