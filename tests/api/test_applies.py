"""Applies and what was recorded, over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import decode, encode
from orchestrator.model.host import Desired, HostFacts, Item, ItemKind, PoolDesired, RoleState
from orchestrator.planning.digest import digest_of
from orchestrator.wire import api_apply as wire
from tests.api.served import Served
from tests.builders import cluster, pool

STEP = {
    "id": "p.1.configure",
    "kind": "configure",
    "why": "sysctl",
    "pool": "p",
    "nodes": ["p-1"],
    "roles": ["base"],
    "batch": 1,
}
START: dict[str, Any] = {"holder": "alice@ctl", "digest": "d", "steps": [STEP], "commit": "0123abc"}


def desired(name: str = "p") -> PoolDesired:
    made = Desired((RoleState("base", (Item(ItemKind.PACKAGE, "chrony", (("version", ""),)),)),))
    return PoolDesired(name, digest_of(made), made)


def put(served: Served, **more: Any) -> Any:
    body = {"apiVersion": "gangline/v1", "kind": "ClusterSpec", "spec": encode(cluster(pool("p", nodes=2)))}
    return served.request("PUT", "/api/v1/cluster", body=body | more)


def test_an_apply_shows_its_steps_as_they_go(served: Served) -> None:
    began = served.post("/applies", START)
    assert began.status == 201
    name = began.json()["id"]
    served.post(f"/applies/{name}/steps/{STEP['id']}/start", {})
    (during,) = wire.ApplyList.model_validate_json(served.get("/applies").body).items
    assert [step.state for step in during.steps] == ["started"]
    result = {"host": "p-1", "ok": False, "error": "no space left", "changed": 2}
    served.post(f"/applies/{name}/steps/{STEP['id']}/end", {"ok": False, "hosts": [result]})
    served.post(f"/applies/{name}/end", {"outcome": "partial", "detail": "p-1"})
    found = wire.Apply.model_validate_json(served.get(f"/applies/{name}").body)
    assert (found.outcome, found.detail, found.commit) == ("partial", "p-1", "0123abc")
    assert [(each.host, each.ok, each.error, each.changed) for each in found.steps[0].hosts] == [
        ("p-1", False, "no space left", 2)
    ]
    assert (found.steps[0].state, found.steps[0].nodes, found.steps[0].roles) == ("failed", ["p-1"], ["base"])


def test_a_second_holder_hears_who_has_the_lease(served: Served) -> None:
    served.post("/applies", START)
    answer = served.post("/applies", START | {"holder": "bob@laptop"})
    assert (answer.status, answer.code) == (409, "apply.leased")
    assert "alice@ctl" in answer.body.decode()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"lease_s": 0}, "body.lease_s"),
        ({"holder": ""}, "body.holder"),
        ({"steps": [STEP, STEP]}, "body.steps"),
        ({"steps": [STEP | {"kind": "dance"}]}, "body.steps.0.kind"),
        ({"more": 1}, "body.more"),
    ],
)
def test_a_bad_start_is_refused_with_its_place(served: Served, change: dict[str, Any], place: str) -> None:
    answer = served.post("/applies", START | change)
    assert answer.status == 422
    assert place in [answer.json()["path"], *(item["path"] for item in answer.json()["errors"])]
    assert served.get("/applies").json()["items"] == []


def test_what_hosts_have_goes_with_the_cluster(served: Served) -> None:
    assert put(served, desired=[encode(desired())], commit="0123abc").status == 200
    facts = encode(HostFacts("machine", "boot", kernel="6.1"))
    node = served.post("/nodes/p-1/configured", {"desired": desired().digest, "host": facts})
    assert node.status == 200
    found = wire.Recorded.model_validate_json(served.get("/recorded").body)
    assert (found.commit, found.pools) == ("0123abc", {"p": desired().digest})
    assert found.desired == [encode(desired())]
    assert (found.nodes, found.hosts) == ({"p-1": desired().digest, "p-2": ""}, {"p-1": facts})


@pytest.mark.parametrize(
    "more",
    [
        {"desired": [encode(desired("x"))]},
        {"desired": [encode(desired()) | {"digest": "ab" * 32}]},
        {"desired": [{"pool": "p"}]},
        {"desired": 4},
        {"commit": 4},
        {"other": 4},
    ],
)
def test_wishes_that_fit_nothing_are_refused(served: Served, more: dict[str, Any]) -> None:
    answer = put(served, **more)
    assert (answer.status, answer.code) == (422, "cluster.bad-spec")


def test_facts_of_a_host_are_read_strictly(served: Served) -> None:
    put(served, desired=[encode(desired())])
    bad = {"desired": desired().digest, "host": {"machine_id": 4, "boot_id": "b"}}
    answer = served.post("/nodes/p-1/configured", bad)
    assert (answer.status, answer.code) == (422, "node.bad-facts")


def test_status_says_what_an_apply_has_left(served: Served) -> None:
    assert served.get("/status").json()["apply"] is None
    more = STEP | {"id": "p.2.configure", "nodes": ["p-2"], "batch": 2}
    name = served.post("/applies", START | {"steps": [STEP, more]}).json()["id"]
    served.post(f"/applies/{name}/steps/{STEP['id']}/start", {})
    served.post(
        f"/applies/{name}/steps/{STEP['id']}/end", {"ok": True, "hosts": [{"host": "p-1", "ok": True}]}
    )
    found = served.get("/status").json()["apply"]
    assert (found["outcome"], found["leased"], found["done"], found["total"]) == (None, True, 1, 2)
    assert found["pending"] == ["p-2"]
    served.post(f"/applies/{name}/end", {"outcome": "partial", "detail": "p-2: no route to host"})
    found = served.get("/status").json()["apply"]
    assert (found["outcome"], found["leased"], found["detail"]) == ("partial", False, "p-2: no route to host")


def test_records_are_listed_newest_first_and_read_one_by_one(served: Served) -> None:
    put(served)
    more = {"apiVersion": "gangline/v1", "kind": "ClusterSpec", "spec": encode(cluster(pool("p", nodes=3)))}
    served.request("PUT", "/api/v1/cluster", body=more | {"commit": "0123abc"})
    newest, before = wire.RecordList.model_validate_json(served.get("/records").body).items[:2]
    assert (newest.commit, newest.current, before.current) == ("0123abc", True, False)
    one = wire.RecordedSpec.model_validate_json(served.get(f"/records/{before.record}").body)
    assert decode(ClusterSpec, one.spec) == cluster(pool("p", nodes=2))
    assert (one.digest, one.at, one.current) == (before.digest, before.at, False)
    again = wire.RecordedSpec.model_validate_json(served.get(f"/records/{newest.record}").body)
    assert (decode(ClusterSpec, again.spec), again.current) == (cluster(pool("p", nodes=3)), True)


@pytest.mark.parametrize("name", ["r999999", "r", "x", "r-1", "r1e3", "r²", "rr1", "1", "r٣", "r" + 19 * "9"])
def test_a_record_that_there_is_not(served: Served, name: str) -> None:
    put(served)
    answer = served.get(f"/records/{quote(name)}")
    assert (answer.status, answer.code) == (404, "record.not-found")
