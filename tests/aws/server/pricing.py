"""The price list service, of which moto has nothing: GetProducts for instance types on demand.

Comes in: the body of a request. Goes out: status and JSON of an answer. Called by: front.
"""

from __future__ import annotations

import json
from typing import Any

from botocore.model import ServiceModel
from moto.core.utils import get_service_model
from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.aws.server.ground import GROUND
from tests.aws.server.guard import misfit

LOCATIONS = {
    "us-east-1": "US East (N. Virginia)", "us-east-2": "US East (Ohio)", "us-west-2": "US West (Oregon)",
    "eu-central-1": "EU (Frankfurt)", "eu-west-1": "EU (Ireland)", "eu-north-1": "EU (Stockholm)",
}  # fmt: skip
PAGE = 100


def answer(operation: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """What the service says to one request."""
    model: ServiceModel = get_service_model("pricing")
    params = json.loads(body or b"{}")
    note = {"service": "pricing", "operation": operation, "params": params, "error": ""}
    with GROUND.lock:
        GROUND.calls.append(note)
        if wrong := misfit(model.operation_model(operation), params):
            GROUND.misfits.append(f"pricing {operation}: {wrong}")
            return _error(note, "InvalidParameterException", wrong)
        if (fault := GROUND.call_fault(operation)) and fault.code:
            return _error(note, fault.code, fault.message)
        if operation != "GetProducts" or params.get("ServiceCode") != "AmazonEC2":
            return _error(
                note, "InvalidParameterException", f"{operation} of this service is not served here"
            )
        return 200, _products(params)


def _error(note: dict[str, Any], code: str, words: str) -> tuple[int, dict[str, Any]]:
    note["error"] = code
    return 400, {"__type": code, "message": words or code}


def _products(params: dict[str, Any]) -> dict[str, Any]:
    filters = {row["Field"]: row["Value"] for row in params.get("Filters", [])}
    # The ground's prices are those of one region; others ask a quarter more.
    rows = [
        _product(type_, region, price if region == "us-east-1" else round(price * 1.25, 6))
        for type_, price in sorted(GROUND.prices.items())
        for region in LOCATIONS
    ]
    fitting = [row for row in rows if filters.items() <= row["product"]["attributes"].items()]
    first = int(params.get("NextToken") or 0)
    last = first + int(params.get("MaxResults") or PAGE)
    page: dict[str, Any] = {
        "FormatVersion": "aws_v1",
        "PriceList": [json.dumps(row) for row in fitting[first:last]],
    }
    return page | ({"NextToken": str(last)} if last < len(fitting) else {})


def _product(type_: str, region: str, price: float) -> dict[str, Any]:
    sku = f"{type_}.{region}".upper()
    attributes = {
        "instanceType": type_, "regionCode": region, "location": LOCATIONS[region], "operatingSystem": "Linux",
        "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand",
        "licenseModel": "No License required", "servicecode": "AmazonEC2", "locationType": "AWS Region",
        "vcpu": str(INSTANCE_TYPES.get(type_, {}).get("VCpuInfo", {}).get("DefaultVCpus", "")),
    }  # fmt: skip
    dimension = {
        "unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}, "beginRange": "0", "endRange": "Inf",
        "description": f"${price} per On Demand Linux {type_} Instance Hour",
        "rateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7",
        "appliesTo": [],
    }  # fmt: skip
    term = {
        "sku": sku, "offerTermCode": "JRTCKXETXF", "effectiveDate": "2026-07-01T00:00:00Z", "termAttributes": {},
        "priceDimensions": {dimension["rateCode"]: dimension},
    }  # fmt: skip
    return {
        "product": {"sku": sku, "productFamily": "Compute Instance", "attributes": attributes},
        "serviceCode": "AmazonEC2", "publicationDate": "2026-07-20T13:44:00Z", "version": "20260720134400",
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
    }  # fmt: skip
