"""Arrays and dependencies on the command line: named as 1234_7, done to as a whole, waited for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.job_words import acted, card
from orchestrator.client import Client
from orchestrator.model.errors import Conflict
from orchestrator.wire import api
from tests.cli.conftest import Said
from tests.cli.fakes import FakeClient, ended, job

Run = Callable[..., Said]
Make = Callable[..., FakeClient]


def task(number: int = 12, index: int = 3, state: str = "waiting", **fields: Any) -> api.Job:
    """A task of array 12 with three tasks."""
    array = api.ArraySpec(tasks="3-5", count=3, at_most=1)
    spec = job().spec.model_copy(update={"array": array})
    return job(number, state, name="sweep", array=12, index=index, spec=spec, **fields)


def whole(**states: int) -> api.Job:
    return task(tasks=api.Tasks(states=states, exit_code=3 if "failed" in states else 0))


def test_a_list_shows_tasks_by_array_and_index(controller: Make, gangline: Run) -> None:
    client = controller(task(13, 4), job(20))
    assert gangline("jobs", "-o", "name").out.split() == ["12_4", "20"]
    assert "12_4" in gangline("jobs").out
    assert gangline("jobs", "--array", "12", "--state", "waiting", "-o", "name").out.split() == ["12_4"]
    assert client.asked == {"array": 12, "states": ["waiting"], "most": 100}


def test_the_card_of_an_array_says_how_its_tasks_stand() -> None:
    said = card(whole(running=1, waiting=2))
    assert said.splitlines()[0] == "array 12 (sweep)"
    assert "tasks          3-5, at most 1 at a time: 1 running, 2 waiting" in said
    assert "each asks for  16 tasks with 1 GPU each" in said
    assert "state" not in said
    assert card(task()).splitlines()[0] == "job 12_3 (sweep)"


def test_the_card_says_what_it_follows() -> None:
    after = [api.Dependency(job="12", on="ok"), api.Dependency(job="14_7", on="end")]
    topology = api.Topology(required="spine", preferred="", segment_nodes=4, segment_level="unit")
    changed = {"depends_on": after, "singleton": True, "topology": topology, "exclusive": True}
    said = card(job(spec=job().spec.model_copy(update=changed)))
    for words in (
        "after       12 (ok), 14_7 (end)",
        "singleton   one of its name and user at a time",
        "topology    within one spine, each 4 nodes within one unit",
        "16 tasks with 1 GPU each, nobody else on its nodes",
    ):
        assert words in said


@pytest.mark.parametrize(
    ("share", "words"),
    [
        ({"gpu_milli": 250, "gpu_memory_bytes": 20 << 30}, "0.25 of a GPU, 20 GiB of GPU memory"),
        ({"gpus": 2, "mig": "1g.10gb"}, "2 1g.10gb instances"),
        ({"labels": {"network": "fast"}}, "label network=fast"),
    ],
)
def test_the_card_says_what_devices_it_asks_for(share: dict[str, Any], words: str) -> None:
    asked = api.Resources(**({"gpus": 0, "cores": 0, "memory_bytes": 0} | share))
    said = card(job(spec=job().spec.model_copy(update={"per_task": asked})))
    assert f"16 tasks with {words} each" in said.replace("20GiB", "20 GiB")


def test_what_was_done_to_an_array_is_told_by_the_number_of_its_tasks() -> None:
    assert acted(task(acted=2)) == "array 12 (sweep): done to 2 of its 3 tasks"
    assert acted(task(state="ending")) == "job 12_3 (sweep): ending"


@pytest.mark.parametrize("word", ["12_", "_3", "12_03", "0_1", "12-3", "a_1"])
def test_what_is_no_job(controller: Make, gangline: Run, word: str) -> None:
    controller()
    said = gangline("cancel", word)
    assert said.code == 2
    assert "is no job id" in said.err


def test_output_is_of_one_task(controller: Make, gangline: Run) -> None:
    client = controller()
    client.known[12] = whole(running=3)
    said = gangline("logs", "12")
    assert said.code == 2
    assert "job 12 is an array, and each task has output of its own [logs.array]" in said.err
    assert "name a task, as in 12_3; its tasks are 3-5" in said.err


def submit(gangline: Run, path: Path, *more: str) -> Said:
    path.write_text("apiVersion: gangline/v1\nkind: Job\nmetadata: {name: a}\nspec: {command: 'true'}\n")
    return gangline("submit", str(path), *more)


def test_options_of_submit_go_into_the_document(controller: Make, gangline: Run, tmp_path: Path) -> None:
    client = controller()
    words = ("--array", "0-9%2", "--dependency", "afterok:7:9_1,singleton", "--set", "spec.array.at_most=3")
    assert submit(gangline, tmp_path / "job.yaml", *words).code == 0
    assert client.submitted[0]["spec"] == {
        "command": "true",
        "array": {"tasks": "0-9", "at_most": 3},
        "depends_on": [{"job": 7, "on": "ok"}, {"job": "9_1", "on": "ok"}],
        "singleton": True,
    }
    said = submit(gangline, tmp_path / "job.yaml", "--array", "9-0")
    assert said.code == 2
    assert "'9-0' ends before it begins [job.bad-array]" in said.err


@pytest.mark.parametrize(
    ("states", "code"), [({"succeeded": 3}, 0), ({"succeeded": 2, "failed": 1}, 3), ({"cancelled": 3}, 1)]
)
def test_waiting_for_an_array_returns_the_highest_code(
    controller: Make, gangline: Run, tmp_path: Path, states: dict[str, int], code: int
) -> None:
    client = controller(task(13, 4, "running"))
    client.known[1] = whole(**states)
    client.known[1] = client.known[1].model_copy(update={"state": "succeeded"})

    def made(document: object, key: str | None = None, *, force: bool = False) -> api.JobCreated:
        return api.JobCreated(id=1, tasks=3)

    def wait_once(label: str, timeout_s: float, seen: str = "") -> api.Job:
        client.known[13] = ended(13, "succeeded", 0)
        return client.known[13]

    client.submit, client.wait_once = made, wait_once  # type: ignore[method-assign,assignment]
    assert submit(gangline, tmp_path / "job.yaml", "--array", "3-5", "--wait").code == code


def test_the_throttle_is_set(controller: Make, gangline: Run) -> None:
    client = controller()
    asked: list[tuple[int, int]] = []

    def throttle(array: int, at_most: int) -> api.Job:
        asked.append((array, at_most))
        return task()

    client.throttle = throttle  # type: ignore[attr-defined]
    assert (
        gangline("job", "set", "12", "--at-most", "8").out
        == "array 12 (sweep): at most 8 task(s) at a time\n"
    )
    assert (
        gangline("job", "set", "12", "--at-most", "0").out
        == "array 12 (sweep): any number of tasks at a time\n"
    )
    assert asked == [(12, 8), (12, 0)]


@pytest.mark.parametrize("counts", [(5, 5, 2), (0, 0, 1), (0, 4, 0), (0, 0, 0)])
def test_a_client_asks_again_until_all_tasks_were_dealt_with(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...]
) -> None:
    client, bodies = Client("http://127.0.0.1:1"), list[dict[str, Any]]()

    def post(_model: object, _path: str, body: dict[str, Any]) -> api.Job:
        bodies.append(body)
        at = len(bodies)
        left = 100 - at if at < len(counts) else None
        return task(acted=counts[at - 1], next=left, id=1000 - at)

    monkeypatch.setattr(client, "_post", post)
    if sum(counts):
        found = client.hold("12", "why")
        last = max(at for at, count in enumerate(counts, 1) if count)
        assert (found.acted, found.next, found.id) == (sum(counts), None, 1000 - last)
    else:
        with pytest.raises(Conflict, match="hold fits none of the tasks of array 12"):
            client.hold("12", "why")
    assert [body.get("below") for body in bodies] == [None, 99, 98]
    assert {body["why"] for body in bodies} == {"why"}
