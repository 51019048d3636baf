"""Service quotas of EC2: virtual processors of a family of types by market, as service-quotas tells them.

Comes in: what a test set (`quotas` of the ground, by quota code) and what runs. Goes out: limits for launches, and the
answers of GetServiceQuota and ListServiceQuotas. Called by: refusals, and moto's service-quotas after `install`.
"""

from __future__ import annotations

import json
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.servicequotas.models import ServiceQuotasBackend
from moto.servicequotas.responses import ServiceQuotasResponse

from tests.aws.server.ground import GROUND
from tests.aws.server.onto import put

# Codes and names as service-quotas lists them: (families, market) -> code.
CODES = {
    ("standard", "on_demand"): (
        "L-1216C47A",
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
    ),
    ("standard", "spot"): ("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
    ("g", "on_demand"): ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    ("g", "spot"): ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    ("p", "on_demand"): ("L-417A185B", "Running On-Demand P instances"),
    ("p4_p3_p2", "spot"): ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    ("p5", "spot"): ("L-C4BD4855", "All P5 Spot Instance Requests"),
    ("p6", "spot"): ("L-E3A00192", "All P6 Spot Instance Requests"),
}
DEFAULT_VCPUS = 100_000.0


def code(type_: str, market: str) -> str:
    """The quota that a launch counts against; capacity reservations and blocks count as on demand."""
    market = "spot" if market == "spot" else "on_demand"
    for family in (*_families(type_), "standard"):
        if (family, market) in CODES:
            return CODES[family, market][0]
    raise KeyError(type_)


def _families(type_: str) -> tuple[str, ...]:
    if type_.startswith(("p5", "p6")):
        return type_[:2], "p"
    if type_.startswith("p"):
        return "p4_p3_p2", "p"
    return ("g",) if type_.startswith(("g", "vt")) else ()


def vcpus(type_: str) -> int:
    """Virtual processors of one instance."""
    return int(INSTANCE_TYPES[type_]["VCpuInfo"]["DefaultVCpus"])


def limit(type_: str, market: str) -> float | None:
    """What the account may run, in virtual processors; None for capacity blocks, which count against none."""
    return None if market == "capacity_block" else GROUND.quotas.get(code(type_, market), DEFAULT_VCPUS)


def used(type_: str, market: str) -> int:
    """What runs of the same quota."""
    mine = code(type_, market)
    running = (
        bill for bill in GROUND.bills.values() if bill.ended is None and bill.market != "capacity_block"
    )
    return sum(vcpus(bill.type) for bill in running if code(bill.type, bill.market) == mine)


def _quota(quota: str, name: str) -> dict[str, Any]:
    value = GROUND.quotas.get(quota, DEFAULT_VCPUS)
    return {
        "ServiceCode": "ec2", "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)", "QuotaCode": quota,
        "QuotaName": name, "Value": value, "Unit": "None", "Adjustable": True, "GlobalQuota": False,
        "QuotaArn": f"arn:aws:servicequotas:us-east-1:123456789012:ec2/{quota}",
    }  # fmt: skip


def install() -> None:
    """Let moto's service-quotas know EC2's quotas."""
    others = ServiceQuotasBackend.get_service_quota

    def get_service_quota(self: ServiceQuotasBackend, service_code: str, quota_code: str) -> dict[str, Any]:
        found = {quota: _quota(quota, name) for quota, name in CODES.values()}
        if service_code == "ec2" and quota_code in found:
            return found[quota_code]
        return others(self, service_code, quota_code)

    def list_service_quotas(self: ServiceQuotasResponse) -> str:
        if json.loads(self.body).get("ServiceCode") != "ec2":
            return self.list_aws_default_service_quotas()
        return json.dumps({"Quotas": [_quota(quota, name) for quota, name in CODES.values()]})

    put(ServiceQuotasBackend, get_service_quota=get_service_quota)
    put(ServiceQuotasResponse, list_service_quotas=list_service_quotas)
