"""Reads the catalog's files once, and lays the prices over them that a person has asked for since.

Comes in: `gpus.json`, `mig.json` and `instances.json`, whose columns their first lines name; a folder of price files
that `refresh` wrote. Goes out: `Catalog`. Called by: whoever needs the catalog, through `catalog.load`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.catalog.files import read_folder
from orchestrator.model.catalog import Catalog, DatedPrice, GpuModel, InstanceType
from orchestrator.model.cluster_words import Market
from orchestrator.model.mig import MigLayout, MigProfile
from orchestrator.model.prices import microseconds

MIB = 2**20
GIB = 2**30
GB = 10**9
MEGABIT = 1000  # of a gigabit
MICRO = 1_000_000

_HERE = Path(__file__).parent


def load(folder: Path | None = None) -> Catalog:
    """The catalog that ships with this version of Gangline; with a folder, the newer of its and the shipped prices.
    Raises InputError for a price file that can't be read."""
    shipped = _shipped()
    return shipped if folder is None else with_prices(shipped, read_folder(folder))


def with_prices(known: Catalog, rows: dict[str, list[DatedPrice]]) -> Catalog:
    """The catalog with these prices by type too: of each place the newest one counts. Types that it does not have are
    passed over."""
    instances = {
        name: replace(one, prices=_newest((*one.prices, *rows[name]))) if name in rows else one
        for name, one in known.instances.items()
    }
    return replace(known, instances=instances)


def _newest(prices: tuple[DatedPrice, ...]) -> tuple[DatedPrice, ...]:
    newest: dict[tuple[Market, str, str], DatedPrice] = {}
    for one in sorted(prices, key=lambda price: price.as_of_us):
        newest[one.place()] = one
    return tuple(newest[place] for place in sorted(newest))


@cache
def _shipped() -> Catalog:
    gpus, mig, instances = _file("gpus.json"), _file("mig.json"), _file("instances.json")
    divided = {row["name"]: row for row in _rows(mig)}
    return Catalog(
        gpus={row["name"]: _gpu(row, divided.get(row["name"]), mig) for row in _rows(gpus)},
        instances={row["name"]: _instance(row, instances) for row in _rows(instances)},
        gpus_as_of=gpus["as_of"],
        instances_as_of=instances["as_of"],
        sources=(*gpus["sources"], *mig["sources"], *instances["sources"]),
    )


def _file(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((_HERE / name).read_text(encoding="utf-8"))
    return data


def _rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    columns = table["columns"]
    return [dict(zip(columns, row, strict=True)) for row in table["rows"]]


def _gpu(row: dict[str, Any], divided: dict[str, Any] | None, mig: dict[str, Any]) -> GpuModel:
    memory = row["memory_mib"] * MIB
    return GpuModel(
        name=row["name"],
        memory=memory,
        max_watts=row["max_watts"],
        pci_ids=tuple(row["pci_ids"]),
        watts_verified=row["watts_verified"],
        idle_watts=row["idle_watts"] or 0,
        mig=_layout(divided["profiles"], mig["layouts"][divided["layout"]], memory) if divided else None,
    )


def _layout(names: list[str], layout: dict[str, Any], memory: int) -> MigLayout:
    """An instance has its slices' part of the GPU's memory; what a driver reports of it is a little less."""
    slices = layout["slices"]
    profiles = (
        MigProfile(name, compute, size, size * memory // slices, tuple(starts))
        for name, (_, compute, size, starts) in zip(names, layout["kinds"], strict=True)
    )
    return MigLayout(slices, tuple(profiles))


def _instance(row: dict[str, Any], table: dict[str, Any]) -> InstanceType:
    return InstanceType(
        name=row["name"],
        vcpus=row["vcpus"],
        memory=row["memory_gib"] * GIB,
        gpu_model=row["gpu_model"],
        gpus=row["gpus"],
        efa=row["efa"],
        cards=row["cards"],
        enis=row["enis"],
        network=round(row["network_gbps"] * MEGABIT),
        ebs=round(row["ebs_gbps"] * MEGABIT),
        nvme=row["nvme_gb"] * GB,
        blocks=row["blocks"],
        prices=_price(row["usd_per_hour"], table["prices"]),
    )


def _price(usd: float | None, said: dict[str, str]) -> tuple[DatedPrice, ...]:
    """The shipped price; none where the source has none."""
    if usd is None:
        return ()
    as_of = microseconds(said["as_of"])
    return (DatedPrice(Market.ON_DEMAND, said["region"], round(usd * MICRO), as_of, said["source"]),)
