"""Jobs over HTTP: submit, list, show, wait, explain, act."""

from __future__ import annotations

import time
from typing import Any

import pytest

from orchestrator.wire import api as wire
from tests.api.served import PREFIX, Served, document, until

WHOLE: dict[str, Any] = {"nodes": 2, "per_node": {"gpus": 8}}


# --- submit ---------------------------------------------------------------------------------------------------------


def test_submit_answers_201_with_the_place_of_the_job(served: Served) -> None:
    answer = served.post("/jobs", document())

    made = wire.JobCreated.model_validate_json(answer.body)
    assert (answer.status, made.repeated) == (201, False)
    assert answer.headers["location"] == f"{PREFIX}/jobs/{made.id}"
    assert served.get(f"/jobs/{made.id}").json()["state"] in ("waiting", "starting", "running")


def test_same_key_and_document_give_the_same_job(served: Served) -> None:
    first = served.post("/jobs", document(env={"A": "1", "B": "2"}), headers={"Idempotency-Key": "k"})
    other_order = document(env={"B": "2", "A": "1"})

    again = served.post("/jobs", other_order, headers={"Idempotency-Key": "k"})

    assert (first.status, again.status) == (201, 200)
    assert again.json() == {"id": first.json()["id"], "tasks": 1, "repeated": True}


def test_key_that_made_another_job_is_a_conflict(served: Served) -> None:
    served.post("/jobs", document("a"), headers={"Idempotency-Key": "k"})

    answer = served.post("/jobs", document("b"), headers={"Idempotency-Key": "k"})

    assert (answer.status, answer.code) == (409, "submit.key-reused")


def test_keys_of_two_people_never_meet(served: Served) -> None:
    mine = served.post("/jobs", document("a"), headers={"Idempotency-Key": "k"}, role="submit", name="alice")

    theirs = served.post("/jobs", document("b"), headers={"Idempotency-Key": "k"}, role="submit", name="bob")

    assert (mine.status, theirs.status) == (201, 201)
    assert mine.json()["id"] != theirs.json()["id"]


def test_what_can_never_run_is_refused_unless_it_is_forced(served: Served) -> None:
    asked = document(nodes=99, per_node={"gpus": 8})
    refused = served.post("/jobs", asked)
    forced = served.post("/jobs", {**asked, "force": True})

    assert (refused.status, refused.code) == (403, "never.nodes")
    assert forced.status == 201
    found = served.get(f"/jobs/{forced.json()['id']}/explain").json()
    assert found["reason"]["code"] in ("wait.never", "wait.next-pass")


def test_force_is_yes_or_no(served: Served) -> None:
    answer = served.post("/jobs", {**document(), "force": "yes"})

    assert (answer.status, answer.code, answer.json()["path"]) == (422, "spec.wrong-type", "force")


def test_faults_of_a_document_come_all_at_once_with_their_places(served: Served) -> None:
    answer = served.post("/jobs", document(nodes=0, per_nod={}, command=7))

    found = {item["path"]: item["code"] for item in answer.json()["errors"]}
    assert answer.status == 422
    assert found == {
        "spec.nodes": "spec.out-of-range",
        "spec.per_nod": "spec.unknown-field",
        "spec.command": "spec.wrong-type",
    }


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"nodes": 3, "per_node": {"gpus": 8}}, "never.nodes"),
        ({"tasks": 1, "queue": "nowhere"}, "never.queue"),
        ({"tasks": 1, "per_task": {"gpus": 1, "gpu_model": "T4"}}, "never.model"),
    ],
)
def test_job_that_can_never_run_is_refused(served: Served, spec: dict[str, Any], code: str) -> None:
    answer = served.post("/jobs", document(**spec))

    assert (answer.status, answer.code) == (403, code)
    assert answer.json()["hint"]


def test_job_is_there_as_soon_as_it_is_acknowledged(served: Served) -> None:
    for _ in range(30):
        made = served.post("/jobs", document()).json()["id"]
        assert served.get(f"/jobs/{made}").status == 200


# --- show -----------------------------------------------------------------------------------------------------------


def test_running_job_shows_where_it_runs(served: Served) -> None:
    job = served.submit(document("wide", **WHOLE, tasks_per_node=4, env={"TOKEN": "s3cret"}))
    served.beat()

    found = wire.Job.model_validate_json(served.get(f"/jobs/{job}").body)

    assert found.state == "running"
    assert found.attempt is not None
    assert [(part.node, part.first_rank, part.tasks) for part in found.attempt.parts] == [
        ("p-1", 0, 4),
        ("p-2", 4, 4),
    ]
    assert found.attempt.parts[0].slots == list(range(8))
    assert (found.nodes, found.ranks, found.gpus) == (2, 8, 16)
    assert found.node_names == ["p-1", "p-2"]
    assert found.spec.env == {"TOKEN": "s3cret"}


def test_environment_is_for_the_owner_and_operators(served: Served) -> None:
    job = served.submit(document(env={"TOKEN": "s3cret"}), role="submit", name="alice")

    def env(role: str, name: str) -> Any:
        return served.get(f"/jobs/{job}", role=role, name=name).json()["spec"]["env"]

    assert env("submit", "alice") == {"TOKEN": "s3cret"}
    assert env("operator", "carol") == {"TOKEN": "s3cret"}
    assert env("submit", "bob") is None


def test_ended_job_is_shown_from_the_history_with_its_first_failed_rank(served: Served) -> None:
    job = served.submit(document())
    served.beat()
    served.finish(job, code=3)

    found = wire.Job.model_validate_json(served.get(f"/jobs/{job}").body)

    assert (found.state, found.exit_code, found.attempt) == ("failed", 3, None)
    assert found.ended_at is not None
    assert found.past[0].cause == "rank_failed"
    assert found.past[0].first_failed is not None
    assert (found.past[0].first_failed.rank, found.past[0].first_failed.exit_code) == (0, 3)


@pytest.mark.parametrize("path", ["/jobs/7", "/jobs/7/explain", "/jobs/7/logs", "/jobs/7/wait"])
def test_unknown_job_is_not_found(served: Served, path: str) -> None:
    answer = served.get(path)

    assert (answer.status, answer.code) == (404, "job.not-found")


# --- wait -----------------------------------------------------------------------------------------------------------


def test_wait_answers_when_the_job_ends(served: Served) -> None:
    job = served.submit()
    served.beat()
    waiting = served.start(served.send("GET", f"{PREFIX}/jobs/{job}/wait", query={"timeout": 60}))

    served.finish(job)

    assert waiting.result(10).json()["state"] == "succeeded"


def test_wait_with_a_revision_answers_at_the_next_change(served: Served) -> None:
    job = served.submit(document(hold=True))
    seen = served.get(f"/jobs/{job}").json()["revision"]
    waiting = served.start(
        served.send("GET", f"{PREFIX}/jobs/{job}/wait", query={"timeout": 60, "seen": seen})
    )

    served.post(f"/jobs/{job}/release", {})

    found = waiting.result(10).json()
    assert found["revision"] != seen
    assert found["state"] != "held"


def test_wait_with_an_old_revision_answers_at_once(served: Served) -> None:
    job = served.submit(document(hold=True))

    started = time.monotonic()
    answer = served.get(f"/jobs/{job}/wait", query={"timeout": 60, "seen": "0"})

    assert answer.json()["state"] == "held"
    assert time.monotonic() - started < 30


def test_wait_of_no_time_shows_the_job_as_it_is(served: Served) -> None:
    job = served.submit(document(hold=True))

    assert served.get(f"/jobs/{job}/wait", query={"timeout": 0}).json()["state"] == "held"


def test_stop_of_the_server_answers_those_who_wait(served: Served) -> None:
    job = served.submit(document(hold=True))
    waiting = served.start(served.send("GET", f"{PREFIX}/jobs/{job}/wait", query={"timeout": 60}))
    until(lambda: bool(served.hub._polls))

    served.loop.call_soon_threadsafe(served.hub.stop)

    answer = waiting.result(5)
    assert (answer.status, answer.code) == (503, "controller.stopping")
    assert answer.headers["retry-after"]


# --- explain --------------------------------------------------------------------------------------------------------


def test_explain_names_the_reason_the_place_and_who_is_in_the_way(served: Served) -> None:
    first = served.submit(document("first", **WHOLE))
    served.beat()
    served.submit(document("second", **WHOLE))
    third = served.submit(document("third", **WHOLE))

    found = wire.Explanation.model_validate_json(served.get(f"/jobs/{third}/explain").body)

    assert found.reason is not None
    assert found.reason.code == "wait.gpus"
    assert found.reason.facts["gpus"] == 8
    assert "2 node(s) with 8 free GPU(s)" in found.reason.sentence
    assert found.reason.action
    assert (found.place, found.waiting, found.ahead_gpus) == (2, 2, 16)
    assert [(blocker.job, blocker.gpus) for blocker in found.blockers] == [(first, 16)]


def test_explain_of_an_ended_job_tells_how_it_ended(served: Served) -> None:
    job = served.submit(document(hold=True))
    served.post(f"/jobs/{job}/cancel", {"why": "wrong data"})

    found = served.get(f"/jobs/{job}/explain").json()

    assert (found["state"], found["reason"]) == ("cancelled", None)
    assert "wrong data" in found["why"]


# --- act ------------------------------------------------------------------------------------------------------------


def test_hold_release_cancel_show_the_job_as_it_is_then(served: Served) -> None:
    blocker = served.submit(document(**WHOLE))
    served.beat()
    job = served.submit(document(**WHOLE))

    held = served.post(f"/jobs/{job}/hold", {"why": "later"})
    released = served.post(f"/jobs/{job}/release")
    cancelled = served.post(f"/jobs/{job}/cancel", {})

    assert (held.json()["state"], held.json()["hold"]) == ("held", "later")
    assert (released.json()["state"], released.json()["hold"]) == ("waiting", "")
    assert (cancelled.json()["state"], cancelled.json()["exit_code"]) == ("cancelled", None)
    assert served.get(f"/jobs/{blocker}").json()["state"] == "running"


def test_requeue_ends_the_attempt_and_makes_another(served: Served) -> None:
    job = served.submit()
    served.beat()

    answer = served.post(f"/jobs/{job}/requeue", {"why": "bad node"})
    served.beat(6)

    assert answer.status == 200
    found = served.get(f"/jobs/{job}").json()
    assert (found["attempts"], found["attempt"]["number"]) == (2, 2)
    assert found["past"][0]["cause"] == "requeued"


def test_cancel_of_a_running_job_ends_it_on_its_node(served: Served) -> None:
    job = served.submit()
    served.beat()

    assert served.post(f"/jobs/{job}/cancel", {"now": True}).json()["state"] == "ending"
    served.beat()

    assert served.get(f"/jobs/{job}").json()["state"] == "cancelled"


@pytest.mark.parametrize(
    ("verb", "code"),
    [("release", "job.not-held"), ("requeue", "job.no-attempt")],
)
def test_what_does_not_fit_the_state_is_a_conflict(served: Served, verb: str, code: str) -> None:
    served.submit(document(**WHOLE))
    job = served.submit(document(**WHOLE))

    answer = served.post(f"/jobs/{job}/{verb}", {})

    assert (answer.status, answer.code) == (409, code)


def test_action_on_an_ended_job_is_a_conflict(served: Served) -> None:
    job = served.submit(document(hold=True))
    served.post(f"/jobs/{job}/cancel", {})

    answer = served.post(f"/jobs/{job}/cancel", {})

    assert (answer.status, answer.code) == (409, "job.ended")
