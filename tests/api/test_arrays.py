"""Arrays over HTTP: named as 1234_7 everywhere, and by their own number as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.api import jobs
from orchestrator.wire import api as wire
from tests.api.served import Served, document


def sweep(tasks: str = "3-6", **spec: Any) -> dict[str, Any]:
    return document("sweep", array={"tasks": tasks, "at_most": 1}, **spec)


@pytest.fixture
def first(served: Served) -> int:
    made = wire.JobCreated.model_validate_json(served.post("/jobs", sweep()).body)
    assert made.tasks == 4
    return made.id


def shown(served: Served, job: object) -> wire.Job:
    answer = served.get(f"/jobs/{job}")
    assert answer.status == 200, answer.body
    return wire.Job.model_validate_json(answer.body)


def test_a_task_is_shown_by_array_and_index(served: Served, first: int) -> None:
    task = shown(served, f"{first}_5")
    assert (task.id, task.array, task.index, task.label) == (first + 2, first, 5, f"{first}_5")
    assert task.tasks is None
    assert task.spec.array == wire.ArraySpec(tasks="3-6", count=4, at_most=1)
    assert shown(served, first + 2).label == f"{first}_5"


def test_an_array_is_shown_with_how_its_tasks_stand(served: Served, first: int) -> None:
    served.post(f"/jobs/{first}_6/cancel", {})
    whole = shown(served, first)
    assert whole.tasks is not None
    assert whole.tasks.states["cancelled"] == 1
    assert sum(whole.tasks.states.values()) == 4
    assert whole.tasks.exit_code == 0


@pytest.mark.parametrize(
    ("job", "status", "code"),
    [
        ("{first}_7", 404, "job.no-task"),
        ("9999_7", 404, "job.not-found"),
        ("{alone}_0", 404, "job.no-array"),
        ("{first}_", 422, "request.invalid"),
        ("{first}_07", 422, "request.invalid"),
        ("0", 422, "request.invalid"),
        ("x", 422, "request.invalid"),
    ],
)
@pytest.mark.parametrize("route", ["", "/wait?timeout=0", "/explain", "/logs"])
def test_what_is_no_job(served: Served, first: int, job: str, status: int, code: str, route: str) -> None:
    alone = served.submit(document())
    answer = served.get(f"/jobs/{job.format(first=first, alone=alone)}{route}")
    assert answer.status == status
    assert status == 422 or answer.code == code


def test_what_is_done_to_the_array_is_done_to_all_of_its_tasks(served: Served, first: int) -> None:
    held = wire.Job.model_validate_json(served.post(f"/jobs/{first}/hold", {}).body)
    assert (held.acted, held.array) == (3, first)  # one has an attempt, and stays
    assert [shown(served, f"{first}_{index}").state for index in (4, 5, 6)] == ["held"] * 3
    released = wire.Job.model_validate_json(served.post(f"/jobs/{first}_5/release", {}).body)
    assert (released.label, released.state, released.acted) == (f"{first}_5", "waiting", None)
    cancelled = wire.Job.model_validate_json(served.post(f"/jobs/{first}/cancel", {"why": "enough"}).body)
    assert cancelled.acted == 4
    assert served.post(f"/jobs/{first}_4/cancel", {}).code == "job.ended"


def test_all_tasks_that_wait_get_another_priority(served: Served, first: int) -> None:
    changed = wire.Job.model_validate_json(served.post(f"/jobs/{first}/prioritize", {"priority": 7}).body)
    assert (changed.acted, changed.array) == (3, first)  # one has an attempt
    assert [shown(served, f"{first}_{index}").priority for index in (3, 4, 5, 6)] == [0, 7, 7, 7]
    one = wire.Job.model_validate_json(served.post(f"/jobs/{first}_5/prioritize", {"priority": -1}).body)
    assert (one.label, one.priority, one.acted) == (f"{first}_5", -1, None)
    assert served.post(f"/jobs/{first}_3/prioritize", {"priority": 7}).code == "job.has-attempt"


def test_the_row_that_is_answered_is_of_the_first_task_that_was_changed(served: Served, first: int) -> None:
    """The one before it has an attempt, and one has ended."""
    served.post(f"/jobs/{first}_4/cancel", {})
    changed = wire.Job.model_validate_json(served.post(f"/jobs/{first}/prioritize", {"priority": 7}).body)
    assert (changed.label, changed.priority, changed.acted) == (f"{first}_5", 7, 2)
    made = served.post("/jobs", sweep("1-3", hold=True)).json()["id"]
    served.post(f"/jobs/{made}_1/cancel", {})
    throttled = wire.Job.model_validate_json(served.post(f"/jobs/{made}/set", {"at_most": 2}).body)
    assert (throttled.label, throttled.state) == (f"{made}_2", "held")


@pytest.mark.parametrize("body", [{}, {"priority": 1_000_001}, {"priority": "high"}, {"priority": 1.5}])
def test_a_priority_that_is_none_is_refused(served: Served, first: int, body: dict[str, Any]) -> None:
    answer = served.post(f"/jobs/{first}/prioritize", body)
    assert answer.status == 422
    assert "priority" in answer.body.decode()
    assert shown(served, f"{first}_4").priority == 0


def test_what_can_be_done_to_no_task_is_refused(served: Served, first: int) -> None:
    assert served.post(f"/jobs/{first}/release", {}).code == "job.not-held"


def test_a_large_array_is_cancelled_in_parts(served: Served) -> None:
    made = served.post("/jobs", sweep("0-1199", hold=True)).json()["id"]
    assert served.post(f"/jobs/{made}/cancel", {}).json()["acted"] == 1200
    assert shown(served, made).tasks == wire.Tasks(states={"cancelled": 1200}, exit_code=0)
    assert served.post(f"/jobs/{made}/cancel", {}).code == "job.ended"


def test_a_very_large_array_is_dealt_with_in_several_requests(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MOST_A_REQUEST", 3)
    first = served.post("/jobs", sweep("0-7", hold=True)).json()["id"]
    below: int | None = 0
    acted: list[int] = []
    while below is not None:
        answer = served.post(f"/jobs/{first}/release", {"below": below}).json()
        below = answer["next"]
        acted.append(answer["acted"])
    assert acted == [3, 3, 2]
    assert "held" not in (shown(served, first).tasks or wire.Tasks(states={}, exit_code=0)).states


def test_only_the_owner_acts_on_an_array(served: Served, first: int) -> None:
    assert served.post(f"/jobs/{first}/cancel", {}, role="submit", name="bob").status == 403


def test_the_tasks_of_an_array_are_a_list(served: Served, first: int) -> None:
    served.submit(document())
    served.post(f"/jobs/{first}_4/cancel", {})
    page = wire.JobList.model_validate_json(served.get(f"/jobs?array={first}&limit=3").body)
    assert [each.label for each in page.items] == [f"{first}_{index}" for index in (6, 5, 4)]
    rest = wire.JobList.model_validate_json(
        served.get(f"/jobs?array={first}&limit=3&cursor={page.next}").body
    )
    assert [each.label for each in rest.items] == [f"{first}_3"]
    assert rest.next is None
    assert served.get("/jobs?array=9999").code == "job.not-found"
    assert served.get(f"/jobs?array={first + 1}").code == "job.no-array"


def test_the_throttle_is_set(served: Served, first: int) -> None:
    answer = served.post(f"/jobs/{first}/set", {"at_most": 3})
    assert answer.status == 200, answer.body
    job = wire.Job.model_validate_json(answer.body)
    assert job.spec.array is not None
    assert job.spec.array.at_most == 3


def test_an_array_is_explained_by_its_next_task(served: Served, first: int) -> None:
    found = wire.Explanation.model_validate_json(served.get(f"/jobs/{first}/explain").body)
    assert (found.label, found.job) == (f"{first}_4", first + 1)
    assert found.reason is not None
    assert found.reason.sentence.startswith(f"array {first} may have 1 task(s) at a time")


def test_a_job_that_depends_on_others_shows_on_which(served: Served, first: int) -> None:
    depends = [{"job": first, "on": "end"}, {"job": f"{first}_5"}]
    made = served.submit(document(depends_on=depends, singleton=True))
    job = shown(served, made)
    assert [(one.job, one.on) for one in job.spec.depends_on] == [(str(first), "end"), (f"{first}_5", "ok")]
    assert job.spec.singleton
    assert job.reason is not None
    assert (job.reason.code, job.reason.category) == ("wait.dependency", "dependency")
    unknown = served.post("/jobs", document(depends_on=[{"job": 99}]))
    assert (unknown.status, unknown.code) == (404, "depends.not-found")
