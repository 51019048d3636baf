"""Live checks of things that the file names: the account, images, the network, and a launch as it would be.

Comes in: `Question`. Goes out: findings. Called by: live.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from orchestrator.model.capacity import Intent, OfferingKey, Shape
from orchestrator.model.cluster import DEFAULT_ROOT_VOLUME, Market, Pool
from orchestrator.model.findings import Finding, Severity
from orchestrator.model.stack_facts import StackFacts, TemplateFact
from orchestrator.provision.aws import fleet
from orchestrator.provision.aws.live_asks import (
    DENIED,
    Bought,
    Question,
    bounds,
    code_of,
    message_of,
    pages,
    unanswered,
)

GIB = 2**30
ARCHITECTURE = "x86_64"  # of every type in the catalog
ANYWHERE = "0.0.0.0/0"
SSM = "ssm:"


# --- the account -----------------------------------------------------------------------------------------------------


def credentials(question: Question) -> Iterator[Finding]:
    """There is an account, it is the one in which the site stands, and it may use the region."""
    place = question.place
    try:
        account = question.account.client("sts").get_caller_identity()["Account"]
        zones = question.account.zones()
    except Exception as error:
        words = unanswered(error)
        if words is None:
            raise
        hint = "check credentials, and that the account may use the region"
        yield Finding("credentials", Severity.ERROR, place + ".region", f"AWS can't be asked: {words}", hint)
        return
    facts = question.facts
    if facts is not None and facts.account != account:
        words = f"these credentials are of account {account}, and the site stands in {facts.account}"
        yield Finding("credentials", Severity.ERROR, place, words, "use credentials of that account")
    for zone in question.site.zones:
        if zone not in zones:
            hint = f"it has {', '.join(zones)}"
            words = f"the account has no zone {zone}"
            yield Finding("credentials", Severity.ERROR, place + ".zones", words, hint)


# --- images ----------------------------------------------------------------------------------------------------------


def images(question: Question) -> Iterator[Finding]:
    """Each image that the file names is there, can boot the types, and fits on the disk."""
    for words, place, pool in _images(question):
        pinned = question.facts.image(words) if question.facts is not None else ""
        try:
            image = pinned or _meant(question, words)
        except Exception as error:
            if code_of(error) != "ParameterNotFound":
                raise
            text = f"there is no parameter {words.removeprefix(SSM)} in {question.site.region}"
            yield Finding("images", Severity.ERROR, place, text, "correct its name")
            continue
        yield from _image(question, image, place, pool)


def _images(question: Question) -> Iterator[tuple[str, str, Pool]]:
    """Words for images, each once, with the pool that has the least room for it."""
    seen: set[str] = set()
    for pool in sorted(question.pools, key=_root):
        words = pool.image or question.site.image
        if words and words not in seen:
            seen.add(words)
            yield words, f"pools[{pool.name}].image" if pool.image else question.place + ".image", pool


def _root(pool: Pool) -> int:
    return pool.root_volume or DEFAULT_ROOT_VOLUME


def _meant(question: Question, words: str) -> str:
    if not words.startswith(SSM):
        return words
    answer = question.account.client("ssm").get_parameter(Name=words.removeprefix(SSM))
    return str(answer["Parameter"]["Value"])


def _image(question: Question, image: str, place: str, pool: Pool) -> Iterator[Finding]:
    try:
        rows = question.account.client("ec2").describe_images(ImageIds=[image])["Images"]
    except Exception as error:
        if not code_of(error).startswith("InvalidAMIID"):
            raise
        rows = []
    if not rows:
        words = f"there is no image {image} in {question.site.region} that this account may use"
        yield Finding(
            "images", Severity.ERROR, place, words, "name another, or have it shared with the account"
        )
        return
    for words, severity in _unfit(question, rows[0], pool):
        yield Finding("images", severity, place, f"image {image} {words}", "name another image")


def _unfit(question: Question, row: dict[str, Any], pool: Pool) -> Iterator[tuple[str, Severity]]:
    state = row.get("State", "available")
    if state != "available":
        yield f"is {state}", Severity.ERROR
    if row.get("Architecture", ARCHITECTURE) != ARCHITECTURE and _known(question, pool):
        yield f"is for {row['Architecture']}, and the pool's types are {ARCHITECTURE}", Severity.ERROR
    if row.get("Platform") == "windows":
        yield "is Windows, which no agent runs on", Severity.ERROR
    deprecated = row.get("DeprecationTime")
    if deprecated and _passed(deprecated, question.now_us):
        yield f"is deprecated since {deprecated[:10]}", Severity.WARNING
    size = _least_disk(row)
    if size * GIB > _root(pool):
        yield (
            f"needs {size} GiB, and the root disk of pool {pool.name} has {_root(pool) // GIB}",
            Severity.ERROR,
        )


def _known(question: Question, pool: Pool) -> bool:
    names = [name for offering in pool.offerings for name in offering.types]
    return any(name in question.catalog.instances for name in names)


def _passed(moment: str, now_us: int) -> bool:
    return datetime.fromisoformat(moment) <= datetime.fromtimestamp(now_us / 1e6, UTC)


def _least_disk(row: dict[str, Any]) -> int:
    """GiB of the image's root disk; 0 where it does not say."""
    disks = [
        one
        for one in row.get("BlockDeviceMappings", [])
        if one.get("DeviceName") == row.get("RootDeviceName")
    ]
    return max((int(one.get("Ebs", {}).get("VolumeSize", 0)) for one in disks), default=0)


# --- the network -----------------------------------------------------------------------------------------------------


def network(question: Question) -> Iterator[Finding]:
    """A network that people keep is there, its subnets are where the file says, and there is a way out of them."""
    vpc = question.site.vpc
    if not vpc.id:
        return
    here = question.place + ".vpc"
    if not _vpc_exists(question, vpc.id):
        words = f"there is no VPC {vpc.id} in {question.site.region} of this account"
        yield Finding("network", Severity.ERROR, here + ".id", words, "correct its id")
        return
    ids = tuple(one.id for one in vpc.subnets)
    found = {one["SubnetId"]: one for one in question.account.subnets(ids)}
    for one in vpc.subnets:
        words = _subnet_wrong(found.get(one.id), one.name, vpc.id)
        if words:
            place = f"{here}.subnets.{one.name}"
            yield Finding("network", Severity.ERROR, place, f"subnet {one.id} {words}", "correct it")
    yield from _ways_out(question, vpc.id, set(found))


def _vpc_exists(question: Question, vpc: str) -> bool:
    try:
        return bool(question.account.client("ec2").describe_vpcs(VpcIds=[vpc])["Vpcs"])
    except Exception as error:
        if not code_of(error).startswith("InvalidVpcID"):
            raise
        return False


def _subnet_wrong(row: dict[str, Any] | None, zone: str, vpc: str) -> str:
    if row is None:
        return "does not exist in this account and region"
    if row["VpcId"] != vpc:
        return f"is in {row['VpcId']}, not in {vpc}"
    return f"is in {row['AvailabilityZone']}, not in {zone}" if row["AvailabilityZone"] != zone else ""


def _ways_out(question: Question, vpc: str, subnets: set[str]) -> Iterator[Finding]:
    """A default route that leads somewhere. Without one nodes reach only what has an endpoint in the VPC."""
    rows = list(
        pages(
            question.account.client("ec2"),
            "describe_route_tables",
            "RouteTables",
            Filters=[{"Name": "vpc-id", "Values": [vpc]}],
        )
    )
    for one in question.site.vpc.subnets:
        if one.id in subnets and not _leads_out(_table_of(rows, one.id)):
            words = f"subnet {one.id} has no way out: its nodes may not reach the controller"
            hint = "give its route table a default route, to a NAT gateway as a rule"
            yield Finding(
                "network", Severity.WARNING, f"{question.place}.vpc.subnets.{one.name}", words, hint
            )


def _table_of(rows: list[dict[str, Any]], subnet: str) -> dict[str, Any]:
    """The route table of a subnet: its own, else the VPC's main one."""
    main: dict[str, Any] = {}
    for row in rows:
        for link in row.get("Associations", []):
            if link.get("SubnetId") == subnet:
                return row
            if link.get("Main"):
                main = row
    return main


def _leads_out(table: dict[str, Any]) -> bool:
    return any(
        route.get("DestinationCidrBlock") == ANYWHERE and route.get("State", "active") == "active"
        for route in table.get("Routes", [])
    )


# --- a launch --------------------------------------------------------------------------------------------------------


def launch(question: Question) -> Iterator[Finding]:
    """EC2 would take the request that a launch sends, from the very template that nodes start from. Before the first
    apply there is no template, and then there is nothing to ask."""
    facts = question.facts
    if facts is None:
        return
    for one in question.bought():
        spot = one.offering.market is Market.SPOT
        found = facts.template(one.pool.name, one.type, one.offering.reservation, spot)
        if found is not None and bounds(one.pool)[1]:
            yield from _launch(question, one, found)


def _launch(question: Question, one: Bought, template: TemplateFact) -> Iterator[Finding]:
    """The first refusal is told; those of other zones are alike as a rule."""
    ec2 = question.account.client("ec2")
    for operation, asked in _requests(question, one, template):
        try:
            getattr(ec2, operation)(DryRun=True, **asked)
        except Exception as error:
            code = code_of(error)
            if code == "DryRunOperation":
                continue
            if code in DENIED or not code:
                raise
            words = f"EC2 would refuse a launch of {template.type}: {message_of(error)} ({code})"
            yield Finding("launch", Severity.ERROR, one.place, words, "apply would fail in the same way")
            return


def _requests(
    question: Question, one: Bought, template: TemplateFact
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A fixed node is one instance of its template; elastic nodes are the fleet that the controller would ask for, in
    each zone where it can: a zone that the file has got since the last apply has no subnet yet."""
    if one.pool.nodes:
        wanted = {"LaunchTemplateId": template.id, "Version": str(template.version)}
        yield "run_instances", {"MinCount": 1, "MaxCount": 1, "LaunchTemplate": wanted}
        return
    facts, zones = question.facts, question.usable_zones()
    assert facts is not None
    for zone in sorted(subnet.zone for subnet in facts.subnets if subnet.zone in zones):
        yield "create_fleet", _fleet(question, facts, one, zone)


def _fleet(question: Question, facts: StackFacts, one: Bought, zone: str) -> dict[str, Any]:
    """The request for the pool's least size, or for one node, without the token that makes it happen once."""
    key = OfferingKey(one.pool.name, one.type, str(one.offering.market), zone, one.offering.reservation)
    nodes = tuple(f"{one.pool.name}-{number}" for number in range(max(1, bounds(one.pool)[0])))
    bound = one.offering.max_microusd_per_hour
    intent = Intent("intent-0", question.site.name, key, nodes, 0, Shape(0, 0, 0), max_price=bound)
    asked = fleet.request(intent, facts)
    del asked["ClientToken"]
    return asked
