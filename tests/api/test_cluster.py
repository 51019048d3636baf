"""Nodes, GPUs, queues, the cluster as a whole, over HTTP."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.model.cluster import (
    Access,
    ClusterSpec,
    FabricDomain,
    Grant,
    Group,
    Queue,
    QueueLimits,
    Role,
    Share,
    Site,
    SiteFabric,
    SiteKind,
    Ssh,
    Unit,
)
from orchestrator.model.codec import encode
from orchestrator.wire import api_cluster as wire
from tests.api.served import PREFIX, Served, document
from tests.builders import GPU, cluster, pool
from tests.scheduler.test_power import powered, root

DOCUMENT = f"""
apiVersion: gangline/v1
kind: Cluster
metadata: {{name: mini}}
sites: [{{name: here, kind: local}}]
pools: [{{name: p, site: here, nodes: "n[1-2]", gpu: {{model: {GPU}, count: 4}}}}]
"""


def test_node_shows_its_devices_and_who_holds_them(served: Served) -> None:
    job = served.submit(document(tasks=1, per_task={"gpus": 3}))
    served.beat()

    found = wire.Node.model_validate_json(served.get("/nodes/p-1").body)

    assert (found.pool, found.site, found.contact, found.open) == ("p", "here", "ok", True)
    assert [device.job for device in found.devices] == [job, job, job, None, None, None, None, None]
    assert all(device.emulated for device in found.devices)
    assert (found.jobs, found.free_gpus) == ([job], 5)
    assert (found.cores, found.memory_bytes) == (64, 64 << 30)


def test_a_node_was_seen_when_its_agent_spoke_last(served: Served) -> None:
    """Beats without news are not in the ledger, and count all the same."""
    served.beat()
    served.beat()
    served.clock.advance(90)
    served.beat()
    heard = served.clock.now_us()
    served.clock.advance(5)

    listed = wire.NodeList.model_validate_json(served.get("/nodes").body).items
    (one,) = [node for node in listed if node.name == "p-1"]

    assert one.contact_at == datetime.fromtimestamp(heard / 1e6, UTC)
    assert wire.Node.model_validate_json(served.get("/nodes/p-1").body).contact_at == one.contact_at


def test_nodes_are_listed_by_name(served: Served) -> None:
    body = served.get("/nodes").json()

    assert (body["kind"], [item["name"] for item in body["items"]]) == ("NodeList", ["p-1", "p-2"])


def test_unknown_node_is_not_found(served: Served) -> None:
    for answer in (
        served.get("/nodes/x"),
        served.post("/nodes/x/cordon", {}),
        served.post("/nodes/x/uncordon", {}),
    ):
        assert (answer.status, answer.code) == (404, "node.not-found")


def test_cordon_and_uncordon_show_the_node_as_it_is_then(served: Served) -> None:
    cordoned = served.post("/nodes/p-1/cordon", {"why": "fan"}, role="operator", name="carol").json()
    opened = served.post("/nodes/p-1/uncordon").json()

    assert (cordoned["open"], opened["open"]) == (False, True)
    (mark,) = cordoned["marks"]
    assert (mark["kind"], mark["why"], mark["by"]) == ("cordoned", "fan", "user:carol")
    assert opened["marks"] == []


# --- GPUs -----------------------------------------------------------------------------------------------------------


def test_gpus_say_what_can_be_asked_for(served: Served) -> None:
    served.submit(document(tasks=1, per_task={"gpus": 3}))
    served.beat()

    (found,) = wire.GpuList.model_validate_json(served.get("/gpus").body).items

    assert (found.model, found.pool, found.site, found.emulated) == (GPU, "p", "here", True)
    assert (found.total, found.free, found.allocated, found.not_ready) == (16, 13, 3, 0)
    assert (found.largest, [(shape.gpus, shape.nodes) for shape in found.shapes]) == (8, [(8, 1), (5, 1)])


def test_gpus_of_closed_and_silent_nodes_are_not_ready(empty: Served) -> None:
    empty.apply(cluster(pool("p", nodes=3)), ready=False)
    del empty.agents["p-3"]
    empty.beat()
    empty.post("/nodes/p-1/cordon", {})

    (found,) = wire.GpuList.model_validate_json(empty.get("/gpus").body).items

    assert (found.nodes, found.open_nodes) == (3, 1)
    assert (found.total, found.free, found.allocated, found.not_ready) == (24, 8, 0, 16)


# --- queues ---------------------------------------------------------------------------------------------------------


def test_queues_show_limits_and_what_goes_on(empty: Served) -> None:
    limited = Queue(
        "research",
        guarantee=(Share(8, pool="p"),),
        lending_limit=(Share(6, pool="p"),),
        weight=2,
        limits=QueueLimits(max_gpus_per_user=16),
    )
    empty.apply(cluster(pool("p", nodes=2), queues=(Queue("default"), limited)))
    whole: dict[str, Any] = {"nodes": 2, "per_node": {"gpus": 8}, "queue": "research"}
    empty.submit(document(**whole))
    empty.beat()
    empty.submit(document(**whole))
    empty.submit(document(**whole, hold=True))

    default, research = wire.QueueList.model_validate_json(empty.get("/queues").body).items

    assert (default.name, default.running_jobs, default.waiting_jobs) == ("default", 0, 0)
    assert (research.running_jobs, research.used_gpus) == (1, 16)
    assert (research.waiting_jobs, research.waiting_gpus, research.held_jobs) == (1, 16, 1)
    assert (research.used_milli, research.borrowed_milli, research.share_milli) == (16000, 8000, 8000)
    assert (research.reason.code if research.reason else "", research.reason_jobs) == ("wait.limit", 1)
    assert [(share.pool, share.gpus) for share in research.lending_limit] == [("p", 6)]
    assert (default.reason, default.share_milli) == (None, 0)
    assert (research.weight, research.guarantee[0].gpus, research.limits.max_gpus_per_user) == (2, 8, 16)


# --- the whole ------------------------------------------------------------------------------------------------------


def test_status_counts_and_says_how_fresh_it_is(served: Served) -> None:
    served.submit()
    served.submit(document(hold=True))
    served.beat()
    served.post("/nodes/p-2/cordon", {})

    found = wire.Status.model_validate_json(served.get("/status").body)

    assert (found.cluster, found.version, found.recovering, found.orphans) == ("test", "1.2.3", False, 0)
    assert (found.nodes.total, found.nodes.open, found.nodes.marked, found.nodes.silent) == (2, 1, 1, 0)
    assert (
        found.gpus.total,
        found.gpus.free,
        found.gpus.allocated,
        found.gpus.not_ready,
        found.gpus.emulated,
    ) == ((16, 7, 1, 8, 16))
    assert (found.jobs.running, found.jobs.held, found.jobs.waiting) == (1, 1, 0)
    assert found.updated_at is not None
    assert found.updated_at <= found.now
    assert (found.epoch, found.seq) == (served.controller.view.epoch, served.controller.view.seq)


def test_status_of_a_fresh_controller(empty: Served) -> None:
    found = wire.Status.model_validate_json(empty.get("/status").body)

    assert (found.cluster, found.nodes.total, found.gpus.total) == ("", 0, 0)
    assert empty.get("/cluster").code == "cluster.none"


@pytest.mark.parametrize("kind", ["application/yaml", "application/json"])
def test_cluster_document_is_applied(empty: Served, kind: str) -> None:
    text = DOCUMENT if kind == "application/yaml" else json.dumps(json_document())

    answer = empty.request("PUT", f"{PREFIX}/cluster", raw=text.encode(), headers={"content-type": kind})

    assert answer.status == 200, answer.body
    assert answer.json()["name"] == "mini"
    assert [item["name"] for item in empty.get("/nodes").json()["items"]] == ["n1", "n2"]
    assert empty.get("/cluster").json() == answer.json()


def json_document() -> dict[str, Any]:
    """The same as JSON."""
    return {
        "apiVersion": "gangline/v1",
        "kind": "Cluster",
        "metadata": {"name": "mini"},
        "sites": [{"name": "here", "kind": "local"}],
        "pools": [{"name": "p", "site": "here", "nodes": "n[1-2]", "gpu": {"model": GPU, "count": 4}}],
    }


def test_checked_spec_is_applied_as_it_is(empty: Served) -> None:
    spec = cluster(pool("p", nodes=2))

    answer = put(empty, spec)

    assert answer.json()["spec"] == encode(spec)
    assert put(empty, spec).json() == answer.json()


def put(served: Served, spec: ClusterSpec | dict[str, Any], role: str = "admin", **envelope: Any) -> Any:
    """PUT a checked spec."""
    plain = spec if isinstance(spec, dict) else encode(spec)
    body = {"apiVersion": "gangline/v1", "kind": "ClusterSpec", "spec": plain} | envelope
    return served.request("PUT", f"{PREFIX}/cluster", body=body, role=role, name="root")


def test_cluster_faults_come_with_line_and_column(empty: Served) -> None:
    text = DOCUMENT.replace("count: 4", "cuont: 4")

    answer = empty.request(
        "PUT", f"{PREFIX}/cluster", raw=text.encode(), headers={"content-type": "application/yaml"}
    )

    errors = {item["code"]: item for item in answer.json()["errors"]}
    assert answer.status == 422
    assert errors.keys() == {"spec.unknown-field"}
    unknown = errors["spec.unknown-field"]
    assert (unknown["line"], unknown["column"]) == (6, DOCUMENT.splitlines()[5].index("count") + 1)
    assert unknown["hint"] == "did you mean 'count'?"


def test_inventory_of_the_servers_own_disk_is_never_read(empty: Served) -> None:
    text = """
apiVersion: gangline/v1
kind: Cluster
metadata: {name: m}
sites: [{name: hall, kind: metal, inventory: /etc/passwd}]
pools: [{name: p, site: hall, nodes: "n[1-2]"}]
"""
    answer = empty.request(
        "PUT", f"{PREFIX}/cluster", raw=text.encode(), headers={"content-type": "application/yaml"}
    )

    assert (answer.status, answer.code) == (422, "cluster.inventory")


SPEC = cluster(pool("p", nodes=2))


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        (replace(SPEC, name=""), "no name"),
        (replace(SPEC, sites=()), "which is no site"),
        (replace(SPEC, sites=SPEC.sites * 2), "site is named twice"),
        (replace(SPEC, pools=SPEC.pools * 2), "pool is named twice"),
        (replace(SPEC, pools=(pool("p"), replace(pool("p"), name="q"))), "node is named twice"),
        (replace(SPEC, queues=(Queue("a", parent="b"),)), "which is no queue"),
        (replace(SPEC, queues=(Queue("a", parent="b"), Queue("b", parent="a"))), "below itself"),
        (replace(SPEC, queues=(Queue("a"), Queue("", parent="a"))), "'' can't name a queue"),
        (replace(SPEC, queues=(Queue("\x1b[2J"),)), "'\\x1b[2J' can't name a queue"),
        (replace(SPEC, pools=(replace(pool("p"), nodes=("../p-1",)),)), "can't name a node"),
        (replace(SPEC, name="../x"), "can't name a cluster"),
        (replace(SPEC, queues=(Queue("a", weight=-1),)), "spec.queues.weight is out of range"),
        (replace(SPEC, queues=(Queue("a", weight=2**53),)), "spec.queues.weight is out of range"),
        (replace(SPEC, timezone="UTC\n"), "spec.timezone has a character that no document may have"),
        (replace(SPEC, sites=(replace(SPEC.sites[0], ssh=Ssh(user="-oX")),)), "spec.sites.ssh.user can't be"),
    ],
)
def test_checked_spec_that_contradicts_itself_is_refused(empty: Served, spec: ClusterSpec, what: str) -> None:
    answer = put(empty, spec)

    assert (answer.status, answer.code) == (422, "cluster.bad-spec")
    assert what in answer.json()["detail"]


@pytest.mark.parametrize(
    ("plain", "envelope", "path"),
    [
        ({"name": 7}, {}, "spec.name"),
        ({"name": "x", "sites": [{"name": "a", "kind": "moon"}]}, {}, "spec.sites.[0].kind"),
        ({}, {}, "spec.name"),
        ({"name": "x"}, {"apiVersion": "gangline/v9"}, ""),
        ({"name": "x"}, {"extra": 1}, ""),
    ],
)
def test_checked_spec_of_the_wrong_shape_is_refused(
    empty: Served, plain: dict[str, Any], envelope: dict[str, Any], path: str
) -> None:
    answer = put(empty, plain, **envelope)

    assert (answer.status, answer.code, answer.json()["path"]) == (422, "cluster.bad-spec", path)


@pytest.mark.parametrize(
    "changed",
    [
        replace(SPEC, access=Access((Group("g", users=("carol",)),), (Grant(Role.ADMIN, "g"),))),
        replace(SPEC, identity=replace(SPEC.identity, min_uid=0)),
    ],
)
def test_only_admins_change_who_may_what(served: Served, changed: ClusterSpec) -> None:
    """An operator who writes the grants would be an admin with the next request."""
    refused = put(served, changed, "operator")
    assert (refused.status, refused.code) == (403, "access.cluster")
    assert put(served, replace(SPEC, timezone="Europe/Berlin"), "operator").status == 200
    assert put(served, changed).status == 200
    assert put(served, replace(changed, timezone="UTC"), "operator").status == 200


def test_cluster_of_another_name_is_a_conflict(served: Served) -> None:
    answer = put(served, replace(SPEC, name="other"))

    assert (answer.status, answer.code) == (409, "cluster.other-name")


def test_metal_spec_may_be_sent_when_it_was_checked(empty: Served) -> None:
    site = Site("hall", SiteKind.METAL, inventory="hosts.yml")
    spec = replace(SPEC, sites=(site,), pools=(replace(pool("p"), site="hall"),))

    assert put(empty, spec).status == 200


def test_recover_lets_starts_go_on(served: Served) -> None:
    answer = served.post("/recover", {"without": ["p-2"]})

    assert answer.status == 200
    assert answer.json().keys() == {"recovered", "left", "without"}
    assert served.get("/orphans").json()["items"] == []


def test_version_and_health(served: Served) -> None:
    assert served.get("/version").json() == {"version": "1.2.3", "api": "v1", "agent_protocol": 1}
    assert served.get("/healthz", anonymous=True).json() == {"status": "ok"}

    served.loop.call_soon_threadsafe(served.hub.stop)
    served.settle()

    assert served.get("/healthz", anonymous=True).status == 503


# --- topology -------------------------------------------------------------------------------------------------------


def test_topology_shows_each_level_with_what_fits_there(empty: Served) -> None:
    fabric = SiteFabric(
        ("unit", "spine"),
        (Unit("u1", ("p-1", "p-2")), Unit("u2", ("p-3",))),
        (FabricDomain("spine", "s1", ("u1", "u2")),),
    )
    empty.apply(cluster(pool("p", nodes=4), fabric=fabric))
    empty.post("/nodes/p-3/cordon", {"why": "disk"})
    empty.submit(document(tasks=1, per_task={"gpus": 3}, topology={"required": "unit"}))
    empty.beat()

    found = wire.TopologyList.model_validate_json(empty.get("/topology").body).items

    assert [(one.level, one.domain, one.node_names) for one in found] == [
        ("site", "here", "p-[1-4]"),
        ("spine", "s1", "p-[1-3]"),
        ("spine", "", "p-4"),
        ("unit", "u1", "p-[1-2]"),
        ("unit", "u2", "p-3"),
        ("unit", "", "p-4"),
    ]
    assert [(one.open_nodes, one.free_gpus, one.gpus, one.largest_gang) for one in found] == [
        (3, 21, 32, 2),
        (2, 13, 24, 1),
        (1, 8, 8, 1),
        (2, 13, 16, 1),
        (0, 0, 8, 0),
        (1, 8, 8, 1),
    ]


def test_watts_follow_what_runs(empty: Served) -> None:
    empty.apply(powered(root(800)))
    job = empty.submit(document(tasks=1, per_task={"gpus": 3}))
    empty.beat()

    def said() -> tuple[tuple[int, int], int | None]:
        found = wire.TopologyList.model_validate_json(empty.get("/topology").body).items
        (domain,) = (one.power for one in found if one.power is not None)
        (queue,) = wire.QueueList.model_validate_json(empty.get("/queues").body).items
        return (domain.used_watts, domain.limit_watts), queue.used_watts

    (used, limit), queue = said()
    assert (limit, queue) == (800, 300)
    empty.finish(job)
    idle = said()[0][0]
    assert (said()[1], used - idle) == (0, 3 * (100 - idle // 8)), "eight GPUs idle, and then five"


# --- what if --------------------------------------------------------------------------------------------------------


def test_what_if_says_where_a_job_would_start_and_submits_nothing(served: Served) -> None:
    found = wire.WhatIf.model_validate_json(
        served.post("/what-if", document(nodes=2, per_node={"gpus": 8})).body
    )

    assert (found.starts, found.refused, found.reason) == (True, False, None)
    assert [(one.node, one.devices) for one in found.nodes] == [
        ("p-1", list(range(8))),
        ("p-2", list(range(8))),
    ]
    assert served.get("/jobs").json()["items"] == []


def test_what_if_of_an_array_counts_its_tasks_by_node(served: Served) -> None:
    body = document(tasks=2, per_task={"gpu_share": 0.5}, array={"tasks": "0-39"})
    answer = served.post("/what-if", body)
    assert answer.status == 200, answer.body
    found = wire.WhatIf.model_validate_json(answer.body)
    assert (found.array_tasks, found.tried, found.starting) == (40, 40, 16)
    assert [(one.node, one.devices, one.milli, one.array_tasks, one.tasks) for one in found.nodes] == [
        ("p-1", list(range(8)), [], 8, 16),
        ("p-2", list(range(8)), [], 8, 16),
    ]
    assert found.reason is not None
    assert found.reason.code.startswith("wait.")


def test_what_if_says_why_it_would_wait_or_be_refused(served: Served) -> None:
    job = served.submit(document(nodes=2, per_node={"gpus": 8}))
    waits = served.post("/what-if", document(nodes=2, per_node={"gpus": 8})).json()
    never = served.post("/what-if", document(nodes=3, per_node={"gpus": 8})).json()
    unsound = served.post("/what-if", document(nodes=0))

    assert (waits["starts"], waits["refused"], waits["reason"]["code"]) == (False, False, "wait.gpus"), job
    assert (never["starts"], never["refused"], never["reason"]["code"]) == (False, True, "never.nodes")
    assert unsound.status == 422
