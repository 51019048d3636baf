"""The sites of the cluster's model: where nodes come from, their job network, fabric, power and hosts.

Comes in: nothing. Goes out: `Site` and its parts. Called by: model.cluster, through which everybody else has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.model.change import UpdateClass
from orchestrator.model.cluster_aws import BOUGHT_ANEW, Price, Stack, Vpc
from orchestrator.model.cluster_words import JOB_PORTS, Redundancy, SiteKind
from orchestrator.model.written import (
    VALUE,
    Effect,
    Form,
    covered,
    entries,
    identity,
    leaf,
    part,
    rows,
)

CONTROLLER, IN_PLACE = UpdateClass.CONTROLLER, UpdateClass.IN_PLACE
STAYS = "running gangs stay where they are; what starts from now on follows it"
POWER = "the next pass counts with it; if more is committed than allowed, commitment only falls"
REACH = "Gangline reaches the hosts by it; nothing changes on them"


@dataclass(frozen=True, slots=True)
class Network:
    """The network that processes of jobs talk over. `jobs` is a CIDR or empty; ports are inclusive."""

    jobs: str = field(default="", metadata=leaf(CONTROLLER, STAYS))
    first_port: int = field(
        default=JOB_PORTS[0],
        metadata=leaf(CONTROLLER, STAYS, key="ports", form=Form.PORTS, given=True, also="last_port"),
    )
    last_port: int = field(default=JOB_PORTS[1], metadata=covered("first_port"))


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes behind the same set of leaves."""

    name: str = field(metadata=identity())
    nodes: tuple[str, ...] = field(metadata=leaf(CONTROLLER, STAYS, key=VALUE, form=Form.NODES))


@dataclass(frozen=True, slots=True)
class FabricDomain:
    """A domain of a level other than `unit`: what it holds, domains of the level inside it and nodes, by name."""

    level: str = field(metadata=identity())
    name: str = field(metadata=identity())
    members: tuple[str, ...] = field(metadata=leaf(CONTROLLER, STAYS, key=VALUE, form=Form.NODES))


NODE_LEVEL = "nvlink"  # the innermost level: a node by itself, where the file tells of no larger domains
UNIT_LEVEL = "unit"  # the level that `SiteFabric.units` tells of


@dataclass(frozen=True, slots=True)
class SiteFabric:
    """Topology level names from inside out, the units that people declared, and what lies around them."""

    levels: tuple[str, ...] = field(default=(), metadata=leaf(CONTROLLER, STAYS, form=Form.RANKED))
    units: tuple[Unit, ...] = field(
        default=(), metadata=rows(Effect(CONTROLLER, STAYS), Effect(CONTROLLER, STAYS), table=True)
    )
    domains: tuple[FabricDomain, ...] = field(
        default=(),
        metadata=rows(Effect(CONTROLLER, STAYS), Effect(CONTROLLER, STAYS), by=("level", "name"), table=True),
    )

    def nodes_by_level(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Level -> domain -> its nodes, for the levels of which anything is declared; domains in the order of names.

        The level inside is the nearest one of which anything is declared."""
        found: dict[str, dict[str, tuple[str, ...]]] = {
            UNIT_LEVEL: {unit.name: unit.nodes for unit in self.units}
        }
        inner: dict[str, tuple[str, ...]] = {}
        for level in self.levels:
            mine = {one.name: one.members for one in self.domains if one.level == level}
            for name, members in mine.items():
                nodes = (node for member in members for node in inner.get(member, (member,)))
                found.setdefault(level, {})[name] = tuple(nodes)
            inner = found.get(level) or inner
        return found


@dataclass(frozen=True, slots=True)
class PowerDomain:
    """A limit in IT watts over nodes or other domains; `limit_watts` 0 means none of its own.

    `parent` and `fed_by` exclude each other. `unmanaged_watts` is drawn by what Gangline does not control. What may be
    used of the limit is `limit_watts * derate_milli // 1000`.
    """

    name: str = field(metadata=identity())
    parent: str = field(default="", metadata=leaf(CONTROLLER, POWER))
    limit_watts: int = field(default=0, metadata=leaf(CONTROLLER, POWER, key="limit_kw", form=Form.KILOWATTS))
    unmanaged_watts: int = field(
        default=0, metadata=leaf(CONTROLLER, POWER, key="unmanaged_kw", form=Form.KILOWATTS, given=True)
    )
    derate_milli: int = field(
        default=1000, metadata=leaf(CONTROLLER, POWER, key="derate", form=Form.SHARE, given=True)
    )
    nodes: tuple[str, ...] = field(default=(), metadata=leaf(CONTROLLER, POWER, form=Form.NODES))
    fed_by: tuple[str, ...] = field(default=(), metadata=leaf(CONTROLLER, POWER, form=Form.TEXTS))
    redundancy: Redundancy = field(default=Redundancy.N, metadata=leaf(CONTROLLER, POWER, given=True))

    def usable_watts(self) -> int:
        """The limit after derating; 0 means no limit."""
        return self.limit_watts * self.derate_milli // 1000


@dataclass(frozen=True, slots=True)
class SitePower:
    """Price in micro-dollars per kWh, PUE per mille (for money only, never for limits), and the domains."""

    price_microusd_per_kwh: int = field(
        default=0, metadata=leaf(CONTROLLER, key="price_usd_per_kwh", form=Form.DOLLARS)
    )
    pue_milli: int = field(default=1000, metadata=leaf(CONTROLLER, key="pue", form=Form.SHARE, given=True))
    domains: tuple[PowerDomain, ...] = field(
        default=(), metadata=rows(Effect(CONTROLLER, POWER), Effect(CONTROLLER, POWER))
    )


@dataclass(frozen=True, slots=True)
class Ssh:
    """How metal hosts are reached. `key` is a secret reference, `jump` a host or empty."""

    user: str = field(default="", metadata=leaf(CONTROLLER, REACH))
    key: str = field(default="", metadata=leaf(CONTROLLER, REACH))
    jump: str = field(default="", metadata=leaf(CONTROLLER, REACH))
    port: int = field(default=22, metadata=leaf(CONTROLLER, REACH, form=Form.WHOLE, given=True))


@dataclass(frozen=True, slots=True)
class System:
    """What every host of a metal site has besides what Gangline needs itself.

    `packages` maps names to versions (a version is held; empty: any that the host has, held or not), `sysctls` keys
    to values.
    """

    packages: tuple[tuple[str, str], ...] = field(
        default=(), metadata=entries(IN_PLACE, "installed while work runs")
    )
    sysctls: tuple[tuple[str, str], ...] = field(
        default=(), metadata=entries(IN_PLACE, "set at once, and again at each boot")
    )
    time_servers: tuple[str, ...] = field(
        default=(), metadata=leaf(IN_PLACE, "the clock is steered, never set back", form=Form.TEXTS)
    )


@dataclass(frozen=True, slots=True)
class Host:
    """One line of a metal inventory. `bmc` is an address; `bmc_password` a secret reference."""

    name: str = field(metadata=identity())
    address: str = field(default="", metadata=leaf(CONTROLLER, REACH, key="ansible_host"))
    bmc: str = field(default="", metadata=leaf(CONTROLLER, REACH))
    bmc_user: str = field(default="", metadata=leaf(CONTROLLER, REACH))
    bmc_password: str = field(default="", metadata=leaf(CONTROLLER, REACH))
    mac: str = field(default="", metadata=leaf(CONTROLLER, REACH))
    rack: str = field(default="", metadata=leaf(CONTROLLER))
    groups: tuple[str, ...] = field(default=(), metadata=leaf(CONTROLLER, form=Form.TEXTS))


@dataclass(frozen=True, slots=True)
class Site:
    """A place with pools. `inventory`, `ssh`, `system`, `hosts` are for metal, `region` and what follows for aws.

    `image` is an AMI id, or `ssm:` and the name of a parameter that holds one; `kms_key` and `permissions_boundary` are
    ARNs; `negotiated` are the rows of the file `prices`. All may be empty.
    """

    name: str = field(metadata=identity())
    kind: SiteKind = field(
        metadata=leaf(
            UpdateClass.REFUSED,
            "the nodes of one kind of site can't become those of another",
            unblock="add a site of the other kind under another name, move the pools, then remove this one",
        )
    )
    network: Network = field(default=Network(), metadata=part())
    fabric: SiteFabric = field(default=SiteFabric(), metadata=part())
    power: SitePower = field(default=SitePower(), metadata=part())
    inventory: str = field(default="", metadata=leaf(CONTROLLER, "only what the inventory says counts"))
    ssh: Ssh = field(default=Ssh(), metadata=part())
    system: System = field(default=System(), metadata=part())
    hosts: tuple[Host, ...] = field(
        default=(),
        metadata=rows(
            Effect(CONTROLLER, "a pool must list it before anything happens on it"),
            Effect(CONTROLLER, "nothing happens on the host: pools say which hosts are nodes"),
            elsewhere=True,
        ),
    )
    region: str = field(
        default="",
        metadata=leaf(
            UpdateClass.REFUSED,
            "what was bought in one region can't move to another",
            unblock="add a site for the new region, move the pools, then remove this one",
        ),
    )
    zones: tuple[str, ...] = field(
        default=(),
        metadata=leaf(
            UpdateClass.REPLACE, "nodes in a zone that is no longer named are replaced", form=Form.TEXTS
        ),
    )
    vpc: Vpc = field(default=Vpc(), metadata=part())
    stack: Stack = field(default=Stack(), metadata=part())
    image: str = field(default="", metadata=leaf(UpdateClass.REPLACE, BOUGHT_ANEW))
    kms_key: str = field(default="", metadata=leaf(UpdateClass.REPLACE, BOUGHT_ANEW))
    permissions_boundary: str = field(
        default="", metadata=leaf(IN_PLACE, "the roles of nodes are bound by it from now on")
    )
    tags: tuple[tuple[str, str], ...] = field(
        default=(), metadata=entries(IN_PLACE, "set on all that the cluster has there")
    )
    prices: str = field(default="", metadata=leaf(CONTROLLER, "only what the file says counts"))
    negotiated: tuple[Price, ...] = field(
        default=(),
        metadata=rows(Effect(CONTROLLER), Effect(CONTROLLER), by=("type", "market"), elsewhere=True),
    )
