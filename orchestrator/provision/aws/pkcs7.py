"""PURE: whether a PKCS #7 message says that somebody has signed a text.

Comes in: the message's bytes, the text, the signer's public key. Goes out: nothing, or a ValueError that says what does
not hold. Called by: identity.

Only what EC2 makes is read (RFC 5652, SignedData with one signer, SHA-256, RSA): EC2 writes lengths that are left open
(BER), which the library for certificates does not read, and nothing in the message is believed but what the key signs.
Certificates in the message are passed over.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

MOST_BYTES = 16 * 1024  # of a message; EC2's have about 2 KiB
MOST_DEPTH = 16
INTEGER, OCTETS, OID, SEQUENCE, SET = 0x02, 0x04, 0x06, 0x30, 0x31
FIRST = 0xA0  # [0]
CONSTRUCTED, OPEN = 0x20, 0x80
DATA = bytes.fromhex("2a864886f70d010701")
SIGNED_DATA = bytes.fromhex("2a864886f70d010702")
CONTENT_TYPE = bytes.fromhex("2a864886f70d010903")
MESSAGE_DIGEST = bytes.fromhex("2a864886f70d010904")
SHA256 = bytes.fromhex("608648016503040201")


@dataclass(frozen=True, slots=True)
class Value:
    """One value: its tag, its bytes with the head, those without, and what is in it. `exact`: no length in it is left
    open, so that its bytes are what a signer has signed."""

    tag: int
    raw: bytes
    body: bytes
    parts: tuple[Value, ...]
    exact: bool

    def octets(self) -> bytes:
        """Of an octet string, which may come in pieces."""
        return b"".join(part.octets() for part in self.parts) if self.parts else self.body


def check(message: bytes, text: bytes, key: RSAPublicKey) -> None:
    """ValueError unless the message says that the key has signed the text."""
    signed = _signed_data(message)
    _same_text(signed[2], text)
    signer = _only(signed[-1], SET, "signer")
    parts = signer.parts
    if len(parts) < 5 or parts[0].tag != INTEGER:
        raise ValueError("the signer's part is not whole")
    if not parts[2].parts or parts[2].parts[0].body != SHA256:
        raise ValueError("it was not made with SHA-256")
    attributes = parts[3] if parts[3].tag == FIRST else None
    signature = (
        parts[5 if attributes is not None else 4] if len(parts) > 4 + (attributes is not None) else None
    )
    if signature is None or signature.tag != OCTETS:
        raise ValueError("there is no signature in it")
    what = text if attributes is None else _signed_attributes(attributes, text)
    try:
        key.verify(signature.octets(), what, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        raise ValueError("the signature is of another key, or of another text") from None


def _signed_data(message: bytes) -> tuple[Value, ...]:
    """The parts of the SignedData."""
    if len(message) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    whole, end = _read(message, 0, 0)
    if end != len(message):
        raise ValueError("there is something behind it")
    if whole.tag != SEQUENCE or len(whole.parts) != 2 or whole.parts[0].body != SIGNED_DATA:
        raise ValueError("it is no signed message")
    found = _only(whole.parts[1], FIRST, "signed message").parts
    if len(found) < 4 or found[2].tag != SEQUENCE or not found[2].parts:
        raise ValueError("the signed message is not whole")
    return found


def _only(value: Value, tag: int, what: str) -> Value:
    if value.tag != tag or len(value.parts) != 1:
        raise ValueError(f"there is not exactly one {what} in it")
    return value.parts[0]


def _same_text(content: Value, text: bytes) -> None:
    """What the message carries itself, if it does, is the text."""
    if content.parts[0].body != DATA:
        raise ValueError("what it signs is no plain text")
    if len(content.parts) > 1 and _only(content.parts[1], FIRST, "text").octets() != text:
        raise ValueError("it signs another text")


def _signed_attributes(attributes: Value, text: bytes) -> bytes:
    """What was signed in the text's place: a set of attributes, with the text's digest among them."""
    if not attributes.exact:
        raise ValueError("its attributes are not in the form that is signed")
    found: dict[bytes, Value] = {}
    for each in attributes.parts:
        if len(each.parts) != 2 or each.parts[0].tag != OID or each.parts[0].body in found:
            raise ValueError("its attributes are not whole")
        found[each.parts[0].body] = each.parts[1]
    digest, kind = found.get(MESSAGE_DIGEST), found.get(CONTENT_TYPE)
    if digest is None or kind is None:
        raise ValueError("its attributes do not say what was signed")
    if _only(kind, SET, "kind").body != DATA:
        raise ValueError("what it signs is no plain text")
    if _only(digest, SET, "digest").body != hashlib.sha256(text).digest():
        raise ValueError("it signs another text")
    return bytes([SET]) + attributes.raw[1:]  # RFC 5652, 5.4: signed as a set, sent as [0]


# --- BER (X.690) -----------------------------------------------------------------------------------------------------


def _read(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    """The value at that place and where the next one begins."""
    if depth > MOST_DEPTH:
        raise ValueError("it is nested too deeply")
    if len(data) < at + 2:
        raise ValueError("it ends too soon")
    tag = data[at]
    if tag & 0x1F == 0x1F:
        raise ValueError("it has a value of a kind that is not read here")
    size, start = _size(data, at + 1)
    if size is None:
        return _open(data, at, start, tag, depth)
    end = start + size
    if end > len(data):
        raise ValueError("it ends too soon")
    parts = _all(data[start:end], depth + 1) if tag & CONSTRUCTED else ()
    exact = all(part.exact for part in parts)
    return Value(tag, data[at:end], data[start:end], parts, exact), end


def _size(data: bytes, at: int) -> tuple[int | None, int]:
    """How many bytes follow, None where that is left open, and where they begin."""
    first = data[at]
    if first == OPEN:
        return None, at + 1
    if first < OPEN:
        return first, at + 1
    count = first & 0x7F
    if count > 3 or len(data) < at + 1 + count:
        raise ValueError("it has a length that can't be")
    return int.from_bytes(data[at + 1 : at + 1 + count], "big"), at + 1 + count


def _open(data: bytes, at: int, start: int, tag: int, depth: int) -> tuple[Value, int]:
    """One whose end is marked by two zeros."""
    if not tag & CONSTRUCTED:
        raise ValueError("it has a length that can't be")
    parts: list[Value] = []
    here = start
    while data[here : here + 2] != b"\0\0":
        part, here = _read(data, here, depth + 1)
        parts.append(part)
    return Value(tag, data[at : here + 2], data[start:here], tuple(parts), False), here + 2


def _all(data: bytes, depth: int) -> tuple[Value, ...]:
    found: list[Value] = []
    at = 0
    while at < len(data):
        part, at = _read(data, at, depth)
        found.append(part)
    return tuple(found)
