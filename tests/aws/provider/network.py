"""Types of the network: VPC, subnets, gateways, routes, endpoints.

Comes in: inputs in Pulumi's words. Goes out: calls of EC2. Called by: server, by way of `kinds.KINDS`.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from tests.aws.provider.kinds import Clients, Kind, Values, Wait, kind, read_or_none, words


def tag_spec(clients: Clients, inputs: Values, of: str) -> list[dict[str, Any]]:
    """Tags in the call that makes a thing."""
    tags = [{"Key": key, "Value": value} for key, value in sorted(clients.tags(inputs).items())]
    return [{"ResourceType": of, "Tags": tags}] if tags else []


def tags_of(row: dict[str, Any]) -> dict[str, str]:
    """Tags of a described thing, without AWS's own."""
    return {tag["Key"]: tag["Value"] for tag in row.get("Tags", []) if not tag["Key"].startswith("aws:")}


def first(answer: Any, member: str) -> Any:
    """The first row of an answer that may be None."""
    rows = answer[member] if answer else []
    return rows[0] if rows else None


# VPC


def _make_vpc(c: Clients, i: Values) -> str:
    made = c.ec2.create_vpc(CidrBlock=i["cidrBlock"], TagSpecifications=tag_spec(c, i, "vpc"))
    identity: str = made["Vpc"]["VpcId"]
    _change_vpc(c, identity, {}, i)
    return identity


def _change_vpc(c: Clients, identity: str, _old: Values, i: Values) -> None:
    support = i.get("enableDnsSupport", True)
    c.ec2.modify_vpc_attribute(VpcId=identity, EnableDnsSupport={"Value": support})
    names = i.get("enableDnsHostnames", False)
    c.ec2.modify_vpc_attribute(VpcId=identity, EnableDnsHostnames={"Value": names})


def _see_vpc(c: Clients, identity: str, _: Values) -> Values | None:
    row = first(read_or_none(lambda: c.ec2.describe_vpcs(VpcIds=[identity])), "Vpcs")
    if row is None:
        return None
    said = {
        name: c.ec2.describe_vpc_attribute(VpcId=identity, Attribute=name)[name[0].upper() + name[1:]][
            "Value"
        ]
        for name in ("enableDnsSupport", "enableDnsHostnames")
    }
    main = first(
        c.ec2.describe_route_tables(
            Filters=[
                {"Name": "vpc-id", "Values": [identity]},
                {"Name": "association.main", "Values": ["true"]},
            ]
        ),
        "RouteTables",
    )
    groups = c.ec2.describe_security_groups(
        Filters=[{"Name": "vpc-id", "Values": [identity]}, {"Name": "group-name", "Values": ["default"]}]
    )
    return said | {
        "cidrBlock": row["CidrBlock"], "tags": tags_of(row), "ownerId": c.account(),
        "arn": f"arn:aws:ec2:{c.region}:{c.account()}:vpc/{identity}",
        "mainRouteTableId": main["RouteTableId"] if main else "",
        "defaultSecurityGroupId": groups["SecurityGroups"][0]["GroupId"] if groups["SecurityGroups"] else "",
    }  # fmt: skip


kind(
    "aws:ec2/vpc:Vpc",
    Kind(
        _make_vpc, _see_vpc, lambda c, identity, _: c.ec2.delete_vpc(VpcId=identity), _change_vpc, tagged=True,
        replace=words("cidrBlock"), computed=("arn", "ownerId", "mainRouteTableId", "defaultSecurityGroupId"),
    ),
)  # fmt: skip


# Subnets


def _make_subnet(c: Clients, i: Values) -> str:
    made = c.ec2.create_subnet(
        VpcId=i["vpcId"], CidrBlock=i["cidrBlock"], TagSpecifications=tag_spec(c, i, "subnet"),
        **({"AvailabilityZone": i["availabilityZone"]} if "availabilityZone" in i else {}),
    )  # fmt: skip
    identity: str = made["Subnet"]["SubnetId"]
    if i.get("mapPublicIpOnLaunch"):
        _change_subnet(c, identity, {}, i)
    return identity


def _change_subnet(c: Clients, identity: str, _old: Values, i: Values) -> None:
    value = {"Value": bool(i.get("mapPublicIpOnLaunch", False))}
    c.ec2.modify_subnet_attribute(SubnetId=identity, MapPublicIpOnLaunch=value)


def _see_subnet(c: Clients, identity: str, _: Values) -> Values | None:
    row = first(read_or_none(lambda: c.ec2.describe_subnets(SubnetIds=[identity])), "Subnets")
    return row and {
        "vpcId": row["VpcId"], "cidrBlock": row["CidrBlock"], "availabilityZone": row["AvailabilityZone"],
        "mapPublicIpOnLaunch": row["MapPublicIpOnLaunch"], "tags": tags_of(row), "arn": row["SubnetArn"],
        "availabilityZoneId": row["AvailabilityZoneId"], "ownerId": row["OwnerId"],
    }  # fmt: skip


kind(
    "aws:ec2/subnet:Subnet",
    Kind(
        _make_subnet, _see_subnet, lambda c, identity, _: c.ec2.delete_subnet(SubnetId=identity), _change_subnet,
        tagged=True, replace=words("vpcId cidrBlock availabilityZone"),
        computed=("arn", "ownerId", "availabilityZoneId"),
    ),
)  # fmt: skip


# Ways out


def _make_gateway(c: Clients, i: Values) -> str:
    made = c.ec2.create_internet_gateway(TagSpecifications=tag_spec(c, i, "internet-gateway"))
    identity: str = made["InternetGateway"]["InternetGatewayId"]
    if "vpcId" in i:
        c.ec2.attach_internet_gateway(InternetGatewayId=identity, VpcId=i["vpcId"])
    return identity


def _see_gateway(c: Clients, identity: str, _: Values) -> Values | None:
    ask = read_or_none(lambda: c.ec2.describe_internet_gateways(InternetGatewayIds=[identity]))
    row = first(ask, "InternetGateways")
    if row is None:
        return None
    held = row["Attachments"]
    return {
        "tags": tags_of(row), "ownerId": c.account(),
        "arn": f"arn:aws:ec2:{c.region}:{c.account()}:internet-gateway/{identity}",
        **({"vpcId": held[0]["VpcId"]} if held else {}),
    }  # fmt: skip


def _end_gateway(c: Clients, identity: str, outputs: Values) -> None:
    if "vpcId" in outputs:
        c.ec2.detach_internet_gateway(InternetGatewayId=identity, VpcId=outputs["vpcId"])
    c.ec2.delete_internet_gateway(InternetGatewayId=identity)


kind(
    "aws:ec2/internetGateway:InternetGateway",
    Kind(
        _make_gateway,
        _see_gateway,
        _end_gateway,
        tagged=True,
        replace=words("vpcId"),
        computed=("arn", "ownerId"),
    ),
)


def _make_eip(c: Clients, i: Values) -> str:
    made = c.ec2.allocate_address(Domain="vpc", TagSpecifications=tag_spec(c, i, "elastic-ip"))
    if "instance" in i:
        c.ec2.associate_address(AllocationId=made["AllocationId"], InstanceId=i["instance"])
    return str(made["AllocationId"])


def _see_eip(c: Clients, identity: str, _: Values) -> Values | None:
    row = first(read_or_none(lambda: c.ec2.describe_addresses(AllocationIds=[identity])), "Addresses")
    return row and {
        "domain": "vpc", "publicIp": row["PublicIp"], "allocationId": identity, "tags": tags_of(row),
        "arn": f"arn:aws:ec2:{c.region}:{c.account()}:elastic-ip/{identity}",
        **({"instance": row["InstanceId"]} if row.get("InstanceId") else {}),
    }  # fmt: skip


def _end_eip(c: Clients, identity: str, _: Values) -> None:
    row = first(c.ec2.describe_addresses(AllocationIds=[identity]), "Addresses")
    if row and row.get("AssociationId") and row.get("InstanceId"):
        c.ec2.disassociate_address(AssociationId=row["AssociationId"])
    c.ec2.release_address(AllocationId=identity)


kind(
    "aws:ec2/eip:Eip",
    Kind(
        _make_eip, _see_eip, _end_eip, tagged=True, replace=words("domain instance"),
        computed=("publicIp", "allocationId", "arn"),
    ),
)  # fmt: skip


def _make_nat(c: Clients, i: Values) -> str:
    made = c.ec2.create_nat_gateway(
        SubnetId=i["subnetId"], ConnectivityType=i.get("connectivityType", "public"),
        TagSpecifications=tag_spec(c, i, "natgateway"),
        **({"AllocationId": i["allocationId"]} if "allocationId" in i else {}),
    )  # fmt: skip
    identity: str = made["NatGateway"]["NatGatewayId"]
    Wait(f"{identity} is not available").until(lambda: _see_nat(c, identity, {}))
    return identity


def _see_nat(c: Clients, identity: str, _: Values) -> Values | None:
    row = first(read_or_none(lambda: c.ec2.describe_nat_gateways(NatGatewayIds=[identity])), "NatGateways")
    if row is None or row["State"] in ("deleted", "deleting"):
        return None
    address = (row.get("NatGatewayAddresses") or [{}])[0]
    return {
        "subnetId": row["SubnetId"], "connectivityType": row.get("ConnectivityType", "public"), "tags": tags_of(row),
        "allocationId": address.get("AllocationId"), "publicIp": address.get("PublicIp"),
        "privateIp": address.get("PrivateIp"),
    }  # fmt: skip


kind(
    "aws:ec2/natGateway:NatGateway",
    Kind(
        _make_nat, _see_nat, lambda c, identity, _: c.ec2.delete_nat_gateway(NatGatewayId=identity), tagged=True,
        replace=words("subnetId allocationId connectivityType"), computed=("publicIp", "privateIp"),
    ),
)  # fmt: skip


# Routes


def _make_table(c: Clients, i: Values) -> str:
    made = c.ec2.create_route_table(VpcId=i["vpcId"], TagSpecifications=tag_spec(c, i, "route-table"))
    identity: str = made["RouteTable"]["RouteTableId"]
    _change_table(c, identity, {}, i)
    return identity


def _change_table(c: Clients, identity: str, old: Values, new: Values) -> None:
    before, after = old.get("routes") or [], new.get("routes") or []
    for route in before:
        if route not in after:
            c.ec2.delete_route(RouteTableId=identity, DestinationCidrBlock=route["cidrBlock"])
    for route in after:
        if route not in before:
            c.ec2.create_route(RouteTableId=identity, DestinationCidrBlock=route["cidrBlock"], **_way(route))


def _way(i: Values) -> dict[str, str]:
    known = {"gatewayId": "GatewayId", "natGatewayId": "NatGatewayId", "transitGatewayId": "TransitGatewayId"}
    return {theirs: i[ours] for ours, theirs in known.items() if i.get(ours)}


def _see_table(c: Clients, identity: str, old: Values) -> Values | None:
    row = first(read_or_none(lambda: c.ec2.describe_route_tables(RouteTableIds=[identity])), "RouteTables")
    if row is None:
        return None
    routes = [
        _route(each)
        for each in row["Routes"]
        if each.get("GatewayId") != "local" and "DestinationCidrBlock" in each
    ]
    return {
        "vpcId": row["VpcId"], "tags": tags_of(row), "ownerId": c.account(),
        "arn": f"arn:aws:ec2:{c.region}:{c.account()}:route-table/{identity}",
        **({"routes": routes} if "routes" in old else {}),
    }  # fmt: skip


def _route(row: dict[str, Any]) -> Values:
    known = {"GatewayId": "gatewayId", "NatGatewayId": "natGatewayId", "TransitGatewayId": "transitGatewayId"}
    return {"cidrBlock": row["DestinationCidrBlock"]} | {
        ours: row[aws] for aws, ours in known.items() if row.get(aws)
    }


kind(
    "aws:ec2/routeTable:RouteTable",
    Kind(
        _make_table, _see_table, lambda c, identity, _: c.ec2.delete_route_table(RouteTableId=identity),
        _change_table, tagged=True, replace=words("vpcId"), computed=("arn", "ownerId"),
    ),
)  # fmt: skip


def _make_route(c: Clients, i: Values) -> str:
    c.ec2.create_route(
        RouteTableId=i["routeTableId"], DestinationCidrBlock=i["destinationCidrBlock"], **_way(i)
    )
    return (
        f"r-{i['routeTableId']}{crc32(i['destinationCidrBlock'].encode())}"  # as the real provider calls it
    )


def _see_route(c: Clients, identity: str, old: Values) -> Values | None:
    table, block = old["routeTableId"], old["destinationCidrBlock"]
    row = first(read_or_none(lambda: c.ec2.describe_route_tables(RouteTableIds=[table])), "RouteTables")
    for route in row["Routes"] if row else []:
        if route.get("DestinationCidrBlock") == block:
            found = _route(route)
            return {
                "routeTableId": table,
                "destinationCidrBlock": found.pop("cidrBlock"),
                "state": "active",
            } | found
    return None


def _end_route(c: Clients, _identity: str, old: Values) -> None:
    c.ec2.delete_route(RouteTableId=old["routeTableId"], DestinationCidrBlock=old["destinationCidrBlock"])


def _change_route(c: Clients, _identity: str, _old: Values, i: Values) -> None:
    c.ec2.replace_route(
        RouteTableId=i["routeTableId"], DestinationCidrBlock=i["destinationCidrBlock"], **_way(i)
    )


kind(
    "aws:ec2/route:Route",
    Kind(
        _make_route, _see_route, _end_route, _change_route, replace=words("routeTableId destinationCidrBlock"),
        computed=("state",),
    ),
)  # fmt: skip


def _make_association(c: Clients, i: Values) -> str:
    made = c.ec2.associate_route_table(RouteTableId=i["routeTableId"], SubnetId=i["subnetId"])
    return str(made["AssociationId"])


def _see_association(c: Clients, identity: str, old: Values) -> Values | None:
    table = old.get("routeTableId", "")
    row = first(read_or_none(lambda: c.ec2.describe_route_tables(RouteTableIds=[table])), "RouteTables")
    for each in row["Associations"] if row else []:
        if each["RouteTableAssociationId"] == identity:
            return {"routeTableId": table, "subnetId": each.get("SubnetId")}
    return None


kind(
    "aws:ec2/routeTableAssociation:RouteTableAssociation",
    Kind(
        _make_association, _see_association,
        lambda c, identity, _: c.ec2.disassociate_route_table(AssociationId=identity),
        replace=words("routeTableId subnetId"),
    ),
)  # fmt: skip


# Endpoints


def _make_endpoint(c: Clients, i: Values) -> str:
    listed = {
        "routeTableIds": "RouteTableIds",
        "subnetIds": "SubnetIds",
        "securityGroupIds": "SecurityGroupIds",
    }
    made = c.ec2.create_vpc_endpoint(
        VpcId=i["vpcId"], ServiceName=i["serviceName"], VpcEndpointType=i.get("vpcEndpointType", "Gateway"),
        TagSpecifications=tag_spec(c, i, "vpc-endpoint"),
        **{theirs: i[ours] for ours, theirs in listed.items() if i.get(ours)},
        **({"PrivateDnsEnabled": i["privateDnsEnabled"]} if "privateDnsEnabled" in i else {}),
    )  # fmt: skip
    return str(made["VpcEndpoint"]["VpcEndpointId"])


def _see_endpoint(c: Clients, identity: str, old: Values) -> Values | None:
    row = first(read_or_none(lambda: c.ec2.describe_vpc_endpoints(VpcEndpointIds=[identity])), "VpcEndpoints")
    if row is None or row["State"] == "deleted":
        return None
    seen = {
        "vpcId": row["VpcId"], "serviceName": row["ServiceName"], "vpcEndpointType": row["VpcEndpointType"],
        "state": row["State"], "tags": tags_of(row),
        "arn": f"arn:aws:ec2:{c.region}:{c.account()}:vpc-endpoint/{identity}",
    }  # fmt: skip
    for ours, theirs in (("routeTableIds", "RouteTableIds"), ("subnetIds", "SubnetIds")):
        if ours in old:
            seen[ours] = _in_order(row.get(theirs, []), old[ours])
    return seen


def _in_order(found: list[str], like: list[str]) -> list[str]:
    """The same set in the order of the inputs, for order means nothing here."""
    return [each for each in like if each in found] + sorted(set(found) - set(like))


def _change_endpoint(c: Clients, identity: str, old: Values, new: Values) -> None:
    asked: dict[str, Any] = {}
    for name, word in (("routeTableIds", "RouteTableIds"), ("subnetIds", "SubnetIds")):
        before, after = set(old.get(name) or []), set(new.get(name) or [])
        asked |= {f"Add{word}": sorted(after - before)} if after - before else {}
        asked |= {f"Remove{word}": sorted(before - after)} if before - after else {}
    if asked:
        c.ec2.modify_vpc_endpoint(VpcEndpointId=identity, **asked)


kind(
    "aws:ec2/vpcEndpoint:VpcEndpoint",
    Kind(
        _make_endpoint, _see_endpoint,
        lambda c, identity, _: c.ec2.delete_vpc_endpoints(VpcEndpointIds=[identity]), _change_endpoint, tagged=True,
        replace=words("vpcId serviceName vpcEndpointType"), computed=("arn", "state"),
    ),
)  # fmt: skip
