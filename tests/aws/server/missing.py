"""What moto has no word for: placement groups, capacity reservations and blocks, spot prices, topology, visibility.

Comes in: EC2 requests. Goes out: EC2's answers, from the ground. Called by: EC2's clients after `install`.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.models.instances import InstanceBackend
from moto.ec2.responses import EC2Response
from moto.ec2.utils import convert_tag_spec

from tests.aws.server import launches
from tests.aws.server.ground import GROUND, Offering
from tests.aws.server.onto import put


def _tags(params: dict[str, Any], kind: str) -> list[dict[str, str]]:
    found = convert_tag_spec(params.get("TagSpecifications") or []).get(kind, {})
    return [{"Key": key, "Value": value} for key, value in found.items()]


def _matches(row: dict[str, Any], filters: dict[str, Any], names: dict[str, str]) -> bool:
    """Whether a row passes filters: `tag:KEY`, or one of `names` (filter -> member)."""
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", [])}
    for name, allowed in filters.items():
        value = tags.get(name[4:]) if name.startswith("tag:") else str(row.get(names[name]))
        if value not in allowed:
            return False
    return True


# Placement groups


def _create_placement_group(self: EC2Response) -> ActionResult:
    params = self._get_params()
    key = (self.region, params["GroupName"])
    if key in GROUND.groups:
        raise EC2ClientError(
            "InvalidPlacementGroup.Duplicate", f"The Placement Group '{key[1]}' already exists."
        )
    group = GROUND.mint("pg")
    GROUND.groups[key] = {
        "GroupName": key[1], "GroupId": group, "State": "available", "Strategy": params.get("Strategy", "cluster"),
        "Tags": _tags(params, "placement-group"),
        "GroupArn": f"arn:aws:ec2:{self.region}:{self.current_account}:placement-group/{key[1]}",
    }  # fmt: skip
    return ActionResult({"PlacementGroup": GROUND.groups[key]})


def _describe_placement_groups(self: EC2Response) -> ActionResult:
    names, ids = self._get_param("GroupNames", []), self._get_param("GroupIds", [])
    mine = [row for (region, _), row in GROUND.groups.items() if region == self.region]
    for name in names:
        if (self.region, name) not in GROUND.groups:
            raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    known = {"group-name": "GroupName", "strategy": "Strategy", "state": "State"}
    rows = [
        row
        for row in mine
        if (not names or row["GroupName"] in names)
        and (not ids or row["GroupId"] in ids)
        and _matches(row, self._filters_from_querystring(), known)
    ]
    return ActionResult({"PlacementGroups": rows})


def _delete_placement_group(self: EC2Response) -> ActionResult:
    name = self._get_param("GroupName")
    if (self.region, name) not in GROUND.groups:
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    used = [
        instance
        for instance in self.ec2_backend.all_instances()
        if instance._placement.group_name == name and instance.state != "terminated"
    ]
    if used:
        raise EC2ClientError("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use.")
    del GROUND.groups[self.region, name]
    return ActionResult(None)


# Capacity reservations and blocks


def _reserve(self: EC2Response, params: dict[str, Any], kind: str) -> dict[str, Any]:
    identity = GROUND.mint("cr")
    end = params.get("EndDate")
    row = {
        "CapacityReservationId": identity, "OwnerId": self.current_account, "ReservationType": kind,
        "CapacityReservationArn": f"arn:aws:ec2:{self.region}:{self.current_account}:capacity-reservation/{identity}",
        "InstanceType": params["InstanceType"], "InstancePlatform": params.get("InstancePlatform", "Linux/UNIX"),
        "AvailabilityZone": params["AvailabilityZone"], "Tenancy": "default", "Region": self.region,
        "TotalInstanceCount": int(params["InstanceCount"]), "AvailableInstanceCount": int(params["InstanceCount"]),
        "State": "active", "StartDate": params.get("StartDate") or GROUND.now(), "EndDate": end,
        "EndDateType": "limited" if end else "unlimited", "CreateDate": GROUND.now(),
        "InstanceMatchCriteria": params.get("InstanceMatchCriteria", "open"),
        "Tags": _tags(params, "capacity-reservation"),
    }  # fmt: skip
    GROUND.reservations[identity] = row
    return row


def _create_capacity_reservation(self: EC2Response) -> ActionResult:
    params = self._get_params()
    answer = launches.once("CreateCapacityReservation", params)
    if answer is None:
        answer = {"CapacityReservation": _shown(_reserve(self, params, "default"))}
        launches.remember("CreateCapacityReservation", params, answer)
    return ActionResult(answer)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value is not None and key != "Region"}


def age_reservations() -> None:
    """Reservations whose end has come are expired; a block has nothing that runs on."""
    now = GROUND.now()
    for row in GROUND.reservations.values():
        end = row["EndDate"]
        if row["State"] == "active" and end is not None and _aware(end) <= now:
            row["State"] = "expired"


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _describe_capacity_reservations(self: EC2Response) -> ActionResult:
    ids = self._get_param("CapacityReservationIds", [])
    for identity in ids:
        if identity not in GROUND.reservations:
            raise EC2ClientError("InvalidCapacityReservationId.NotFound", f"'{identity}' does not exist.")
    known = {
        "state": "State", "instance-type": "InstanceType", "availability-zone": "AvailabilityZone",
        "reservation-type": "ReservationType",
    }  # fmt: skip
    rows = [
        _shown(row)
        for row in GROUND.reservations.values()
        if row["Region"] == self.region
        and (not ids or row["CapacityReservationId"] in ids)
        and _matches(row, self._filters_from_querystring(), known)
    ]
    return ActionResult({"CapacityReservations": rows})


def _cancel_capacity_reservation(self: EC2Response) -> ActionResult:
    identity = self._get_param("CapacityReservationId")
    if identity not in GROUND.reservations:
        raise EC2ClientError("InvalidCapacityReservationId.NotFound", f"'{identity}' does not exist.")
    GROUND.reservations[identity] |= {"State": "cancelled", "AvailableInstanceCount": 0}
    return ActionResult({"Return": True})


def _describe_capacity_block_offerings(self: EC2Response) -> ActionResult:
    params = self._get_params()
    start = params.get("StartDateRange") or GROUND.now()
    hours = int(params["CapacityDurationHours"])
    zone, count = f"{self.region}a", int(params.get("InstanceCount", 1))
    type_ = params.get("InstanceType", "p5.48xlarge")
    words = f"{type_}/{count}/{zone}/{_aware(start).isoformat()}/{hours}"
    offering = {
        "CapacityBlockOfferingId": "cb-" + words.encode().hex(), "InstanceType": type_, "AvailabilityZone": zone,
        "InstanceCount": count, "StartDate": start, "EndDate": start + timedelta(hours=hours),
        "CapacityBlockDurationHours": hours, "CurrencyCode": "USD", "Tenancy": "default",
        "UpfrontFee": f"{GROUND.prices.get(type_, 1.0) * 0.6 * count * hours:.2f}",
    }  # fmt: skip
    return ActionResult({"CapacityBlockOfferings": [offering]})


def _purchase_capacity_block(self: EC2Response) -> ActionResult:
    params = self._get_params()
    words = bytes.fromhex(params["CapacityBlockOfferingId"].removeprefix("cb-")).decode()
    type_, count, zone, start, hours = words.split("/")
    began = datetime.fromisoformat(start)
    wanted = {
        "InstanceType": type_, "InstanceCount": int(count), "AvailabilityZone": zone, "StartDate": began,
        "EndDate": began + timedelta(hours=int(hours)), "InstancePlatform": params["InstancePlatform"],
        "InstanceMatchCriteria": "targeted", "TagSpecifications": params.get("TagSpecifications"),
    }  # fmt: skip
    return ActionResult({"CapacityReservation": _shown(_reserve(self, wanted, "capacity-block"))})


# Spot prices, scores, topology


def _describe_spot_price_history(self: EC2Response) -> ActionResult:
    types = self._get_param("InstanceTypes", [])
    filters = self._filters_from_querystring()
    types = types or filters.get("instance-type", [])
    zone = self._get_param("AvailabilityZone")
    zones = [zone] if zone else filters.get("availability-zone", [])
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(self.region, [])
    rows = [
        {
            "InstanceType": row["InstanceType"], "AvailabilityZone": row["Location"],
            "ProductDescription": "Linux/UNIX", "Timestamp": GROUND.now() - timedelta(hours=1),
            "SpotPrice": f"{GROUND.spot_price(row['InstanceType'], row['Location']):.6f}",
        }
        for row in offered
        if row["InstanceType"] in types and (not zones or row["Location"] in zones)
    ]  # fmt: skip
    return ActionResult({"SpotPriceHistory": rows})


def _get_spot_placement_scores(self: EC2Response) -> ActionResult:
    """Nine where there is room for all, one where there is not; by zone, as `SingleAvailabilityZone` asks for it."""
    params = self._get_params()
    count = int(params["TargetCapacity"])
    rows = []
    for zone in sorted(
        {row["Location"] for row in INSTANCE_TYPE_OFFERINGS["availability-zone"][self.region]}
    ):
        rooms = [GROUND.room(Offering(type_, zone, "spot")) for type_ in params.get("InstanceTypes", [])]
        enough = any(room is None or room >= count for room in rooms)
        rows.append(
            {"Region": self.region, "AvailabilityZoneId": _zone_id(self, zone), "Score": 9 if enough else 1}
        )
    return ActionResult({"SpotPlacementScores": rows})


def _zone_id(self: EC2Response, zone: str) -> str:
    zones = self.ec2_backend.describe_availability_zones()
    return next((str(row.zone_id) for row in zones if row.name == zone), zone)


def _describe_instance_topology(self: EC2Response) -> ActionResult:
    """Three levels from outside in. Members of a placement group share the innermost one, others hang by their id."""
    asked = self._get_param("InstanceIds", [])
    rows = []
    for instance in self.ec2_backend.all_instances():
        if instance.state == "terminated" or (asked and instance.id not in asked):
            continue
        group = instance._placement.group_name
        leaf = hashlib.sha256((group or instance.id).encode()).hexdigest()[:17]
        zone = hashlib.sha256(str(instance._placement.zone).encode()).hexdigest()[:17]
        rows.append(
            {
                "InstanceId": instance.id, "InstanceType": instance.instance_type, "GroupName": group or None,
                "NetworkNodes": [f"nn-{zone}", f"nn-{zone[:16]}1", f"nn-{leaf}"],
                "AvailabilityZone": instance._placement.zone, "ZoneId": _zone_id(self, instance._placement.zone),
            }
        )  # fmt: skip
    return ActionResult({"Instances": rows})


# A new instance is not seen at once, an ended one is shutting down for a while. Counted in calls.


def _seeing(name: str) -> Any:
    motos = getattr(EC2Response, name)

    def described(self: EC2Response) -> Any:
        unseen = {instance for instance, left in GROUND.hidden.items() if left > 0}
        ending = {instance for instance, left in GROUND.ending.items() if left > 0}
        GROUND.hidden = {instance: left - 1 for instance, left in GROUND.hidden.items() if left > 1}
        GROUND.ending = {instance: left - 1 for instance, left in GROUND.ending.items() if left > 1}
        asked = self._get_param("InstanceIds", [])
        if hit := sorted(unseen.intersection(asked)):
            raise InvalidInstanceIdError(hit)
        with _Unseen(self.ec2_backend, unseen, ending):
            status, headers, body = self.serialized(motos(self))
        return status, headers, body

    return described


class _Unseen:
    """For the length of a call the backend lists no instance of `unseen`, and those of `ending` as shutting-down."""

    def __init__(self, backend: InstanceBackend, unseen: set[str], ending: set[str]) -> None:
        self.backend, self.unseen, self.ending = backend, unseen, ending
        self.kept = dict(backend.reservations)

    def __enter__(self) -> None:
        for key, made in self.kept.items():
            seen = [instance for instance in made.instances if instance.id not in self.unseen]
            if not seen:
                del self.backend.reservations[key]
            elif len(seen) != len(made.instances):
                self.backend.reservations[key] = _part(made, seen)
        self._mark("shutting-down", 32)

    def __exit__(self, *_: object) -> None:
        self.backend.reservations.clear()
        self.backend.reservations.update(self.kept)
        self._mark("terminated", 48)

    def _mark(self, name: str, code: int) -> None:
        for made in self.kept.values():
            for instance in made.instances:
                if instance.id in self.ending:
                    instance._state.name, instance._state.code = name, code


def _part(made: Any, seen: list[Any]) -> Any:
    part = type(made)(reservation_id=made.id, owner_id=made.owner_id)
    part.instances = seen
    return part


def install() -> None:
    """Put all of it on moto's class of EC2 responses."""
    for function in (
        _create_placement_group, _describe_placement_groups, _delete_placement_group, _create_capacity_reservation,
        _describe_capacity_reservations, _cancel_capacity_reservation, _describe_capacity_block_offerings,
        _purchase_capacity_block, _describe_spot_price_history, _get_spot_placement_scores,
        _describe_instance_topology,
    ):  # fmt: skip
        put(EC2Response, **{function.__name__.removeprefix("_"): function})
    for name in ("describe_instances", "describe_instance_status"):
        put(EC2Response, **{name: _seeing(name)})
