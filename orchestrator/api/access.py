"""Who asks, and what they may: the one place where that is decided.

Comes in: a request's bearer token or the peer of its Unix socket, the wanted cluster's grants. Goes out: a `Caller`, or
Unauthenticated and Refused. Called by: gate (who), the routes (whether).

- A token acts as one POSIX name, with the role it was made with: no grant adds to it. Admins make tokens, so `operator`
  and `admin` in one are their word.
- On a Unix socket the kernel tells who asks. Root and the controller's own user are admins; others submit as themselves
  and have what grants give them.
- Once the cluster has grants, submitting needs one that names the queue, a queue above it, or the whole cluster.
- Jobs of others are for operators: of the cluster, or of the job's queue.
- `join` and `node` tokens open the agents' routes and nothing else. A node's token that was given to a key pair is
  worth something only over a connection that has shown that key, so a copy of it opens nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.api.bodies import header
from orchestrator.api.people import People, Person
from orchestrator.controller.view import View
from orchestrator.ledger.records import Token
from orchestrator.model.cluster import ClusterSpec, Grant, IdentitySource, Role, SiteKind
from orchestrator.model.errors import NotFound, Refused, Unauthenticated
from orchestrator.model.job import Owner

if TYPE_CHECKING:
    from starlette.types import Scope

    from orchestrator.controller.service import Controller

RANK = {Role.READ: 0, Role.SUBMIT: 1, Role.OPERATOR: 2, Role.ADMIN: 3}
JOIN, NODE = "join", "node"
ANY_NODE = "*"
PEER = "gangline.uid"  # where the protocol puts the uid of a Unix socket's peer into the scope
PEER_KEY = "gangline.key"  # and the SHA-256 (hex) of the public key that a TLS connection's peer has shown
MOST_SECRET = 256  # characters of a bearer token


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `role` is None for agents' tokens; `login`: told by the kernel, not by a token."""

    name: str
    role: Role | None
    kind: str = "user"  # or node, join
    token: str = ""
    login: bool = False

    @property
    def by(self) -> str:
        """As the ledger names them."""
        return f"{self.kind}:{self.name}"

    def has(self, role: Role) -> bool:
        """Whether their own role includes that one."""
        return self.role is not None and RANK[self.role] >= RANK[role]


class Access:
    """Answers for one controller."""

    def __init__(self, controller: Controller, people: People) -> None:
        self._controller = controller
        self._people = people
        self._own_uid = os.geteuid()

    @property
    def _view(self) -> View:
        return self._controller.view

    # --- who ------------------------------------------------------------------------------------------------

    async def caller(self, scope: Scope) -> Caller:
        """Who sends this request. Unauthenticated without a valid token or a known peer."""
        given = header(scope, b"authorization")
        if given:
            return self._by_token(given, scope.get(PEER_KEY, ""))
        uid = scope.get(PEER)
        if uid is not None:
            return await self._by_peer(uid)
        raise Unauthenticated(
            "access.no-token",
            "the request says not who asks",
            "send Authorization: Bearer TOKEN, or use the Unix socket on the controller's host",
        )

    def _by_token(self, given: str, shown: str) -> Caller:
        scheme, _, secret = given.partition(" ")
        secret = secret.strip()
        token = None
        if scheme.lower() == "bearer" and 0 < len(secret) <= MOST_SECRET:
            token = self._controller.token(secret)
        if token is None:
            raise Unauthenticated(
                "access.bad-token",
                "the token is not known here, or its time is over",
                "ask an admin for a new one (`gangline token create`)",
            )
        if token.role == NODE and token.key and token.key != shown:
            raise _without_key(token.name, shown)
        return _token_caller(token)

    async def _by_peer(self, uid: int) -> Caller:
        name = await self._people.name_of(uid)
        if uid in (0, self._own_uid):
            return Caller(name or str(uid), Role.ADMIN, login=True)
        if not name:
            raise Unauthenticated(
                "access.unknown-uid",
                f"the controller's host has no user with uid {uid}",
                "add it to the host's name service, or use a token",
            )
        return Caller(name, await self._login_role(name), login=True)

    async def _login_role(self, name: str) -> Role:
        """Everyone may try to submit; grants on the whole cluster give more."""
        best = Role.SUBMIT
        for grant in await self._grants_of(name):
            if grant.on == _EVERYWHERE and RANK[grant.role] > RANK[best]:
                best = grant.role
        return best

    # --- whether --------------------------------------------------------------------------------------------

    def require(self, caller: Caller, role: Role) -> None:
        """Refused unless the caller has the role everywhere."""
        if not caller.has(role):
            raise _refused(caller, role)

    async def require_job(self, caller: Caller, owner: str, queue: str, role: Role = Role.SUBMIT) -> None:
        """Refused unless it is the caller's own job (and they have `role`), or they operate on its queue."""
        if caller.has(Role.OPERATOR) or (caller.name == owner and caller.has(role)):
            return
        if caller.login and any(
            RANK[grant.role] >= RANK[Role.OPERATOR] and grant.on.queue in _upwards(self._view.cluster, queue)
            for grant in await self._grants_of(caller.name)
        ):
            return
        if caller.name == owner:
            raise _refused(caller, role)
        raise Refused(
            "access.other-owner",
            f"the job belongs to {owner}, and {caller.name} is no operator of queue {queue}",
            "ask its owner or an operator",
        )

    async def require_node(self, caller: Caller, pool: str) -> None:
        """Refused unless the caller is an operator, of the cluster or of the node's pool or site."""
        if caller.has(Role.OPERATOR):
            return
        cluster = self._view.cluster
        site = next((found.site for found in cluster.pools if found.name == pool), "") if cluster else ""
        for grant in await self._grants_of(caller.name) if caller.login else ():
            if RANK[grant.role] >= RANK[Role.OPERATOR] and (
                grant.on.pool == pool or (site and grant.on.site == site)
            ):
                return
        raise _refused(caller, Role.OPERATOR)

    async def owner_for(self, caller: Caller, queue: str) -> Owner:
        """As whom a job of this caller in this queue runs. Refused if they may not submit there or can't run jobs."""
        self.require(caller, Role.SUBMIT)
        person = await self._person(caller.name)
        if person is None:
            raise Refused(
                "access.unknown-user",
                f"the controller's host does not know the user {caller.name}",
                "add it to the host's name service: jobs run as that user",
            )
        cluster = self._view.cluster
        if cluster is not None:
            self._check_queue(cluster, caller, person, queue)
            _check_uid(cluster, person.owner)
        return person.owner

    async def _person(self, name: str) -> Person | None:
        """The user as the nodes have it: where the cluster pushes accounts, from its file, else from this host."""
        return _pushed(self._view.cluster, name) or await self._people.person(name)

    def _check_queue(self, cluster: ClusterSpec, caller: Caller, person: Person, queue: str) -> None:
        if not cluster.access.grants or caller.has(Role.OPERATOR):
            return
        places = ("", *_upwards(cluster, queue))
        for grant in _grants(cluster, person):
            on_queue = not grant.on.pool and not grant.on.site and grant.on.queue in places
            if RANK[grant.role] >= RANK[Role.SUBMIT] and on_queue:
                return
        raise Refused(
            "access.queue",
            f"{caller.name} may not submit to queue {queue}",
            "use another queue, or ask for a grant in the cluster's `access`",
        )

    async def _grants_of(self, name: str) -> tuple[Grant, ...]:
        cluster = self._view.cluster
        if cluster is None or not cluster.access.grants:
            return ()
        person = await self._person(name)
        return tuple(_grants(cluster, person)) if person is not None else ()


_EVERYWHERE = Grant(Role.READ, "").on


def require_agent(caller: Caller) -> None:
    """Refused unless the caller is a node: known before its message is read."""
    if caller.kind != NODE:
        raise Refused("access.not-a-node", "this route is for nodes", "join first: `gangline agent join`")


def agent_of(caller: Caller, node: str) -> None:
    """Refused unless the caller is that very node."""
    require_agent(caller)
    if caller.name != node:
        raise Refused(
            "access.other-node", f"this token is node {caller.name}'s, and the message is of {node}"
        )


def require_joiner(caller: Caller) -> None:
    """Refused unless the caller has a join token: known before its message is read."""
    if caller.kind != JOIN:
        raise Refused(
            "access.not-a-join-token",
            "joining takes a join token",
            "an admin makes one: `gangline token create --role join`",
        )


def joiner_of(caller: Caller, node: str) -> None:
    """Refused unless the caller has a join token for that node, or for any."""
    require_joiner(caller)
    if caller.name not in (node, ANY_NODE):
        raise Refused("access.other-node", f"this token lets node {caller.name} join, not {node}")


def role_of(text: str) -> Role:
    """A role by its name; NotFound for another word."""
    try:
        return Role(text)
    except ValueError:
        raise NotFound("access.no-role", f"there is no role {text!r}") from None


def _token_caller(token: Token) -> Caller:
    if token.role in (JOIN, NODE):
        return Caller(token.name, None, token.role, token.id)
    try:
        role = Role(token.role)
    except ValueError:  # a newer controller made it
        raise Unauthenticated(
            "access.bad-token", f"tokens of role {token.role!r} are not known here"
        ) from None
    return Caller(token.name, role, token=token.id)


def _without_key(node: str, shown: str) -> Unauthenticated:
    """A node's token that came without the key that it was given to: a copy of it, or a node that has lost its key."""
    what = "another key" if shown else "no key"
    return Unauthenticated(
        "access.node-key",
        f"node {node}'s token was given to a key pair, and this connection has shown {what}",
        "use the node's own key; if it is lost, let the node join again with a new join token "
        f"(`gangline token create --role join --name {node}`)",
    )


def _refused(caller: Caller, role: Role) -> Refused:
    has = str(caller.role) if caller.role is not None else f"a {caller.kind} token"
    return Refused(
        "access.role", f"this takes the role {role}, and {caller.name} has {has}", "ask an operator or admin"
    )


def _pushed(cluster: ClusterSpec | None, name: str) -> Person | None:
    """An account that the cluster's file names: its own group has its number, and the node knows the other ones."""
    if cluster is None or cluster.identity.source is not IdentitySource.PUSHED:
        return None
    for user in cluster.identity.users:
        if user.name == name:
            return Person(Owner(user.name, user.uid, user.uid), (user.name, *user.groups))
    return None


def _grants(cluster: ClusterSpec, person: Person) -> Iterator[Grant]:
    """The grants that reach a person, by name or POSIX group."""
    groups = {
        group.name
        for group in cluster.access.groups
        if person.owner.name in group.users or (group.posix and group.posix in person.groups)
    }
    return (grant for grant in cluster.access.grants if grant.to in groups)


def _upwards(cluster: ClusterSpec | None, queue: str) -> tuple[str, ...]:
    """The queue and those above it."""
    parents = {found.name: found.parent for found in cluster.queues} if cluster is not None else {}
    names = [queue]
    while (parent := parents.get(names[-1], "")) and parent not in names:
        names.append(parent)
    return tuple(names)


def _check_uid(cluster: ClusterSpec, owner: Owner) -> None:
    """System users run no jobs. On `local` sites the agents run as whoever started them, and for that person only."""
    if owner.uid >= cluster.identity.min_uid or all(site.kind is SiteKind.LOCAL for site in cluster.sites):
        return
    raise Refused(
        "access.uid-too-low",
        f"{owner.name} has uid {owner.uid}, and jobs run from uid {cluster.identity.min_uid} up",
        "submit as an ordinary user; `identity.min_uid` sets the bound",
    )
