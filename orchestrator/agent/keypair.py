"""The node's own key pair: made on the node, and its private half never leaves it.

Comes in: the agent's state folder, the certificate that a controller has made. Goes out: the public key as a join sends
it, one file that TLS can load. Called by: join, trust.

    STATE/identity.pem       the private key, and behind it the controller's certificate for it
    STATE/joining-SUM.key    a private key that a join token (by a sum of it) is being exchanged with; a kill at any
                             point leaves it there, and whoever spent that token has to come with the same key again

Both are for the agent's user alone and are replaced in one step. The standard library makes no keys, so OpenSSH's
ssh-keygen does, which every host has that is reached over SSH, or else the program openssl.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os

from orchestrator.model.failpoints import failpoint

MAKERS = (  # the path follows as the last word; each writes a key on P-256 in the form of SEC 1 (RFC 5915) as PEM
    ("ssh-keygen", "-q", "-t", "ecdsa", "-b", "256", "-m", "PEM", "-N", "", "-C", "", "-f"),
    ("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"),
)
MAKER_S = 60  # seconds that one may take: a host that has just booted may wait for random bits
HEAD, TAIL = "-----BEGIN EC PRIVATE KEY-----", "-----END EC PRIVATE KEY-----"
CURVE = bytes.fromhex(
    "06082a8648ce3d030107"
)  # the object identifier of P-256, prime256v1 (RFC 5480, 2.1.1.1)
INFO = (
    bytes.fromhex("3059301306072a8648ce3d0201") + CURVE + bytes.fromhex("034200")
)  # a public key's before its point
POINT = 65  # bytes: 4, x, y


class KeyPairError(Exception):
    """There is no key pair; the text is for people."""


def identity_path(state_dir: str) -> str:
    """Where the key and its certificate are, once the node has been let in with them."""
    return os.path.join(state_dir, "identity.pem")


def waiting(state_dir: str, secret: str) -> str:
    """The public key to join with, the same for the same join token: base64 of its SubjectPublicKeyInfo."""
    path = _waiting_path(state_dir, secret)
    try:
        return public_key(_read(path))
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        os.unlink(path)  # it was never shown to anybody
    try:
        _forget_others(state_dir)
        _make(path)
        return public_key(_read(path))
    except OSError as error:
        raise KeyPairError(f"{error.filename or path}: {error.strerror}") from None
    except ValueError as error:
        raise KeyPairError(f"{path}: {error}") from None


def lasting(state_dir: str, label: str) -> str:
    """The public key of the node's own pair if it has one, else of a new one that waits under that label: an instance
    may come again with the same key alone."""
    try:
        return public_key(_read(identity_path(state_dir)))
    except (OSError, ValueError):
        return waiting(state_dir, label)


def store(state_dir: str, secret: str, certificate: str) -> None:
    """The key that was joined with is the node's own from now on. ValueError or OSError if the two don't fit."""
    import ssl

    path = identity_path(state_dir)
    draft = path + ".new"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, _private(state_dir, secret).encode() + certificate.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(draft)
    os.rename(draft, path)
    _sync_folder(state_dir)


def done(state_dir: str) -> None:
    """The node has its token: nothing waits any more. A later join makes a new key."""
    _forget_others(state_dir)


def drop(state_dir: str) -> None:
    """The node was let in without a key."""
    try:
        os.unlink(identity_path(state_dir))
    except FileNotFoundError:
        return


def public_key(text: str) -> str:
    """Of a private key in PEM: base64 of its SubjectPublicKeyInfo. ValueError if it is none that was made here."""
    _, head, rest = text.partition(HEAD)
    body, tail, _ = rest.partition(TAIL)
    if not head or not tail:
        raise ValueError("it holds no private key of the form that was asked for")
    try:
        der = base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error:
        raise ValueError("the private key is damaged") from None
    point = der[-POINT:]  # the public key is the last part (RFC 5915, 3)
    if CURVE not in der or len(point) != POINT or point[0] != 4:
        raise ValueError("it is no key on the curve P-256")
    return base64.b64encode(INFO + point).decode()


def _private(state_dir: str, secret: str) -> str:
    """The private key that was joined with: the one that waits, or the node's own once more."""
    try:
        return _read(_waiting_path(state_dir, secret))
    except FileNotFoundError:
        body, _, _ = _read(identity_path(state_dir)).partition(TAIL)
        return body + TAIL + "\n"


def _waiting_path(state_dir: str, secret: str) -> str:
    return os.path.join(state_dir, f"joining-{hashlib.sha256(secret.encode()).hexdigest()[:16]}.key")


def _forget_others(state_dir: str) -> None:
    """Keys of earlier tokens, and what a killed maker has left."""
    for name in os.listdir(state_dir):
        if name.startswith("joining-"):
            os.unlink(os.path.join(state_dir, name))


def _make(path: str) -> None:
    draft = path + ".new"
    _run_maker(draft)
    os.chmod(draft, 0o600)
    fd = os.open(draft, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    failpoint("join.key.made")
    os.rename(draft, path)
    try:
        os.unlink(draft + ".pub")  # ssh-keygen's: nobody needs it
    except FileNotFoundError:
        pass
    _sync_folder(os.path.dirname(path))


def _run_maker(path: str) -> None:
    """The first maker that is here makes a private key."""
    import subprocess  # only a node that joins needs it

    for maker in MAKERS:
        try:
            made = subprocess.run(
                [*maker, path], stdin=subprocess.DEVNULL, capture_output=True, timeout=MAKER_S, check=False
            )
        except FileNotFoundError:
            continue
        except subprocess.TimeoutExpired:
            raise KeyPairError(f"{maker[0]} has made no key within {MAKER_S} s") from None
        if made.returncode != 0:
            said = made.stderr.decode(errors="replace").strip()[:200]
            raise KeyPairError(f"{maker[0]} could make no key: {said or f'exit code {made.returncode}'}")
        return
    raise KeyPairError(
        "no key pair can be made: neither ssh-keygen nor openssl is here; install openssh-client or openssl"
    )


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
