"""Every request on its way into moto: one at a time, read and checked by botocore's model, noted, and made to fail.

Comes in: requests as moto's responses see them. Goes out: moto's answer, an error of the service, or `Silence`. Called
by: moto, after `install`, which `__main__` calls once, puts it between moto's HTTP front and its responses.
"""

from __future__ import annotations

import json
import re
import traceback
from typing import Any

from botocore.model import OperationModel, Shape
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator
from moto.core.exceptions import ServiceException
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import determine_request_protocol, normalize_request
from moto.core.responses import ActionResult, BaseResponse
from moto.core.utils import get_service_model

from tests.aws.server.ground import GROUND
from tests.aws.server.onto import put

CHECKED = frozenset({"ec2", "iam", "ssm", "sts", "fsx", "efs", "service-quotas"})
OPEN = frozenset({"InstanceType"})  # AWS has new ones before botocore does; EC2 itself says which it knows
QUERY = frozenset({"ec2", "query"})


class Silence(Exception):
    """The connection is to be cut without an answer."""


def install() -> None:
    """Put the guard before every response class of moto."""

    def dispatch(self: BaseResponse, request: Any, full_url: str, headers: Any) -> Any:
        with GROUND.lock:
            self.setup_class(request, full_url, headers)
            if self.service_name not in CHECKED:
                return self.call_action()
            return _guarded(self, request)

    put(BaseResponse, _dispatch=dispatch)


def _guarded(response: BaseResponse, request: Any) -> Any:
    model = get_service_model(response.boto3_service_name).operation_model(response._get_action())
    params = _read(response, model, request)
    note = {"service": response.service_name, "operation": model.name, "params": params, "error": ""}
    GROUND.calls.append(note)
    if wrong := misfit(model, params, getattr(request, "form", None)):
        GROUND.misfits.append(f"{response.service_name} {model.name}: {wrong}")
        return _error(response, note, "InvalidParameterValue", wrong)
    fault = GROUND.call_fault(model.name)
    if fault and fault.silence == "before":
        raise Silence
    if fault and fault.code:
        return _error(response, note, fault.code, fault.message or fault.code)
    answer = _answer(response, note)
    if fault and fault.silence == "after":
        raise Silence
    return answer


def _answer(response: BaseResponse, note: dict[str, Any]) -> Any:
    """moto's answer. Where moto or this server breaks, the test hears of it, and no client tries again."""
    try:
        answer = response.call_action()
    except Exception as broken:  # noqa: BLE001 - whatever it is, it is a fault of the test ground
        traceback.print_exc()
        words = f"the test server broke at {note['operation']}: {broken!r}"
        GROUND.misfits.append(words)
        return _error(response, note, "TestServerBroke", words)
    note["error"] = _code_of(answer)
    return answer


def _read(response: BaseResponse, model: OperationModel, request: Any) -> dict[str, Any]:
    normal = normalize_request(request)
    protocol = determine_request_protocol(model.service_model, normal.content_type)
    read: dict[str, Any] = PROTOCOL_PARSERS[protocol](model).parse(
        {
            "method": normal.method,
            "values": normal.values,
            "headers": normal.headers,
            "body": normal.data,
            "url_path": normal.path,
            "url_params": response.uri_match or {},
        }
    )
    return read


def misfit(model: OperationModel, params: dict[str, Any], form: Any = None) -> str:
    """How a request does not fit its model, in words; empty where it does.

    botocore's own validator looks at required members, types and ranges; enums and patterns and members that the model
    doesn't have are looked at here.
    """
    if model.input_shape is None:
        return ""
    report = ParamValidator().validate(params, model.input_shape)
    if report.has_errors():
        return str(report.generate_report())
    wrong = _words_of(model.input_shape, params, "")
    if not wrong and form and model.service_model.protocol in QUERY:
        serial = create_serializer(model.service_model.protocol, include_validation=False)
        known = set(serial.serialize_to_request(params, model)["body"]) | {"Action", "Version"}
        wrong = [f"unknown parameter {name}" for name in form if name not in known]
    return "; ".join(wrong)


def _words_of(shape: Shape, value: Any, at: str) -> list[str]:
    if shape.type_name == "structure" and isinstance(value, dict):
        members = shape.members
        found = (
            _words_of(members[name], part, f"{at}.{name}")
            if name in members
            else [f"unknown parameter {at}.{name}"]
            for name, part in value.items()
        )
        return [word for words in found for word in words]
    if shape.type_name == "list" and isinstance(value, list):
        return [word for part in value for word in _words_of(shape.member, part, f"{at}[]")]
    if shape.type_name == "string" and isinstance(value, str):
        return _word(shape, value, at)
    return []


def _word(shape: Shape, value: str, at: str) -> list[str]:
    allowed = getattr(shape, "enum", [])
    if allowed and shape.name not in OPEN and value not in allowed:
        return [f"{at}: {value!r} is none of {', '.join(allowed[:8])}"]
    pattern = shape.metadata.get("pattern")
    try:
        if pattern and not re.search(pattern, value):
            return [f"{at}: {value!r} does not match {pattern}"]
    except re.error:  # some patterns are not Python's
        pass
    return []


def _error(response: BaseResponse, note: dict[str, Any], code: str, words: str) -> Any:
    note["error"] = code
    # moto finds the model of an error by the module of its class.
    kind = type("Told", (ServiceException,), {"__module__": type(response).__module__})
    wrong = kind(code, words)
    status, headers, body = response.serialized(ActionResult(wrong))
    return status, headers, body


def _code_of(answer: Any) -> str:
    """The error code in an answer, or empty."""
    status, _, body = answer
    if status < 400:
        return ""
    text = body.decode() if isinstance(body, bytes) else str(body)
    found = re.search(r"<Code>([^<]+)</Code>", text) or re.search(r'"(?:__type|code)": ?"([^"]+)"', text)
    return found[1].rpartition("#")[2] if found else str(status)


def plain(value: Any) -> Any:
    """JSON of what was read, with texts for what JSON has no word for."""
    return json.loads(json.dumps(value, default=str))
