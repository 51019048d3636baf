"""Who may do what: the whole table of roles and routes, then grants, owners, uids and peers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.api.app import make_fastapi
from orchestrator.model.cluster import (
    Access,
    ClusterSpec,
    Grant,
    Group,
    Identity,
    Queue,
    Role,
    Scope,
    Site,
    SiteKind,
)
from tests.api.served import PREFIX, Answer, Served, document
from tests.builders import cluster, pool

# Columns: nobody, read, submit (on a job of another), owner (submit, on an own job), operator, admin, node, join.
WHO = ("nobody", "read", "submit", "owner", "operator", "admin", "node", "join")
TABLE = """
POST   /jobs                       401 403 201 201 201 201 403 403
GET    /jobs                       401 200 200 200 200 200 403 403
GET    /jobs/{job}                 401 200 200 200 200 200 403 403
GET    /jobs/{job}/wait?timeout=0  401 200 200 200 200 200 403 403
GET    /jobs/{job}/explain         401 200 200 200 200 200 403 403
GET    /jobs/{job}/logs            401 403 403 404 404 404 403 403
POST   /jobs/{job}/hold            401 403 403 200 200 200 403 403
POST   /jobs/{job}/release         401 403 403 409 409 409 403 403
POST   /jobs/{job}/requeue         401 403 403 409 409 409 403 403
POST   /jobs/{job}/prioritize      401 403 403 200 200 200 403 403
POST   /jobs/{job}/set             401 403 403 200 200 200 403 403
POST   /jobs/{job}/cancel          401 403 403 200 200 200 403 403
GET    /nodes                      401 200 200 200 200 200 403 403
GET    /nodes/p-1                  401 200 200 200 200 200 403 403
POST   /nodes/p-1/cordon           401 403 403 403 200 200 403 403
POST   /nodes/p-1/uncordon         401 403 403 403 200 200 403 403
GET    /gpus                       401 200 200 200 200 200 403 403
GET    /topology                   401 200 200 200 200 200 403 403
POST   /what-if                    401 403 200 200 200 200 403 403
GET    /queues                     401 200 200 200 200 200 403 403
GET    /status                     401 200 200 200 200 200 403 403
GET    /cluster                    401 200 200 200 200 200 403 403
PUT    /cluster                    401 403 403 403 422 422 403 403
GET    /recorded                   401 200 200 200 200 200 403 403
GET    /records                    401 200 200 200 200 200 403 403
GET    /records/r999999            401 404 404 404 404 404 403 403
GET    /applies                    401 200 200 200 200 200 403 403
POST   /applies                    401 403 403 403 201 201 403 403
GET    /applies/apply-1            401 404 404 404 404 404 403 403
POST   /applies/apply-1/lease      401 403 403 403 404 404 403 403
POST   /applies/apply-1/end        401 403 403 403 404 404 403 403
POST   /applies/apply-1/steps/s1/start 401 403 403 403 404 404 403 403
POST   /applies/apply-1/steps/s1/end 401 403 403 403 404 404 403 403
POST   /nodes/p-1/configured       401 403 403 403 409 409 403 403
GET    /orphans                    401 200 200 200 200 200 403 403
POST   /recover                    401 403 403 403 200 200 403 403
GET    /version                    401 200 200 200 200 200 403 403
GET    /healthz                    200 200 200 200 200 200 200 200
GET    /ca                         404 404 404 404 404 404 404 404
GET    /openapi.json               200 200 200 200 200 200 200 200
GET    /tokens                     401 200 200 200 200 200 403 403
POST   /tokens                     401 403 403 403 403 201 403 403
DELETE /tokens/tok-none            401 404 404 404 403 404 403 403
POST   /agent/join                 401 403 403 403 403 403 403 200
GET    /agent                      200 200 200 200 200 200 200 200
POST   /agent/join-aws             401 401 401 401 401 401 401 401
POST   /agent/sync                 401 403 403 403 403 403 200 403
POST   /agent/reads/0?size=0&ended=1 401 403 403 403 403 403 404 403
GET    /nowhere                    401 404 404 404 404 404 404 404
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]
CASES = [
    (method, path, who, int(status))
    for method, path, *statuses in ROWS
    for who, status in zip(WHO, statuses, strict=True)
]
FACTS = {"boot_id": "b", "cores": 1, "memory": 1}
BODIES: dict[str, Any] = {
    "/jobs": document(),
    "/jobs/{job}/prioritize": {"priority": 5},
    "/what-if": document(),
    "/cluster": {"apiVersion": "gangline/v1", "kind": "ClusterSpec", "spec": {}},
    "/applies": {"holder": "alice@ctl", "digest": "d", "steps": []},
    "/applies/apply-1/end": {"outcome": "done"},
    "/applies/apply-1/steps/s1/end": {"ok": True},
    "/nodes/p-1/configured": {"desired": "d"},
    "/tokens": {"role": "read", "name": "alice"},
    "/agent/join": {"node": "p-2", "facts": FACTS},
    "/agent/join-aws": {"document": "{}", "signature": "", "facts": FACTS},
    "/agent/sync": {"node": "p-1", "outbox": "o", "boot_id": "b"},
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    served = Served(tmp_path_factory.mktemp("access"), cluster(pool("p", nodes=2)))
    yield served
    served.close()


@pytest.mark.parametrize(("method", "path", "who", "status"), CASES)
def test_role_and_route(shared: Served, method: str, path: str, who: str, status: int) -> None:
    job = shared.submit(document("hers", nodes=2, per_node={"gpus": 8}), role="submit", name="alice")
    how: dict[str, Any] = {"body": BODIES.get(path, {} if method == "POST" else None)}
    if who == "nobody":
        how["anonymous"] = True
    else:
        how |= {"role": "submit", "name": "alice"} if who == "owner" else {"role": who, "name": _name(who)}
    if path.startswith("/agent/reads"):
        how.pop("body")

    answer = shared.request(method, PREFIX + path.format(job=job), **how)

    shared.post(f"/jobs/{job}/cancel", {})
    assert answer.status == status, answer.body
    if status >= 400:
        assert answer.json()["code"]
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")


def _name(who: str) -> str:
    return {"node": "p-1", "join": "*"}.get(who, "bob")


def test_table_has_every_route() -> None:
    """A new route needs its row."""
    known = {(method, _shape(_without_names(path))) for method, path, *_ in ROWS}
    documented = make_fastapi().openapi()["paths"]
    routes = {(method.upper(), _shape(path)) for path, methods in documented.items() for method in methods}
    routes = {(method, path.replace("/agent/reads/{}", "/agent/reads/0")) for method, path in routes}

    assert routes - known == set()
    assert known - routes == {("GET", "/openapi.json"), ("GET", "/nowhere")}


def _without_names(path: str) -> str:
    """A path of the table with {} for what names one thing."""
    return re.sub(r"/(apply-1|s1|p-1|tok-none|r999999)(?=/|$)", "/{}", path)


def _shape(path: str) -> str:
    """A path with its parameters as {}."""
    parts = path.removeprefix(PREFIX).partition("?")[0].split("/")
    return "/".join("{}" if part.startswith("{") else part for part in parts)


# --- tokens ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        "Bearer gln_wrong",
        "Bearer ",
        "Bearer",
        "Basic YTpi",
        "gln_admin-root",
        "Bearer " + "x" * 5000,
        "Bearer é",
    ],
)
def test_what_is_no_known_token_is_unauthenticated(served: Served, given: str) -> None:
    served.token("admin", "root")

    answer = served.get("/status", headers={"authorization": given}, anonymous=True)

    assert (answer.status, answer.code) == (401, "access.bad-token")
    assert given.rsplit(maxsplit=1)[-1] not in answer.body.decode().replace("Bearer", "")


def test_bad_token_is_refused_even_where_the_peer_is_known(served: Served) -> None:
    assert served.get("/status", token="gln_wrong", uid=0).status == 401


def test_expired_token_is_unauthenticated(served: Served) -> None:
    secret = served.post("/tokens", {"role": "read", "name": "alice", "expires_s": 60}).json()["secret"]

    assert served.get("/status", token=secret).status == 200
    served.clock.advance(60)

    assert served.get("/status", token=secret).code == "access.bad-token"


# --- owners ---------------------------------------------------------------------------------------------------------


def test_job_runs_as_the_name_of_the_token(served: Served) -> None:
    job = served.submit(role="submit", name="alice")

    owner = served.controller.view.jobs[job].owner
    assert (owner.name, owner.uid, owner.gid, owner.groups) == ("alice", 1001, 1001, (1001, 2000))


def test_name_that_the_host_does_not_know_submits_nothing(served: Served) -> None:
    answer = served.post("/jobs", document(), role="submit", name="mallory")

    assert (answer.status, answer.code) == (403, "access.unknown-user")


def metal(spec: ClusterSpec) -> ClusterSpec:
    """The same cluster on hosts of its own."""
    return replace(spec, sites=(Site("here", SiteKind.METAL),))


@pytest.mark.parametrize(
    ("spec", "name", "status"),
    [
        (cluster(), "daemon", 201),  # agents of a local site run as whoever started them
        (metal(cluster()), "daemon", 403),
        (metal(cluster()), "root", 403),
        (metal(cluster()), "alice", 201),
        (replace(metal(cluster()), identity=Identity(min_uid=2000)), "alice", 403),
    ],
)
def test_system_users_run_jobs_on_local_sites_only(
    empty: Served, spec: ClusterSpec, name: str, status: int
) -> None:
    empty.apply(spec, ready=False)

    answer = empty.post("/jobs", document(), role="submit", name=name)

    assert answer.status == status
    assert status == 201 or answer.code == "access.uid-too-low"


# --- peers of a Unix socket -----------------------------------------------------------------------------------------


def test_peer_submits_as_itself(served: Served) -> None:
    job = served.submit(uid=1001)

    assert served.controller.view.jobs[job].owner.name == "alice"
    assert served.post("/recover", {}, uid=1001).code == "access.role"


def test_root_is_an_admin_on_its_own_socket(served: Served) -> None:
    assert served.post("/tokens", {"role": "submit", "name": "alice"}, uid=0).status == 201


def test_peer_without_a_name_is_unauthenticated(served: Served) -> None:
    answer = served.get("/status", uid=4242)

    assert (answer.status, answer.code) == (401, "access.unknown-uid")


# --- grants ---------------------------------------------------------------------------------------------------------

GROUPS = (Group("team", posix="research"), Group("ops", posix="infra"), Group("one", users=("bob",)))
QUEUES = (Queue("default"), Queue("research"), Queue("deep", parent="research"))


def granted(*grants: Grant) -> ClusterSpec:
    """A cluster with grants to `team` (alice), `ops` (carol) and `one` (bob)."""
    return replace(cluster(pool("p", nodes=2), queues=QUEUES), access=Access(GROUPS, grants))


SUBMIT_RESEARCH = Grant(Role.SUBMIT, "team", Scope(queue="research"))


@pytest.mark.parametrize(
    ("grants", "name", "queue", "allowed"),
    [
        ((), "bob", "research", True),
        ((SUBMIT_RESEARCH,), "alice", "research", True),
        ((SUBMIT_RESEARCH,), "alice", "deep", True),
        ((SUBMIT_RESEARCH,), "alice", "default", False),
        ((SUBMIT_RESEARCH,), "bob", "research", False),
        ((Grant(Role.SUBMIT, "team"),), "alice", "default", True),
        ((Grant(Role.OPERATOR, "one"),), "bob", "deep", True),
        ((Grant(Role.READ, "team"),), "alice", "default", False),
        ((Grant(Role.SUBMIT, "team", Scope(pool="p")),), "alice", "default", False),
        ((Grant(Role.SUBMIT, "team", Scope(queue="deep")),), "alice", "research", False),
    ],
)
def test_grants_decide_where_one_submits(
    empty: Served, grants: tuple[Grant, ...], name: str, queue: str, allowed: bool
) -> None:
    empty.apply(granted(*grants))

    answer = empty.post("/jobs", document(queue=queue), role="submit", name=name)

    assert answer.status == (201 if allowed else 403)
    assert allowed or answer.code == "access.queue"


def act(served: Served, verb: str, **who: Any) -> Answer:
    """Do something to a job of alice's in queue deep."""
    job = served.submit(document(queue="deep", hold=True), role="submit", name="alice")
    return served.post(f"/jobs/{job}/{verb}", {}, **who)


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [
        (Grant(Role.OPERATOR, "ops"), True),
        (Grant(Role.OPERATOR, "ops", Scope(queue="research")), True),
        (Grant(Role.OPERATOR, "ops", Scope(queue="deep")), True),
        (Grant(Role.OPERATOR, "ops", Scope(queue="default")), False),
        (Grant(Role.OPERATOR, "ops", Scope(pool="p")), False),
        (Grant(Role.SUBMIT, "ops"), False),
        (Grant(Role.OPERATOR, "one"), False),
    ],
)
def test_operators_act_on_jobs_of_their_queues(empty: Served, grant: Grant, allowed: bool) -> None:
    empty.apply(granted(SUBMIT_RESEARCH, grant))

    answer = act(empty, "cancel", uid=1003)

    assert answer.status == (200 if allowed else 403)


def test_grants_add_nothing_to_a_token(empty: Served) -> None:
    """A token does what it was made for, whoever it belongs to."""
    empty.apply(granted(SUBMIT_RESEARCH, Grant(Role.OPERATOR, "ops")))

    assert act(empty, "cancel", role="submit", name="carol").status == 403
    assert act(empty, "cancel", role="operator", name="carol").status == 200


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [
        (Grant(Role.OPERATOR, "ops"), True),
        (Grant(Role.OPERATOR, "ops", Scope(pool="p")), True),
        (Grant(Role.OPERATOR, "ops", Scope(site="here")), True),
        (Grant(Role.OPERATOR, "ops", Scope(pool="q")), False),
        (Grant(Role.SUBMIT, "ops"), False),
    ],
)
def test_operators_of_a_pool_or_site_cordon_its_nodes(empty: Served, grant: Grant, allowed: bool) -> None:
    empty.apply(granted(grant))

    assert empty.post("/nodes/p-1/cordon", {}, uid=1003).status == (200 if allowed else 403)


def test_admin_by_grant_makes_tokens(empty: Served) -> None:
    empty.apply(granted(Grant(Role.ADMIN, "ops")))

    assert empty.post("/tokens", {"role": "submit", "name": "alice"}, uid=1003).status == 201
    assert empty.post("/tokens", {"role": "submit", "name": "alice"}, uid=1002).status == 403
