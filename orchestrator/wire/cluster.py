"""The cluster document: one YAML file that says what a cluster is to be.

Comes in: the plain value of a `kind: Cluster` file. Goes out: `ClusterDocument`, whose leaves are in base units.
Called by: spec (reads files), `schemas` (writes the JSON Schema), provision and planning through spec. Sections with
many fields live in `cluster_sites`, `cluster_aws`, `cluster_pools` and `cluster_queues`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from orchestrator.model.cluster import FairShare, IdentitySource, OnMismatch, Preset, StorageKind
from orchestrator.wire.cluster_aws import ControllerInstanceDocument
from orchestrator.wire.cluster_pools import PoolDocument
from orchestrator.wire.cluster_queues import AccessDocument, BudgetDocument, QueueDocument
from orchestrator.wire.cluster_sites import SiteDocument
from orchestrator.wire.common import (
    AbsolutePath,
    Duration,
    Flag,
    Name,
    Positive,
    Reference,
    Rows,
    Size,
    Text,
    UserName,
    choice_leaf,
    pattern_leaf,
    whole_leaf,
)
from orchestrator.wire.leaf import Strict

API_VERSION = "gangline/v1"

FairShareWord = Annotated[FairShare, choice_leaf(FairShare)]
Kept = Annotated[int, whole_leaf(0, 1000)]
PresetWord = Annotated[Preset, choice_leaf(Preset)]
IdentityWord = Annotated[IdentitySource, choice_leaf(IdentitySource)]
MismatchWord = Annotated[OnMismatch, choice_leaf(OnMismatch)]
StorageWord = Annotated[StorageKind, choice_leaf(StorageKind)]
Uid = Annotated[int, whole_leaf(1000, 2**31 - 1)]
Address = Annotated[
    str,
    pattern_leaf(
        r"^(https://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]+\])"
        r"|http://(localhost|127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}|\[::1\]))(:[0-9]{1,5})?/?$",
        "spec.bad-url",
        "a text: an address",
        "write https://host:port; without TLS only to this machine, as in http://127.0.0.1:7443",
    ),
]


class ClusterMetadata(Strict):
    """What names the cluster."""

    name: Name = Field(
        description="Name of the cluster; also the name of its state folder.", examples=["atlas"]
    )
    timezone: Text = Field(
        "UTC", description="IANA time zone in which windows and months count.", examples=["Europe/Berlin"]
    )


class BackupDocument(Strict):
    """Copies of the ledger, made by the controller itself."""

    every: Duration = Field(86400, description="Time between two copies, a minute or more.", examples=["24h"])
    keep: Positive = Field(7, description="Copies that are kept; the oldest goes first.", examples=[7])


class ControllerDocument(Strict):
    """Where the controller is and keeps its state."""

    address: Address | None = Field(
        None,
        description="What agents and clients call; absent: the machine that ran `up`.",
        examples=["https://atlas.example.org:7443"],
    )
    state: AbsolutePath | None = Field(
        None, description="Folder of the ledger.", examples=["/var/lib/gangline"]
    )
    host: Reference | None = Field(
        None,
        description="Host of a metal site on which it runs as a service; absent: the machine that ran `up`.",
        examples=["head-1"],
    )
    instance: ControllerInstanceDocument | None = Field(
        None, description="Instance on which it runs; absent: see `host`."
    )
    backup: BackupDocument = Field(BackupDocument(), description="Copies of the ledger.")


class UserDocument(Strict):
    """A user whom Gangline makes on every node."""

    name: UserName = Field(description="POSIX name.", examples=["alice"])
    uid: Uid = Field(description="Number of the user, the same on every node.", examples=[2001])
    groups: Rows[UserName] = Field(
        [], description="Groups besides the user's own; made where absent.", examples=[["research"]]
    )


class PosixGroupDocument(Strict):
    """A group that has the same number on every node."""

    name: UserName = Field(description="POSIX name.", examples=["research"])
    gid: Uid = Field(description="Number of the group, the same on every node.", examples=[20100])


class IdentityDocument(Strict):
    """How nodes know users."""

    source: IdentityWord = Field(
        IdentitySource.FILES, description="Where nodes learn names and numbers of users."
    )
    min_uid: Uid = Field(1000, description="Jobs of users with lower numbers are refused; 1000 is the least.")
    on_mismatch: MismatchWord = Field(
        OnMismatch.REFUSE,
        description="What an agent does when its answer for a name differs from the controller's.",
    )
    users: Rows[UserDocument] = Field([], description="Users to make on nodes, with source `pushed` only.")
    groups: Rows[PosixGroupDocument] = Field(
        [],
        description="Groups to make on nodes with these numbers, with source `pushed` only; a group of a user that is "
        "not here gets a number of each host's own.",
    )


class StorageDocument(Strict):
    """A file system that jobs can ask for."""

    name: Name = Field(description="Name that jobs give in `needs`.")
    kind: StorageWord = Field(description="How it gets onto a node.")
    source: Text | None = Field(
        None,
        description="What is mounted; not for `local`. Of `fsx` and `efs` the id of one that people keep; absent: "
        "Gangline makes it.",
        examples=["nas1:/home"],
    )
    path: AbsolutePath = Field(description="Where it is on every node.", examples=["/home"])
    sites: Rows[Reference] = Field([], description="Sites that have it; absent: all.")
    size: Size | None = Field(None, description="Size of an `fsx` that Gangline makes.", examples=["4800GiB"])
    throughput: Positive | None = Field(
        None, description="Throughput of one that Gangline makes: MB/s per TiB (`fsx`), MB/s (`efs`)."
    )
    per_job: Flag = Field(False, description="Each job gets an own folder in it (`local` only).")
    purge: Flag = Field(
        False, description="A job's folder is emptied when the job has ended (with `per_job`)."
    )


class SchedulerDocument(Strict):
    """How the scheduler decides whose turn it is, and where work goes."""

    fair_share: FairShareWord = Field(
        FairShare.INSTANT,
        description="What decides between queues, and between people of one queue at the same priority: GPUs held now, "
        "GPU-hours used with older ones counting less, or nothing but priority and submit order.",
    )
    half_life: Duration = Field(
        604800, description="After so long a GPU-hour counts half, with `decay`.", examples=["7d"]
    )
    placement: PresetWord = Field(
        Preset.STANDARD,
        description="How nodes are weighed: `standard` keeps whole nodes free for large jobs, `filling` leaves the "
        "least unusable on a cluster that fills up with work that stays.",
    )
    kept_jobs: Kept = Field(
        8,
        description="Blocked jobs, first in order, that nodes are kept for; 0: small jobs may pass large ones.",
    )


class ClusterDocument(Strict):
    """One GPU cluster: sites, pools, queues, budgets, access."""

    model_config = ConfigDict(title="Gangline cluster")

    api_version: Literal["gangline/v1"] = Field(alias="apiVersion", description="Version of this format.")
    kind: Literal["Cluster"] = Field(description="What this file describes.")
    metadata: ClusterMetadata = Field(description="What names the cluster.")
    controller: ControllerDocument = Field(ControllerDocument(), description="Where the controller is.")
    identity: IdentityDocument = Field(IdentityDocument(), description="How nodes know users.")
    storage: Rows[StorageDocument] = Field([], description="File systems that jobs can ask for.")
    sites: Rows[SiteDocument] = Field(description="Where nodes come from.")
    pools: Rows[PoolDocument] = Field(description="Like nodes of one site, each.")
    scheduler: SchedulerDocument = Field(SchedulerDocument(), description="How the scheduler decides.")
    queues: Rows[QueueDocument] = Field([], description="The quota tree; absent: one queue `default`.")
    budgets: Rows[BudgetDocument] = Field([], description="Limits on power and money.")
    access: AccessDocument = Field(AccessDocument(), description="Who may do what.")
