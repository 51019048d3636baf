"""A cluster that somebody sends: as a document, or as a spec that was checked where it was written.

Comes in: bytes of a body. Goes out: a ClusterSpec, or an InputError with every fault and its place. Called by: cluster.

Documents go through `spec`, as files do. A metal site's inventory is a file beside the document, which a server does
not have: `gangline up` therefore checks at home and sends the result (`kind: ClusterSpec`), of which the names that
refer to others are looked at again here, since the controller must be able to trust them, and all
texts, since they reach the machines of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from orchestrator import spec as documents
from orchestrator.api import bodies
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import CodecError, decode
from orchestrator.model.errors import InputError
from orchestrator.model.host import PoolDesired
from orchestrator.planning.digest import digest_of
from orchestrator.wire.common import HOST_PATTERN, NAME_PATTERN
from orchestrator.wire.faults import shown

NAME = "cluster.yaml"  # what errors call the document


@dataclass(frozen=True, slots=True)
class Sent:
    """A cluster, what its hosts are to have, and the commit of its file, where the sender said so."""

    spec: ClusterSpec
    desired: tuple[PoolDesired, ...] = ()
    commit: str = ""


def cluster_in(body: bytes, *, yaml: bool) -> Sent:
    """The cluster of a body. InvalidDocument, InputError."""
    if not yaml:
        plain = bodies.parse(body)
        if isinstance(plain, dict) and plain.get("kind") == "ClusterSpec":
            return _checked(plain)
    return Sent(_from_text(body))


def _from_text(body: bytes) -> ClusterSpec:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InputError("request.not-utf8", f"byte {error.start} is not UTF-8") from None
    loaded = documents.load_cluster_text(text, NAME)
    if loaded.cluster is None:
        raise documents.InvalidDocument(loaded.errors)
    for site in loaded.cluster.sites:
        if site.inventory and not site.hosts:
            raise InputError(
                "cluster.inventory",
                f"site {site.name} names the inventory {site.inventory}, which is a file beside the document",
                "`gangline up` reads it and sends the result; over HTTP send `kind: ClusterSpec`",
                path=f"sites[{site.name}].inventory",
            )
    return loaded.cluster


def _checked(plain: dict[str, Any]) -> Sent:
    unknown = sorted(plain.keys() - {"apiVersion", "kind", "spec", "desired", "commit"})
    if unknown or plain.get("apiVersion") != "gangline/v1":
        raise InputError("cluster.bad-spec", "expected apiVersion gangline/v1, kind and spec", path="")
    found = _decoded(ClusterSpec, plain.get("spec"), "spec")
    desired = _decoded(tuple[PoolDesired, ...], plain.get("desired", []), "desired")
    commit = _decoded(str, plain.get("commit", ""), "commit")
    if any(one.pool not in {pool.name for pool in found.pools} for one in desired):
        raise InputError("cluster.bad-spec", "`desired` names a pool that the spec has not", path="desired")
    for one in desired:
        if one.digest != digest_of(one.desired):
            raise InputError(
                "cluster.bad-spec",
                f"the digest of pool {one.pool} is not that of what it describes",
                path="desired",
            )
    for problem in (*_problems(found), *documents.text_faults(found)):
        raise InputError(
            "cluster.bad-spec", problem, "check it with `gangline validate` and send it again", path="spec"
        )
    return Sent(found, desired, commit)


def _decoded(cls: Any, plain: Any, name: str) -> Any:
    try:
        return decode(cls, plain)
    except CodecError as error:
        raise InputError("cluster.bad-spec", error.problem, path=f"{name}.{error.path}".rstrip(".")) from None


def _problems(spec: ClusterSpec) -> Iterable[str]:
    """What would break the controller: names twice, names of nothing, queues in a circle."""
    if not spec.name:
        yield "the cluster has no name"
    yield from _numbers(spec, "spec")
    sites = [site.name for site in spec.sites]
    queues = {queue.name: queue.parent for queue in spec.queues}
    nodes = [node for pool in spec.pools for node in pool.nodes]
    for what, names in (
        ("cluster", [spec.name]),
        ("site", sites),
        ("pool", [pool.name for pool in spec.pools]),
        ("queue", [queue.name for queue in spec.queues]),
        ("node", nodes),
    ):
        if len(set(names)) != len(names):
            yield f"a {what} is named twice"
        yield from (f"{shown(name)} can't name a {what}" for name in names if not _is_name(what, name))
    for pool in spec.pools:
        if pool.site not in sites:
            yield f"pool {pool.name} stands on {pool.site!r}, which is no site"
    for name in queues:
        yield from _circle(name, queues)


def _is_name(what: str, name: str) -> bool:
    """As documents have them: an empty queue would be the parent of every one that has none."""
    return re.fullmatch(HOST_PATTERN if what == "node" else NAME_PATTERN, name) is not None


def _numbers(value: Any, path: str) -> Iterable[str]:
    """Nothing in a cluster is negative, or larger than what every reader of JSON keeps."""
    if isinstance(value, int) and not 0 <= value < 2**53:
        yield f"{path} is out of range"
    elif is_dataclass(value):
        for field in fields(value):
            yield from _numbers(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _numbers(item, path)


def _circle(name: str, parents: dict[str, str]) -> Iterable[str]:
    seen = [name]
    while parent := parents.get(seen[-1], ""):
        if parent not in parents:
            yield f"queue {seen[-1]} lies below {parent!r}, which is no queue"
            return
        if parent in seen:
            yield f"queue {name} lies below itself"
            return
        seen.append(parent)
