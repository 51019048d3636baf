"""Checks of the controller's place and of the users that Gangline makes on nodes.

Comes in: `Context`. Goes out: faults. Called by: `checks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.model.cluster import IdentitySource
from orchestrator.spec.context import Context, given, rows, run, sure
from orchestrator.spec.nodes import nodes_of_site
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster import PosixGroupDocument, UserDocument
from orchestrator.wire.cluster_sites import MetalSite
from orchestrator.wire.faults import Loc, plain, problem, shown, suggestion
from orchestrator.wire.quantities import seconds_text

LEAST_BACKUP_S = 60  # a copy reads the whole ledger; more often than this they would never end


def backup(context: Context) -> Iterator[Found]:
    """Copies are not made more often than they can be."""
    every = context.document.controller.backup.every
    if every < LEAST_BACKUP_S:
        found = problem(
            "spec.out-of-range",
            got=shown(seconds_text(every)),
            side="too short",
            advice=f"the least is {seconds_text(LEAST_BACKUP_S)}",
        )
        yield Found(("controller", "backup", "every"), found)


def users(context: Context) -> Iterator[Found]:
    """Users and groups are made only where nothing else makes them; each has a name and a number of its own."""
    identity = context.document.identity
    foreign = [name for name in ("users", "groups") if given(identity, name)]
    if foreign and identity.source != IdentitySource.PUSHED:
        for name in foreign:
            advice = f"{name} come from source {identity.source}: remove them here, or write source: pushed"
            found = problem(
                "spec.not-for-kind", what="source", kind=identity.source, field=name, advice=advice
            )
            yield Found(("identity", name), found, "key")
        return
    names: dict[Any, None] = {}
    uids: dict[Any, str] = {}
    for index, user in rows(identity.users):
        yield from run((_user,), user, ("identity", "users", index), identity.min_uid, names, uids)
    groups = dict.fromkeys(names)  # each user has a group of the user's own name and number
    gids: dict[Any, None] = dict.fromkeys(uids)
    for index, group in rows(identity.groups):
        yield from run((_group,), group, ("identity", "groups", index), groups, gids)


def _group(
    group: PosixGroupDocument, loc: Loc, names: dict[Any, None], gids: dict[Any, None]
) -> Iterator[Found]:
    if group.name in names:
        yield Found((*loc, "name"), problem("spec.duplicate-name", name=group.name, what="group"))
    if group.gid in gids:
        yield Found((*loc, "gid"), problem("spec.duplicate-item", name=group.gid))
    names[group.name] = gids[group.gid] = None


def _user(
    user: UserDocument, loc: Loc, least: int, names: dict[Any, None], uids: dict[Any, str]
) -> Iterator[Found]:
    if user.name in names:
        yield Found((*loc, "name"), problem("spec.duplicate-name", name=user.name, what="user"))
    names[user.name] = None
    if user.uid < least:
        advice = f"jobs of users under identity.min_uid {least} are refused"
        found = problem("spec.out-of-range", got=shown(user.uid), side="too small", advice=advice)
        yield Found((*loc, "uid"), found)
    elif user.uid in uids:
        yield Found((*loc, "uid"), problem("spec.duplicate-item", name=user.uid))
    uids.setdefault(user.uid, str(user.name))
    seen: dict[Any, None] = {}
    for number, group in rows(user.groups):
        if group in seen:
            yield Found((*loc, "groups", number), problem("spec.duplicate-item", name=group))
        seen[group] = None


def called_by_https(context: Context) -> Iterator[Found]:
    """A controller on a host or instance of its own is called from elsewhere: by an address, in a way that nobody can
    listen to."""
    controller = context.document.controller
    field = "host" if controller.host is not None else "instance" if controller.instance is not None else ""
    if not field:
        return
    advice = f"as agents and people reach that {field}: https://HOST:7443"
    if not given(controller, "address"):
        found = problem("spec.needs-field", field=field, other="address", advice=f"add one, {advice}")
        yield Found(("controller", field), found, "key")
    elif controller.address is not None and not controller.address.startswith("https://"):
        found = problem("spec.bad-url", got=shown(controller.address), advice=f"write one of https, {advice}")
        yield Found(("controller", "address"), found)


def controller_host(context: Context) -> Iterator[Found]:
    """The controller's host is a host of some metal site."""
    name = context.document.controller.host
    known = _metal_hosts(context)
    if name is not None and known is not None and name not in known:
        what = "host of a metal site"
        advice = suggestion(name, sorted(known)[:1000], what)
        found = problem("spec.dangling-reference", what=what, name=plain(name, 60), advice=advice)
        yield Found(("controller", "host"), found)


def _metal_hosts(context: Context) -> set[str] | None:
    """The hosts of all metal sites; None where one of them could not be read."""
    known: set[str] = set()
    for site in context.document.sites:
        sure(site)
        hosts = nodes_of_site(context, site.name) if isinstance(site, MetalSite) else frozenset()
        if hosts is None:
            return None
        known |= hosts
    return known


NAMES = (backup, called_by_https, users)
PLACES = (controller_host,)
