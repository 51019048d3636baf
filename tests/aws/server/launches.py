"""RunInstances with all that a request and its launch template say: interfaces, placement, profile, tags, token.

Comes in: parameters of RunInstances or of one offering of a fleet. Goes out: running instances of moto. Called by:
EC2's clients after `install`, and fleets.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.elastic_network_interfaces import Attachment, NetworkInterface
from moto.ec2.models.instances import Instance, Reservation
from moto.ec2.responses import EC2Response
from moto.ec2.utils import convert_tag_spec, parse_user_data, random_reservation_id

from tests.aws.server.ground import GROUND
from tests.aws.server.guard import plain
from tests.aws.server.onto import put
from tests.aws.server.refusals import Launch, check, check_valid

CARD = 100  # moto keys an instance's interfaces by device alone; card times this plus device keeps them apart


def once(operation: str, params: dict[str, Any]) -> Any:
    """What the same request with the same ClientToken was answered, or None.

    EC2's error where the token came with another request.
    """
    token = params.get("ClientToken")
    if not token or (operation, token) not in GROUND.tokens:
        return None
    asked, answer = GROUND.tokens[operation, token]
    if asked != _digest(params):
        raise EC2ClientError(
            "IdempotentParameterMismatch", f"The client token {token} came with another request."
        )
    return answer


def remember(operation: str, params: dict[str, Any], answer: Any) -> None:
    """Keep an answer for its ClientToken."""
    if token := params.get("ClientToken"):
        GROUND.tokens[operation, token] = (_digest(params), answer)


def _digest(params: dict[str, Any]) -> str:
    return json.dumps(plain(params), sort_keys=True)


def merged(backend: Any, params: dict[str, Any]) -> dict[str, Any]:
    """A request over the version of the launch template that it names; tags of both, by kind of resource."""
    named = params.get("LaunchTemplate")
    if not named:
        return dict(params)
    template = backend._get_template_from_args(named)
    spec: dict[str, Any] = copy.deepcopy(template.data) | {
        k: v for k, v in params.items() if k != "LaunchTemplate"
    }
    spec["TagSpecifications"] = [
        *template.data.get("TagSpecifications", []), *params.get("TagSpecifications", []),
        {
            "ResourceType": "instance",
            "Tags": [
                {"Key": "aws:ec2launchtemplate:id", "Value": template.template.id},
                {"Key": "aws:ec2launchtemplate:version", "Value": str(template.number)},
            ],
        },
    ]  # fmt: skip
    return spec


def prepare(backend: Any, spec: dict[str, Any], count: int, market: str = "") -> Launch:
    """The launch that a merged request asks for; subnets of interfaces and of the request are the same thing here."""
    nics = spec.get("NetworkInterfaces") or []
    subnet_id = spec.get("SubnetId") or next((nic["SubnetId"] for nic in nics if nic.get("SubnetId")), None)
    asked = (spec.get("Placement") or {}).get("AvailabilityZone")
    if subnet_id is None:
        defaults = backend.get_default_subnets()
        subnet = defaults.get(asked) or next(iter(defaults.values()))
    else:
        subnet = backend.get_subnet(subnet_id)
    return Launch(backend, spec, count, subnet.availability_zone, subnet, market or _market(spec))


def _market(spec: dict[str, Any]) -> str:
    kind = (spec.get("InstanceMarketOptions") or {}).get("MarketType")
    if kind:
        return {"spot": "spot", "capacity-block": "capacity_block"}.get(kind, str(kind))
    target = (spec.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget")
    return "capacity_reservation" if target else "on_demand"


def start(launch: Launch, token: str = "") -> list[Instance]:
    """Start what passed `refusals.check`."""
    tags = convert_tag_spec(launch.spec.get("TagSpecifications") or [])
    return [_start_one(launch, tags, index, token) for index in range(launch.count)]


def _user_data(value: Any) -> Any:
    """What a request has is a text, what a template has was read already."""
    return parse_user_data(value) if isinstance(value, str | bytes | None) else value


def _start_one(launch: Launch, tags: dict[str, dict[str, str]], index: int, token: str) -> Instance:
    spec, nics = launch.spec, _numbered(launch)
    made = launch.backend.run_instances(
        spec["ImageId"], 1, _user_data(spec.get("UserData")), spec.get("SecurityGroups") or [],
        instance_type=launch.type, is_instance_type_default=False, region_name=launch.backend.region_name,
        subnet_id=None if nics else launch.subnet.id, nics=nics, key_name=spec.get("KeyName"),
        security_group_ids=list(spec.get("SecurityGroupIds") or []), tags=tags, client_token=token,
        private_ip=spec.get("PrivateIpAddress"), ebs_optimized=bool(spec.get("EbsOptimized")),
        metadata_options=spec.get("MetadataOptions") or {}, **_devices(spec),
    )  # fmt: skip
    (instance,) = made.instances
    instance.ami_launch_index = index
    instance._placement.zone = launch.zone
    _finish_nics(instance, nics)
    _finish(launch, instance)
    return instance  # type: ignore[no-any-return]


def _devices(spec: dict[str, Any]) -> dict[str, Any]:
    wanted = [device for device in spec.get("BlockDeviceMappings") or [] if device.get("Ebs")]
    return {"block_device_mappings": wanted} if wanted else {}


def _numbered(launch: Launch) -> list[dict[str, Any]]:
    numbered = []
    for nic in launch.nics:
        card, device = int(nic.get("NetworkCardIndex") or 0), int(nic.get("DeviceIndex") or 0)
        full = {
            "DeleteOnTermination": True,
            **nic,
            "SubnetId": launch.subnet.id,
            "DeviceIndex": card * CARD + device,
        }
        if (card, device) != (0, 0) and nic.get("InterfaceType") != "efa-only":
            full["PrivateIpAddress"] = launch.subnet.get_available_subnet_ip(None)
        numbered.append(full)
    return sorted(numbered, key=lambda nic: int(nic["DeviceIndex"]))


def _finish_nics(instance: Instance, nics: list[dict[str, Any]]) -> None:
    by_number = {int(nic["DeviceIndex"]): nic for nic in nics}
    for number, eni in instance.nics.items():
        eni.device_index = number % CARD
        eni.network_card = number // CARD  # type: ignore[attr-defined]
        eni.interface_type = by_number.get(number, {}).get("InterfaceType") or "interface"
        eni.delete_on_termination = bool(by_number.get(number, {}).get("DeleteOnTermination", True))
    if nics and not instance.security_groups:
        instance.security_groups = list(instance.nics[0]._group_set)


def _finish(launch: Launch, instance: Any) -> None:
    instance._placement.group_name = launch.group
    instance.capacity_reservation_id = launch.reservation or None
    if launch.market in ("spot", "capacity_block"):
        instance.lifecycle = instance.instance_lifecycle = launch.market.replace("_", "-")
    if launch.market == "spot":
        instance.spot_instance_request_id = GROUND.mint("sir")
    if profile := launch.spec.get("IamInstanceProfile"):
        launch.backend.associate_iam_instance_profile(
            instance_id=instance.id, iam_instance_profile_name=profile.get("Name"),
            iam_instance_profile_arn=profile.get("Arn"),
        )  # fmt: skip
    if launch.reservation:
        GROUND.reservations[launch.reservation]["AvailableInstanceCount"] -= 1
    GROUND.launched(instance.id, launch.offering)


def _run_instances(self: EC2Response) -> ActionResult:
    params = self._get_params()
    answer = once("RunInstances", params)
    if answer is None:
        spec = merged(self.ec2_backend, params)
        if spec.get("SubnetId") and params.get("NetworkInterfaces"):
            raise EC2ClientError(
                "InvalidParameterCombination",
                "Network interfaces and an instance-level subnet ID may not be specified on the same request",
            )
        launch = prepare(self.ec2_backend, spec, int(params["MaxCount"]))
        check_valid(launch)
        self.error_on_dryrun()
        _most_possible(launch, int(params["MinCount"]))
        answer = _one_reservation(self.ec2_backend, start(launch, params.get("ClientToken", "")))
        remember("RunInstances", params, answer)
    return ActionResult(answer)


def _most_possible(launch: Launch, least: int) -> None:
    """As many as there is room for, but no fewer than `least`."""
    room = GROUND.room(launch.offering)
    if room is not None:
        launch.count = max(least, min(launch.count, room))
    check(launch)


def _one_reservation(backend: Any, instances: list[Instance]) -> Reservation:
    """moto made a reservation for each; a call has one."""
    ids = {instance.id for instance in instances}
    for key, made in list(backend.reservations.items()):
        if made.instances and made.instances[0].id in ids:
            del backend.reservations[key]
    one = Reservation(reservation_id=random_reservation_id(), owner_id=backend.account_id)
    one.instances = instances
    backend.reservations[one.id] = one
    return one


def _create_launch_template(self: EC2Response) -> ActionResult:
    """moto writes the template's own tags among those of what is launched from it."""
    answer: ActionResult = _MOTOS_CREATE(self)
    said: Any = answer.result
    version = self.ec2_backend.get_launch_template(
        said["LaunchTemplate"]["LaunchTemplateId"]
    ).default_version()
    specs = [
        spec
        for spec in version.data.get("TagSpecifications", [])
        if spec["ResourceType"] != "launch-template"
    ]
    if specs:
        version.data["TagSpecifications"] = specs
    else:
        version.data.pop("TagSpecifications", None)
    return answer


_MOTOS_CREATE = EC2Response.create_launch_template


def _attachment(eni: NetworkInterface) -> Attachment | None:
    if not eni.attachment_id:
        return None
    attached = Attachment(eni)
    attached.network_card_index = getattr(eni, "network_card", 0)
    return attached


def _terminate(self: Instance) -> Any:
    before = _MOTOS_TERMINATE(self)
    if before.name != "terminated":
        reserved = GROUND.reservations.get(getattr(self, "capacity_reservation_id", None) or "")
        if reserved:
            reserved["AvailableInstanceCount"] += 1
        GROUND.ended(self.id)
    return before


_MOTOS_TERMINATE = Instance.terminate


def install() -> None:
    """Put it in the place of moto's own."""
    put(EC2Response, create_launch_template=_create_launch_template, run_instances=_run_instances)
    put(NetworkInterface, attachment=property(_attachment))
    put(Instance, terminate=_terminate)
