"""The authority of nodes' keys: made once, mended, and what its certificates are good for."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from orchestrator.model.errors import InputError, Unavailable
from orchestrator.provision import certificates, node_keys

NOW = dt.datetime.now(dt.UTC)
CENTURY = dt.timedelta(days=36525)


def public_of(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return base64.b64encode(key.public_key().public_bytes(serialization.Encoding.DER, form)).decode()


def new_key() -> node_keys.NodeKey:
    return node_keys.read_key(public_of(ec.generate_private_key(ec.SECP256R1())))


def load(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def test_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    first = node_keys.ensure(tmp_path / "atlas", NOW)
    again = node_keys.ensure(tmp_path / "atlas", NOW + CENTURY)
    assert again.cert == first.cert
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "atlas/tls").iterdir()}
    assert modes == {"nodes.key": 0o600, "nodes.pem": 0o644}


def test_a_certificate_says_whose_key_it_is_and_never_ends(tmp_path: Path) -> None:
    authority, key = node_keys.ensure(tmp_path, NOW), new_key()
    made = load(authority.sign("h100-07", key))
    made.verify_directly_issued_by(authority.cert)
    assert made.subject.rfc4514_string() == "CN=h100-07"
    assert made.not_valid_after_utc.year == authority.cert.not_valid_after_utc.year == 9999
    assert node_keys.key_of(made.public_bytes(serialization.Encoding.DER)) == key.fingerprint
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH], "it is good for no server"
    assert load(authority.sign("h" * 200, key)).subject.rfc4514_string() == f"CN={'h' * 64}"


def test_a_fingerprint_is_of_the_key_and_not_of_the_certificate(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    read = node_keys.read_key(public_of(key))
    assert read.fingerprint == hashlib.sha256(base64.b64decode(public_of(key))).hexdigest()
    authority = node_keys.ensure(tmp_path, NOW)
    first, second = (load(authority.sign("n", read)) for _ in range(2))
    assert first != second
    ders = [each.public_bytes(serialization.Encoding.DER) for each in (first, second)]
    assert [node_keys.key_of(der) for der in ders] == [read.fingerprint] * 2
    assert node_keys.key_of(b"no certificate") == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "AAAA",
        "\ud800",
        public_of(ec.generate_private_key(ec.SECP384R1())),
        public_of(ed25519.Ed25519PrivateKey.generate()),
        public_of(ec.generate_private_key(ec.SECP256R1())) + "\n",
    ],
    ids=["empty", "no base64", "no key", "no text", "another curve", "another kind", "a line more"],
)
def test_only_public_keys_on_one_curve_are_read(text: str) -> None:
    with pytest.raises(InputError) as raised:
        node_keys.read_key(text)
    assert raised.value.code == "join.bad-key"


def test_a_lost_key_is_replaced_and_what_it_signed_stays_trusted(tmp_path: Path) -> None:
    old = node_keys.ensure(tmp_path, NOW)
    (tmp_path / "tls/nodes.key").unlink()
    new = node_keys.ensure(tmp_path, NOW)
    assert new.cert != old.cert
    assert x509.load_pem_x509_certificates(new.trusted.read_bytes()) == [new.cert, old.cert]
    assert node_keys.ensure(tmp_path, NOW).cert == new.cert


def test_a_lost_certificate_is_made_again_from_its_key(tmp_path: Path) -> None:
    old = node_keys.ensure(tmp_path, NOW)
    made = load(old.sign("n", new_key()))
    old.trusted.unlink()
    new = node_keys.ensure(tmp_path, NOW + CENTURY)
    made.verify_directly_issued_by(new.cert)


@pytest.mark.parametrize("name", ["nodes.key", "nodes.pem"])
def test_a_damaged_file_is_told_by_its_place_and_not_replaced(tmp_path: Path, name: str) -> None:
    node_keys.ensure(tmp_path, NOW)
    path = tmp_path / "tls" / name
    path.write_text("x")
    with pytest.raises(Unavailable, match=name) as raised:
        node_keys.ensure(tmp_path, NOW)
    assert "put it back from a copy" in raised.value.hint
    assert path.read_text() == "x"


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "tls").write_text("")
    with pytest.raises(Unavailable, match="tls"):
        node_keys.ensure(tmp_path, NOW)


# --- what the controller's own chain is trusted by -------------------------------------------------------------------


def test_the_anchor_is_the_own_authority_where_it_has_signed(tmp_path: Path) -> None:
    found = certificates.ensure(tmp_path, ("h",), NOW)
    anchor = node_keys.anchor_of(tmp_path, found.cert)
    assert anchor is not None
    assert anchor.pem == found.ca.read_text()
    assert anchor.sha256 == hashlib.sha256(ssl.PEM_cert_to_DER_cert(anchor.pem)).hexdigest()


def test_the_anchor_of_a_chain_from_elsewhere_is_its_root_or_nothing(tmp_path: Path) -> None:
    certificates.ensure(tmp_path / "own", ("h",), NOW)
    theirs = certificates.ensure(tmp_path / "theirs", ("h",), NOW)
    chain = tmp_path / "chain.pem"
    chain.write_text(theirs.cert.read_text() + theirs.ca.read_text())
    anchor = node_keys.anchor_of(tmp_path / "own", chain)
    assert anchor is not None
    assert anchor.pem == theirs.ca.read_text()
    assert node_keys.anchor_of(tmp_path / "own", theirs.cert) is None, "who signed it is not in the chain"
    assert node_keys.anchor_of(tmp_path / "own", tmp_path / "none") is None
