"""Which identity documents are true."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs7 import PKCS7Options
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.errors import Unauthenticated
from orchestrator.provision.aws import identity, known, pkcs7
from orchestrator.provision.aws.identity import Identity
from tests.provision.aws import papers
from tests.provision.aws.papers import ACCOUNT, INSTANCE, REGION, document, region

NOW_US = int(datetime(2026, 6, 1, 10, 5, tzinfo=UTC).timestamp()) * 1_000_000


def read(text: str, signature: str, now_us: int = NOW_US) -> Identity:
    return identity.read(text, signature, region().certificates_of, now_us)


def refused(text: str, signature: str, now_us: int = NOW_US) -> tuple[str, str]:
    with pytest.raises(Unauthenticated) as caught:
        read(text, signature, now_us)
    return caught.value.code, caught.value.message


def test_a_document_as_ec2_signs_it_is_true() -> None:
    text = document()
    assert read(text, region().sign(text)) == Identity(
        INSTANCE, ACCOUNT, REGION, f"{REGION}a", "p5.48xlarge", "ami-0123456789abcdef0", NOW_US - 300_000_000
    )


@pytest.mark.parametrize(
    "options",
    [(), (PKCS7Options.DetachedSignature,), (PKCS7Options.NoAttributes,), (PKCS7Options.NoCerts,)],
    ids=["whole", "detached", "no attributes", "no certificates"],
)
def test_other_forms_of_the_same_are_true(options: tuple[PKCS7Options, ...]) -> None:
    text = document()
    signature = region().sign_der(text, *options)
    assert read(text, signature).instance == INSTANCE
    assert refused(document("i-2"), signature)[0] == "identity.bad-signature"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
@pytest.mark.parametrize("how", [("-nodetach", "-stream"), ("-nodetach",), ()])
def test_what_openssl_signs_is_true(tmp_path: Path, how: tuple[str, ...]) -> None:
    text = document()
    for name, data in (
        ("text", text.encode()),
        ("pem", region().pem),
        ("key", region().key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())),
    ):
        (tmp_path / name).write_bytes(data)
    argv = [
        "openssl",
        "smime",
        "-sign",
        "-binary",
        "-in",
        "text",
        "-signer",
        "pem",
        "-inkey",
        "key",
        "-md",
        "sha256",
    ]
    made = subprocess.run([*argv, "-outform", "DER", *how], cwd=tmp_path, check=True, capture_output=True)
    assert read(text, base64.b64encode(made.stdout).decode()).instance == INSTANCE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is none"),
        ("{}", "is none"),
        ("[" * 5000, "is none"),
        (document(instanceId=None), "is none"),
        (document(instanceId=""), "is none"),
        (document(instanceId="i" * 200), "is none"),
        (document(pendingTime="yesterday"), "is none"),
        (document(pendingTime=5), "is none"),
        (document(x="x" * 9000), "is longer than any that EC2 makes"),
    ],
)
def test_what_is_no_document_is_said(text: str, words: str) -> None:
    assert refused(text, region().sign(text)) == (
        "identity.malformed",
        f"the instance identity document {words}",
    )


def test_a_region_without_a_certificate_is_named() -> None:
    text = document(region="eu-test-2")
    code, words = refused(text, region().sign(text))
    assert (code, "'eu-test-2'" in words) == ("identity.unknown-region", True)


def test_a_region_is_never_a_path(tmp_path: Path) -> None:
    region().trust(tmp_path, "eu-test-1")
    bought = known.Bought(tmp_path)
    assert len(bought.certificates_of(REGION)) == 1
    assert bought.certificates_of(f"../certificates/{REGION}") == ()


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("", "it ends too soon"),
        ("?", "it can't be read"),
        ("MAA=", "it is no signed message"),
        (base64.b64encode(b"\x30\x80" * 30 + b"\0\0" * 30).decode(), "nested too deeply"),
        (base64.b64encode(bytes(17_000)).decode(), "more than 16384 bytes"),
        (region("another").sign(document()), "another key, or of another text"),
        (region().sign(document("i-other")), "it signs another text"),
        (region().sign_der(document("i-other"), PKCS7Options.DetachedSignature), "it signs another text"),
        (region().sign_der(document("i-other"), PKCS7Options.NoAttributes), "it signs another text"),
    ],
)
def test_a_signature_that_does_not_hold_says_why(signature: str, words: str) -> None:
    code, said = refused(document(), signature)
    assert (code, words in said) == ("identity.bad-signature", True), said


OTHER = document("i-other").encode()
TEXT = document().encode()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"carried": OTHER}, "it signs another text"),
        ({"digest": b"x" * 32}, "it signs another text"),
        ({"signers": 2}, "not exactly one signer"),
        ({"signers": 0}, "not exactly one signer"),
        ({"algorithm": papers.oid("2b0e03021a")}, "not made with SHA-256"),
    ],
)
def test_a_message_that_contradicts_itself_is_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pkcs7.check(papers.ber(region(), TEXT, **how), TEXT, region().key.public_key())


def test_a_text_that_is_what_was_signed_of_another_is_no_document() -> None:
    """Attributes are signed as a set; a set is no JSON, whoever leaves the attributes away."""
    message = papers.ber(region(), TEXT)
    attributes = message[message.index(papers.CONTENT_TYPE) - 4 :]
    assert (
        refused(attributes[:60].decode("latin-1"), base64.b64encode(message).decode())[0]
        == "identity.malformed"
    )


@pytest.mark.parametrize(
    ("pending", "true"),
    [("2026-06-01T10:19:00Z", True), ("2026-06-01T10:21:00Z", False), ("2019-01-01T00:00:00Z", True),
    ("2001-01-01T00:00:00Z", False)],
)  # fmt: skip
def test_the_time_of_the_start_has_to_be_possible(pending: str, true: bool) -> None:
    text = document(pendingTime=pending)
    if true:
        assert read(text, region().sign(text)).instance == INSTANCE
    else:
        assert refused(text, region().sign(text))[0] == "identity.time"


def test_refusals_say_nothing_of_what_would_be_right() -> None:
    text = document("i-0fedcba9876543210", accountId="999999999999")
    for signature in ("", region("another").sign(text)):
        assert ACCOUNT not in refused(text, signature)[1]


MESSAGE = papers.ber(region(), TEXT)


@pytest.mark.property
@given(at=st.integers(0, len(MESSAGE) - 1), byte=st.integers(0, 255))
def test_no_other_byte_makes_another_text_true(at: int, byte: int) -> None:
    spoilt = MESSAGE[:at] + bytes([byte]) + MESSAGE[at + 1 :]
    with pytest.raises(ValueError, match=r".+"):
        pkcs7.check(spoilt, OTHER, region().key.public_key())


@pytest.mark.property
@given(st.binary(max_size=400))
def test_no_bytes_are_more_than_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        pkcs7.check(data, TEXT, region().key.public_key())


def test_certificates_of_regions_are_what_they_are_said_to_be() -> None:
    """Each signs itself, by a key of its own."""
    data = json.loads(Path(known.__file__).with_name("regions.json").read_text())
    bought, keys = known.Bought(Path("/nonexistent")), set()
    assert len(data["certificates"]) >= 39
    assert data["source"].startswith("https://docs.aws.amazon.com/")
    for name in data["certificates"]:
        (found,) = bought.certificates_of(name)
        found.verify_directly_issued_by(found)
        key: Any = found.public_key()
        keys.add(key.public_numbers().n)
        assert key.key_size == 2048
    assert len(keys) == len(data["certificates"])
