"""Texts of a cluster that came as a spec and not as a document: from a client, or from a controller's records.

Comes in: a decoded `ClusterSpec`. Goes out: what no document could have said, as sentences. Called by: api (before it
is recorded), cli (before it is acted on).

Such texts end up in files that programs read on somebody's machine: OpenSSH's config and Ansible's variables on that of
whoever applies, units and lists of packages on hosts. A line feed in one of them would be a line of that file. So every
text has to be what the document's own field would take, whoever has sent or kept it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from pydantic_core import PydanticCustomError

from orchestrator.model.cluster import ClusterSpec, Site
from orchestrator.wire.cluster import Address
from orchestrator.wire.cluster_sites import PackageName, PackageVersion, SysctlKey
from orchestrator.wire.common import AbsolutePath, HostName, Name, Secret, UserName
from orchestrator.wire.faults import shown
from orchestrator.wire.leaf import Leaf

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

Said = tuple[str, Any, str]  # where, the kind of text, the text


def text_faults(spec: ClusterSpec) -> Iterator[str]:
    """What is wrong with the texts of a spec; nothing if a document could have said them all."""
    for where, text in _texts(spec, "spec"):
        if _CONTROL.search(text):
            yield f"{where} has a character that no document may have: {shown(text)}"
    for where, kind, text in (*_of_cluster(spec), *(said for site in spec.sites for said in _of_site(site))):
        if text and not _fits(kind, text):
            yield f"{where} can't be {shown(text)}"


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _texts(getattr(value, field.name), f"{where}.{field.name}")
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _texts(item, where)


def _of_cluster(spec: ClusterSpec) -> Iterator[Said]:
    yield "spec.name", Name, spec.name
    yield "spec.controller.address", Address, spec.controller.address
    yield "spec.controller.state", AbsolutePath, spec.controller.state
    for user in spec.identity.users:
        yield from (("spec.identity.users", UserName, name) for name in (user.name, *user.groups))
    for group in spec.identity.groups:
        yield "spec.identity.groups", UserName, group.name
    for storage in spec.storage:
        yield "spec.storage.path", AbsolutePath, storage.path
    for pool in spec.pools:
        yield "spec.pools.name", Name, pool.name
        yield from (("spec.pools.nodes", HostName, node) for node in pool.nodes)


def _of_site(site: Site) -> Iterator[Said]:
    where = "spec.sites"
    yield f"{where}.name", Name, site.name
    yield f"{where}.ssh.user", UserName, site.ssh.user
    yield f"{where}.ssh.jump", HostName, site.ssh.jump
    yield f"{where}.ssh.key", Secret, site.ssh.key
    for host in site.hosts:
        yield from ((f"{where}.hosts", HostName, text) for text in (host.name, host.address, host.bmc))
    for name, version in site.system.packages:
        yield f"{where}.system.packages", PackageName, name
        yield f"{where}.system.packages", PackageVersion, version
    yield from ((f"{where}.system.sysctls", SysctlKey, key) for key, _ in site.system.sysctls)
    yield from ((f"{where}.system.time_servers", HostName, name) for name in site.system.time_servers)


def _fits(kind: Any, text: str) -> bool:
    leaf = next(one for one in get_args(kind) if isinstance(one, Leaf))
    try:
        leaf.read(text)
    except PydanticCustomError:
        return False
    return True
