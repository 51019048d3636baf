"""Reads the catalog's files once.

Comes in: `gpus.json` and `instances.json`, whose columns their first lines name. Goes out: `Catalog`. Called by:
whoever needs the catalog, through `catalog.load`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.model.catalog import Catalog, GpuModel, InstanceType

MIB = 2**20
GIB = 2**30
GB = 10**9
MEGABIT = 1000  # of a gigabit
MICRO = 1_000_000

_HERE = Path(__file__).parent


@cache
def load() -> Catalog:
    """The catalog that ships with this version of Gangline."""
    gpus, instances = _file("gpus.json"), _file("instances.json")
    return Catalog(
        gpus={row["name"]: _gpu(row) for row in _rows(gpus)},
        instances={row["name"]: _instance(row, instances["region"]) for row in _rows(instances)},
        gpus_as_of=gpus["as_of"],
        instances_as_of=instances["as_of"],
        sources=(*gpus["sources"], *instances["sources"]),
    )


def _file(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((_HERE / name).read_text(encoding="utf-8"))
    return data


def _rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    columns = table["columns"]
    return [dict(zip(columns, row, strict=True)) for row in table["rows"]]


def _gpu(row: dict[str, Any]) -> GpuModel:
    return GpuModel(
        name=row["name"],
        memory=row["memory_mib"] * MIB,
        max_watts=row["max_watts"],
        pci_ids=tuple(row["pci_ids"]),
        watts_verified=row["watts_verified"],
        idle_watts=row["idle_watts"] or 0,
    )


def _instance(row: dict[str, Any], region: str) -> InstanceType:
    price = row["usd_per_hour"]
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
        prices={} if price is None else {region: round(price * MICRO)},
    )
