"""The pools of a cluster document: like nodes of one site, listed or bought.

Comes in: the section `pools`. Goes out: one document per pool. Called by: `cluster`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.model.cluster import Acceptance, DrainThen, Emulate, FabricKind, PlacementGroup
from orchestrator.wire.cluster_aws import INSTANCE_TYPE, Image, MarketWord, PlacementWord
from orchestrator.wire.common import (
    Count,
    Dollars,
    Duration,
    Flag,
    Hosts,
    Name,
    Positive,
    Reference,
    Rows,
    Share,
    Size,
    Table,
    Watts,
    choice_leaf,
    free_text_leaf,
    pattern_leaf,
    texts_leaf,
    whole_leaf,
)
from orchestrator.wire.leaf import Strict

MOST_DEVICES = 64  # per node; the largest server boards carry 16

EmulateWord = Annotated[Emulate, choice_leaf(Emulate)]
FabricWord = Annotated[FabricKind, choice_leaf(FabricKind)]
DrainWord = Annotated[DrainThen, choice_leaf(DrainThen)]
AcceptanceWord = Annotated[Acceptance, choice_leaf(Acceptance)]
DeviceCount = Annotated[int, whole_leaf(1, MOST_DEVICES)]
Cores = Annotated[int, whole_leaf(1, 65536)]
Label = Annotated[str, free_text_leaf("a text", 256, empty=True)]
GpuModel = Annotated[str, free_text_leaf("a text: a GPU model", 63)]
Version = Annotated[
    str,
    pattern_leaf(
        r"^[0-9]+(\.[0-9]+){1,3}$",
        "spec.bad-text",
        "a text: a version",
        "write a full version such as '580.126.20'",
    ),
]
InstanceTypes = Annotated[tuple[str, ...], texts_leaf(INSTANCE_TYPE, "instance types")]
Reservation = Annotated[
    str,
    pattern_leaf(
        r"^cr-[0-9a-f]{8,17}$", "spec.bad-name", "a text: a capacity reservation", "write its id, cr-0123…"
    ),
]


class GpuDocument(Strict):
    """The GPUs of every node of the pool."""

    model: GpuModel = Field(description="Model as the catalog names it.", examples=["H100-SXM5-80GB"])
    count: DeviceCount = Field(description="GPUs in a node.", examples=[8])
    emulate: EmulateWord = Field(
        Emulate.AUTO,
        description="`auto`: real GPUs; on a local site without any, emulated ones. `always`: emulated, to try "
        "things out.",
    )
    memory: Size | None = Field(
        None, description="Memory of one GPU, for a model that the catalog does not know."
    )
    max_watts: Watts | None = Field(
        None, description="Most power of one GPU, for a model that the catalog does not know."
    )
    mig: Flag = Field(
        False,
        description="The GPUs are divided into MIG instances, and only jobs that ask for such run on them.",
    )


class PoolFabricDocument(Strict):
    """The adapters of the job network."""

    kind: FabricWord = Field(description="Kind of network.")
    rails: DeviceCount | None = Field(
        None, description="Adapters in a node, each on its own leaf.", examples=[8]
    )
    placement: PlacementWord = Field(
        PlacementGroup.AUTO,
        description="Whether bought nodes stand close together; `auto`: with EFA, where capacity is not reserved.",
    )


class SoftwareDocument(Strict):
    """Versions that every node must have."""

    driver: Version | None = Field(
        None, description="Full version of the GPU driver.", examples=["580.126.20"]
    )
    cuda: Version | None = Field(None, description="Version of the CUDA toolkit.", examples=["13.0"])
    nccl: Version | None = Field(None, description="Version of NCCL.", examples=["2.28.9"])


class DrainDocument(Strict):
    """How work leaves a node."""

    deadline: Duration = Field(86400, description="How long work may end by itself.", examples=["24h"])
    then: DrainWord = Field(DrainThen.WAIT, description="What happens to work that still runs then.")


class UpdateDocument(Strict):
    """How changes reach the nodes."""

    max_unavailable: Positive = Field(1, description="Nodes that may be away at once.", examples=[2])
    drain: DrainDocument = Field(DrainDocument(), description="How work leaves a node first.")
    enough: Share = Field(
        1000,
        description="Share of the hosts that must be ready for the pool to count as good.",
        examples=[0.95],
    )


class SizeDocument(Strict):
    """Bounds of a pool whose nodes are bought."""

    min: Count = Field(0, description="Nodes that are always there.")
    max: Positive = Field(description="Most nodes.", examples=[16])
    idle: Duration = Field(600, description="A node idle for so long is given back.", examples=["10m"])
    boot_deadline: Duration = Field(
        1500, description="A node not ready after so long has failed.", examples=["25m"]
    )


class OfferingDocument(Strict):
    """Something that may be bought. The list is ordered: the first that can be had is taken."""

    type: InstanceTypes = Field(description="Instance type, or several in order.", examples=["p5.48xlarge"])
    market: MarketWord = Field(description="How it is paid for.")
    max_usd_per_hour: Dollars | None = Field(
        None, description="Most dollars for a node and hour.", examples=[30]
    )
    reservation: Reservation | None = Field(None, description="Id of the AWS capacity reservation or block.")


class PoolDocument(Strict):
    """Like nodes of one site."""

    name: Name = Field(description="Name of the pool.")
    site: Reference = Field(description="Site on which it stands.")
    nodes: Hosts | None = Field(
        None, description="Its nodes by name; on an aws site fixed ones, bought once and kept."
    )
    gpu: GpuDocument | None = Field(
        None, description="GPUs of a node; a pool without has none, or its type says it."
    )
    cores: Cores | None = Field(None, description="Processor cores of a node, if not what the node reports.")
    memory: Size | None = Field(None, description="Memory of a node, if not what the node reports.")
    keep_cores_per_gpu: Cores | None = Field(
        None, description="Cores for each GPU of a node that work without GPUs never gets.", examples=[8]
    )
    keep_memory_per_gpu: Size | None = Field(
        None, description="Memory for each GPU of a node that work without GPUs never gets."
    )
    labels: Table[Label] = Field({}, description="Free labels of its nodes.", examples=[{"row": "3"}])
    fabric: PoolFabricDocument | None = Field(None, description="Adapters of the job network.")
    software: SoftwareDocument = Field(SoftwareDocument(), description="Versions that every node must have.")
    update: UpdateDocument = Field(UpdateDocument(), description="How changes reach the nodes.")
    size: SizeDocument | None = Field(None, description="Bounds, on sites where nodes are bought.")
    offerings: Rows[OfferingDocument] = Field([], description="What may be bought, in order of preference.")
    image: Image | None = Field(None, description="Machine image of bought nodes, if not the site's.")
    root_volume: Size | None = Field(None, description="Root disk of bought nodes; absent: 200GiB.")
    public_address: Flag = Field(False, description="Bought nodes get an address of the internet.")
    acceptance: AcceptanceWord = Field(
        Acceptance.REQUIRED, description="Whether nodes must be proved before work starts on them."
    )
