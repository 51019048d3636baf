"""The sites of a cluster document: where nodes come from, their job network, fabric and power.

Comes in: the section `sites`. Goes out: one document per site, of the class of its kind. Called by: `cluster`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, WrapValidator

from orchestrator.model.cluster import JOB_PORTS, Redundancy
from orchestrator.wire.cluster_aws import Arn, Image, Region, StackDocument, Tags, VpcDocument, Zone
from orchestrator.wire.common import (
    DollarsOrNone,
    HostName,
    Hosts,
    Kilowatts,
    KilowattsOrNone,
    Name,
    NetworkCidr,
    Port,
    Ports,
    Pue,
    Reference,
    Rows,
    Secret,
    Share,
    Table,
    UserName,
    choice_leaf,
    free_text_leaf,
    pattern_leaf,
)
from orchestrator.wire.leaf import Strict, key_leaf, read_present

RedundancyWord = Annotated[Redundancy, choice_leaf(Redundancy)]
InventoryPath = Annotated[str, free_text_leaf("a text: the path of an inventory file", 1024)]


PackageName = Annotated[
    str,
    key_leaf(
        pattern_leaf(
            r"^[A-Za-z0-9][A-Za-z0-9+._-]{0,126}$",
            "spec.bad-name",
            "a text: a package",
            "write a package's name as in chrony or libnccl2",
        )
    ),
]
PackageVersion = Annotated[
    str,
    pattern_leaf(
        r"^([0-9][A-Za-z0-9.+:~_-]{0,126})?$",  # deb-version(7): it starts with a digit
        "spec.bad-text",
        "a text: a package's version",
        "write the full version as the package manager shows it, or '' for any",
    ),
]
SysctlKey = Annotated[
    str,
    key_leaf(
        pattern_leaf(
            r"^[a-z][a-z0-9_-]*([./][A-Za-z0-9_:*-]+)+$",
            "spec.bad-name",
            "a text: a sysctl key",
            "write it as in net.core.rmem_max",
        )
    ),
]
SysctlValue = Annotated[str, free_text_leaf("a text: a sysctl's value", 256)]


class NetworkDocument(Strict):
    """The network that processes of jobs talk over."""

    jobs: NetworkCidr | None = Field(None, description="Network of the nodes' job addresses, in CIDR form.")
    ports: Ports = Field(JOB_PORTS, description="Range from which jobs get MASTER_PORT, first-last.")


class FabricDocument(Strict):
    """How the nodes of a site are wired."""

    levels: Rows[Name] = Field(
        [],
        description="Names of the topology levels, from inside out. One of which nothing is told is as the next one "
        "outwards, at last the site.",
        examples=[["unit", "spine"]],
    )
    units: Table[Hosts] = Field(
        {},
        description="Nodes behind the same set of leaves, by unit: the domains of the level `unit`.",
        examples=[{"su-1": "h100-[01-32]"}],
    )
    domains: Table[Table[Hosts]] = Field(
        {},
        description="Domains of the other levels, by level and name: each lists domains of the level inside it, or "
        "nodes.",
        examples=[{"spine": {"sp-1": ["su-1", "su-2"], "sp-2": "su-[3-4]"}}],
    )


class DomainDocument(Strict):
    """A limit in IT watts over nodes or other power domains."""

    name: Name = Field(description="Name of the domain, unique in the cluster.")
    parent: Reference | None = Field(None, description="Domain that feeds this one.")
    limit_kw: Kilowatts | None = Field(None, description="Limit in kW of IT load.", examples=[160])
    unmanaged_kw: KilowattsOrNone = Field(
        0, description="Load in kW that hangs on it and that Gangline does not control: switches, storage."
    )
    derate: Share = Field(
        1000, description="Share of the limit that may be used, above 0 and up to 1.", examples=[0.8]
    )
    nodes: Hosts | None = Field(
        None, description="Nodes fed by it. Nodes that no domain names count to the site's root."
    )
    fed_by: Rows[Reference] = Field(
        [], description="Domains that feed it, instead of one parent.", examples=[["a", "b"]]
    )
    redundancy: RedundancyWord = Field(
        Redundancy.N, description="Rule over `fed_by`: N shares the load, 2N: either feed carries all of it."
    )


class PowerDocument(Strict):
    """What a site's power costs and where its limits are."""

    price_usd_per_kwh: DollarsOrNone | None = Field(
        None, description="Price of a kWh in dollars.", examples=[0.18]
    )
    pue: Pue = Field(
        1000, description="Power usage effectiveness; counts for money, never for a limit.", examples=[1.3]
    )
    domains: Rows[DomainDocument] = Field([], description="Power domains, in any order.")


class SshDocument(Strict):
    """How the hosts of a metal site are reached."""

    user: UserName | None = Field(
        None, description="User to log in as; must be able to use sudo without a password."
    )
    key: Secret | None = Field(
        None, description="Reference to the private key.", examples=["file:/etc/gangline/ssh/atlas"]
    )
    jump: HostName | None = Field(None, description="Host to jump through.")
    port: Port = Field(22, description="Port of the SSH servers.")


class SystemDocument(Strict):
    """What every host of a site has, besides what Gangline needs itself."""

    packages: dict[PackageName, Annotated[PackageVersion, WrapValidator(read_present)]] = Field(
        {},
        description="Packages by name, each with its version: that one, held. '' is any version: the "
        "distribution's own updates go on, and whether it is held is the host's affair.",
        examples=[{"htop": "", "libnccl2": "2.28.9-1+cuda13.0"}],
    )
    sysctls: dict[SysctlKey, Annotated[SysctlValue, WrapValidator(read_present)]] = Field(
        {}, description="Kernel settings by key, as texts.", examples=[{"net.core.rmem_max": "67108864"}]
    )
    time_servers: Rows[HostName] = Field(
        [],
        description="Servers that hosts take their time from; absent: those of the distribution.",
        examples=[["ntp1.example.org"]],
    )


class _SiteBase(Strict):
    name: Name = Field(description="Name of the site.")


class OwnedSite(_SiteBase):
    """A site whose network, topology and power are the cluster's own affair."""

    network: NetworkDocument = Field(NetworkDocument(), description="The job network.")
    fabric: FabricDocument = Field(FabricDocument(), description="Topology of the site.")
    power: PowerDocument = Field(PowerDocument(), description="Power and its price.")


class LocalSite(OwnedSite):
    """This machine plays every node; for trying, tests and single workstations."""

    kind: Literal["local"] = Field(description="`local`: this machine plays every node.")


class MetalSite(OwnedSite):
    """Hosts that people own, reached over SSH."""

    kind: Literal["metal"] = Field(description="`metal`: hosts that people own, over SSH.")
    inventory: InventoryPath | None = Field(
        None, description="Ansible inventory in YAML form, relative to this file.", examples=["hosts.yml"]
    )
    ssh: SshDocument = Field(SshDocument(), description="How the hosts are reached.")
    system: SystemDocument = Field(
        SystemDocument(), description="Packages, kernel settings and time of its hosts."
    )


class AwsSite(_SiteBase):
    """Capacity that is bought from AWS."""

    kind: Literal["aws"] = Field(description="`aws`: bought capacity.")
    region: Region = Field(description="AWS region.", examples=["us-east-1"])
    zones: Rows[Zone] = Field([], description="Zones that may be used; all of the region if absent.")
    network: NetworkDocument = Field(NetworkDocument(), description="The job network.")
    vpc: VpcDocument = Field(VpcDocument(), description="The network in AWS.")
    stack: StackDocument = Field(StackDocument(), description="Where Pulumi keeps its record.")
    image: Image | None = Field(
        None,
        description="Machine image of its nodes: an id, or a parameter that holds one, looked up once and kept.",
        examples=["ami-0123456789abcdef0"],
    )
    kms_key: Arn | None = Field(
        None, description="Key that encrypts the disks of its nodes; absent: the account's own."
    )
    permissions_boundary: Arn | None = Field(None, description="Policy that bounds the roles made for it.")
    tags: Tags = Field({}, description="Tags on all that is made there.", examples=[{"team": "infra"}])
    prices: InventoryPath | None = Field(
        None, description="File of negotiated prices, relative to this file.", examples=["prices.yml"]
    )


def _kind_of(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


SiteDocument = Annotated[
    Annotated[LocalSite, Tag("local")] | Annotated[MetalSite, Tag("metal")] | Annotated[AwsSite, Tag("aws")],
    Discriminator(_kind_of),
]
