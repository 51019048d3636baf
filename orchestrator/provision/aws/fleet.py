"""The real cloud: EC2 fleets of type instant, all nodes of an intent in one zone, of one type, or none.

Comes in: intents, the facts of a site's stack, ids of instances. Goes out: what EC2 says. Called by: controller.hands,
in a thread of its own, which alone imports boto3.

The launch template, kept by Pulumi, has image, interfaces, groups, profile and reservation; the request adds what one
launch alone knows: zone, placement group, how many, at which price, for which intent. Everything carries the cluster's
marks from its first moment on, since the create call itself tags it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.model.capacity import CloudInstance, CloudState, ErrorClass, Intent, Reserved, client_token
from orchestrator.model.cluster import Market, Site
from orchestrator.model.stack_facts import StackFacts, TemplateFact
from orchestrator.provision.aws import faults
from orchestrator.provision.aws.marks import CLUSTER, INTENT, NODES, POOL, SITE, UID
from orchestrator.provision.aws.tagged import having
from orchestrator.provision.cloud import Clouds, Facts, LaunchError, Unanswered

TAG_LENGTH = 256  # EC2's bound for a tag's value
# CreateFleet of type instant answers when all is started or refused: a minute or two for large gangs.
LAUNCH_READ_S, READ_S, CONNECT_S = 180, 60, 10
PAGE = 1000  # the most that DescribeInstances gives at once
CAPACITY_TYPES = {Market.SPOT: "spot", Market.CAPACITY_BLOCK: "capacity-block"}
STATES = {
    "pending": CloudState.PENDING,
    "running": CloudState.RUNNING,
    "shutting-down": CloudState.ENDING,
    "stopping": CloudState.ENDING,
    "stopped": CloudState.ENDING,
    "terminated": CloudState.GONE,
}


class Ec2:
    """One region, as a `Cloud`. `launcher` and `client` are boto3's for `ec2`; only the second one tries again by
    itself, since a launch that may have happened has to be looked up."""

    def __init__(self, launcher: Any, client: Any) -> None:
        self._launcher = launcher
        self._client = client

    def launch(self, intent: Intent, facts: StackFacts) -> tuple[CloudInstance, ...]:
        """All nodes of the intent; LaunchError and nothing left of it, or Unanswered."""
        asked = request(intent, facts)
        with _said():
            answer = self._launcher.create_fleet(**asked)
        ids = sorted(name for row in answer.get("Instances", ()) for name in row.get("InstanceIds", ()))
        if len(ids) != len(intent.nodes):
            error = faults.of_fleet(answer.get("Errors", ()), len(ids), len(intent.nodes))
            if ids:
                self._end_rest(tuple(ids))
                error = LaunchError(error.fault, f"{len(ids)} of {len(intent.nodes)} came; {error.words}")
            raise error
        zone = intent.offering.zone
        return tuple(CloudInstance(name, intent.sign, CloudState.PENDING, zone=zone) for name in ids)

    def _end_rest(self, ids: tuple[str, ...]) -> None:
        """Part of a gang is no gang. If it can't be ended now, it is found by its mark and ended later."""
        try:
            self.terminate(ids)
        except (LaunchError, Unanswered):
            return

    def terminate(self, ids: tuple[str, ...]) -> None:
        """End them. One that EC2 has forgotten makes it refuse all others, so those are ended one by one then."""
        try:
            with _said():
                self._client.terminate_instances(InstanceIds=list(ids))
        except LaunchError as error:
            if not error.words.startswith("InvalidInstanceID"):
                raise
            for name in ids if len(ids) > 1 else ():
                self.terminate((name,))

    def describe(self, uid: str, site: str) -> tuple[CloudInstance, ...]:
        """All instances of the site's elastic nodes, page by page."""
        return self._described([*_of_site(uid, site), {"Name": "tag-key", "Values": [INTENT]}])

    def marked(self, uid: str, site: str) -> tuple[CloudInstance, ...]:
        """All instances with the marks of a site, whoever launched them: the controller, or a run of its stack."""
        return self._described(_of_site(uid, site))

    def tagged(self, uid: str, site: str) -> tuple[tuple[str, str], ...]:
        """Kind and id of everything of EC2's with the marks of a site; of some for a while after their end."""
        with _said():
            return having(self._client, {UID: uid, SITE: site})

    def reserved(self, ids: tuple[str, ...]) -> tuple[Reserved, ...]:
        """One that EC2 does not know makes it refuse all others, so they are asked for one by one then."""
        try:
            with _said():
                answer = self._client.describe_capacity_reservations(CapacityReservationIds=list(ids))
        except LaunchError as error:
            if not error.words.startswith("InvalidCapacityReservationId"):
                raise
            if len(ids) == 1:
                return (Reserved(ids[0], 0),)
            return tuple(one for name in ids for one in self.reserved((name,)))
        return tuple(_reserved(row) for row in answer["CapacityReservations"])

    def _described(self, filters: list[dict[str, Any]]) -> tuple[CloudInstance, ...]:
        found: list[CloudInstance] = []
        with _said():
            pages = self._client.get_paginator("describe_instances").paginate(
                Filters=filters, PaginationConfig={"PageSize": PAGE}
            )
            for page in pages:
                for reservation in page["Reservations"]:
                    found += [_seen(one) for one in reservation["Instances"]]
        return tuple(found)


def _of_site(uid: str, site: str) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{UID}", "Values": [uid]}, {"Name": f"tag:{SITE}", "Values": [site]}]


@contextmanager
def _said() -> Iterator[None]:
    """What boto raises, as what it means."""
    try:
        yield
    except (LaunchError, Unanswered):
        raise
    except Exception as error:
        raise faults.of_exception(error) from error


def _reserved(row: dict[str, Any]) -> Reserved:
    end = row.get("EndDate")
    slots = int(row["TotalInstanceCount"]) if row["State"] == "active" else 0
    ends_us = int(end.timestamp() * 1_000_000) if end else 0
    return Reserved(row["CapacityReservationId"], slots, ends_us, row["AvailabilityZone"])


def _seen(one: dict[str, Any]) -> CloudInstance:
    tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
    launched = one.get("LaunchTime")
    return CloudInstance(
        id=one["InstanceId"],
        intent=tags.get(INTENT, ""),
        state=STATES.get(one["State"]["Name"], CloudState.ENDING),
        address=one.get("PrivateIpAddress") or "",
        launched_us=int(launched.timestamp() * 1_000_000) if launched is not None else 0,
        zone=(one.get("Placement") or {}).get("AvailabilityZone", ""),
        why=(one.get("StateReason") or {}).get("Message", "") or one.get("StateTransitionReason", ""),
    )


# --- the request ----------------------------------------------------------------------------------------------


def request(intent: Intent, facts: StackFacts) -> dict[str, Any]:
    """CreateFleet's parameters. LaunchError of class permanent if the stack has nothing to launch by."""
    offering, market = intent.offering, Market(intent.offering.market)
    template = facts.template(offering.pool, offering.type, offering.reservation, spot=market is Market.SPOT)
    if template is None:
        raise LaunchError(ErrorClass.PERMANENT, f"the stack has no launch template of {offering.type}")
    subnet = facts.subnet(template, offering.zone)
    if not subnet:
        raise LaunchError(ErrorClass.PERMANENT, f"the stack has no subnet in {offering.zone}")
    count = len(intent.nodes)
    asked: dict[str, Any] = {
        "Type": "instant",
        "ClientToken": client_token(facts.uid, intent.sign),
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": template.id,
                    "Version": str(template.version),
                },
                "Overrides": [_override(intent, facts, template, subnet)],
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": CAPACITY_TYPES.get(market, "on-demand"),
        },
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags(intent, facts)} for kind in ("fleet", "instance")
        ],
    }
    whole = {"SingleInstanceType": True, "SingleAvailabilityZone": True, "MinTargetCapacity": count}
    if market is Market.SPOT:
        asked["SpotOptions"] = {"AllocationStrategy": "capacity-optimized", **whole}
    elif (
        market is not Market.CAPACITY_BLOCK
    ):  # a block has its own count, and no options: part of it is ended again
        asked["OnDemandOptions"] = {"AllocationStrategy": "lowest-price", **whole}
    return asked


def _override(intent: Intent, facts: StackFacts, template: TemplateFact, subnet: str) -> dict[str, Any]:
    """The one way to start it. A placement group that the template has already is not said twice."""
    found: dict[str, Any] = {"InstanceType": intent.offering.type, "SubnetId": subnet}
    group = _group(intent, facts, template)
    if group and not template.placement:
        found["Placement"] = {"GroupName": group}
    if intent.offering.market == Market.SPOT and intent.max_price:
        found["MaxPrice"] = _dollars(intent.max_price)
    return found


def _group(intent: Intent, facts: StackFacts, template: TemplateFact) -> str:
    """The pool's placement group of the zone, which a cluster group never leaves. What is reserved stands where it
    stands, and has none unless the file asks for it."""
    reserved = bool(intent.offering.reservation)
    grouped = not reserved if template.grouped is None else template.grouped
    return facts.placement(intent.offering.pool, intent.offering.zone) if grouped else ""


def _dollars(microusd: int) -> str:
    return f"{microusd // 1_000_000}.{microusd % 1_000_000:06d}"


def tags(intent: Intent, facts: StackFacts) -> list[dict[str, str]]:
    """The marks of what is launched. Instances of one fleet are alike: names are given to them in the order of their
    ids, so all of them are in the tag, as far as it holds them."""
    marks = {
        UID: facts.uid,
        CLUSTER: facts.cluster,
        SITE: facts.site,
        POOL: intent.pool,
        INTENT: intent.sign,
        NODES: " ".join(intent.nodes)[:TAG_LENGTH],
    }
    return [{"Key": key, "Value": value} for key, value in marks.items()]


# --- clients --------------------------------------------------------------------------------------------------


def access() -> tuple[Clouds, Facts]:
    """The clouds of aws sites and what their stacks resolved, for a controller. boto3 is imported by the first call."""
    return cloud_of, facts_of


def cloud_of(site: Site) -> Ec2:
    """The cloud of a site, with the credentials that boto3 finds. LaunchError of class auth without boto3."""
    return Ec2(_client("ec2", site.region, 1, LAUNCH_READ_S), _client("ec2", site.region, 4, READ_S))


def facts_of(cluster: str, uid: str, site: Site) -> StackFacts | None:
    """What the site's stack has written; None if there is nothing. LaunchError or Unanswered if it can't be read."""
    from orchestrator.provision.aws import facts

    with _said():
        return facts.read(_client("ssm", site.region, 4, READ_S), cluster, uid, site.name)


def _client(service: str, region: str, attempts: int, read_s: int) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        words = "the controller lacks boto3: install it as `gangline[server,aws]`"
        raise LaunchError(ErrorClass.AUTH, words) from error
    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=read_s,
        retries={"mode": "standard", "total_max_attempts": attempts},
    )
    with _said():
        return boto3.session.Session().client(service, region_name=region or None, config=config)
