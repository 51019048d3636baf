"""Checks of what is bought from AWS: what EC2, FSx or the shape of a VPC would refuse, told before anything is made.

Comes in: `Context`. Goes out: faults. Called by: `checks`. What only the account knows (quotas, free addresses,
reservations, images) is looked at by provision.aws.live; what the catalog does not know of a type settles nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from ipaddress import IPv4Network, ip_network
from unicodedata import category

from orchestrator.model.catalog import InstanceType
from orchestrator.model.cluster import FabricKind, Market, Nat, PlacementGroup
from orchestrator.spec.checks_pools import RESERVED
from orchestrator.spec.context import Context, given, reference, rows, run, sure, twice
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster_pools import OfferingDocument, PoolDocument
from orchestrator.wire.cluster_sites import AwsSite
from orchestrator.wire.faults import Loc, Problem, problem, shown, suggestion

# Families that DescribeInstanceTypes does not list with the placement strategy `cluster`, in the record that moto 5.2.5
# carries of its answer: burstable and flexible ones, Macs, and what is older than 2012.
NO_CLUSTER = re.compile(r"^(t[0-9]+[a-z]*|mac[0-9a-z-]*|[a-z]+[0-9]+[a-z]*-flex|m[123]|c1|vt1)\.")
# VPC user guide: a VPC has a network of /16 to /28. Gangline's own gives each zone a sixteenth, and cuts public subnets
# out of the last one, each of which must be a /28 at least (provision/aws/network.py).
# This machine itself, link-local (the metadata service is there), multicast, and what is kept for later: of no host.
NEVER_A_NETWORK = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))
LARGEST_VPC, SMALLEST_PRIVATE, SMALLEST_PUBLIC = 16, 24, 20
TAKEN_IN_SUBNET = 5  # addresses of each subnet that AWS keeps (VPC user guide, "Subnet sizing")
ZONES_OF_A_REGION = 6  # the most that any region has: us-east-1
MOST_TAGS = 40  # of the 50 that EC2 allows on a resource; the rest is for Gangline's own marks
LEAST_BOOT_S = 60
TAG_SIGNS = "_.:/=+-@"  # besides letters, digits and spaces of any script (IAM, "Rules for tagging")
_PLAIN_ZONE = re.compile(r"[a-h]")
_LOCAL_ZONE = re.compile(r"-[a-z0-9]{2,12}-[0-9][a-z]")  # local and wavelength zones: us-east-1-dfw-2a


# --- the controller --------------------------------------------------------------------------------------------------


def controller_instance(context: Context) -> Iterator[Found]:
    """A controller that is bought stands on a site of kind aws, and nowhere else besides; it is called by https."""
    controller = context.document.controller
    instance = controller.instance
    if instance is None:
        return
    loc = ("controller", "instance")
    if given(controller, "host"):
        advice = "it runs on one of them"
        found = problem("spec.exclusive-fields", field="instance", other="host", advice=advice)
        yield Found(loc, found, "key")
    yield from run((_site_of_instance,), context, instance.site)


def _site_of_instance(context: Context, name: str) -> Iterator[Found]:
    loc = ("controller", "instance", "site")
    yield from reference(context, loc, "site", name)
    for _, site in rows(context.document.sites):
        if site.name == name and not isinstance(site, AwsSite):
            advice = "name a site of kind aws, or use controller.host"
            found = problem(
                "spec.not-for-kind", what="site", kind=site.kind, field="controller.instance", advice=advice
            )
            yield Found(loc, found)


# --- pools -----------------------------------------------------------------------------------------------------------


def bought(context: Context) -> Iterator[Found]:
    """Each pool on a site of kind aws."""
    for index, pool in rows(context.document.pools):
        yield from run((_bought,), context, pool, ("pools", index))


def _bought(context: Context, pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    if _site_of(context, pool) is None:
        return
    for number, offering in rows(pool.offerings):
        here = (*loc, "offerings", number)
        yield from run((_types, _type_fits), context, pool, offering, here)
        yield from run((_one_type_reserved, _capped), offering, here)
    yield from run((_fixed, _boot_deadline), pool, loc)
    yield from run((_again,), pool, (*loc, "offerings"))


def _site_of(context: Context, pool: PoolDocument) -> AwsSite | None:
    for _, site in rows(context.document.sites):
        if site.name == pool.site and isinstance(site, AwsSite):
            return site
    return None


def _place(offering: OfferingDocument, loc: Loc, index: int) -> Loc:
    """Where a type stands: in the field itself, or in its list."""
    return (*loc, "type", index) if len(offering.type) > 1 else (*loc, "type")


def _types(context: Context, pool: PoolDocument, offering: OfferingDocument, loc: Loc) -> Iterator[Found]:
    """A type is known, or the file says itself what a node has; with EFA its network cards must be known."""
    efa = _wants_efa(pool)
    if not efa and (given(pool, "gpu") or given(pool, "cores")):
        return
    known = list(context.catalog.instances)
    for index, name in enumerate(offering.type):
        if name not in known:
            hint = "" if efa else "; if it is right, say what its nodes are: gpu, or cores and memory"
            advice = suggestion(name, known, "instance type") + hint
            found = problem("spec.unknown-instance-type", name=name, advice=advice)
            yield Found(_place(offering, loc, index), found)


def _wants_efa(pool: PoolDocument) -> bool:
    return pool.fabric is not None and pool.fabric.kind == FabricKind.EFA


def _type_fits(context: Context, pool: PoolDocument, offering: OfferingDocument, loc: Loc) -> Iterator[Found]:
    """What the pool and the market ask of each type."""
    for index, name in enumerate(offering.type):
        known = context.catalog.instances.get(name)
        place = _place(offering, loc, index)
        for check in (_has_efa, _sold_as_block):
            yield from run((check,), pool, offering, known, place)
        yield from run((_stands_close,), pool, name, place)
    yield from run((_one_interface, _close_to_a_block), context, pool, offering, loc)


def _has_efa(
    pool: PoolDocument, _offering: OfferingDocument, known: InstanceType | None, place: Loc
) -> Iterator[Found]:
    if known is not None and not known.efa and _wants_efa(pool):
        advice = "name a larger type, or leave `fabric: {kind: efa}` away"
        yield Found(place, _lacks(known.name, "has no EFA", advice))


def _sold_as_block(
    _pool: PoolDocument, offering: OfferingDocument, known: InstanceType | None, place: Loc
) -> Iterator[Found]:
    if known is not None and not known.blocks and offering.market == Market.CAPACITY_BLOCK:
        yield Found(place, _lacks(known.name, "is not sold as capacity blocks", "choose another market"))


def _stands_close(pool: PoolDocument, name: str, place: Loc) -> Iterator[Found]:
    if pool.fabric is not None and pool.fabric.placement == PlacementGroup.CLUSTER and NO_CLUSTER.match(name):
        advice = "name another type, or leave fabric.placement away"
        yield Found(place, _lacks(name, "can't stand in a cluster placement group", advice))


def _lacks(name: str, what: str, advice: str) -> Problem:
    return problem("spec.type-without", type=name, what=what, advice=advice)


def _one_interface(
    context: Context, pool: PoolDocument, offering: OfferingDocument, loc: Loc
) -> Iterator[Found]:
    """EC2 gives a public address to an instance with one network interface alone."""
    if not pool.public_address or not _wants_efa(pool):
        return
    kinds = [context.catalog.instances.get(name) for name in offering.type]
    several = next((one.name for one in kinds if one is not None and one.efa and one.cards > 1), None)
    if several is not None:
        advice = f"{several} has several network interfaces, and then EC2 gives no public address"
        found = problem(
            "spec.exclusive-fields", field="public_address", other="fabric.kind: efa", advice=advice
        )
        yield Found((*loc[:2], "public_address"), found, "key")


def _close_to_a_block(
    _context: Context, pool: PoolDocument, offering: OfferingDocument, loc: Loc
) -> Iterator[Found]:
    """What a capacity block holds stands where it stands."""
    if offering.market != Market.CAPACITY_BLOCK or pool.fabric is None:
        return
    if pool.fabric.placement == PlacementGroup.CLUSTER:
        advice = "leave fabric.placement away: instances of a block stand close together as they are"
        other = "market: capacity_block"
        found = problem("spec.exclusive-fields", field="fabric.placement", other=other, advice=advice)
        yield Found((*loc[:2], "fabric", "placement"), found, "key")


def _one_type_reserved(offering: OfferingDocument, loc: Loc) -> Iterator[Found]:
    if offering.market in RESERVED and len(offering.type) > 1:
        advice = "name the type that was reserved; each other reservation is an offering of its own"
        yield Found(
            (*loc, "type"), problem("spec.one-of-many", what="a reservation is of one type", advice=advice)
        )


def _capped(offering: OfferingDocument, loc: Loc) -> Iterator[Found]:
    if offering.market == Market.CAPACITY_BLOCK and offering.max_usd_per_hour is not None:
        advice = "a capacity block is paid beforehand"
        found = problem("spec.no-effect", field="max_usd_per_hour", advice=advice)
        yield Found((*loc, "max_usd_per_hour"), found, "key")


def _fixed(pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    """Fixed nodes have one offering with one type, and are not taken back by a spot market."""
    if pool.nodes is None or not pool.offerings:
        return
    if len(pool.offerings) > 1:
        advice = "keep one; another pool may have another"
        found = problem("spec.one-of-many", what="fixed nodes have one offering", advice=advice)
        yield Found((*loc, "offerings"), found, "key")
        return
    (offering,) = pool.offerings
    here = (*loc, "offerings", 0)
    if len(offering.type) > 1 and offering.market not in RESERVED:
        advice = "keep one; another pool may have another"
        yield Found(
            (*here, "type"), problem("spec.one-of-many", what="fixed nodes are of one type", advice=advice)
        )
    if offering.market == Market.SPOT:
        advice = "spot instances are taken back: give the pool `size` instead of `nodes`, or another market"
        found = problem(
            "spec.not-for-kind",
            what="pool of fixed nodes on a site",
            kind="aws",
            field="market: spot",
            advice=advice,
        )
        yield Found((*here, "market"), found)


def _boot_deadline(pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    if pool.size is not None and pool.size.boot_deadline < LEAST_BOOT_S:
        found = problem(
            "spec.out-of-range",
            got=f"{pool.size.boot_deadline}s",
            side="too short",
            advice="no instance boots in less than a minute; large ones take up to 25",
        )
        yield Found((*loc, "size", "boot_deadline"), found)


def _again(pool: PoolDocument, loc: Loc) -> Iterator[Found]:
    """The same thing is offered once."""
    seen: set[tuple[tuple[str, ...], Market, str | None]] = set()
    for index, one in rows(pool.offerings):
        sure(one.type, one.market, one.reservation)
        same = (one.type, one.market, one.reservation)
        if same in seen:
            name = f"{', '.join(one.type)} on {one.market}"
            yield Found((*loc, index), problem("spec.duplicate-item", name=name))
        seen.add(same)


# --- sites -----------------------------------------------------------------------------------------------------------


def networks(context: Context) -> Iterator[Found]:
    """The network, keys and tags of each site of kind aws."""
    for index, site in rows(context.document.sites):
        if isinstance(site, AwsSite):
            loc: Loc = ("sites", index)
            checks: tuple[Callable[..., Iterator[Found]], ...]
            checks = (_zone_letters, _kept_network, _subnet_zones, _subnet_ids, _key_region, _endpoints)
            checks = (*checks, _tags, _tag_signs, _backend)
            yield from run(checks, site, loc)
            yield from run((_vpc_size, _jobs_inside), context, site, (*loc, "vpc"))


def names_in_the_account(context: Context) -> Iterator[Found]:
    """What AWS knows by its name has those of its site and pool in it, one behind the other: `a` and `b-c` is `a-b` and
    `c`. Names of roles are the same in capitals, and hold in all regions."""
    regions: dict[str, str] = {}
    for index, site in rows(context.document.sites):
        if isinstance(site, AwsSite):
            yield from run((_site_meets,), site, regions, ("sites", index))
    taken: dict[tuple[str, str], tuple[str, str]] = {}
    for index, pool in rows(context.document.pools):
        yield from run((_pool_meets,), pool, regions, taken, ("pools", index))


def _site_meets(site: AwsSite, regions: dict[str, str], loc: Loc) -> Iterator[Found]:
    sure(site.name, site.region)
    other = next((one for one in regions if one != site.name and one.lower() == site.name.lower()), None)
    regions.setdefault(site.name, site.region)
    if other is not None:
        yield Found((*loc, "name"), problem("spec.duplicate-name", name=site.name, what=f"site, {other}"))


def _pool_meets(
    pool: PoolDocument, regions: dict[str, str], taken: dict[tuple[str, str], tuple[str, str]], loc: Loc
) -> Iterator[Found]:
    sure(pool.site, pool.name)
    if pool.site not in regions:
        return
    mine, there = (pool.site, pool.name), f"{pool.site}-{pool.name}"
    other = taken.setdefault((regions[pool.site], there), mine)
    if other[0] != pool.site:
        what = f"pool in the account, {other[1]} of site {other[0]}"
        yield Found((*loc, "name"), problem("spec.duplicate-name", name=there, what=what))


def _zone_letters(site: AwsSite, loc: Loc) -> Iterator[Found]:
    """A zone is its region and a letter, or a local zone's name; one of another region is told elsewhere."""
    sure(site.region)
    for index, zone in rows(site.zones):
        if not zone.startswith(site.region):
            continue
        rest = zone[len(site.region) :]
        if not _PLAIN_ZONE.fullmatch(rest) and not _LOCAL_ZONE.fullmatch(rest):
            yield Found((*loc, "zones", index), problem("spec.zone-elsewhere", zone=zone, region=site.region))


def _kept_network(site: AwsSite, loc: Loc) -> Iterator[Found]:
    """A network is made by Gangline or kept by people: what is said of the one does not go with the other."""
    vpc, here = site.vpc, (*loc, "vpc")
    if not given(vpc, "id"):
        if given(vpc, "subnets"):
            advice = "name the VPC that they are in"
            found = problem("spec.needs-field", field="subnets", other="id", advice=advice)
            yield Found((*here, "subnets"), found, "key")
        return
    for field in given(vpc, "cidr", "nat", "endpoints"):
        advice = "the VPC is kept by people, who say this of it"
        found = problem("spec.exclusive-fields", field=field, other="id", advice=advice)
        yield Found((*here, field), found, "key")
    if not given(vpc, "subnets"):
        advice = "name its private subnets by zone, as in us-east-1a: subnet-0123…"
        found = problem("spec.missing-field", field="subnets", advice=advice)
        yield Found((*here, "subnets"), found, "parent")


def _subnet_zones(site: AwsSite, loc: Loc) -> Iterator[Found]:
    """Each zone has a subnet, and each subnet a zone of the site."""
    if not given(site.vpc, "id", "subnets") or not site.vpc.subnets:
        return
    sure(site.region)
    here = (*loc, "vpc", "subnets")
    for zone in site.vpc.subnets:
        if not zone.startswith(site.region):
            yield Found((*here, zone), problem("spec.zone-elsewhere", zone=zone, region=site.region), "key")
        elif len(site.zones) and zone not in site.zones:
            advice = "add it to zones, or remove its subnet"
            found = problem("spec.zone-without", zone=zone, what="is none of the site's", advice=advice)
            yield Found((*here, zone), found, "key")
    for index, zone in rows(site.zones):
        if zone not in site.vpc.subnets:
            advice = "add it to vpc.subnets, or remove the zone"
            found = problem("spec.zone-without", zone=zone, what="has no subnet", advice=advice)
            yield Found((*loc, "zones", index), found)


def _subnet_ids(site: AwsSite, loc: Loc) -> Iterator[Found]:
    """A subnet is in one zone."""
    seen: set[str] = set()
    for zone, subnet in site.vpc.subnets.items():
        sure(subnet)
        if subnet in seen:
            yield Found((*loc, "vpc", "subnets", zone), problem("spec.duplicate-item", name=subnet))
        seen.add(subnet)


def _key_region(site: AwsSite, loc: Loc) -> Iterator[Found]:
    """Disks are encrypted with a key of their own region; a boundary is a policy."""
    sure(site.region)
    for field, service, region in (("kms_key", "kms", site.region), ("permissions_boundary", "iam", "")):
        arn = getattr(site, field)
        if arn is None:
            continue
        found = arn.split(":")
        if (found[2], found[3]) != (service, region):
            where = f" in {region}" if region else ""
            advice = f"write an ARN of {service}{where}"
            yield Found((*loc, field), problem("spec.arn-elsewhere", got=shown(arn), advice=advice))


def _endpoints(site: AwsSite, loc: Loc) -> Iterator[Found]:
    """A network has one way to a service."""
    yield from twice((*loc, "vpc", "endpoints"), site.vpc.endpoints)


def _tag_signs(site: AwsSite, loc: Loc) -> Iterator[Found]:
    """All kinds of things get the tags. EC2 takes any text, and IAM, FSx and others would refuse it in the middle."""
    for key, value in site.tags.items():
        sure(key, value)
        wrong = [one for one in value if one not in TAG_SIGNS and category(one)[0] not in "LNZ"]
        if wrong:
            advice = f"{shown(wrong[0])} is none: letters, digits, spaces and {TAG_SIGNS} are"
            yield Found((*loc, "tags", key), problem("spec.bad-text", got=shown(value), advice=advice))
        if key.lower().startswith("aws:"):
            advice = "names that begin with aws: are taken, in capitals too"
            yield Found((*loc, "tags", key), problem("spec.bad-name", got=shown(key), advice=advice), "key")


def _tags(site: AwsSite, loc: Loc) -> Iterator[Found]:
    if len(site.tags) > MOST_TAGS:
        advice = f"at most {MOST_TAGS}: EC2 allows 50 on a resource, with Gangline's own"
        got = f"{len(site.tags)} tags"
        yield Found((*loc, "tags"), problem("spec.out-of-range", got=got, side="too many", advice=advice))


def _backend(site: AwsSite, loc: Loc) -> Iterator[Found]:
    """A folder of this machine is named from its root; relative ones would move with the working directory."""
    backend = site.stack.backend
    if backend is not None and backend.startswith("file://") and not backend.startswith("file:///"):
        advice = "write file:/// and the folder from the root on"
        yield Found(
            (*loc, "stack", "backend"), problem("spec.bad-backend", got=shown(backend), advice=advice)
        )


def _vpc_size(context: Context, site: AwsSite, loc: Loc) -> Iterator[Found]:
    """A network that Gangline makes can be cut into subnets, and has an address for each node."""
    if given(site.vpc, "id"):
        return
    sure(site.vpc.cidr, site.name)
    network = ip_network(site.vpc.cidr)
    if not isinstance(network, IPv4Network):
        found = problem("spec.bad-network", got=shown(site.vpc.cidr), advice="write an IPv4 network")
        yield Found((*loc, "cidr"), found)
        return
    if any(network.overlaps(one) for one in NEVER_A_NETWORK):
        advice = "hosts keep these addresses for themselves; take one of 10.0.0.0/8 or 172.16.0.0/12"
        yield Found((*loc, "cidr"), problem("spec.bad-network", got=shown(site.vpc.cidr), advice=advice))
        return
    pools = [pool for _, pool in rows(context.document.pools) if pool.site == site.name]
    public = site.vpc.nat != Nat.NONE or any(pool.public_address for pool in pools)
    smallest = SMALLEST_PUBLIC if public else SMALLEST_PRIVATE
    if not LARGEST_VPC <= network.prefixlen <= smallest:
        advice = f"give it /{LARGEST_VPC} to /{smallest}: each zone gets a sixteenth of it"
        found = problem("spec.bad-network", got=shown(site.vpc.cidr), advice=advice)
        yield Found((*loc, "cidr"), found)
        return
    each = 2 ** (32 - network.prefixlen - 4) - TAKEN_IN_SUBNET
    zones = len(site.zones) or ZONES_OF_A_REGION
    most = sum(pool.size.max if pool.size is not None else len(pool.nodes or ()) for pool in pools)
    if most > each * zones:
        where = "1 zone" if zones == 1 else f"{zones} zones"
        found = problem("spec.vpc-too-small", nodes=most, cidr=site.vpc.cidr, room=each * zones, where=where)
        yield Found((*loc, "cidr"), found)


def _jobs_inside(_context: Context, site: AwsSite, loc: Loc) -> Iterator[Found]:
    """Processes of jobs talk over the VPC: the job network lies in it."""
    if given(site.vpc, "id") or site.network.jobs is None:
        return
    sure(site.vpc.cidr, site.network.jobs)
    vpc, jobs = ip_network(site.vpc.cidr), ip_network(site.network.jobs)
    if isinstance(vpc, IPv4Network) and not (isinstance(jobs, IPv4Network) and jobs.subnet_of(vpc)):
        advice = f"nodes have addresses of {vpc}: name a part of it, or leave it away"
        found = problem("spec.bad-network", got=shown(site.network.jobs), advice=advice)
        yield Found((*loc[:2], "network", "jobs"), found)


NAMES = (controller_instance, bought, networks, names_in_the_account)
