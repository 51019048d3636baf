"""What is known of GPU models and instance types: the shapes of the catalog that pure rooms get as an argument.

Comes in: dated data that `catalog` has read. Goes out: `Catalog`. Called by: catalog (builds it); spec, planning,
scheduler, autoscale, simulate (read it).

Units: bytes, watts, micro-dollars. Prices are dated and age; nothing may depend on them being right, and what the
catalog does not know is skipped, never assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.cluster_words import Market
from orchestrator.model.mig import MigLayout


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU model. `max_watts` is its default power limit, `idle_watts` the least that one was seen to draw (0: no
    source), `pci_ids` the PCI device ids that it reports, `mig` what it can be divided into (None: no source
    tells).

    `watts_verified` is False where the figure was not seen in a source that can be named.
    """

    name: str
    memory: int
    max_watts: int
    pci_ids: tuple[str, ...] = ()
    watts_verified: bool = False
    idle_watts: int = 0
    mig: MigLayout | None = None


@dataclass(frozen=True, slots=True)
class DatedPrice:
    """What an hour on a market cost in a region (spot: a `zone`) at `as_of_us`, UTC microseconds, and who said so."""

    market: Market
    region: str
    microusd_per_hour: int
    as_of_us: int
    source: str
    zone: str = ""

    def place(self) -> tuple[Market, str, str]:
        """What it is a price of: a newer one of the same place takes its stead."""
        return (self.market, self.region, self.zone)


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One type that a cloud sells; how its prices are taken is in `model.prices`.

    `cards` network cards take `enis` interfaces each; `efa` of them can be EFA. `network` and `ebs` are megabit a
    second (sustained; the most to volumes), `nvme` bytes of disks of its own; `blocks`: sold as capacity blocks too.
    """

    name: str
    vcpus: int
    memory: int
    gpu_model: str
    gpus: int
    efa: int = 0
    cards: int = 1
    enis: int = 1
    network: int = 0
    ebs: int = 0
    nvme: int = 0
    blocks: bool = False
    prices: tuple[DatedPrice, ...] = ()

    def efa_cards(self) -> range:
        """The numbers of the cards that take an EFA interface: the last `efa` ones. Where there are fewer than cards
        (p6-b300), the first card has a plain interface only."""
        return range(self.cards - min(self.efa, self.cards), self.cards)


@dataclass(frozen=True, slots=True)
class Catalog:
    """GPU models and instance types by name, each set with the day it was taken on and where from."""

    gpus: dict[str, GpuModel]
    instances: dict[str, InstanceType]
    gpus_as_of: str
    instances_as_of: str
    sources: tuple[str, ...]
