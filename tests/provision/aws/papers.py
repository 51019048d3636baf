"""An emulated cloud's papers: identity documents of instances, signed by an authority of the tests' own.

Comes in: which instance, where, when. Goes out: a document and its signature in the forms that EC2 and others make.
Called by: tests of identity, api, agent and the testbed.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import pkcs7
from cryptography.x509 import Certificate

from orchestrator.provision.certificates import common_name

REGION, ACCOUNT = "eu-test-1", "123456789012"
INSTANCE = "i-0123456789abcdef0"
PENDING = "2026-06-01T10:00:00Z"
STARTED = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Region:
    """One that signs documents."""

    key: rsa.RSAPrivateKey
    certificate: Certificate

    @property
    def pem(self) -> bytes:
        """What its documents are checked by."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def certificates_of(self, region: str) -> tuple[Certificate, ...]:
        """As `identity.read` asks for them: it is the only region that there is."""
        return (self.certificate,) if region == REGION else ()

    def sign(self, text: str) -> str:
        """As EC2 does: the text in it, lengths left open (BER), attributes signed; base64 in lines."""
        return base64.encodebytes(ber(self, text.encode())).decode()

    def sign_der(self, text: str, *options: pkcs7.PKCS7Options) -> str:
        """As the library for certificates does, in DER."""
        made = (
            pkcs7.PKCS7SignatureBuilder()
            .set_data(text.encode())
            .add_signer(self.certificate, self.key, hashes.SHA256())
            .sign(serialization.Encoding.DER, [pkcs7.PKCS7Options.Binary, *options])
        )
        return base64.b64encode(made).decode()

    def trust(self, state: Path, name: str = REGION) -> None:
        """The controller with that state takes documents of this region."""
        path = state / "aws" / "certificates" / f"{name}.pem"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.pem)


def region(name: str = "test") -> Region:
    """One authority for each name."""
    return _made(name)


@cache
def _made(name: str) -> Region:
    """Making a key of 2048 bits takes a moment."""
    key = rsa.generate_private_key(65537, 2048)
    subject = common_name(f"Emulated region {name}")
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(STARTED)
        .not_valid_after(STARTED + dt.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    return Region(key, made)


def document(instance: str = INSTANCE, **other: Any) -> str:
    """As EC2's service writes it."""
    plain = {
        "accountId": ACCOUNT,
        "architecture": "x86_64",
        "availabilityZone": f"{REGION}a",
        "billingProducts": None,
        "imageId": "ami-0123456789abcdef0",
        "instanceId": instance,
        "instanceType": "p5.48xlarge",
        "pendingTime": PENDING,
        "privateIp": "10.64.0.17",
        "region": REGION,
        "version": "2017-09-30",
    } | other
    return json.dumps(plain, indent=2, separators=(",", " : "))


# --- BER by hand -----------------------------------------------------------------------------------------------------


def tlv(tag: int, *parts: bytes) -> bytes:
    """With its length."""
    body = b"".join(parts)
    size = len(body)
    head = bytes([size]) if size < 128 else bytes([0x82, size >> 8, size & 255])
    return bytes([tag]) + head + body


def opened(tag: int, *parts: bytes) -> bytes:
    """With its length left open."""
    return bytes([tag, 0x80]) + b"".join(parts) + b"\0\0"


def oid(digits: str) -> bytes:
    """An object identifier by its bytes."""
    return tlv(6, bytes.fromhex(digits))


DATA, SIGNED = oid("2a864886f70d010701"), oid("2a864886f70d010702")
SHA256, RSA = oid("608648016503040201"), oid("2a864886f70d010101")
CONTENT_TYPE, DIGEST = oid("2a864886f70d010903"), oid("2a864886f70d010904")
NULL = tlv(5)


def ber(
    signer: Region,
    text: bytes,
    *,
    carried: bytes | None = None,
    digest: bytes | None = None,
    signers: int = 1,
    algorithm: bytes = SHA256,
) -> bytes:
    """A message of one who signs attributes. `carried`: another text in it than the one that is signed; `digest`:
    another digest among the attributes."""
    attributes = (
        tlv(0x30, CONTENT_TYPE, tlv(0x31, DATA)),
        tlv(0x30, DIGEST, tlv(0x31, tlv(4, digest or hashlib.sha256(text).digest()))),
    )
    signature = signer.key.sign(tlv(0x31, *attributes), padding.PKCS1v15(), hashes.SHA256())
    issuer = signer.certificate.issuer.public_bytes()
    number = signer.certificate.serial_number
    serial = tlv(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))
    info = tlv(
        0x30, tlv(2, b"\1"), tlv(0x30, issuer, serial), tlv(0x30, algorithm, NULL), tlv(0xA0, *attributes),
        tlv(0x30, RSA, NULL), tlv(4, signature),
    )  # fmt: skip
    inside = text if carried is None else carried
    pieces = opened(0x24, tlv(4, inside[:100]), tlv(4, inside[100:]))
    content = opened(0x30, DATA, opened(0xA0, pieces))
    algorithms = tlv(0x31, tlv(0x30, algorithm, NULL))
    signed = opened(0x30, tlv(2, b"\1"), algorithms, content, tlv(0x31, *[info] * signers))
    return opened(0x30, SIGNED, opened(0xA0, signed))
