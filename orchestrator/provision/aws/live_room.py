"""Live checks of room: types by zone, quotas, free addresses, capacity reservations.

Comes in: `Question`. Goes out: findings. Called by: live. What must be there at once (a pool's least size, fixed nodes)
and does not fit is an error; what fits only in part at a pool's most is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from orchestrator.model.cluster import Market, Pool
from orchestrator.model.findings import Finding, Severity
from orchestrator.model.units import seconds_text
from orchestrator.provision.aws.live_asks import (
    Bought,
    Question,
    bounds,
    code_of,
    least_place,
    most_place,
    pages,
)

# Quotas of EC2 count virtual processors of running instances by family and market. Codes and names as service-quotas
# lists them (seen in several public tools that ask for them). Of P6 on spot two sources say different codes: not asked.
STANDARD = ("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances")
ON_DEMAND = {
    "g": ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    "vt": ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    "p": ("L-417A185B", "Running On-Demand P instances"),
    **dict.fromkeys(("a", "c", "d", "h", "i", "m", "r", "t", "z"), STANDARD),
}
SPOT_STANDARD = ("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests")
SPOT = {
    "g": ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    "vt": ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    "p2": ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    "p3": ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    "p4": ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    "p5": ("L-C4BD4855", "All P5 Spot Instance Requests"),
    **dict.fromkeys(("a", "c", "d", "h", "i", "m", "r", "t", "z"), SPOT_STANDARD),
}
COUNTED = ("pending", "running")
Quota = tuple[str, str]
# A node takes one address of its subnet, whatever it has of network cards: interfaces for EFA alone have none
# (provision/aws/fabric.py lays them out).
ADDRESSES = 1


# --- types by zone ---------------------------------------------------------------------------------------------------


def types(question: Question) -> Iterator[Finding]:
    """Each type is offered in a zone of the site; where zones were named, in each of them. Fixed nodes all stand in one
    zone, which must have their type."""
    wanted = _wanted(question)
    if not wanted:
        return
    offered = _offered(question, sorted(wanted))
    zones = question.usable_zones()
    for name, place in wanted.items():
        here = [zone for zone in zones if zone in offered.get(name, ())]
        if not here:
            yield _nowhere(name, place, zones, offered.get(name, set()))
        elif question.site.zones and len(here) < len(zones):
            lacking = ", ".join(zone for zone in zones if zone not in here)
            words = f"{name} is not offered in {lacking}: nodes of it come in {', '.join(here)} only"
            yield Finding("types", Severity.WARNING, place, words)
    for one in question.bought():
        home = _home(question, one.pool)
        if home and offered.get(one.type) and home not in offered[one.type] & set(zones):
            words = f"fixed nodes of a new pool stand in {home}, and {one.type} is not offered there"
            hint = "name the zones that have it in the site's zones"
            yield Finding("types", Severity.ERROR, one.place + ".type", words, hint)


def _wanted(question: Question) -> dict[str, str]:
    """All types with the first place that names each."""
    wanted: dict[str, str] = {}
    for one in question.bought():
        wanted.setdefault(one.type, one.place + ".type")
    instance = question.spec.controller.instance
    if instance is not None and instance.site == question.site.name:
        wanted.setdefault(instance.type, "controller.instance.type")
    return wanted


def _home(question: Question, pool: Pool) -> str:
    """The zone in which a pool's fixed nodes will stand: the first one. Empty for elastic pools, and for those of which
    nodes stand already: others join them."""
    stands = question.facts is not None and any(one.pool == pool.name for one in question.facts.fixed)
    return "" if stands or not pool.nodes else min(question.usable_zones())


def _offered(question: Question, names: list[str]) -> dict[str, set[str]]:
    """The zones of each type."""
    found: dict[str, set[str]] = {}
    rows = pages(
        question.account.client("ec2"),
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": names}],
    )
    for row in rows:
        found.setdefault(row["InstanceType"], set()).add(row["Location"])
    return found


def _nowhere(name: str, place: str, zones: tuple[str, ...], elsewhere: set[str]) -> Finding:
    hint = (
        f"it is offered in {', '.join(sorted(elsewhere))}" if elsewhere else "choose another type or region"
    )
    words = f"{name} is offered in none of the zones {', '.join(zones)}"
    return Finding("types", Severity.ERROR, place, words, hint)


# --- quotas ----------------------------------------------------------------------------------------------------------


def quota_of(type_name: str, market: Market) -> Quota | None:
    """The quota that a launch counts against: code and name. None for capacity blocks, which count against none, and
    where it is not known."""
    if market is Market.CAPACITY_BLOCK:
        return None
    family = type_name.partition(".")[0]
    word = _letters(family)
    if market is Market.SPOT and word == "p":
        return SPOT.get(family[:2])
    return (SPOT if market is Market.SPOT else ON_DEMAND).get("g" if word == "gr" else word)


def _letters(family: str) -> str:
    """`p` of p6-b200, `gr` of gr6."""
    digit = next((index for index, char in enumerate(family) if char.isdigit()), len(family))
    return family[:digit]


def quota(question: Question) -> Iterator[Finding]:
    """The account may run what the pools have at least, and at most."""
    offers = list(question.bought())
    for one in offers:
        if (
            one.offering.market is not Market.CAPACITY_BLOCK
            and quota_of(one.type, one.offering.market) is None
        ):
            yield question.unchecked(
                "quota", f"which one holds for {one.type} on {one.offering.market} is not known"
            )
    by_quota: dict[Quota, list[Bought]] = {}
    for one in offers:
        found = quota_of(one.type, one.offering.market)
        if found is not None:
            by_quota.setdefault(found, []).append(one)
    sizes = _vcpus(question, sorted({one.type for one in offers}))
    for known, rows in by_quota.items():
        left = _limit(question, known[0]) - _used(question, known)
        yield from _fits(question, known, rows, sizes, left)


def _fits(
    question: Question, known: Quota, rows: list[Bought], sizes: dict[str, int], left: int
) -> Iterator[Finding]:
    """Pools that can count against this quota alone must have room in it at their least size, all together."""
    pools = {one.pool.name: one.pool for one in rows}
    alone = [pool for pool in pools.values() if _quotas(pool) == {known}]
    each = {name: [sizes[one.type] for one in rows if one.pool.name == name] for name in pools}
    least = sum(bounds(pool)[0] * min(each[pool.name]) for pool in alone)
    most = sum(bounds(pool)[1] * max(each[pool.name]) for pool in pools.values())
    hint = f"ask for more of quota {known[0]}"
    if least > left:
        words = f"at least {least} virtual processors of '{known[1]}' for {_names(alone)}, and {max(0, left)} are left"
        yield Finding("quota", Severity.ERROR, least_place(alone[0]), words, hint)
    elif most > left:
        who = _names(list(pools.values()))
        words = f"up to {most} virtual processors of '{known[1]}' for {who}, and {max(0, left)} are left"
        yield Finding("quota", Severity.WARNING, most_place(next(iter(pools.values()))), words, hint)


def _quotas(pool: Pool) -> set[Quota | None]:
    return {quota_of(name, offering.market) for offering in pool.offerings for name in offering.types}


def _names(pools: list[Pool]) -> str:
    return "pool " + pools[0].name if len(pools) == 1 else "pools " + ", ".join(pool.name for pool in pools)


def _vcpus(question: Question, names: list[str]) -> dict[str, int]:
    """Virtual processors of each type: the catalog's, or EC2's own word."""
    known = question.catalog.instances
    found = {name: known[name].vcpus for name in names if name in known}
    strange = [name for name in names if name not in found]
    if strange:
        rows = pages(
            question.account.client("ec2"), "describe_instance_types", "InstanceTypes", InstanceTypes=strange
        )
        found |= {row["InstanceType"]: row["VCpuInfo"]["DefaultVCpus"] for row in rows}
    return found


def _limit(question: Question, code: str) -> int:
    """Virtual processors that the account may run: its own limit, or the one that all accounts begin with."""
    client, asked = question.account.client("service-quotas"), {"ServiceCode": "ec2", "QuotaCode": code}
    try:
        answer = client.get_service_quota(**asked)
    except client.exceptions.NoSuchResourceException:
        answer = client.get_aws_default_service_quota(**asked)
    return int(answer["Quota"]["Value"])


def _used(question: Question, known: Quota) -> int:
    """Virtual processors that run already and are none of this site's. Of what is stopped EC2 counts none."""
    return sum(
        _cores(question, one)
        for one in question.account.instances()
        if one["State"]["Name"] in COUNTED
        and not question.is_ours(one)
        and quota_of(one["InstanceType"], _market(one)) == known
    )


def _market(instance: dict[str, Any]) -> Market:
    kind = instance.get("InstanceLifecycle", "")
    return {"spot": Market.SPOT, "capacity-block": Market.CAPACITY_BLOCK}.get(kind, Market.ON_DEMAND)


def _cores(question: Question, instance: dict[str, Any]) -> int:
    said = instance.get("CpuOptions") or {}
    if "CoreCount" in said:
        return int(said["CoreCount"]) * int(said.get("ThreadsPerCore", 1))
    known = question.catalog.instances.get(instance["InstanceType"])
    return known.vcpus if known is not None else 0


# --- addresses -------------------------------------------------------------------------------------------------------


def addresses(question: Question) -> Iterator[Finding]:
    """The private subnets have an address for each node; fixed nodes of a pool all stand in one of them."""
    subnets = question.subnet_ids()
    pools = [pool for pool in question.pools if not pool.public_address]
    if not subnets or not pools:
        return  # the network is made by the first apply, and `validate` has counted what will be in it
    free = {
        row["AvailabilityZone"]: row["AvailableIpAddressCount"]
        for row in question.account.subnets(tuple(subnets.values()))
    }
    yield from _in_all(question, pools, free)
    for pool in pools:
        home = _home(question, pool)
        if home in free and len(pool.nodes) * ADDRESSES > free[home] >= 0:
            words = (
                f"fixed nodes take {len(pool.nodes) * ADDRESSES} addresses, "
                f"and the subnet of {home} has {free[home]} free"
            )
            yield Finding("addresses", Severity.ERROR, least_place(pool), words, "name a larger subnet")


def _in_all(question: Question, pools: list[Pool], free: dict[str, int]) -> Iterator[Finding]:
    """All nodes against all subnets; nodes that are there have their addresses."""
    here = sum(1 for one in question.account.instances() if question.is_ours(one))
    least, most = (sum(bounds(pool)[end] * ADDRESSES for pool in pools) for end in (0, 1))
    where = f"{len(free)} subnets have" if len(free) > 1 else "the subnet has"
    for need, severity in ((least, Severity.ERROR), (most, Severity.WARNING)):
        if need - here > sum(free.values()):
            left = sum(free.values())
            words = f"nodes take {need} addresses, and {where} {left} free beside the {here} in use by nodes"
            hint = "name larger subnets, or lower the sizes of pools"
            yield Finding("addresses", severity, question.place + ".vpc", words, hint)
            return


# --- reservations ----------------------------------------------------------------------------------------------------


def reservations(question: Question) -> Iterator[Finding]:
    """Each capacity reservation or block that an offering names is there, is of that type, and lasts."""
    for one in question.bought():
        if one.offering.reservation:
            yield from _reservation(question, one)


def _reservation(question: Question, one: Bought) -> Iterator[Finding]:
    place, name = one.place + ".reservation", one.offering.reservation
    try:
        answer = question.account.client("ec2").describe_capacity_reservations(CapacityReservationIds=[name])
    except Exception as error:
        if not code_of(error).startswith("InvalidCapacityReservationId"):
            raise
        answer = {"CapacityReservations": []}
    rows = answer["CapacityReservations"]
    if not rows:
        words = f"there is no capacity reservation {name} in {question.site.region} of this account"
        yield Finding(
            "reservations", Severity.ERROR, place, words, "take the offering out, or correct its id"
        )
        return
    for words, severity, hint in _wrong(question, one, rows[0]):
        yield Finding("reservations", severity, place, f"{name} {words}", hint)


def _wrong(question: Question, one: Bought, row: dict[str, Any]) -> Iterator[tuple[str, Severity, str]]:
    """What the reservation is, where that is not what the file needs."""
    state, kind = row["State"], row.get("ReservationType", "default")
    if state not in ("active", "scheduled", "pending", "assessing"):
        yield f"is {state}", Severity.ERROR, "take the offering out: what is left can be bought"
        return
    if state != "active":
        yield f"is {state}: nothing starts in it before it is active", Severity.WARNING, ""
    if row["InstanceType"] != one.type:
        yield f"is of type {row['InstanceType']}, not {one.type}", Severity.ERROR, "name that type"
    if (kind == "capacity-block") != (one.offering.market is Market.CAPACITY_BLOCK):
        meant = "capacity_block" if kind == "capacity-block" else "capacity_reservation"
        yield f"is a {kind.replace('-', ' ')} reservation", Severity.ERROR, f"write market: {meant}"
    zones = question.usable_zones()
    if row["AvailabilityZone"] not in zones:
        yield f"is in {row['AvailabilityZone']}, not in {', '.join(zones)}", Severity.ERROR, "add that zone"
    yield from _count(question, one.pool, row)
    yield from _end(question, one.pool, row)


def _count(question: Question, pool: Pool, row: dict[str, Any]) -> Iterator[tuple[str, Severity, str]]:
    """A reservation that is the pool's only offering holds its least size."""
    total, (low, high) = int(row["TotalInstanceCount"]), bounds(pool)
    if total < low and len(pool.offerings) == 1:
        yield f"holds {total} instances, and the pool has at least {low}", Severity.ERROR, "lower it"
    elif total < high and len(pool.offerings) == 1:
        yield f"holds {total} instances, and the pool has up to {high}", Severity.WARNING, ""


def _end(question: Question, pool: Pool, row: dict[str, Any]) -> Iterator[tuple[str, Severity, str]]:
    """What ends before a node could have started is of no use."""
    end = row.get("EndDate")
    if not isinstance(end, datetime):
        return
    left = (end - datetime.fromtimestamp(question.now_us / 1e6, UTC)).total_seconds()
    boot = pool.size.boot_deadline_s if pool.size is not None else 0
    if left <= boot:
        yield (
            f"ends in {seconds_text(max(0, int(left)))}, before a node is ready",
            Severity.ERROR,
            "choose another",
        )
