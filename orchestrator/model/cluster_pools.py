"""The pools of the cluster's model: like nodes of one site, listed or bought.

Comes in: nothing. Goes out: `Pool` and its parts. Called by: model.cluster, through which everybody else has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.model.change import UpdateClass
from orchestrator.model.cluster_aws import BOUGHT_ANEW
from orchestrator.model.cluster_words import (
    Acceptance,
    DrainThen,
    Emulate,
    FabricKind,
    Market,
    PlacementGroup,
)
from orchestrator.model.mig import MigLayout
from orchestrator.model.written import Effect, Form, covered, entries, identity, leaf, members, part, rows

CONTROLLER, IN_PLACE = UpdateClass.CONTROLLER, UpdateClass.IN_PLACE
RECONFIGURE, REPLACE = UpdateClass.RECONFIGURE, UpdateClass.REPLACE
DEVICES = "running work holds the devices that change"
LIBRARIES = "running work has the old version loaded"
SHAPE = "the agent reports it anew; running work keeps what it has"
KEPT = "it counts for work that starts from now on"
ROLLING = "it counts from the next change on"
DEFAULT_ROOT_VOLUME = 200 * 2**30  # bytes; images with drivers and CUDA take 60 to 100 GiB of it
BUYING = "it counts for what is bought or given back from now on"


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """The GPUs of every node of a pool. `memory` (bytes) and `max_watts` 0: what the catalog says of the model.

    `others`: models that a bought node may have instead, since the pool's offerings name several types. `mig`: they are
    divided into MIG instances as `layout` says, and nothing else runs on them.
    """

    model: str = field(metadata=leaf(RECONFIGURE, DEVICES, form=Form.MODELS, also="others"))
    count: int = field(metadata=leaf(RECONFIGURE, DEVICES, form=Form.WHOLE))
    emulate: Emulate = field(default=Emulate.AUTO, metadata=leaf(RECONFIGURE, DEVICES, given=True))
    memory: int = field(default=0, metadata=leaf(IN_PLACE, SHAPE, form=Form.BYTES))
    max_watts: int = field(default=0, metadata=leaf(CONTROLLER, form=Form.WHOLE))
    others: tuple[str, ...] = field(default=(), metadata=covered("model"))
    mig: bool = field(default=False, metadata=leaf(RECONFIGURE, DEVICES, form=Form.FLAG, given=True))
    layout: MigLayout | None = field(default=None, metadata=covered("mig"))

    def models(self) -> tuple[str, ...]:
        """Every model that a node may have."""
        return (self.model, *self.others)


@dataclass(frozen=True, slots=True)
class PoolFabric:
    """The job network's adapters; `rails` 0: not said. `placement` is for bought nodes."""

    kind: FabricKind = field(
        default=FabricKind.ETHERNET, metadata=leaf(RECONFIGURE, "running work uses the adapters", given=True)
    )
    rails: int = field(
        default=0, metadata=leaf(RECONFIGURE, "running work uses the adapters", form=Form.WHOLE)
    )
    placement: PlacementGroup = field(
        default=PlacementGroup.AUTO,
        metadata=leaf(REPLACE, "where an instance stands is settled when it starts", given=True),
    )


@dataclass(frozen=True, slots=True)
class Software:
    """Full version strings; empty: Gangline installs nothing of it and checks nothing."""

    driver: str = field(default="", metadata=leaf(RECONFIGURE, "the driver is loaded while anything runs"))
    cuda: str = field(default="", metadata=leaf(RECONFIGURE, LIBRARIES))
    nccl: str = field(default="", metadata=leaf(RECONFIGURE, LIBRARIES))


@dataclass(frozen=True, slots=True)
class Drain:
    """How long work may end by itself, and what happens then."""

    deadline_s: int = field(
        default=86400, metadata=leaf(CONTROLLER, ROLLING, key="deadline", form=Form.SECONDS, given=True)
    )
    then: DrainThen = field(default=DrainThen.WAIT, metadata=leaf(CONTROLLER, ROLLING, given=True))


@dataclass(frozen=True, slots=True)
class Update:
    """How changes reach the nodes of a pool; `enough_milli` of its hosts must be ready for it to count as good."""

    max_unavailable: int = field(default=1, metadata=leaf(CONTROLLER, ROLLING, form=Form.WHOLE, given=True))
    drain: Drain = field(default=Drain(), metadata=part())
    enough_milli: int = field(
        default=1000, metadata=leaf(CONTROLLER, ROLLING, key="enough", form=Form.SHARE, given=True)
    )


@dataclass(frozen=True, slots=True)
class PoolSize:
    """An elastic pool's bounds in nodes; a node idle for `idle_s` goes, one not ready in `boot_deadline_s` failed."""

    min: int = field(default=0, metadata=leaf(CONTROLLER, BUYING, form=Form.WHOLE, given=True))
    max: int = field(default=0, metadata=leaf(CONTROLLER, BUYING, form=Form.WHOLE, given=True))
    idle_s: int = field(
        default=600, metadata=leaf(CONTROLLER, BUYING, key="idle", form=Form.SECONDS, given=True)
    )
    boot_deadline_s: int = field(
        default=1500, metadata=leaf(CONTROLLER, BUYING, key="boot_deadline", form=Form.SECONDS, given=True)
    )


@dataclass(frozen=True, slots=True)
class Offering:
    """What a pool may buy, in order of preference. `max_microusd_per_hour` 0: any price; `reservation`: an AWS id."""

    types: tuple[str, ...] = field(
        metadata=leaf(
            REPLACE, "nodes of a type that is no longer named are replaced", key="type", form=Form.RANKED
        )
    )
    market: Market = field(
        metadata=leaf(REPLACE, "what was bought on one market is bought anew on the other")
    )
    max_microusd_per_hour: int = field(
        default=0, metadata=leaf(CONTROLLER, BUYING, key="max_usd_per_hour", form=Form.DOLLARS)
    )
    reservation: str = field(default="", metadata=leaf(CONTROLLER, BUYING))


@dataclass(frozen=True, slots=True)
class Pool:
    """Like nodes of one site: listed ones (`nodes`), or bought ones (`size` and `offerings`).

    `cores` and `memory` (bytes) of a node: 0 means that nobody said, and the node's own report counts. On an aws site
    `nodes` are fixed ones, `image` is as for the site, `root_volume` in bytes (0: DEFAULT_ROOT_VOLUME).
    `keep_*_per_gpu`: cores and bytes for each GPU of a node that work without GPUs never gets.
    """

    name: str = field(metadata=identity())
    site: str = field(metadata=leaf(REPLACE, "the nodes of another site are other nodes"))
    nodes: tuple[str, ...] = field(
        default=(),
        metadata=members(
            Effect(IN_PLACE, "it is enrolled, configured and proved; no other node notices"),
            Effect(RECONFIGURE, "its work leaves, then its agent is stopped and the node forgotten"),
        ),
    )
    gpu: GpuSpec | None = field(default=None, metadata=part())
    cores: int = field(default=0, metadata=leaf(IN_PLACE, SHAPE, form=Form.WHOLE))
    memory: int = field(default=0, metadata=leaf(IN_PLACE, SHAPE, form=Form.BYTES))
    keep_cores_per_gpu: int = field(default=0, metadata=leaf(CONTROLLER, KEPT, form=Form.WHOLE))
    keep_memory_per_gpu: int = field(default=0, metadata=leaf(CONTROLLER, KEPT, form=Form.BYTES))
    labels: tuple[tuple[str, str], ...] = field(default=(), metadata=entries(CONTROLLER))
    fabric: PoolFabric = field(default=PoolFabric(), metadata=part())
    software: Software = field(default=Software(), metadata=part())
    update: Update = field(default=Update(), metadata=part())
    size: PoolSize | None = field(default=None, metadata=part())
    offerings: tuple[Offering, ...] = field(
        default=(),
        metadata=rows(
            Effect(CONTROLLER, BUYING),
            Effect(REPLACE, "nodes that only it allows are replaced"),
            by=("types", "market", "reservation"),
            ordered=True,
        ),
    )
    image: str = field(default="", metadata=leaf(REPLACE, BOUGHT_ANEW))
    root_volume: int = field(default=0, metadata=leaf(REPLACE, BOUGHT_ANEW, form=Form.BYTES))
    public_address: bool = field(
        default=False, metadata=leaf(REPLACE, BOUGHT_ANEW, form=Form.FLAG, given=True)
    )
    acceptance: Acceptance = field(
        default=Acceptance.REQUIRED,
        metadata=leaf(CONTROLLER, "nodes that are ready stay so; it counts for those that come", given=True),
    )

    def most_nodes(self) -> int:
        """The largest number of nodes that the pool can have."""
        return self.size.max if self.size is not None else len(self.nodes)
