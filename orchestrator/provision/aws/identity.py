"""PURE: whether a signed instance identity document is true, and what it says.

Comes in: the document and its signature as EC2's metadata service gives them (`rsa2048`), the certificates of regions,
the time. Goes out: `Identity`, or Unauthenticated with what does not hold. Called by: api.instances.

A document says which instance somebody has asked from, at some time: whoever once had the text has it for ever. So it
proves nothing about who sends it; that an instance is waited for, and comes once, the controller sees to.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509 import Certificate

from orchestrator.model.clock import SECOND
from orchestrator.model.errors import Unauthenticated
from orchestrator.provision.aws import pkcs7

MOST_DOCUMENT = 8 * 1024  # characters; EC2's have about 500
MOST_SIGNATURE = 24 * 1024  # characters of base64
AHEAD_S = 900  # by so much a cloud's clock may be before the controller's
FIRST_US = 1_156_464_000 * SECOND  # 25 August 2006: EC2 has no older instance


@dataclass(frozen=True, slots=True)
class Identity:
    """An instance as its cloud describes it. `pending_us`: when it was started."""

    instance: str
    account: str
    region: str
    zone: str
    type: str
    image: str
    pending_us: int


def read(
    document: str, signature: str, certificates_of: Callable[[str], tuple[Certificate, ...]], now_us: int
) -> Identity:
    """What a true document says. Each refusal says what does not hold, and nothing about what would."""
    if len(document) > MOST_DOCUMENT or len(signature) > MOST_SIGNATURE:
        raise _malformed("is longer than any that EC2 makes")
    found = _parsed(document)
    known = certificates_of(found.region)
    if not known:
        raise Unauthenticated(
            "identity.unknown-region",
            f"no certificate of the region {found.region[:40]!r} is known here",
            "put it into the controller's state as aws/certificates/REGION.pem; AWS publishes it in the EC2 User Guide",
        )
    _check_signature(document, signature, known)
    if not FIRST_US <= found.pending_us <= now_us + AHEAD_S * SECOND:
        raise Unauthenticated(
            "identity.time",
            "the instance says that it was started at a time that can't be",
            "is the controller's clock right?",
        )
    return found


def _parsed(document: str) -> Identity:
    try:
        plain: Any = json.loads(document)
        texts = {name: plain[key] for name, key in _FIELDS.items()}
        pending = datetime.fromisoformat(plain["pendingTime"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _malformed("is none") from None
    if not all(isinstance(text, str) and 0 < len(text) <= 128 for text in texts.values()):
        raise _malformed("is none")
    if pending.tzinfo is None:
        pending = pending.replace(tzinfo=UTC)
    return Identity(pending_us=int(pending.timestamp()) * SECOND, **texts)


_FIELDS = {
    "instance": "instanceId",
    "account": "accountId",
    "region": "region",
    "zone": "availabilityZone",
    "type": "instanceType",
    "image": "imageId",
}


def _check_signature(document: str, signature: str, certificates: tuple[Certificate, ...]) -> None:
    try:
        message = base64.b64decode("".join(signature.split()), validate=True)
    except (binascii.Error, ValueError):
        raise _bad_signature("it can't be read") from None
    why = "no key of the region fits"
    for certificate in certificates:
        key = certificate.public_key()
        if not isinstance(key, RSAPublicKey):
            continue
        try:
            pkcs7.check(message, document.encode(), key)
        except ValueError as error:
            why = str(error)
        else:
            return
    raise _bad_signature(why)


def _malformed(what: str) -> Unauthenticated:
    return Unauthenticated(
        "identity.malformed", f"the instance identity document {what}", "is the agent newer?", path="document"
    )


def _bad_signature(why: str) -> Unauthenticated:
    return Unauthenticated(
        "identity.bad-signature",
        f"the instance identity document is not signed by its region: {why}",
        "is it EC2 whose metadata service answers there?",
        path="signature",
    )
