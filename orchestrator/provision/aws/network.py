"""The network of an aws site: one that Gangline makes, or subnets that people keep.

Comes in: `NetworkArgs`. Goes out: a VPC id and subnets by zone. Called by: program.

A zone's addresses depend on its name alone, so that another zone moves nothing: the VPC's range is cut into 16 blocks,
eight for the letters of zones, seven for local zones, and the last one, cut again, for the public subnets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
from pulumi_aws import ec2, vpc

from orchestrator.model.cluster import Nat, Vpc
from orchestrator.model.errors import InputError
from orchestrator.provision.aws.marks import Marks

LETTERS = "abcdefgh"
LOCAL_BLOCKS = range(8, 15)
PUBLIC_BLOCK = 15
SMALLEST = 28  # AWS's smallest subnet
GATEWAY_SERVICES = ("dynamodb", "s3")  # reached by a route, free; all others by an interface in each zone
ANYWHERE = "0.0.0.0/0"
_PLAIN_ZONE = re.compile(r"^[a-z-]+-[0-9]+([a-z])$")


@dataclass(frozen=True, slots=True)
class NetworkArgs:
    """`nat_zone`: where the gateway stands if there is one for all; `public`: a pool wants public addresses."""

    marks: Marks
    region: str
    partition: str
    zones: tuple[str, ...]
    vpc: Vpc
    nat_zone: str
    public: bool = False


class Network(pulumi.ComponentResource):
    """A VPC with a private subnet a zone, and the ways out of it; or what people keep, where nothing is made."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangline:aws:Network", name, None, opts)
        self._args = args
        self._child = pulumi.ResourceOptions(parent=self)
        self.vpc_id: pulumi.Input[str] = args.vpc.id
        self.cidr = ""
        self.private: dict[str, pulumi.Input[str]] = {one.name: one.id for one in args.vpc.subnets}
        self.public: dict[str, pulumi.Input[str]] = dict(self.private) if args.public else {}
        if not args.vpc.id:
            self._make()
        self.register_outputs({"vpc": self.vpc_id, "private": self.private, "public": self.public})

    def _make(self) -> None:
        args = self._args
        blocks = private_blocks(args.vpc.cidr, args.zones)
        made = ec2.Vpc(
            "vpc",
            cidr_block=args.vpc.cidr,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=args.marks.tags("vpc"),
            opts=self._child,
        )
        self.vpc_id, self.cidr, self.private = made.id, args.vpc.cidr, {}
        for zone in args.zones:
            self.private[zone] = self._subnet(f"subnet-{zone}", zone, blocks[zone])
        tables = {zone: self._table(f"routes-{zone}", self.private[zone]) for zone in args.zones}
        self._ways_out(tables)
        self._endpoints(tables)

    def _subnet(self, name: str, zone: str, block: str) -> pulumi.Output[str]:
        return ec2.Subnet(
            name,
            vpc_id=self.vpc_id,
            availability_zone=zone,
            cidr_block=block,
            map_public_ip_on_launch=False,
            tags=self._args.marks.tags(name),
            opts=self._child,
        ).id

    def _table(self, name: str, subnet: pulumi.Input[str]) -> pulumi.Output[str]:
        table = ec2.RouteTable(name, vpc_id=self.vpc_id, tags=self._args.marks.tags(name), opts=self._child)
        ec2.RouteTableAssociation(
            name,
            route_table_id=table.id,
            subnet_id=subnet,
            opts=self._child,
        )
        return table.id

    def _ways_out(self, tables: Mapping[str, pulumi.Output[str]]) -> None:
        """The internet gateway, public subnets where something stands in them, and NAT."""
        args = self._args
        gateways = {Nat.ONE: (args.nat_zone,), Nat.PER_ZONE: args.zones, Nat.NONE: ()}[args.vpc.nat]
        public_zones = args.zones if args.public else gateways
        if not public_zones:
            return
        internet = ec2.InternetGateway(
            "internet", vpc_id=self.vpc_id, tags=args.marks.tags("internet"), opts=self._child
        )
        blocks = public_blocks(args.vpc.cidr, args.zones)
        nats = {}
        for zone in public_zones:
            self.public[zone] = self._public_subnet(zone, blocks[zone], internet)
        for zone in gateways:
            nats[zone] = self._nat(zone, self.public[zone], internet)
        for zone, table in tables.items():
            if nats:
                gateway = nats.get(zone, nats[min(nats)])
                ec2.Route(
                    f"out-{zone}",
                    route_table_id=table,
                    destination_cidr_block=ANYWHERE,
                    nat_gateway_id=gateway,
                    opts=self._child,
                )
        if not args.public:
            self.public = {}

    def _public_subnet(self, zone: str, block: str, internet: ec2.InternetGateway) -> pulumi.Output[str]:
        subnet = self._subnet(f"public-{zone}", zone, block)
        table = self._table(f"routes-public-{zone}", subnet)
        ec2.Route(
            f"out-public-{zone}",
            route_table_id=table,
            destination_cidr_block=ANYWHERE,
            gateway_id=internet.id,
            opts=self._child,
        )
        return subnet

    def _nat(self, zone: str, subnet: pulumi.Input[str], internet: ec2.InternetGateway) -> pulumi.Output[str]:
        tags = self._args.marks.tags(f"nat-{zone}")
        address = ec2.Eip(f"nat-{zone}", domain="vpc", tags=tags, opts=self._child)
        return ec2.NatGateway(
            f"nat-{zone}",
            allocation_id=address.id,
            subnet_id=subnet,
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[internet]),
        ).id

    def _endpoints(self, tables: Mapping[str, pulumi.Output[str]]) -> None:
        args = self._args
        interfaces = [one for one in args.vpc.endpoints if one not in GATEWAY_SERVICES]
        group = self._endpoint_group() if interfaces else None
        for service in args.vpc.endpoints:
            tags = args.marks.tags(f"endpoint-{service}")
            if group is None or service in GATEWAY_SERVICES:
                ec2.VpcEndpoint(
                    f"endpoint-{service}",
                    vpc_id=self.vpc_id,
                    service_name=self._service(service),
                    vpc_endpoint_type="Gateway",
                    route_table_ids=list(tables.values()),
                    tags=tags,
                    opts=self._child,
                )
            else:
                ec2.VpcEndpoint(
                    f"endpoint-{service}",
                    vpc_id=self.vpc_id,
                    service_name=self._service(service),
                    vpc_endpoint_type="Interface",
                    private_dns_enabled=True,
                    subnet_ids=list(self.private.values()),
                    security_group_ids=[group],
                    tags=tags,
                    opts=self._child,
                )

    def _service(self, short: str) -> str:
        prefix = "cn.com" if self._args.partition == "aws-cn" else "com"
        return f"{prefix}.amazonaws.{self._args.region}.{short}"

    def _endpoint_group(self) -> pulumi.Output[str]:
        marks = self._args.marks
        group = ec2.SecurityGroup(
            "endpoints",
            name=marks.name("endpoints"),
            description="Ways from the cluster's subnets to AWS services",
            vpc_id=self.vpc_id,
            tags=marks.tags("endpoints"),
            opts=self._child,
        )
        vpc.SecurityGroupIngressRule(
            "endpoints-https",
            security_group_id=group.id,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            cidr_ipv4=self._args.vpc.cidr,
            tags=marks.tags("endpoints-https"),
            opts=self._child,
        )
        return group.id


def private_blocks(cidr: str, zones: tuple[str, ...]) -> dict[str, str]:
    """The addresses of each zone's private subnet. InputError where the range is too small, or two zones would meet."""
    network = IPv4Network(cidr)
    if network.prefixlen + 4 > SMALLEST:
        raise _too_small(cidr, SMALLEST - 4)
    parts = list(network.subnets(prefixlen_diff=4))
    slots = {zone: _slot(zone) for zone in zones}
    if len(set(slots.values())) < len(slots):
        hint = "make the VPC and its subnets yourself, and name them under vpc.id and vpc.subnets"
        raise InputError(
            "aws.zones-meet", f"two of the zones {', '.join(zones)} have one place", hint, "zones"
        )
    return {zone: str(parts[slot]) for zone, slot in slots.items()}


def public_blocks(cidr: str, zones: tuple[str, ...]) -> dict[str, str]:
    """The same for the small public subnets, in the last of the 16 blocks."""
    last = list(IPv4Network(cidr).subnets(prefixlen_diff=4))[PUBLIC_BLOCK]
    if last.prefixlen + 4 > SMALLEST:
        raise _too_small(cidr, SMALLEST - 8)
    parts = list(last.subnets(prefixlen_diff=4))
    return {zone: str(parts[_slot(zone)]) for zone in zones}


def _slot(zone: str) -> int:
    """A zone's block: by its letter; of a local zone (us-east-1-dfw-2a), or one past h, by a sum of its name."""
    plain = _PLAIN_ZONE.match(zone)
    if plain is not None and plain[1] in LETTERS:
        return LETTERS.index(plain[1])
    return LOCAL_BLOCKS[int(hashlib.sha256(zone.encode()).hexdigest(), 16) % len(LOCAL_BLOCKS)]


def _too_small(cidr: str, most: int) -> InputError:
    return InputError(
        "aws.cidr-too-small",
        f"the range {cidr} is too small for a subnet a zone",
        f"give vpc.cidr at least a /{most}",
        "vpc.cidr",
    )
