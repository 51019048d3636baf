"""The files of prices that `gangline catalog refresh` keeps: one for each region, JSON, with the time of each price.

Comes in: a folder. Goes out: prices by instance type; or a file, replaced at once. Called by: load, refresh.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.model.catalog import DatedPrice
from orchestrator.model.cluster_words import Market
from orchestrator.model.errors import InputError
from orchestrator.model.prices import iso, microseconds

KIND = "PriceList"
API_VERSION = "gangline/v1"
LARGEST = 16 * 2**20  # bytes; a region's rows of all types and zones are some 100 kB
MICRO, MOST_USD = 1_000_000, 1e6

Rows = dict[str, list[DatedPrice]]


def read_folder(folder: Path) -> Rows:
    """All prices of a folder by type; none where there is no folder. Raises InputError."""
    rows: Rows = {}
    if not folder.is_dir():
        return rows
    for path in sorted(folder.glob("*.json")):
        for name, prices in read_file(path).items():
            rows.setdefault(name, []).extend(prices)
    return rows


def read_file(path: Path) -> Rows:
    """One region's prices by type. Raises InputError for what is no such file."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST // 2**20} MiB")
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["kind"] != KIND:
            raise ValueError(f"its kind is not {KIND}")
        return _rows(data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            "catalog.bad-file",
            f"the file of prices can't be read: {why}",
            "remove it, then run `gangline catalog refresh`",
            str(path),
        ) from None


def _rows(data: dict[str, Any]) -> Rows:
    rows: Rows = {}
    for row in data["prices"]:
        price = DatedPrice(
            Market(row["market"]),
            str(data["region"]),
            _micro(row["usd_per_hour"]),
            microseconds(row["as_of"]),
            str(row["source"]),
            str(row.get("zone", "")),
        )
        rows.setdefault(str(row["type"]), []).append(price)
    return rows


def _micro(usd: object) -> int:
    if isinstance(usd, bool) or not isinstance(usd, (int, float)) or not micro(usd):
        raise ValueError(f"{usd!r} is no price")
    return micro(usd)


def micro(usd: float) -> int:
    """Micro-dollars; 0 for what nothing costs an hour: nothing, less than that, no number, a million dollars."""
    return round(usd * MICRO) if 0 < usd < MOST_USD else 0


def write_file(folder: Path, region: str, rows: Mapping[str, Sequence[DatedPrice]]) -> Path:
    """Replace the region's file at once; the folder is made if it is missing. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{region}.json"
    listed = [
        _plain(name, price) for name in sorted(rows) for price in sorted(rows[name], key=DatedPrice.place)
    ]
    data = {"apiVersion": API_VERSION, "kind": KIND, "region": region, "prices": listed}
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _plain(name: str, price: DatedPrice) -> dict[str, Any]:
    row: dict[str, Any] = {"type": name, "market": str(price.market)}
    if price.zone:
        row["zone"] = price.zone
    row["usd_per_hour"] = price.microusd_per_hour / MICRO
    return {**row, "as_of": iso(price.as_of_us), "source": price.source}
