"""What the hosts of a pool must have, from the spec alone: the one source for the roles and for the check.

Comes in: the spec, a pool of a metal site, and what was resolved outside it. Goes out: `Desired`. Called by: plan
(compares it with the recorded one), provision.metal (renders and checks it).

Every file here belongs to Gangline as a whole and is always wanted, if need be with nothing but its first line: so
what leaves the spec leaves the file too. Hosts of one pool share one `Desired`; texts hold `@NODE@` where they differ.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.model.cluster import (
    ClusterSpec,
    Emulate,
    Host,
    Identity,
    IdentitySource,
    Pool,
    Site,
    SiteKind,
    User,
)
from orchestrator.model.host import Desired, Item, ItemKind, RoleState
from orchestrator.model.installed import (
    AGENT_ARCHIVE,
    AGENT_CONFIG,
    AGENT_STATE,
    AGENT_UNIT,
    AGENT_UNIT_FILE,
    FOLDERS,
    LIMITS_FILE,
    LOGIN,
    LOGIN_FILE,
    LOGIN_UNIT,
    MEMLOCK,
    TIME_UNIT,
    unit_text,
)
from orchestrator.planning.items import file_item as _file
from orchestrator.planning.items import folder_item as _folder
from orchestrator.planning.items import unit_item as _unit

BASE, AGENT = "base", "agent"  # the roles, in the order in which they run

JOIN_TOKEN_FILE = "/etc/gangline/join"  # noqa: S105 - where it lies, not what it is; the agent's enrolment writes it
SECRETS = (  # what lets a host in, as patterns of a shell (agent/keypair.py); they leave it when it is retired
    JOIN_TOKEN_FILE,
    *(f"{AGENT_STATE}/{name}" for name in ("token", "identity.pem", "joining-*.key")),
)
SYSCTL_FILE = "/etc/sysctl.d/90-gangline.conf"
TIME_FILE = "/etc/chrony/conf.d/gangline.conf"

# What Gangline itself needs: a time source (leases and logs), and the interpreter of the agent.
OWN_PACKAGES = ("chrony", "python3")

# Packages whose new version is in force only without running work: kernels need a reboot, and the parts of a GPU driver
# must be exchanged together. Ordinary ones are exchanged under running work, as distributions do.
KERNEL_PACKAGES = ("linux-image", "linux-modules", "kernel")
HEAVY_PACKAGES = (*KERNEL_PACKAGES, "nvidia-", "libnvidia-", "cuda-drivers", "mlnx-", "doca-")

MADE = "# Written by Gangline from the cluster's file; `gangline apply` undoes changes made here.\n"


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the spec does not say: the agent's code by its SHA-256, the controller's address, where a host keeps the
    CA that signed the controller's certificate (empty: no TLS, on loopback only), this version of Gangline, and the CA
    itself in PEM (empty: hosts have it from elsewhere)."""

    archive_sha256: str
    controller_url: str
    ca_path: str
    gangline_version: str
    ca_pem: str = ""


def desired(spec: ClusterSpec, pool: Pool, resolved: Resolved) -> Desired:
    """What the hosts of a pool must have; nothing if Gangline does not configure hosts of its site's kind."""
    site = spec.site_of(pool)
    if site.kind is not SiteKind.METAL:
        return Desired(())
    return Desired(
        (
            RoleState(BASE, tuple(_base(site, spec.identity))),
            RoleState(AGENT, tuple(_agent(spec, pool, resolved))),
        )
    )


def hosts_of(spec: ClusterSpec, pool: Pool) -> tuple[Host, ...]:
    """The hosts of a pool in its order; one without an address, or in no inventory, is reached by its own name."""
    known = {host.name: host for host in spec.site_of(pool).hosts}
    found = (known.get(name) or Host(name) for name in pool.nodes)
    return tuple(host if host.address else replace(host, address=host.name) for host in found)


# --- base ------------------------------------------------------------------------------------------------------------


def _base(site: Site, identity: Identity) -> Iterator[Item]:
    yield from (_folder(path, mode) for path, mode in FOLDERS)
    yield from _packages(site)
    yield from _sysctls(site)
    yield _file(LIMITS_FILE, MADE + MEMLOCK)
    yield _file(LOGIN_FILE, MADE + LOGIN, restarts=(LOGIN_UNIT,))
    yield from _time_sync(site)
    if identity.source is IdentitySource.PUSHED:
        yield from (Item(ItemKind.GROUP, one.name, (("gid", str(one.gid)),)) for one in identity.groups)
        yield from (_user(user) for user in identity.users)


def _packages(site: Site) -> Iterator[Item]:
    """A version is held, so that no upgrade moves it; whether others are held is not Gangline's affair."""
    wanted = dict.fromkeys(OWN_PACKAGES, "") | dict(site.system.packages)
    for name in sorted(wanted):
        version = wanted[name]
        held = (("held", "yes"),) if version else ()
        values = (*held, ("version", version))
        reboots, disturbs = name.startswith(KERNEL_PACKAGES), name.startswith(HEAVY_PACKAGES)
        yield Item(ItemKind.PACKAGE, name, values, reboots=reboots, disturbs=disturbs)


def _sysctls(site: Site) -> Iterator[Item]:
    lines = "".join(f"{key} = {value}\n" for key, value in site.system.sysctls)
    yield _file(SYSCTL_FILE, MADE + lines)
    for key, value in site.system.sysctls:
        yield Item(ItemKind.SYSCTL, key, (("value", value),))


def _time_sync(site: Site) -> Iterator[Item]:
    lines = "".join(f"server {server} iburst\n" for server in site.system.time_servers)
    yield _file(TIME_FILE, MADE + lines, restarts=(TIME_UNIT,))
    yield _unit(TIME_UNIT)


def _user(user: User) -> Item:
    values = (
        ("groups", ",".join(user.groups)),
        ("home", f"/home/{user.name}"),
        ("shell", "/bin/bash"),
        ("system", "no"),
        ("uid", str(user.uid)),
    )
    return Item(ItemKind.USER, user.name, values)


# --- agent -----------------------------------------------------------------------------------------------------------


def _agent(spec: ClusterSpec, pool: Pool, resolved: Resolved) -> Iterator[Item]:
    again = (AGENT_UNIT,)
    yield Item(ItemKind.ARCHIVE, AGENT_ARCHIVE, (("sha256", resolved.archive_sha256),), restarts=again)
    config = json.dumps(_agent_config(spec, pool, resolved), indent=2, sort_keys=True) + "\n"
    yield _file(AGENT_CONFIG, config, restarts=again)
    if resolved.ca_path and resolved.ca_pem:
        yield _file(resolved.ca_path, resolved.ca_pem, restarts=again)
    yield _file(AGENT_UNIT_FILE, MADE + unit_text(), restarts=again)
    yield _unit(AGENT_UNIT)


def _agent_config(spec: ClusterSpec, pool: Pool, resolved: Resolved) -> dict[str, Any]:
    """What `agent.config` reads. A host that shows fewer GPUs than it should must say so, not pretend to have them:
    they are emulated only where the pool says so itself."""
    gpu = pool.gpu
    emulate = Emulate.ALWAYS if gpu is not None and gpu.emulate is Emulate.ALWAYS else Emulate.NEVER
    gpus: dict[str, Any] = {"emulate": str(emulate)}
    if gpu is not None:
        gpus |= {"model": gpu.model, "count": gpu.count, "memory": gpu.memory}
    return {
        "node": "@NODE@",
        "url": spec.controller.address or resolved.controller_url,
        "ca": resolved.ca_path,
        "join_token_file": JOIN_TOKEN_FILE,
        "state_dir": AGENT_STATE,
        "gpus": gpus,
        "cores": pool.cores,
        "memory": pool.memory,
        "min_uid": spec.identity.min_uid,
    }


# --- what is wanted no more ------------------------------------------------------------------------------------------


OWN_PLACES = ("/etc/", "/opt/", "/var/lib/")
OWN_MARK = "gangline"  # in the name of every file and unit that is Gangline's own, or of a folder above it


def let_go(before: Desired, after: Desired, known: Identity) -> Desired:
    """What is in `before` and in `after` no more: roles undo it where leaving it would bind the host (a held package, a
    user's account), since nothing else remembers it.

    `before` is what whoever applied last has said, and root undoes it: so only files and units by Gangline's name go,
    and accounts of `known`, the recorded `identity`, which admins alone may change.
    """
    kept = {(role.role, item.kind, item.name) for role in after.roles for item in role.items}
    roles = (
        RoleState(
            role.role,
            tuple(
                item
                for item in role.items
                if (role.role, item.kind, item.name) not in kept and _is_ours(item, known)
            ),
        )
        for role in before.roles
    )
    return Desired(tuple(role for role in roles if role.items))


def _is_ours(item: Item, known: Identity) -> bool:
    if item.kind in (ItemKind.FILE, ItemKind.ARCHIVE):
        plain = posixpath.normpath(item.name) == item.name and item.name.startswith(OWN_PLACES)
        return plain and OWN_MARK in item.name
    if item.kind is ItemKind.UNIT:
        return item.name.startswith(OWN_MARK)
    return item.kind is not ItemKind.USER or any(user.name == item.name for user in known.users)
