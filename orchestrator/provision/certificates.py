"""The controller's own certificate authority: made once per cluster, it signs what agents and people check.

Comes in: a state folder, the names and addresses at which the controller is called. Goes out: PEM files in its `tls`
folder: `ca.pem` (agents pin it), `server.pem`, `server.key`. Called by: `server run --own-ca`, before it listens;
node_keys, whose authority is made alike; cli changing (what agents pin).

Whoever has a certificate of their own gives it to `gangline server run` and needs none of this. The CA's key never
leaves the folder (mode 0600); losing it means that every host has to be told a new one.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchestrator.model.errors import Unavailable
from orchestrator.provision.files import write_whole

CA_DAYS = 3650
SERVER_DAYS = 397  # what today's clients take at most
RENEW_DAYS = 30  # before its end a certificate is made anew
SKEW = dt.timedelta(days=1)  # clocks of hosts may be behind
# What lives for years counts from here: the clock of a machine that has just been set up may be years off, either way,
# and is put right only after the authority was made.
EARLIEST = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where they are."""

    ca: Path
    cert: Path
    key: Path


def ca_of(state: Path) -> str:
    """The CA's certificate, as hosts keep it; empty if none was made here."""
    try:
        return (state / "tls" / "ca.pem").read_text()
    except FileNotFoundError:
        return ""


def ensure(state: Path, names: tuple[str, ...], now: dt.datetime) -> Certificates:
    """Make what is missing, ends soon, or is not for these names; Unavailable if the folder can't be written."""
    folder = state / "tls"
    found = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    ca_key_path = folder / "ca.key"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (found.ca.exists() and ca_key_path.exists()):
            _make_ca(found.ca, ca_key_path, state.name, now)
            found.cert.unlink(missing_ok=True)
        if not _serves(found, names, now):
            _make_server(found, ca_key_path, names, now)
    except OSError as error:
        raise Unavailable(
            "tls.folder", f"{error.filename or folder}: {error.strerror}", "the controller keeps its CA there"
        ) from error
    return found


def _serves(found: Certificates, names: tuple[str, ...], now: dt.datetime) -> bool:
    """Whether the certificate is there, of this authority and for this key, for these names, now and for a while."""
    if not (found.cert.exists() and found.key.exists()):
        return False
    try:
        return _is_for(found, names, now)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False


def _is_for(found: Certificates, names: tuple[str, ...], now: dt.datetime) -> bool:
    cert = x509.load_pem_x509_certificate(found.cert.read_bytes())
    known = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    have = {
        str(value) for kind in (x509.DNSName, x509.IPAddress) for value in known.get_values_for_type(kind)
    }
    ends = cert.not_valid_after_utc - dt.timedelta(days=RENEW_DAYS)
    ca = x509.load_pem_x509_certificate(found.ca.read_bytes())
    cert.verify_directly_issued_by(ca)
    key = serialization.load_pem_private_key(found.key.read_bytes(), None)
    return (
        set(names) <= have
        and cert.not_valid_before_utc <= now < ends
        and key.public_key() == cert.public_key()
    )


def _make_ca(path: Path, key_path: Path, cluster: str, now: dt.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    made = authority(key, f"Gangline CA of {cluster}", now, max(now, EARLIEST) + dt.timedelta(days=CA_DAYS))
    write_whole(key_path, key_pem(key), 0o600)
    write_whole(path, made.public_bytes(serialization.Encoding.PEM), 0o644)


def authority(
    key: ec.EllipticCurvePrivateKey, title: str, now: dt.datetime, ends: dt.datetime
) -> x509.Certificate:
    """The certificate, signed by itself, of a key that signs others'."""
    name = common_name(title)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        builder(name, name, key.public_key(), min(now - SKEW, EARLIEST), ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _make_server(found: Certificates, ca_key_path: Path, names: tuple[str, ...], now: dt.datetime) -> None:
    ca = x509.load_pem_x509_certificate(found.ca.read_bytes())
    ca_key = serialization.load_pem_private_key(ca_key_path.read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = common_name(names[0])
    ends = now + dt.timedelta(days=SERVER_DAYS)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    made = (
        builder(subject, ca.subject, key.public_key(), now - SKEW, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    write_whole(found.key, key_pem(key), 0o600)
    write_whole(found.cert, made.public_bytes(serialization.Encoding.PEM), 0o644)


def common_name(text: str) -> x509.Name:
    """A subject; 64 characters are what X.520 allows (ub-common-name)."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    starts: dt.datetime,
    ends: dt.datetime,
) -> x509.CertificateBuilder:
    """A certificate that says nothing yet of what it is for."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as its file has it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
