"""Gangline's own way into a site's hosts: an SSH config, a known_hosts and the key, never the person's own config.

Comes in: a metal site of the spec, the cluster's state folder, the environment. Goes out: `Access`, whose `config` is
for `ssh -F`. Called by: whoever plans or applies; channel, probe and Ansible use the result.

    STATE/ssh/SITE/config         strict: a host whose key is not recorded is refused
    STATE/ssh/SITE/config-first   records the key of a host that has none yet; a changed one is refused all the same
    STATE/ssh/SITE/known_hosts    STATE/ssh/SITE/key (only where the spec names an environment variable)

Sockets of shared connections lie in a folder of their own with a short name, since such paths have 107 bytes at most.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.model.cluster import Site
from orchestrator.model.errors import GanglineError, InputError
from orchestrator.provision.files import write_whole
from orchestrator.provision.metal.known_hosts import KnownHosts

CONNECT_S = 3  # for TCP and the server's first words
ALIVE_S = 5  # between two signs of life; a connection without SILENT of them is given up
SILENT = 2
PERSIST_S = 60  # a shared connection that nobody uses stays this long
DAY_S = 86400
SHORT = Path("/tmp")  # noqa: S108 - what is made there is proved to be the person's own
JUMP = "gangline-jump"
JUMP_LOG = "GANGLINE_JUMP_LOG"  # environment: the file for what the jump host's ssh has to say


@dataclass(frozen=True, slots=True)
class Access:
    """What `lay` wrote. `addresses` has every host of the site; `user` empty: the person's own name."""

    site: str
    folder: Path
    sockets: Path
    user: str
    port: int
    jump: str
    key: str  # path of the private key; empty: the agent's keys, or the person's default ones
    addresses: Mapping[str, str]

    @property
    def config(self) -> Path:
        """For `ssh -F`, and for Ansible's ssh_args."""
        return self.folder / "config"

    @property
    def config_first(self) -> Path:
        """The same, for a first contact."""
        return self.folder / "config-first"

    @property
    def known_hosts(self) -> KnownHosts:
        """The recorded host keys."""
        return KnownHosts(self.folder / "known_hosts")

    def place(self, host: str) -> str:
        """`h1 (10.0.0.1:22)`, for sentences."""
        address = self.addresses.get(host, self.jump if host == JUMP else host)
        shown = f"[{address}]" if ":" in address else address
        return f"{'jump host' if host == JUMP else host} ({shown}:{22 if host == JUMP else self.port})"


def lay(site: Site, state: Path, environment: Mapping[str, str], connect_s: int = CONNECT_S) -> Access:
    """Write config and key of a site below `state`; the same again changes nothing.

    InputError where the key's reference can't be followed, or where others may read the key.
    """
    folder = private(state / "ssh" / site.name)
    key = _key(site, folder, environment)
    access = Access(
        site=site.name,
        folder=folder,
        sockets=_sockets(folder, f"{site.ssh.jump} {_version(key)}", environment),
        user=site.ssh.user,
        port=site.ssh.port,
        jump=site.ssh.jump,
        key=key,
        addresses={host.name: host.address or host.name for host in site.hosts},
    )
    for path, checking in ((access.config, "yes"), (access.config_first, "accept-new")):
        _write(path, _text(access, path, checking, connect_s))
    return access


def private(folder: Path) -> Path:
    """The folder, for its owner alone; InputError if it is somebody else's or open to others."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise InputError(
            "ssh.folder", f"{folder} is not a folder of your own", "remove it, or set GANGLINE_HOME"
        )
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def _sockets(folder: Path, way: str, environment: Mapping[str, str]) -> Path:
    """Named by the site's folder, so that two clusters never share a connection, and by `way`: one that another key has
    opened, or that goes through another jump host, would say that this one works."""
    short = hashlib.sha256(f"{folder} {way}".encode()).hexdigest()[:8]
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    usable = runtime.startswith("/") and len(runtime) <= 24 and os.access(runtime, os.W_OK)
    above = Path(runtime, "gangline") if usable else SHORT / f"gangline-{os.geteuid()}"
    _tidy(private(above))
    return private(above / short)


def _version(key: str) -> str:
    """The file and its state; nothing where the spec names no key."""
    if not key:
        return ""
    found = Path(key).stat()
    return f"{key} {found.st_mtime_ns} {found.st_ino}"


def _tidy(above: Path) -> None:
    """Remove the folders of sites that nobody has entered for a day; one with a socket in it stays."""
    for folder in above.iterdir():
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > DAY_S:
                folder.rmdir()


def _key(site: Site, folder: Path, environment: Mapping[str, str]) -> str:
    """Follow the reference. Returns a path, or nothing where the spec names none."""
    kind, _, rest = site.ssh.key.partition(":")
    where = f"sites[{site.name}].ssh.key"
    if not kind:
        return ""
    if kind == "file":
        return str(_checked(Path(rest), where))
    if kind != "env":
        raise InputError(
            "ssh.key-reference",
            f"a key for SSH can't come from '{kind}:'",
            "name a file: or an env: reference",
            where,
        )
    text = environment.get(rest, "")
    if not text:
        raise InputError(
            "ssh.key-missing",
            f"the environment variable {rest} is not set",
            "put the private key's text into it",
            where,
        )
    path = folder / "key"
    _write(path, text.rstrip("\n") + "\n")
    return str(path)


def _checked(path: Path, where: str) -> Path:
    """A private key that OpenSSH will take. It refuses one that others can read, and says so where nobody sees it."""
    try:
        found = path.stat()
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise InputError(
            "ssh.key-missing",
            f"the private key {path} can't be read: {error.strerror}",
            "name a file that you can read",
            where,
        ) from error
    if found.st_mode & 0o077 and found.st_uid == os.geteuid():
        raise InputError(
            "ssh.key-open",
            f"the private key {path} is open to others (mode {found.st_mode & 0o777:04o})",
            f"chmod 600 {path}",
            where,
        )
    if start.startswith(b"ssh-"):
        raise InputError(
            "ssh.key-public", f"{path} is a public key", "name the private one, without .pub", where
        )
    return path


def _text(access: Access, own: Path, checking: str, connect_s: int) -> str:
    """An ssh_config. The first value of a keyword counts, so hosts come first and what holds for all comes last."""
    way = []
    if access.jump:  # which has its own time first, so that the two can be told apart
        way = [f"  ProxyCommand {_onward(own)}", f"  ConnectTimeout {2 * connect_s}"]
    blocks = [_host(name, address, way) for name, address in access.addresses.items()]
    if access.jump:
        blocks.append(f"Host {JUMP}\n  HostName {access.jump}\n  HostKeyAlias {JUMP}\n  Port 22\n")
    return (
        "# Written by Gangline from the spec: changes here are lost.\n"
        + "".join(blocks)
        + _common(access, checking, connect_s)
    )


def _onward(own: Path) -> str:
    """The way through the jump host. OpenSSH drops the words of that ssh where connections are shared, so they go to a
    file where somebody asks for one. It runs this in the person's own shell, which need not be a POSIX one."""
    ssh = f"ssh -F {shlex.quote(str(own))} -W '[%h]:%p' {JUMP}".replace(str(own), str(own).replace("%", "%%"))
    script = f'exec {ssh} 2>>"${{{JUMP_LOG}:-/dev/null}}"'
    return f"sh -c {shlex.quote(script)}"


def _quoted(path: Path | str) -> str:
    """A path as a value in an ssh_config, where `%` begins a token."""
    doubled = str(path).replace("%", "%%")
    return f'"{doubled}"'


def _host(name: str, address: str, way: list[str]) -> str:
    return "\n".join([f"Host {name}", f"  HostName {address}", f"  HostKeyAlias {name}", *way]) + "\n"


def _common(access: Access, checking: str, connect_s: int) -> str:
    who = [f"  User {access.user}"] if access.user else []
    if access.key:
        who += [f"  IdentityFile {_quoted(access.key)}", "  IdentitiesOnly yes"]
    lines = [
        "Host *",
        *who,
        f"  Port {access.port}",
        "  BatchMode yes",
        "  PreferredAuthentications publickey",
        f"  StrictHostKeyChecking {checking}",
        f"  UserKnownHostsFile {_quoted(access.known_hosts.path)}",
        "  GlobalKnownHostsFile /dev/null",
        "  HashKnownHosts no",
        "  UpdateHostKeys no",
        "  CheckHostIP no",
        f"  ConnectTimeout {connect_s}",
        f"  ServerAliveInterval {ALIVE_S}",
        f"  ServerAliveCountMax {SILENT}",
        "  ControlMaster auto",
        f'  ControlPath "{access.sockets}/%C"',
        f"  ControlPersist {PERSIST_S}",
        "  ForwardAgent no",
        "  ForwardX11 no",
        "  LogLevel ERROR",
    ]
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    """Replace it at once, readable by its owner alone; leave it where it is the same already."""
    try:
        if path.read_text() == text and not path.stat().st_mode & 0o077:
            return
    except (OSError, UnicodeDecodeError):
        pass
    write_whole(path, text.encode())


def unknown(access: Access, host: str) -> GanglineError:
    """The error for a name that the site does not have."""
    return InputError("ssh.unknown-host", f"site '{access.site}' has no host '{host}'", "see its inventory")
