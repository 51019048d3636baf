"""CreateFleet of type instant: offerings in order, all or nothing by MinTargetCapacity, errors by offering.

Comes in: parameters of CreateFleet. Goes out: instances of one type and zone where the request asks for that, or an
answer of status 200 whose `Errors` say why each offering was passed over. Called by: EC2's clients after `install`.
Other types of fleet stay moto's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response
from moto.ec2.utils import convert_tag_spec

from tests.aws.server import launches
from tests.aws.server.ground import GROUND
from tests.aws.server.onto import put
from tests.aws.server.refusals import Launch, check

MARKETS = {"on-demand": "on_demand", "spot": "spot", "capacity-block": "capacity_block"}


def _create_fleet(self: EC2Response) -> ActionResult:
    params = self._get_params()
    if params.get("Type") != "instant":
        return _MOTOS["create_fleet"](self)
    answer = launches.once("CreateFleet", params)
    if answer is None:
        answer = _instant(self, params)
        launches.remember("CreateFleet", params, answer)
    return ActionResult(answer)


def _instant(self: EC2Response, params: dict[str, Any]) -> dict[str, Any]:
    target = params["TargetCapacitySpecification"]
    total = int(target["TotalTargetCapacity"])
    kind = str(target.get("DefaultTargetCapacityType") or "on-demand")
    least = _least(params, kind)
    self.error_on_dryrun()
    fleet = GROUND.mint("fleet")
    chosen, errors = _choose(self, params, kind, total, least)
    instances = [_launched(launch, kind, said, fleet, params) for launch, said in chosen]
    _make_partial(self, instances)
    answer = {"FleetId": fleet, "Errors": errors, "Instances": instances}
    GROUND.fleets[fleet] = {"asked": params, "answer": answer, "state": "active", "total": total}
    return answer


def _least(params: dict[str, Any], kind: str) -> int:
    options = params.get("SpotOptions" if kind == "spot" else "OnDemandOptions") or {}
    least = int(options.get("MinTargetCapacity") or 0)
    if least and not (options.get("SingleInstanceType") or options.get("SingleAvailabilityZone")):
        raise EC2ClientError(
            "InvalidParameterCombination",
            "MinTargetCapacity goes with SingleInstanceType or SingleAvailabilityZone.",
        )
    return least


def _choose(
    self: EC2Response, params: dict[str, Any], kind: str, total: int, least: int
) -> tuple[list[tuple[Launch, dict[str, Any]]], list[dict[str, Any]]]:
    """What to launch, and what was wrong with offerings before it. With a minimum one offering must carry it alone."""
    chosen: list[tuple[Launch, dict[str, Any]]] = []
    errors = []
    for spec, said in _offerings(self, params, kind):
        wanted = total - sum(launch.count for launch, _ in chosen)
        if wanted <= 0:
            break
        try:
            launch = launches.prepare(self.ec2_backend, spec, wanted, _market(spec, kind))
            room = GROUND.room(launch.offering)
            launch.count = wanted if room is None else min(wanted, max(room, least or 1))
            check(launch)
        except EC2ClientError as wrong:
            errors.append(
                {"LaunchTemplateAndOverrides": said, "Lifecycle": kind, "ErrorCode": wrong.code,
                 "ErrorMessage": wrong.message}
            )  # fmt: skip
            continue
        chosen.append((launch, said))
        if least:
            break
    return chosen, errors


def _market(spec: dict[str, Any], kind: str) -> str:
    market = MARKETS[kind]
    target = (spec.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget")
    return "capacity_reservation" if market == "on_demand" and target else market


def _offerings(
    self: EC2Response, params: dict[str, Any], kind: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each (merged request, what the answer calls it), in the order of the request."""
    for config in params.get("LaunchTemplateConfigs", []):
        named = config["LaunchTemplateSpecification"]
        template = self.ec2_backend._get_template_from_args(named)
        base = launches.merged(self.ec2_backend, {"LaunchTemplate": named})
        full = {
            "LaunchTemplateId": template.template.id, "LaunchTemplateName": template.template.name,
            "Version": str(template.number),
        }  # fmt: skip
        for override in config.get("Overrides") or [{}]:
            spec = base | {
                key: override[key] for key in ("ImageId", "InstanceType", "SubnetId") if key in override
            }
            if zone := override.get("AvailabilityZone"):
                spec["Placement"] = (spec.get("Placement") or {}) | {"AvailabilityZone": zone}
            if placement := override.get("Placement"):
                spec["Placement"] = (spec.get("Placement") or {}) | placement
            if kind == "spot":
                most = {"MaxPrice": override["MaxPrice"]} if "MaxPrice" in override else {}
                spec["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": most}
            yield spec, {"LaunchTemplateSpecification": full, "Overrides": override}


def _launched(
    launch: Launch, kind: str, said: dict[str, Any], fleet: str, params: dict[str, Any]
) -> dict[str, Any]:
    tags = convert_tag_spec(params.get("TagSpecifications") or []).get("instance", {})
    own = {"ResourceType": "instance", "Tags": [{"Key": "aws:ec2:fleet-id", "Value": fleet}]}
    own["Tags"] += [{"Key": key, "Value": value} for key, value in tags.items()]  # type: ignore[operator]
    launch.spec["TagSpecifications"] = [*(launch.spec.get("TagSpecifications") or []), own]
    made = launches.start(launch, params.get("ClientToken", ""))
    return {
        "LaunchTemplateAndOverrides": said, "Lifecycle": kind, "InstanceIds": [each.id for each in made],
        "InstanceType": launch.type, "Platform": "Linux/UNIX",
    }  # fmt: skip


def _make_partial(self: EC2Response, instances: list[dict[str, Any]]) -> None:
    """Where a test asked for it the fleet ends with fewer instances than it launched, as when a host dies at once."""
    if not GROUND.partial:
        return
    left = GROUND.partial.pop(0)
    for row in instances:
        gone = row["InstanceIds"][left:]
        row["InstanceIds"] = row["InstanceIds"][:left]
        left -= len(row["InstanceIds"])
        if gone:
            self.ec2_backend.terminate_instances(gone)


def _describe_fleets(self: EC2Response) -> ActionResult:
    asked = self._get_param("FleetIds", [])
    if not any(fleet in GROUND.fleets for fleet in asked):
        return _MOTOS["describe_fleets"](self)
    rows = [_described(fleet, GROUND.fleets[fleet]) for fleet in asked if fleet in GROUND.fleets]
    return ActionResult({"Fleets": rows})


def _described(fleet: str, kept: dict[str, Any]) -> dict[str, Any]:
    params, answer = kept["asked"], kept["answer"]
    tags = convert_tag_spec(params.get("TagSpecifications") or []).get("fleet", {})
    return {
        "FleetId": fleet, "FleetState": kept["state"], "Type": "instant", "ClientToken": params.get("ClientToken"),
        "TargetCapacitySpecification": params["TargetCapacitySpecification"], "Errors": answer["Errors"],
        "Instances": answer["Instances"], "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        "FulfilledCapacity": float(sum(len(row["InstanceIds"]) for row in answer["Instances"])),
    }  # fmt: skip


def _delete_fleets(self: EC2Response) -> ActionResult:
    asked = self._get_param("FleetIds", [])
    if not any(fleet in GROUND.fleets for fleet in asked):
        return _MOTOS["delete_fleets"](self)
    rows = []
    for fleet in asked:
        kept = GROUND.fleets[fleet]
        ids = [one for row in kept["answer"]["Instances"] for one in row["InstanceIds"]]
        if ids:
            self.ec2_backend.terminate_instances(ids)
        rows.append(
            {
                "FleetId": fleet,
                "PreviousFleetState": kept["state"],
                "CurrentFleetState": "deleted_terminating",
            }
        )
        kept["state"] = "deleted_terminating"
    return ActionResult({"SuccessfulFleetDeletions": rows, "UnsuccessfulFleetDeletions": []})


_MOTOS: dict[str, Callable[[EC2Response], ActionResult]] = {
    name: getattr(EC2Response, name) for name in ("create_fleet", "describe_fleets", "delete_fleets")
}


def install() -> None:
    """Put it in the place of moto's own."""
    put(
        EC2Response,
        create_fleet=_create_fleet,
        describe_fleets=_describe_fleets,
        delete_fleets=_delete_fleets,
    )
