"""Sockets to listen on: TCP with TLS unless it is loopback, and a Unix socket for people on this host.

Comes in: addresses, paths, certificate files. Goes out: bound sockets, or an error that says what to do. Called by:
serve.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import resource
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.model.errors import InputError, Unavailable

if TYPE_CHECKING:
    from orchestrator.provision.node_keys import Anchor, Authority

BACKLOG = 4096  # connections that wait to be accepted; the kernel's net.core.somaxconn may allow fewer
LONGEST_SOCKET_PATH = 107  # bytes: sun_path of unix(7)


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate chain and its key, as PEM files; what signs the keys of nodes (None: they have none); what the
    chain is trusted by, where that can be told to hosts (None: they know it from elsewhere)."""

    cert: str
    key: str
    nodes: Authority | None = None
    anchor: Anchor | None = None


def check_tls(cert: str, key: str) -> Tls | None:
    """The pair if both are given and fit; InputError says what is wrong."""
    if not cert and not key:
        return None
    if not cert or not key:
        raise InputError(
            "server.tls",
            "a certificate needs its key, and a key its certificate",
            "give --tls-cert and --tls-key",
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise InputError(
            "server.tls",
            f"the certificate can't be used: {error}",
            "PEM files, the key without password",
            cert,
        ) from error
    return Tls(cert, key)


def _no_password() -> str:
    raise ValueError("the key has a password")


def parse_listen(text: str) -> tuple[str, int]:
    """`HOST:PORT` or `[IPV6]:PORT`; port 0 takes any free one."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(
            "server.listen", f"{text!r} is no address to listen on", "write HOST:PORT, as in 127.0.0.1:7443"
        )
    return host, int(port)


def bind_tcp(host: str, port: int, tls: Tls | None) -> socket.socket:
    """A bound TCP socket. Anything but loopback needs TLS: tokens and output would cross the network readable."""
    family, address = _resolve(host, port)
    if tls is None and not ipaddress.ip_address(address[0].partition("%")[0]).is_loopback:
        raise InputError(
            "server.tls-required",
            f"{host} can be reached from other machines, and without TLS everyone on the way could read tokens",
            "give --tls-cert and --tls-key, or listen on 127.0.0.1 behind something that speaks TLS",
        )
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _cannot_bind(f"{host}:{port}", error) from error
    return sock


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InputError("server.listen", f"there is no address {host!r} here: {error}") from error
    family, *_, address = found[0]
    return family, address  # type: ignore[return-value]


def _cannot_bind(where: str, error: OSError) -> Unavailable:
    if error.errno == errno.EADDRINUSE:
        return Unavailable(
            "server.address-in-use",
            f"another process listens on {where}",
            "see who: ss -ltnp; or choose another port",
        )
    return Unavailable(
        "server.bind", f"can't listen on {where}: {error.strerror}", "choose an address of this machine"
    )


def url_of(sock: socket.socket, tls: Tls | None) -> str:
    """The URL under which a bound TCP socket is reached; by this host's name if it listens on all addresses."""
    host, port = sock.getsockname()[:2]
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        host = socket.getfqdn()
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def bind_unix(path: Path) -> socket.socket:
    """A Unix socket that everyone on this host may open: who they are, the kernel tells.

    It takes the path's name in one step. A controller that had it before goes on with those it knows, until it learns
    that it is no longer the one.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    if max(len(os.fsencode(path)), len(os.fsencode(draft))) > LONGEST_SOCKET_PATH:
        raise InputError(
            "server.socket-path",
            f"a Unix socket's path has at most {LONGEST_SOCKET_PATH} bytes: {path}",
            "choose a shorter one with --socket",
            str(path),
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        sock.bind(str(draft))
        draft.chmod(0o666)
        sock.listen(BACKLOG)  # before it can be found
        draft.rename(path)
    except OSError as error:
        sock.close()
        with contextlib.suppress(OSError):
            draft.unlink()
        raise _cannot_bind(str(path), error) from error
    return sock


def inode_of(path: Path) -> int:
    """Tells one socket's file from another of the same name."""
    return path.stat().st_ino


def unlink_if_mine(path: Path, inode: int) -> None:
    """Remove the socket's file at the end, unless a newer controller has put its own there."""
    try:
        if path.stat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        return


def raise_file_limit() -> int:
    """Allow as many open files as the hard limit says: each connection is one. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
