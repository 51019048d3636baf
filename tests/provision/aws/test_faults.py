"""What AWS says when it refuses, class by class: a table of codes, exceptions and fleets that came short."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.model.capacity import ErrorClass
from orchestrator.provision.aws import faults
from orchestrator.provision.cloud import LaunchError, Unanswered

CODES = [
    ("InsufficientInstanceCapacity", ErrorClass.CAPACITY),
    ("ReservationCapacityExceeded", ErrorClass.CAPACITY),
    ("VcpuLimitExceeded", ErrorClass.QUOTA),
    ("MaxSpotInstanceCountExceeded", ErrorClass.QUOTA),
    ("SpotMaxPriceTooLow", ErrorClass.PRICE),
    ("RequestLimitExceeded", ErrorClass.THROTTLING),
    ("UnauthorizedOperation", ErrorClass.AUTH),
    ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", ErrorClass.AUTH),
    ("InvalidAMIID.NotFound", ErrorClass.PERMANENT),
    ("InvalidLaunchTemplateId.NotFound", ErrorClass.PERMANENT),
    ("InvalidPlacementGroup.Unknown", ErrorClass.PERMANENT),
    ("Unsupported", ErrorClass.PERMANENT),
    ("SomethingThatIsNewNextYear", ErrorClass.CAPACITY),
]


def client_error(code: str, status: int = 400) -> Exception:
    from botocore.exceptions import ClientError

    body = {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    found: Exception = ClientError(body, "CreateFleet")
    return found


@pytest.mark.parametrize(("code", "fault"), CODES)
def test_a_code_is_of_one_class(code: str, fault: ErrorClass) -> None:
    error = faults.of_exception(client_error(code))
    assert isinstance(error, LaunchError)
    assert (error.fault, error.words) == (fault, f"{code}: words")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("InternalError", 500),
        ("ServiceUnavailable", 503),
        ("Strange", 502),
        ("IdempotentParameterMismatch", 400),
    ],
)
def test_what_may_have_been_carried_out_is_no_refusal(code: str, status: int) -> None:
    assert isinstance(faults.of_exception(client_error(code, status)), Unanswered)


def test_a_throttled_answer_of_status_503_is_still_throttling() -> None:
    error = faults.of_exception(client_error("RequestLimitExceeded", 503))
    assert isinstance(error, LaunchError)
    assert error.fault is ErrorClass.THROTTLING


def exceptions() -> list[tuple[Exception, ErrorClass | None]]:
    from botocore import exceptions as said

    return [
        (said.NoCredentialsError(), ErrorClass.AUTH),
        (said.ProfileNotFound(profile="x"), ErrorClass.AUTH),
        (said.EndpointConnectionError(endpoint_url="x"), ErrorClass.THROTTLING),
        (said.ConnectTimeoutError(endpoint_url="x"), ErrorClass.THROTTLING),
        (said.ParamValidationError(report="x"), ErrorClass.PERMANENT),
        (said.NoRegionError(), ErrorClass.PERMANENT),
        (said.ReadTimeoutError(endpoint_url="x"), None),
        (said.ConnectionClosedError(endpoint_url="x"), None),
        (OSError("the line is down"), None),
    ]


@pytest.mark.parametrize("number", range(9))
def test_an_exception_without_an_answer(number: int) -> None:
    """None: nobody knows whether it happened."""
    error, fault = exceptions()[number]
    found = faults.of_exception(error)
    assert (found.fault if isinstance(found, LaunchError) else None) is fault


FLEETS: list[tuple[list[str], ErrorClass]] = [
    ([], ErrorClass.CAPACITY),
    (["InsufficientInstanceCapacity"], ErrorClass.CAPACITY),
    (["InsufficientInstanceCapacity", "VcpuLimitExceeded"], ErrorClass.QUOTA),
    (["SpotMaxPriceTooLow", "UnauthorizedOperation"], ErrorClass.AUTH),
    (["VcpuLimitExceeded", "InvalidAMIID.NotFound"], ErrorClass.PERMANENT),
]


@pytest.mark.parametrize(("codes", "fault"), FLEETS)
def test_a_fleet_that_came_short_has_the_gravest_of_its_errors(codes: list[str], fault: ErrorClass) -> None:
    rows: list[dict[str, Any]] = [{"ErrorCode": code, "ErrorMessage": "words"} for code in codes]
    assert faults.of_fleet(rows, 1, 4).fault is fault
