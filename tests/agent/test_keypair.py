"""The node's key pair: made in one step, read back, kept with its certificate, and never half there."""

from __future__ import annotations

import base64
import datetime as dt
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchestrator.agent import keypair
from orchestrator.agent.keypair import KeyPairError
from orchestrator.provision import node_keys


def plain_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """A private key as the makers write it."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@pytest.fixture(autouse=True)
def maker(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A maker of keys without a process; its command lines."""
    asked: list[list[str]] = []

    def run(argv: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        asked.append(argv)
        assert not os.path.exists(argv[-1]), "ssh-keygen would ask whether to write over it"
        Path(argv[-1]).write_text(plain_pem(ec.generate_private_key(ec.SECP256R1())))
        Path(argv[-1] + ".pub").write_text("ecdsa-sha2-nistp256 AAAA\n")
        return subprocess.CompletedProcess(argv, 0, b"", b"")

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def certificate_for(tmp_path: Path, public_key: str) -> str:
    folder = tmp_path / "controller"
    folder.mkdir(exist_ok=True)
    authority = node_keys.ensure(folder, dt.datetime.now(dt.UTC))
    return authority.sign("n1", node_keys.read_key(public_key))


@pytest.mark.parametrize("seed", range(20))
def test_the_public_half_is_that_of_the_private_one(seed: int) -> None:
    del seed  # another key each time
    key = ec.generate_private_key(ec.SECP256R1())
    info = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert base64.b64decode(keypair.public_key(plain_pem(key))) == info


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no private key"),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
            "holds no private key",
        ),
        (f"{keypair.HEAD}\nAAAA\n", "holds no private key"),
        (f"{keypair.HEAD}\n%%%%\n{keypair.TAIL}\n", "damaged"),
        (f"{keypair.HEAD}\nAAAA\n{keypair.TAIL}\n", "no key on the curve"),
        (plain_pem(ec.generate_private_key(ec.SECP384R1())), "no key on the curve"),
    ],
    ids=["nothing", "another form", "no end", "no base64", "too short", "another curve"],
)
def test_what_is_no_key_says_so(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        keypair.public_key(text)


def test_the_same_token_has_the_same_key_and_another_one_another(tmp_path: Path) -> None:
    state = str(tmp_path)
    first = keypair.waiting(state, "a")
    assert keypair.waiting(state, "a") == first
    second = keypair.waiting(state, "b")
    assert second != first
    assert keypair.waiting(state, "a") not in (first, second), "the key of the token before is gone"
    assert [path.name.startswith("joining-") for path in tmp_path.iterdir()] == [True]


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    key = keypair.waiting(str(tmp_path), "a")
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    keypair.store(str(tmp_path), "a", certificate_for(tmp_path, key))
    assert stat.S_IMODE(Path(keypair.identity_path(str(tmp_path))).stat().st_mode) == 0o600


@pytest.mark.parametrize("left", ["{}.new", "{}.new.pub"])
def test_what_a_killed_maker_has_left_is_in_nobodys_way(tmp_path: Path, left: str) -> None:
    state = str(tmp_path)
    Path(left.format(keypair._waiting_path(state, "a"))).write_text("half a k")
    assert keypair.waiting(state, "a")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_damaged_waiting_key_is_made_anew(tmp_path: Path) -> None:
    Path(keypair._waiting_path(str(tmp_path), "a")).write_text("x")
    assert keypair.waiting(str(tmp_path), "a") == keypair.waiting(str(tmp_path), "a")


def test_a_certificate_of_another_key_is_not_kept(tmp_path: Path) -> None:
    state = str(tmp_path)
    keypair.store(state, "a", certificate_for(tmp_path, keypair.waiting(state, "a")))
    before = Path(keypair.identity_path(state)).read_text()
    foreign = certificate_for(
        tmp_path, keypair.public_key(plain_pem(ec.generate_private_key(ec.SECP256R1())))
    )
    keypair.waiting(state, "b")
    with pytest.raises(OSError, match=r"(?i)mismatch"):
        keypair.store(state, "b", foreign)
    assert Path(keypair.identity_path(state)).read_text() == before


def test_after_a_join_only_the_identity_is_left(tmp_path: Path) -> None:
    state = str(tmp_path / "s")
    Path(state).mkdir()
    keypair.store(state, "a", certificate_for(tmp_path, keypair.waiting(state, "a")))
    keypair.done(state)
    assert os.listdir(state) == ["identity.pem"]
    keypair.drop(state)
    keypair.drop(state)
    assert os.listdir(state) == []


# --- makers ----------------------------------------------------------------------------------------------------------


def play(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> None:
    """A machine with these programs: an exit code and what it says, or an exception."""

    def run(argv: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        answer = answers.get(argv[0], FileNotFoundError())
        if isinstance(answer, Exception):
            raise answer
        if answer[0] == 0:
            Path(argv[-1]).write_text(plain_pem(ec.generate_private_key(ec.SECP256R1())))
        return subprocess.CompletedProcess(argv, answer[0], b"", answer[1])

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ({"ssh-keygen": (0, b"")}, ""),
        ({"openssl": (0, b"")}, ""),
        ({}, "neither ssh-keygen nor openssl is here; install openssh-client or openssl"),
        ({"ssh-keygen": (255, b"no entropy\n")}, "ssh-keygen could make no key: no entropy"),
        ({"ssh-keygen": (1, b"")}, "ssh-keygen could make no key: exit code 1"),
        ({"ssh-keygen": subprocess.TimeoutExpired("x", 1)}, "ssh-keygen has made no key within 60 s"),
        (
            {"ssh-keygen": PermissionError(13, "Permission denied", "ssh-keygen")},
            "ssh-keygen: Permission denied",
        ),
    ],
)
def test_makers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, Any], words: str
) -> None:
    play(monkeypatch, programs)
    if not words:
        assert keypair.waiting(str(tmp_path), "a")
        return
    with pytest.raises(KeyPairError, match=words):
        keypair.waiting(str(tmp_path), "a")
    assert list(tmp_path.iterdir()) == []
