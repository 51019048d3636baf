"""What EC2 and botocore say when they refuse, as one of the classes that the controller acts on.

Comes in: an exception of botocore, or the errors of a fleet that was answered with status 200. Goes out: `LaunchError`
or `Unanswered`. Called by: fleet.

The codes are those of EC2's "Error codes for the Amazon EC2 API" and of CreateFleet's own answers. A code that nobody
knows counts as capacity: the next offering is tried, and nothing stops for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.model.capacity import ErrorClass
from orchestrator.provision.cloud import LaunchError, Unanswered

CODES: dict[str, ErrorClass] = {
    **dict.fromkeys(
        (
            "InsufficientInstanceCapacity",
            "InsufficientHostCapacity",
            "InsufficientReservedInstanceCapacity",
            "InsufficientCapacity",
            "InsufficientFreeAddressesInSubnet",
            "ReservationCapacityExceeded",
            "UnfulfillableCapacity",
        ),
        ErrorClass.CAPACITY,
    ),
    **dict.fromkeys(
        (
            "VcpuLimitExceeded",
            "InstanceLimitExceeded",
            "MaxSpotInstanceCountExceeded",
            "MaxSpotFleetRequestCountExceeded",
            "VolumeLimitExceeded",
            "MaxIOPSLimitExceeded",
            "NetworkInterfaceLimitExceeded",
            "ResourceLimitExceeded",
        ),
        ErrorClass.QUOTA,
    ),
    **dict.fromkeys(("SpotMaxPriceTooLow",), ErrorClass.PRICE),
    **dict.fromkeys(
        (
            "RequestLimitExceeded",
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequestsException",
            "EC2ThrottledException",
            "SlowDown",
        ),
        ErrorClass.THROTTLING,
    ),
    **dict.fromkeys(
        (
            "UnauthorizedOperation",
            "AuthFailure",
            "AccessDenied",
            "AccessDeniedException",
            "ExpiredToken",
            "ExpiredTokenException",
            "RequestExpired",
            "InvalidClientTokenId",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
            "MissingAuthenticationToken",
            "OptInRequired",
            "Blocked",
            "PendingVerification",
        ),
        ErrorClass.AUTH,
    ),
    **dict.fromkeys(
        (
            "Unsupported",
            "UnsupportedOperation",
            "UnsupportedTenancy",
            "MissingParameter",
            "UnknownParameter",
            "ValidationError",
            "ValidationException",
            "TagLimitExceeded",
        ),
        ErrorClass.PERMANENT,
    ),
}
# Beginnings of codes: EC2 has one for each kind of thing that is named and not there.
BEGINNINGS = (
    ("Invalid", ErrorClass.PERMANENT),
    ("Malformed", ErrorClass.PERMANENT),
    ("AuthFailure.", ErrorClass.AUTH),
)
# The request may have been carried out: what exists is to be looked up. The last one says that an earlier call under
# the same token asked for something else, as after a new version of a launch template.
UNKNOWN = (
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "ServiceUnavailable",
    "Unavailable",
    "RequestTimeout",
    "RequestTimeoutException",
    "IdempotentParameterMismatch",
)
# Which of several errors of one fleet is the one to act on: what stops more comes first.
GRAVEST = (
    ErrorClass.AUTH,
    ErrorClass.THROTTLING,
    ErrorClass.PERMANENT,
    ErrorClass.QUOTA,
    ErrorClass.PRICE,
    ErrorClass.CAPACITY,
)
NO_CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "TokenRetrievalError",
    "SSOTokenLoadError",
    "UnauthorizedSSOTokenError",
    "ProfileNotFound",
    "NoAuthTokenError",
)
NOT_SENT = ("EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError", "SSLError")
WRONG = ("ParamValidationError", "NoRegionError", "InvalidRegionError", "UnknownServiceError")


def class_of(code: str) -> ErrorClass:
    """The class of an error code of EC2; capacity for one that nobody knows."""
    found = CODES.get(code)
    if found is not None:
        return found
    return next((fault for start, fault in BEGINNINGS if code.startswith(start)), ErrorClass.CAPACITY)


def of_exception(error: Exception) -> LaunchError | Unanswered:
    """What an exception of botocore means for the call that raised it."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        return _of_response(response)
    kind = type(error).__name__
    if kind in NO_CREDENTIALS:
        return LaunchError(ErrorClass.AUTH, f"there are no AWS credentials to use: {error}")
    if kind in NOT_SENT:
        return LaunchError(ErrorClass.THROTTLING, f"AWS can't be reached: {error}")
    if kind in WRONG:
        return LaunchError(ErrorClass.PERMANENT, f"the request is wrong: {error}")
    return Unanswered(f"{kind}: {error}")


def _of_response(response: Mapping[str, Any]) -> LaunchError | Unanswered:
    said = response.get("Error") or {}
    code, words = str(said.get("Code", "")), str(said.get("Message", ""))
    status = int((response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0)
    if code in UNKNOWN or (status >= 500 and code not in CODES):
        return Unanswered(f"{code}: {words}")
    return LaunchError(class_of(code), f"{code}: {words}")


def of_fleet(errors: Iterable[Mapping[str, Any]], came: int, wanted: int) -> LaunchError:
    """Why a fleet has too few instances, though the call was answered with status 200."""
    found = [(class_of(str(one.get("ErrorCode", ""))), one) for one in errors]
    if not found:
        return LaunchError(ErrorClass.CAPACITY, f"{came} of {wanted} instances came, and no reason with them")
    fault, gravest = min(found, key=lambda pair: GRAVEST.index(pair[0]))
    return LaunchError(fault, f"{gravest.get('ErrorCode', '')}: {gravest.get('ErrorMessage', '')}")
