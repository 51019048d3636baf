"""What signs the keys of nodes, and what hosts know the controller by.

Comes in: a controller's state folder, a node's public key, the chain that the controller shows. Goes out: PEM files
in its `tls` folder (`nodes.pem`, `nodes.key`), certificates for nodes, fingerprints. Called by: serve, where the
controller listens with TLS; agents' joins; protocol, once for each connection.

An authority of its own, beside the one of `certificates.py`: nodes have keys also where people bring a certificate of
theirs for the controller, and what is trusted as a node can never be taken for the controller.

A certificate only says that its key was let in by this controller once. Which key is which node's says the ledger, by
fingerprint, and a node that joins again has another one there. So certificates never end: nothing has to be renewed,
and hosts' clocks don't matter. A lost or changed `nodes.key` lets new nodes in with a new authority, and the old one
stays trusted; when `nodes.pem` is lost it is made from the key again. With both lost, every node has to join again.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import fcntl
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID

from orchestrator.model.errors import InputError, Unavailable
from orchestrator.provision.certificates import authority, builder, common_name, key_pem
from orchestrator.provision.files import write_whole

FOREVER = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)  # RFC 5280, 4.1.2.5: there is no end
MOST_KEY = 1024  # characters of a public key as a node sends it; one on P-256 has 124


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A node's public key, and the SHA-256 (hex) of its SubjectPublicKeyInfo, by which the ledger knows it."""

    public: ec.EllipticCurvePublicKey
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs keys of nodes. `trusted`: the file with every certificate that nodes' own may be signed by."""

    trusted: Path
    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def sign(self, node: str, key: NodeKey) -> str:
        """A certificate for the key of a node that the cluster has, in PEM."""
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        made = (
            builder(common_name(node), self.cert.subject, key.public, self.cert.not_valid_before_utc, FOREVER)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(issuer_key, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM).decode()


def ensure(state: Path, now: dt.datetime) -> Authority:
    """The authority of a controller, made if it is missing; Unavailable if its files can't be read or written."""
    folder = state / "tls"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(
                lock, fcntl.LOCK_EX
            )  # two controllers may start at once, one to take the other's place
            return _open(folder, state.name, now)
        finally:
            os.close(lock)
    except OSError as error:
        raise _unusable(error.filename or folder, error.strerror or str(error)) from error


def _open(folder: Path, cluster: str, now: dt.datetime) -> Authority:
    key_path, trusted = folder / "nodes.key", folder / "nodes.pem"
    key = _key_in(key_path)
    if key is None:
        key = ec.generate_private_key(ec.SECP256R1())
        write_whole(key_path, key_pem(key), 0o600)
    known = _certificates_in(trusted)
    cert = next((cert for cert in known if cert.public_key() == key.public_key()), None)
    if cert is None:
        cert = authority(key, f"Gangline nodes of {cluster}", now, FOREVER)
        pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in (cert, *known))
        write_whole(trusted, pem, 0o644)
    return Authority(trusted, cert, key)


def _key_in(path: Path) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _unusable(path, f"no private key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _unusable(path, "no key on an elliptic curve")
    return key


def _certificates_in(path: Path) -> list[x509.Certificate]:
    try:
        data = path.read_bytes()
        return x509.load_pem_x509_certificates(data) if data.strip() else []
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise _unusable(path, f"no certificates: {error}") from error


def _unusable(path: str | Path, why: str) -> Unavailable:
    hint = "put it back from a copy; moved away, it is made anew, and nodes may have to join again"
    return Unavailable("tls.nodes", f"{path}: {why}", hint, str(path))


# --- keys ------------------------------------------------------------------------------------------------------------


def key_of(certificate: bytes) -> str:
    """The fingerprint of the public key in a certificate (DER); empty for one that can't be read."""
    try:
        return _fingerprint(x509.load_der_x509_certificate(certificate).public_key())
    except (ValueError, UnsupportedAlgorithm):
        return ""


def _fingerprint(key: CertificatePublicKeyTypes) -> str:
    """SHA-256 of the SubjectPublicKeyInfo, in hex."""
    info = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest()


def read_key(text: str) -> NodeKey:
    """A public key as a node sends it: the base64 of its SubjectPublicKeyInfo. InputError unless it is one on P-256."""
    try:
        key = serialization.load_der_public_key(base64.b64decode(text[:MOST_KEY], validate=True))
    except (ValueError, binascii.Error, UnsupportedAlgorithm):
        raise _no_key("can't be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _no_key("is not on the curve P-256")
    return NodeKey(key, _fingerprint(key))


def _no_key(what: str) -> InputError:
    return InputError("join.bad-key", f"the node's public key {what}", "is the agent newer?", "public_key")


# --- the controller's own chain --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Anchor:
    """What the controller's chain ends in: PEM, and the certificate's SHA-256 (hex), by which join tokens pin it."""

    pem: str
    sha256: str


def anchor_of(state: Path, chain: Path) -> Anchor | None:
    """The cluster's own CA if it has signed what the controller shows; else the chain's last certificate if that has
    signed itself; else None: hosts have to know who signed it."""
    try:
        shown = x509.load_pem_x509_certificates(chain.read_bytes())
        own = _certificates_in(state / "tls" / "ca.pem")
    except (OSError, ValueError):
        return None
    for cert in (*own, shown[-1]):
        if _has_signed(cert, shown[-1]):
            pem = cert.public_bytes(serialization.Encoding.PEM).decode()
            return Anchor(pem, cert.fingerprint(hashes.SHA256()).hex())
    return None


def _has_signed(issuer: x509.Certificate, cert: x509.Certificate) -> bool:
    try:
        cert.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature):
        return False
    return True
