"""Output over HTTP: a rank's bytes from the node that holds them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.model.protocol import ReadRequest
from tests.api.served import PREFIX, Answer, Served, document

WHOLE = {"nodes": 2, "per_node": {"gpus": 8}, "tasks_per_node": 4}


def started(served: Served, **spec: Any) -> int:
    """A job that runs."""
    job = served.submit(document(**(spec or WHOLE)))
    served.beat()
    return job


def ask(served: Served, job: int, **query: Any) -> Any:
    """A read of output that is under way."""
    return served.start(served.send("GET", f"{PREFIX}/jobs/{job}/logs", query=query))


def asked_of(served: Served, node: str) -> ReadRequest:
    """What the node is asked to read; it hears of it in its next sync."""
    agent = served.agents[node]
    while True:
        answer = served.run(served.controller.sync(agent.request()))
        agent.take(answer)
        if answer.reads:
            return answer.reads[0]


def tell(served: Served, node: str, read: ReadRequest, data: bytes, size: int, ended: int = 0) -> Answer:
    """The node's answer."""
    path = f"{PREFIX}/agent/reads/{read.id}?size={size}&ended={ended}"
    return served.request(
        "POST",
        path,
        raw=data,
        token=served.token("node", node),
        headers={"content-type": "application/octet-stream"},
    )


def test_read_goes_to_the_node_of_the_rank_and_back(served: Served) -> None:
    job = started(served)

    reading = ask(served, job, rank=5, offset=10, limit=100, wait=3)
    read = asked_of(served, "p-2")
    assert tell(served, "p-2", read, b"hello\xff\n", 17).status == 204

    assert (read.attempt, read.rank, read.offset, read.limit, read.wait_s) == ((job, 1), 5, 10, 100, 3)
    answer = reading.result(10)
    assert (answer.status, answer.body) == (200, b"hello\xff\n")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert {key: answer.headers[key] for key in answer.headers if key.startswith("x-gangline")} == {
        "x-gangline-size": "17",
        "x-gangline-ended": "0",
        "x-gangline-node": "p-2",
        "x-gangline-attempt": "1",
    }


def test_ended_job_is_read_where_its_last_attempt_ran(served: Served) -> None:
    job = started(served)
    served.finish(job)

    reading = ask(served, job, rank=0)
    tell(served, "p-1", asked_of(served, "p-1"), b"done\n", 5, 1)

    answer = reading.result(10)
    assert (answer.body, answer.headers["x-gangline-ended"]) == (b"done\n", "1")


def test_output_that_the_node_has_not_kept_is_not_found(served: Served) -> None:
    job = started(served)

    reading = ask(served, job)
    tell(served, "p-1", asked_of(served, "p-1"), b"", -1, 1)

    answer = reading.result(10)
    assert (answer.status, answer.code) == (404, "logs.gone")


@pytest.mark.parametrize(
    ("query", "code"),
    [({"rank": 8}, "logs.no-rank"), ({"attempt": 2}, "logs.no-attempt")],
)
def test_rank_or_attempt_that_never_was_is_not_found(
    served: Served, query: dict[str, int], code: str
) -> None:
    job = started(served)

    answer = served.get(f"/jobs/{job}/logs", query=query)

    assert (answer.status, answer.code) == (404, code)


def test_job_that_has_not_started_has_no_output(served: Served) -> None:
    job = served.submit(document(hold=True))

    answer = served.get(f"/jobs/{job}/logs")

    assert (answer.status, answer.code) == (404, "logs.not-started")


def test_answer_that_nobody_waits_for_is_not_found(served: Served) -> None:
    answer = tell(served, "p-1", ReadRequest("0" * 16, (1, 1), 0, 0, 1), b"", 0)  # type: ignore[arg-type]

    assert (answer.status, answer.code) == (404, "read.gone")


def test_node_can_not_answer_for_another(served: Served) -> None:
    job = started(served)
    reading = ask(served, job)
    read = asked_of(served, "p-1")

    assert tell(served, "p-2", read, b"forged", 6).status == 404
    assert tell(served, "p-1", read, b"true", 4).status == 204

    assert reading.result(10).body == b"true"


def test_output_of_others_is_for_operators(served: Served) -> None:
    job = served.submit(role="submit", name="alice")
    served.beat()

    answer = served.get(f"/jobs/{job}/logs", role="submit", name="bob")

    assert (answer.status, answer.code) == (403, "access.other-owner")


@pytest.mark.parametrize(
    "query",
    ["size=1", "ended=1", "size=x&ended=1", "size=1&ended=2", "size=-2&ended=0", "size=1&ended=1&more=1", ""],
)
def test_read_answer_with_a_bad_query_is_refused(served: Served, query: str) -> None:
    answer = served.request(
        "POST", f"{PREFIX}/agent/reads/0?{query}", raw=b"", token=served.token("node", "p-1")
    )

    assert (answer.status, answer.code) == (422, "request.bad-query")
