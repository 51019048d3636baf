"""What EC2 refuses of a launch, one function for each rule; a launch that passes all of them can be made.

Comes in: a `Launch`. Goes out: nothing, or moto's error with EC2's code and words. Called by: launches and fleets.
Rules whose exact words were not seen say what they mean in their own words; the codes are EC2's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from tests.aws.server import quotas
from tests.aws.server.ground import GROUND, Offering

EFA = ("efa", "efa-only")


@dataclass
class Launch:
    """Some instances of one kind: `spec` is RunInstances' request with its launch template merged into it."""

    backend: Any
    spec: dict[str, Any]
    count: int
    zone: str
    subnet: Any
    market: str

    @property
    def type(self) -> str:
        return str(self.spec.get("InstanceType", "m1.small"))

    @property
    def offering(self) -> Offering:
        return Offering(self.type, self.zone, self.market)

    @property
    def nics(self) -> list[dict[str, Any]]:
        return list(self.spec.get("NetworkInterfaces") or [])

    @property
    def group(self) -> str:
        return str((self.spec.get("Placement") or {}).get("GroupName") or "")

    @property
    def reservation(self) -> str:
        target = (self.spec.get("CapacityReservationSpecification") or {}).get(
            "CapacityReservationTarget"
        ) or {}
        return str(target.get("CapacityReservationId") or "")

    @property
    def network(self) -> dict[str, Any]:
        found: dict[str, Any] = INSTANCE_TYPES[self.type].get("NetworkInfo", {})
        return found


def check(launch: Launch) -> None:
    """Refuse what EC2 refuses of it. Capacity comes last, as there."""
    check_valid(launch)
    for rule in MARKET:
        rule(launch)


def check_valid(launch: Launch) -> None:
    """The same without what depends on the hour: what DryRun tells."""
    for rule in VALIDITY:
        rule(launch)


def refuse(code: str, words: str) -> NoReturn:
    """Raise the error."""
    raise EC2ClientError(code, words)


def _type(launch: Launch) -> None:
    if launch.type not in INSTANCE_TYPES:
        refuse("InvalidParameterValue", f"Invalid value '{launch.type}' for InstanceType.")


def _type_in_zone(launch: Launch) -> None:
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(launch.backend.region_name, [])
    if not any(row["InstanceType"] == launch.type and row["Location"] == launch.zone for row in offered):
        refuse(
            "Unsupported",
            f"Your requested instance type ({launch.type}) is not supported in your requested Availability Zone "
            f"({launch.zone}).",
        )


def _image(launch: Launch) -> None:
    image = str(launch.spec.get("ImageId") or "")
    if not image:
        refuse("MissingParameter", "The request must contain the parameter ImageId")
    if image not in launch.backend.amis:
        refuse("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")


def _profile(launch: Launch) -> None:
    from moto.ec2.utils import filter_iam_instance_profiles

    if profile := launch.spec.get("IamInstanceProfile"):
        filter_iam_instance_profiles(
            launch.backend.account_id, "aws", profile.get("Arn"), profile.get("Name")
        )


def _group(launch: Launch) -> None:
    if not launch.group:
        return
    if (launch.backend.region_name, launch.group) not in GROUND.groups:
        refuse("InvalidPlacementGroup.Unknown", f"The Placement Group '{launch.group}' is unknown.")
    if launch.market == "capacity_block":
        refuse("InvalidParameterCombination", "A placement group can't be used with a Capacity Block.")
    strategy = GROUND.groups[launch.backend.region_name, launch.group]["Strategy"]
    allowed = INSTANCE_TYPES[launch.type].get("PlacementGroupInfo", {}).get("SupportedStrategies", [])
    if strategy not in allowed:
        refuse(
            "InvalidParameterCombination",
            f"Placement groups of strategy {strategy} can't be used with instances of type '{launch.type}'.",
        )


def _public_address(launch: Launch) -> None:
    if len(launch.nics) > 1 and any(nic.get("AssociatePublicIpAddress") for nic in launch.nics):
        refuse(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
            "interfaces.",
        )


def _cards(launch: Launch) -> None:
    most = launch.network.get("MaximumNetworkCards", 1)
    seen = set()
    for nic in launch.nics:
        where = (int(nic.get("NetworkCardIndex") or 0), int(nic.get("DeviceIndex") or 0))
        if where[0] >= most:
            refuse(
                "InvalidParameterValue",
                f"{launch.type} has {most} network cards, there is no card {where[0]}.",
            )
        if where in seen:
            refuse("InvalidParameterValue", f"Two interfaces have card {where[0]} and device {where[1]}.")
        seen.add(where)
    if launch.nics and (0, 0) not in seen:
        refuse("InvalidParameterCombination", "The primary interface (card 0, device 0) is missing.")


def _efa(launch: Launch) -> None:
    asked = [nic for nic in launch.nics if nic.get("InterfaceType") in EFA]
    if not asked:
        return
    if not launch.network.get("EfaSupported"):
        refuse("InvalidParameterCombination", f"EFA interfaces are not supported on {launch.type}.")
    most = launch.network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 1)
    if len(asked) > most:
        refuse(
            "AttachmentLimitExceeded", f"{launch.type} has at most {most} EFA interfaces, not {len(asked)}."
        )
    for nic in asked:
        if (
            nic["InterfaceType"] == "efa-only"
            and not nic.get("NetworkCardIndex")
            and not nic.get("DeviceIndex")
        ):
            refuse("InvalidParameterCombination", "An efa-only interface can't be the primary one.")


def _addresses(launch: Launch) -> None:
    each = len([nic for nic in launch.nics if nic.get("InterfaceType") != "efa-only"]) or 1
    if launch.subnet is not None and each * launch.count > int(launch.subnet.available_ip_address_count):
        refuse(
            "InsufficientFreeAddressesInSubnet",
            f"The subnet {launch.subnet.id} does not have {each * launch.count} free addresses.",
        )


def _reservation(launch: Launch) -> None:
    if not launch.reservation:
        if launch.market in ("capacity_reservation", "capacity_block"):
            refuse("InvalidParameterCombination", "A capacity reservation must be named.")
        return
    found = GROUND.reservations.get(launch.reservation)
    if found is None:
        refuse("InvalidCapacityReservationId.NotFound", f"'{launch.reservation}' does not exist.")
    if found["State"] != "active":
        refuse("InvalidCapacityReservationState", f"{launch.reservation} is {found['State']}.")
    if (found["InstanceType"], found["AvailabilityZone"]) != (launch.type, launch.zone):
        refuse("InvalidParameterCombination", f"{launch.reservation} is for another type or zone.")
    if (found["ReservationType"] == "capacity-block") != (launch.market == "capacity_block"):
        refuse(
            "InvalidParameterCombination", "MarketType capacity-block goes with capacity blocks, and only so."
        )
    if found["AvailableInstanceCount"] < launch.count:
        refuse("ReservationCapacityExceeded", f"{launch.reservation} has no room for {launch.count} more.")


def _quota(launch: Launch) -> None:
    limit, used = quotas.limit(launch.type, launch.market), quotas.used(launch.type, launch.market)
    if limit is None or used + quotas.vcpus(launch.type) * launch.count <= limit:
        return
    if launch.market == "spot":
        refuse("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    refuse(
        "VcpuLimitExceeded",
        f"You have requested more vCPU capacity than your current vCPU limit of {limit:g}.",
    )


def _price(launch: Launch) -> None:
    options = (launch.spec.get("InstanceMarketOptions") or {}).get("SpotOptions") or {}
    most = options.get("MaxPrice")
    now = GROUND.spot_price(launch.type, launch.zone)
    if launch.market == "spot" and most is not None and float(most) < now:
        refuse(
            "SpotMaxPriceTooLow",
            f"Your Spot request price of {most} is lower than the minimum required {now}.",
        )


def _told_to_fail(launch: Launch) -> None:
    if fault := GROUND.launch_fault(launch.offering):
        refuse(fault.code, fault.message or fault.code)


def _capacity(launch: Launch) -> None:
    room = GROUND.room(launch.offering)
    if room is not None and room < launch.count:
        refuse(
            "InsufficientInstanceCapacity",
            f"We currently do not have sufficient {launch.type} capacity in the Availability Zone you requested "
            f"({launch.zone}).",
        )


def _spot_tags(launch: Launch) -> None:
    """EC2's own words, as several launch tools' issues have them."""
    specs = launch.spec.get("TagSpecifications") or []
    if launch.market != "spot" and any(one["ResourceType"] == "spot-instances-request" for one in specs):
        words = "You cannot specify tags for Spot instances requests if there are no Spot instances requests"
        refuse("InvalidParameterCombination", f"{words} being created by the request.")


VALIDITY: list[Callable[[Launch], None]] = [
    _type, _type_in_zone, _image, _profile, _group, _public_address, _cards, _efa, _addresses, _reservation,
    _spot_tags,
]  # fmt: skip
MARKET: list[Callable[[Launch], None]] = [_quota, _price, _told_to_fail, _capacity]
