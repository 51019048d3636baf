"""Lists of jobs: filters, order, and walks that see each job once while others come and end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.served import Served, document


def ids(served: Served, **query: Any) -> list[int]:
    """The ids of one page."""
    return [item["id"] for item in served.get("/jobs", query=query).json()["items"]]


@pytest.fixture
def mixed(served: Served) -> Served:
    """Jobs 1 to 6: two ended, one running, one held, two waiting for it."""
    one = served.submit(document("first"), role="submit", name="alice")
    served.beat()
    served.finish(one)
    two = served.submit(document("second"), role="submit", name="bob")
    served.beat()
    served.finish(two, code=1)
    served.clock.advance(3600)
    served.submit(document("wide", nodes=2, per_node={"gpus": 8}))
    served.beat()
    served.submit(document("held", hold=True))
    served.submit(document("next"), role="submit", name="alice")
    served.submit(document("first"), role="submit", name="bob")
    return served


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, [6, 5, 4, 3, 2, 1]),
        ({"state": "waiting"}, [6, 5]),
        ({"state": "waiting,failed"}, [6, 5, 2]),
        ({"state": "succeeded,failed,cancelled"}, [2, 1]),
        ({"owner": "alice"}, [5, 1]),
        ({"name": "first"}, [6, 1]),
        ({"name": "first", "owner": "bob"}, [6]),
        ({"queue": "default", "state": "held"}, [4]),
        ({"queue": "other"}, []),
        ({"limit": 2}, [6, 5]),
        ({"limit": 2, "cursor": "5"}, [4, 3]),
        ({"limit": 3, "cursor": "3"}, [2, 1]),
    ],
)
def test_filters(mixed: Served, query: dict[str, Any], wanted: list[int]) -> None:
    assert ids(mixed, **query) == wanted


def test_since_keeps_what_lives_and_what_has_ended_after_it(mixed: Served) -> None:
    ended = mixed.get("/jobs/2").json()["ended_at"]
    earlier = mixed.get("/jobs/1").json()["ended_at"]

    assert ids(mixed, since=ended) == ([6, 5, 4, 3, 2, 1] if earlier >= ended else [6, 5, 4, 3, 2])
    assert ids(mixed, since="2030-01-01T00:00:00+02:00") == [6, 5, 4, 3]


def test_last_page_says_so_and_others_say_where_to_go_on(mixed: Served) -> None:
    first = mixed.get("/jobs", query={"limit": 4}).json()
    second = mixed.get("/jobs", query={"limit": 4, "cursor": first["next"]}).json()

    assert (first["kind"], first["apiVersion"]) == ("JobList", "gangline/v1")
    assert [item["id"] for item in first["items"] + second["items"]] == [6, 5, 4, 3, 2, 1]
    assert second["next"] is None


def test_exact_page_has_no_next(mixed: Served) -> None:
    assert mixed.get("/jobs", query={"limit": 6}).json()["next"] is None


def test_walk_sees_each_job_once_while_jobs_come_and_end(served: Served) -> None:
    for number in range(9):
        served.submit(document(f"old-{number}"))
    served.beat()
    seen: list[int] = []
    cursor = ""
    for step in range(20):
        page = served.get("/jobs", query={"limit": 2, "cursor": cursor}).json()
        seen += [item["id"] for item in page["items"]]
        served.submit(document(f"new-{step}"))
        served.finish(step + 1)  # moves it from the view to the history
        if page["next"] is None:
            break
        cursor = page["next"]

    assert seen == list(range(9, 0, -1))


@pytest.mark.parametrize(
    ("query", "path", "code"),
    [
        ("limit=0", "query.limit", "request.greater-than-equal"),
        ("limit=1001", "query.limit", "request.less-than-equal"),
        ("limit=x", "query.limit", "request.int-parsing"),
        ("limit=1&limit=2", "query.limit", "request.repeated-parameter"),
        ("state=runing", "query.state", "request.unknown-state"),
        ("cursor=abc", "query.cursor", "request.bad-cursor"),
        ("cursor=-1", "query.cursor", "request.bad-cursor"),
        ("since=yesterday", "query.since", "request.bad-time"),
        ("since=2026-01-01T00:00:00", "query.since", "request.bad-time"),
        ("since=0.5", "query.since", "request.bad-time"),
        ("since=2026-02-30T00:00:00Z", "query.since", "request.bad-time"),
        ("stat=running", "query", "request.unknown-parameter"),
    ],
)
def test_bad_query_is_refused_with_its_place(served: Served, query: str, path: str, code: str) -> None:
    answer = served.get(f"/jobs?{query}")

    assert answer.status == 422
    assert [(item["path"], item["code"]) for item in answer.json()["errors"]] == [(path, code)]


def test_misspelt_parameter_gets_a_suggestion(served: Served) -> None:
    assert served.get("/jobs?stat=running").json()["hint"] == "did you mean 'state'?"
