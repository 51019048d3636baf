"""Every method of the client against the real application."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client import Client, InvalidInput
from orchestrator.model.errors import (
    Conflict,
    GanglineError,
    InputError,
    NotFound,
    Refused,
    TimedOut,
    Unauthenticated,
)
from orchestrator.wire.api import micros_of
from tests.api.served import Served, document, two_nodes
from tests.builders import cluster, pool
from tests.client.bridge import client_of

WHOLE: dict[str, Any] = {"nodes": 2, "per_node": {"gpus": 8}}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, two_nodes())
    yield served
    served.close()


@pytest.fixture
def client(served: Served) -> Client:
    return client_of(served)


def test_submit_and_look(client: Client) -> None:
    made = client.submit(document("a"))

    assert (made.id, made.repeated) == (1, False)
    assert client.job(made.id).name == "a"


def test_submit_with_a_key_is_the_same_job(client: Client) -> None:
    assert client.submit(document(), key="k").id == client.submit(document(), key="k").id
    assert client.submit(document(), key="k").repeated


def test_faults_keep_their_places(client: Client) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.submit(document(gpus=1, tasks=0))

    assert {item.path for item in caught.value.errors} == {"spec.gpus", "spec.tasks"}
    assert caught.value.exit_code == 2
    assert caught.value.code in {item.code for item in caught.value.errors}


@pytest.mark.parametrize(
    ("call", "kind", "code"),
    [
        (lambda client: client.job(9), NotFound, "job.not-found"),
        (lambda client: client.node("x"), NotFound, "node.not-found"),
        (lambda client: client.submit(document(nodes=9)), Refused, "never.nodes"),
        (lambda client: client.release(client.submit(document()).id), Conflict, "job.not-held"),
        (lambda client: client.jobs_page(limit=0), InputError, "request.greater-than-equal"),
        (lambda client: client.revoke_token("tok-x"), NotFound, "token.not-found"),
    ],
)
def test_errors_are_those_of_the_tree(
    client: Client, call: Any, kind: type[GanglineError], code: str
) -> None:
    with pytest.raises(kind) as caught:
        call(client)

    assert caught.value.code == code
    assert caught.value.message


def test_unknown_token_is_unauthenticated(served: Served) -> None:
    served.secrets["admin", "root"] = "gln_wrong"

    with pytest.raises(Unauthenticated) as caught:
        client_of(served).status()

    assert "gangline token create" in caught.value.hint


def test_jobs_walks_all_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.wire.api.MOST_ITEMS", 3)
    ids = [client.submit(document(f"n{number}", hold=True)).id for number in range(8)]

    assert [job.id for job in client.jobs()] == ids[::-1]
    assert [job.id for job in client.jobs(most=4)] == ids[:3:-1]
    assert [job.id for job in client.jobs(states=["running"])] == []
    assert [job.name for job in client.jobs(name="n3")] == ["n3"]


def test_jobs_since_a_time(client: Client, served: Served) -> None:
    ended = client.submit(document(hold=True)).id
    client.cancel(ended)
    at = client.job(ended).ended_at
    assert at is not None

    assert [job.id for job in client.jobs(since_us=micros_of(at))] == [ended]
    assert [job.id for job in client.jobs(since_us=micros_of(at) + 1)] == []


def test_actions_show_the_job_as_it_is_then(client: Client, served: Served) -> None:
    client.submit(document(**WHOLE))
    job = client.submit(document(**WHOLE)).id
    served.settle()

    assert client.hold(job, "later").hold == "later"
    assert client.release(job).state == "waiting"
    assert client.explain(job).place == 1
    assert client.cancel(job, "no more").ended


def test_requeue(client: Client, served: Served) -> None:
    job = client.submit(document()).id
    served.beat()

    assert client.requeue(job).state == "ending"


def test_watch_shows_each_change_until_the_end(client: Client, served: Served) -> None:
    job = client.submit(document(hold=True)).id
    states = []
    for seen in client.watch(job):
        states.append(seen.state)
        if seen.state == "held":
            client.release(job)
            served.beat()
        elif seen.state == "running":
            served.finish(job)

    assert states[0] == "held"
    assert "running" in states
    assert states[-1] == "succeeded"


def test_wait_gives_the_ended_job(client: Client, served: Served) -> None:
    job = client.submit(document()).id
    served.beat()
    served.finish(job, code=4)

    assert client.wait(job, timeout_s=30).exit_code == 4


def test_wait_that_takes_too_long_says_so(client: Client) -> None:
    job = client.submit(document(hold=True)).id

    with pytest.raises(TimedOut, match=f"job {job} has not ended within 0 s"):
        client.wait(job, timeout_s=0)


def test_nodes_and_capacity(client: Client) -> None:
    assert [node.name for node in client.nodes()] == ["p-1", "p-2"]
    assert client.cordon("p-1", "fan").marks[0].why == "fan"
    assert client.node("p-1").open is False
    assert client.uncordon("p-1").open
    assert client.gpus()[0].free == 16
    assert [queue.name for queue in client.queues()] == ["default"]


def test_names_with_odd_characters_stay_one_segment(client: Client) -> None:
    for name in ("a/b", "..", "a?b", "a#b", "ü", "%2e"):
        with pytest.raises(NotFound, match="there is no"):
            client.node(name)


def test_cluster(client: Client) -> None:
    spec = cluster(pool("p", nodes=3))

    applied = client.apply_cluster(spec)

    assert client.cluster() == applied
    assert len(client.nodes()) == 3
    assert client.status().cluster == "test"
    assert client.version().version == "1.2.3"
    assert client.healthy()
    assert client.orphans() == []
    assert client.recover(["p-3"]).recovered == []


@pytest.mark.parametrize("as_text", [True, False])
def test_cluster_as_a_document(client: Client, as_text: bool) -> None:
    plain = {
        "apiVersion": "gangline/v1",
        "kind": "Cluster",
        "metadata": {"name": "test"},
        "sites": [{"name": "here", "kind": "local"}],
        "pools": [{"name": "p", "site": "here", "nodes": "p-[1-4]"}],
    }
    text = (
        "apiVersion: gangline/v1\nkind: Cluster\nmetadata: {name: test}\nsites: [{name: here, kind: local}]\n"
        "pools: [{name: p, site: here, nodes: 'p-[1-4]'}]\n"
    )

    client.apply_cluster(text if as_text else plain)

    assert len(client.nodes()) == 4


def test_tokens(client: Client, served: Served) -> None:
    made = client.create_token("read", "alice", expires_s=60)

    assert made.expires_at is not None
    assert made.id in [token.id for token in client.tokens()]
    client.revoke_token(made.id)
    assert made.id not in [token.id for token in client.tokens()]
