"""What the controller's own host must have, from the spec alone: the source for the role `controller` and its check.

Comes in: the spec, and the archive that was made for the host's Python. Goes out: a `Desired` of one role. Called by:
cli (hosting, changing, local_cmd), hosted, provision.metal site. Where the spec has no `controller.host`, the
controller runs on the machine that ran `up`, and nothing of this is wanted anywhere.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from orchestrator.model.cluster import ClusterSpec, Host
from orchestrator.model.host import Desired, Item, ItemKind, RoleState
from orchestrator.model.installed import (
    TIME_UNIT,
)
from orchestrator.planning.desired import (
    MADE,
    OWN_PACKAGES,
)
from orchestrator.planning.items import file_item, folder_item, unit_item

CONTROLLER = "controller"  # the role

PORT = 7443
USER = "gangline"
ARCHIVE = "/opt/gangline/controller.pyz"
CODE = "/opt/gangline/controller"  # what the unit unpacks the archive to
UNIT = "gangline-controller.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
COMMAND = "/usr/local/bin/gangline"
STATE_ROOT = "/var/lib/gangline"  # DESIGN section 7
CACHE = "/var/cache/gangline"
SOCKET = "/run/gangline/api.sock"

WATCHDOG_S = 30  # the core says that it works every few seconds; no cycle of it takes so long
ABORT_S = 10  # for one that the watchdog ends to write down where each thread was
START_S = 600  # a controller reads its whole ledger before it answers
_URL = re.compile(r"https?://(?P<host>\[[^]]+\]|[^/:\[\]]+)(:(?P<port>\d+))?(/|$)")
PRIVILEGED = 1024  # ports below it are root's

# -I and -S: nothing of the caller's environment and nothing of the distribution's packages gets in.
PYTHON = "/usr/bin/python3 -I -S"

COMMAND_TEXT = f"""#!/bin/sh
# The command `gangline` of this host's controller, for people on this host.
exec {PYTHON} -X pycache_prefix="${{XDG_CACHE_HOME:-$HOME/.cache}}/gangline/pyc" {CODE}/gangline.py "$@"
"""


def state_of(spec: ClusterSpec) -> str:
    """The controller's state folder on its host."""
    return spec.controller.state or f"{STATE_ROOT}/{spec.name}"


def host_of(spec: ClusterSpec) -> Host | None:
    """The host of the inventory that the controller runs on; None: on the machine that runs `up`."""
    hosts = (host for site in spec.sites for host in site.hosts)
    return next((host for host in hosts if host.name == spec.controller.host), None)


def desired_controller(spec: ClusterSpec, archive_sha256: str) -> Desired:
    """What the host must have."""
    return Desired((RoleState(CONTROLLER, tuple(_items(spec, archive_sha256))),))


def _items(spec: ClusterSpec, archive_sha256: str) -> Iterator[Item]:
    again = (UNIT,)
    for name in OWN_PACKAGES:
        yield Item(ItemKind.PACKAGE, name, (("version", ""),))
    yield unit_item(TIME_UNIT)  # leases and the ledger's times
    yield folder_item("/etc/gangline", "0755")
    yield folder_item("/opt/gangline", "0755")
    yield _user()
    if not _below(state_of(spec), STATE_ROOT):
        yield folder_item(state_of(spec), "0700", USER)
    yield Item(ItemKind.ARCHIVE, ARCHIVE, (("sha256", archive_sha256),), restarts=again)
    yield file_item(COMMAND, COMMAND_TEXT, mode="0755")
    yield file_item(UNIT_FILE, MADE + unit_text(spec), restarts=again)
    yield unit_item(UNIT)


def _user() -> Item:
    values = (
        ("groups", ""),
        ("home", STATE_ROOT),
        ("shell", "/usr/sbin/nologin"),
        ("system", "yes"),
        ("uid", ""),
    )
    return Item(ItemKind.USER, USER, values)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


# --- the unit --------------------------------------------------------------------------------------------------------


def unit_text(spec: ClusterSpec) -> str:
    """The whole unit. What it may is what a controller does: its state, its sockets, nothing else of the host.

    PrivateUsers and ProtectProc are left out: the kernel tells by uid who asks on the Unix socket. One that says
    nothing for WATCHDOG_S is ended and started anew; agents and jobs do not notice.
    """
    state = state_of(spec)
    writable = "" if _below(state, STATE_ROOT) else f"ReadWritePaths={_word(state)}\n"
    arguments = " ".join(map(_word, _arguments(spec)))
    bound = "CAP_NET_BIND_SERVICE" if _port(spec) < PRIVILEGED else ""
    ambient = f"AmbientCapabilities={bound}\n" if bound else ""
    return f"""[Unit]
Description=Gangline controller of {spec.name}
Wants=network-online.target
After=network-online.target {TIME_UNIT}
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStartPre=+/usr/bin/python3 -I {ARCHIVE} --unpack {CODE}
ExecStart={PYTHON} -X faulthandler -X pycache_prefix={CACHE}/pyc {CODE}/gangline.py {arguments}
User={USER}
Group={USER}
Restart=always
RestartSec=1
TimeoutStartSec={START_S}
TimeoutStopSec=20
TimeoutAbortSec={ABORT_S}
WatchdogSec={WATCHDOG_S}
StateDirectory=gangline
StateDirectoryMode=0700
CacheDirectory=gangline
CacheDirectoryMode=0700
RuntimeDirectory=gangline
RuntimeDirectoryMode=0755
UMask=0077
LimitNOFILE=1048576
OOMScoreAdjust=-500
NoNewPrivileges=yes
CapabilityBoundingSet={bound}
{ambient}ProtectSystem=strict
{writable}ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
DevicePolicy=closed
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
KeyringMode=private
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def _arguments(spec: ClusterSpec) -> Iterator[str]:
    yield from ("server", "run", "--cluster", spec.name, "--state", state_of(spec))
    yield from ("--listen", f"{_listening(spec)}:{_port(spec)}", "--socket", SOCKET)
    for name in names_of(spec.controller.address):
        yield from ("--own-ca", name)


def _word(text: str) -> str:
    """One word of a unit's line, whatever is in it (systemd.syntax(7), and `$` and `%` of systemd.service(5))."""
    if re.fullmatch(r"[\w./:@\[\]-]+", text, re.ASCII):
        return text
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{quoted}"'


def names_of(url: str) -> tuple[str, ...]:
    """The names that a controller's certificate is for."""
    return tuple(dict.fromkeys((place_of(url)[0] or "localhost", "localhost", "127.0.0.1")))


def place_of(url: str) -> tuple[str, int]:
    """Host and port of a controller's address; the port that is usual where it names none."""
    found = _URL.match(url)
    if found is None:
        return "", PORT
    return found["host"].strip("[]").lower(), int(found["port"] or PORT)


def _port(spec: ClusterSpec) -> int:
    return place_of(spec.controller.address)[1]


def _listening(spec: ClusterSpec) -> str:
    """The host's own address if the URL has just that one; else all of them, since something may be in between."""
    named, _ = place_of(spec.controller.address)
    host = host_of(spec)
    try:
        address = ipaddress.ip_address(named)
    except ValueError:
        return "0.0.0.0"  # noqa: S104 - with TLS and tokens; the name may be that of a balancer
    own = host is not None and host.address == named
    shown = str(address) if own else ("::" if address.version == 6 else "0.0.0.0")  # noqa: S104 - as above
    return f"[{shown}]" if address.version == 6 else shown
