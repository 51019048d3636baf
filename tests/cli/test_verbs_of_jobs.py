"""`jobs`, `job show`, `explain`, `cancel` and its kin against a controller that is a dict."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from orchestrator.cli.arguments import PRIORITY
from orchestrator.cli.explain_cmd import what_if_words, words
from orchestrator.cli.job_words import listing
from orchestrator.cli.watching import _Frames, _Lines
from orchestrator.model.job import HIGHEST_PRIORITY
from orchestrator.wire import api, api_cluster
from tests.cli.conftest import Said
from tests.cli.fakes import NOW, FakeClient, ended, job, reason, summary

Run = Callable[..., Said]
Make = Callable[..., FakeClient]


def test_jobs_asks_for_ones_own_of_the_last_day(controller: Make, gangline: Run) -> None:
    client = controller(job(1))

    said = gangline("jobs")

    assert said.code == 0
    assert said.out.splitlines()[1].startswith(" 1  train")
    day_ago = int((NOW.timestamp() - 86400) * 1_000_000)
    assert client.asked == {
        "states": [],
        "queue": "",
        "owner": "alice",
        "name": "",
        "since_us": day_ago,
        "most": 100,
    }


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["-a"], {"owner": ""}),
        (["--user", "bob"], {"owner": "bob"}),
        (["--state", "running,held", "--state", "waiting"], {"states": ["running", "held", "waiting"]}),
        (["--since", "all"], {"since_us": 0}),
        (["--since", "1h", "-n", "5"], {"since_us": int((NOW.timestamp() - 3600) * 1_000_000), "most": 5}),
        (["--queue", "q", "--name", "x"], {"queue": "q", "name": "x"}),
    ],
)
def test_filters_are_the_same_for_tables_and_documents(
    controller: Make, gangline: Run, arguments: list[str], asked: dict[str, object]
) -> None:
    client = controller(job(1))
    for form in ("table", "json"):
        assert gangline("jobs", *arguments, "-o", form).code == 0
        assert {key: client.asked[key] for key in asked} == asked


def test_no_jobs_is_a_message_and_no_error(controller: Make, gangline: Run) -> None:
    controller()

    said = gangline("jobs")

    assert (said.code, said.out) == (0, "")
    assert said.err == "no jobs of alice; -a shows those of all users, --since 7d older ones\n"
    filtered = gangline("jobs", "--queue", "nope", "--state", "held,waiting", "--name", "x")
    assert filtered.err.startswith(
        "no jobs of alice named x in queue nope that are held or waiting; -a shows"
    )
    assert gangline("jobs", "-a").err == "no jobs; --since 7d shows older ones\n"
    assert json.loads(gangline("jobs", "-o", "json").out)["items"] == []


def test_a_full_page_says_that_there_may_be_more(controller: Make, gangline: Run) -> None:
    controller(*(job(number) for number in range(1, 101)))

    assert "-n 0 shows all" in gangline("jobs").err
    assert gangline("jobs", "-n", "2").err == ""


def test_job_show(controller: Make, gangline: Run) -> None:
    controller(job(1))

    assert gangline("job", "show", "1").out.startswith("job 1 (train)\n  state       running\n")
    found = json.loads(gangline("job", "show", "1", "-o", "json").out)
    assert (found["apiVersion"], found["kind"], found["id"]) == ("gangline/v1", "Job", 1)
    missing = gangline("job", "show", "7")
    assert missing.code == 1
    assert "there is no job 7 [job.not-found]\n  hint: `gangline jobs -a`" in missing.err


EXPLAINED = api.Explanation(
    job=2,
    state="waiting",
    reason=reason(nodes=4, gpus=8, fit=2, pool="local"),
    place=2,
    waiting=3,
    ahead_gpus=8,
    blockers=[api.Blocker(job=1, owner="bob", gpus=16, ends_at=NOW)],
)


def test_explain_does_not_say_twice_that_a_job_is_held() -> None:
    held = reason("wait.held", why="look first", job=7).model_copy(
        update={"sentence": "it is held: look first"}
    )

    said = words(api.Explanation(job=7, state="held", reason=held), NOW)

    assert said.splitlines()[0] == "job 7: it is held: look first [wait.held]"


def test_explain_has_sentence_place_numbers_blockers_and_what_to_do() -> None:
    assert words(EXPLAINED, NOW).split("\n") == [
        "job 2 is waiting: it needs 4 node(s) with 8 free GPU(s) each; 2 of 4 have them [wait.gpus]",
        "",
        "  place: 2 of 3 waiting in its queue; 1 job before it asks for 8 GPUs",
        "",
        "  NUMBER  VALUE",
        "  nodes       4",
        "  gpus        8",
        "  fit         2",
        "  pool    local",
        "",
        "  BLOCKER  USER  GPUS  ENDS BY ITSELF IN",
        "        1  bob     16                 0s",
        "",
        "  what to do: wait for the jobs named as blockers",
    ]


def test_explain_leaves_long_texts_to_the_sentence() -> None:
    tried = "p5.48xlarge spot in us-east-1a: there is no capacity"
    found = reason("wait.capacity", nodes=2, tried=tried).model_copy(update={"sentence": f"none: {tried}"})

    said = words(api.Explanation(job=7, state="waiting", reason=found), NOW)

    assert said.count(tried) == 1
    assert "  NUMBER  VALUE\n  nodes       2\n" in said


def test_explain_of_an_ended_job_tells_its_end(controller: Make, gangline: Run) -> None:
    controller(ended(1, "succeeded", 0))

    assert gangline("explain", "1").out == "job 1 (train) succeeded after 3m05s\n"


def test_explain_as_a_document(controller: Make, gangline: Run) -> None:
    controller(job(2, "waiting")).explanations[2] = EXPLAINED

    found = json.loads(gangline("explain", "2", "-o", "json").out)
    assert (found["kind"], found["reason"]["code"], found["blockers"][0]["job"]) == (
        "Explanation",
        "wait.gpus",
        1,
    )


def test_cancel_several_tells_all_and_is_4_if_some_could_not_be(controller: Make, gangline: Run) -> None:
    client = controller(job(1), ended(2, "failed", 1), job(3))

    said = gangline("cancel", "1", "2", "3", "1", "9")

    assert said.code == 4
    assert said.out == "job 1 (train): ending\njob 3 (train): ending\n"
    assert "job 2 has ended" in said.err
    assert "there is no job 9" in said.err
    assert client.cancelled == [(1, False), (3, False)]


def test_cancel_that_could_do_nothing_is_1(controller: Make, gangline: Run) -> None:
    controller(ended(2, "failed", 1))

    assert gangline("cancel", "2", "9").code == 1
    assert gangline("cancel", "2").code == 1


def test_cancel_and_release_may_be_repeated(controller: Make, gangline: Run) -> None:
    """After a kill nobody knows whether the first one arrived: nothing to do is no failure."""
    client = controller(ended(2, "cancelled", 143), job(3), job(4, "waiting"))

    said = gangline("cancel", "2", "3")
    assert (said.code, said.out) == (0, "job 2 (train): cancelled\njob 3 (train): ending\n")
    assert client.cancelled == [(3, False)]
    said = gangline("release", "3", "4")
    assert (said.code, said.out) == (0, "job 3 (train): running\njob 4 (train): waiting\n")
    assert gangline("release", "2").code == 1


def test_requeue_may_be_repeated(controller: Make, gangline: Run) -> None:
    """Who waits already is as it was asked for; who is held is not, and will not start again by itself."""
    controller(job(1), job(2, "waiting"), job(3, "held"))
    said = gangline("requeue", "1", "2")
    assert (said.code, said.out) == (0, "job 1 (train): ending\njob 2 (train): waiting\n")
    assert gangline("requeue", "3").code == 1


def test_cancel_now_and_documents(controller: Make, gangline: Run) -> None:
    client = controller(job(1))

    assert [
        item["state"] for item in json.loads(gangline("cancel", "1", "--now", "-o", "json").out)["items"]
    ] == ["ending"]
    assert gangline("cancel", "1", "-o", "name").out == "1\n"
    assert client.cancelled[0] == (1, True)


def test_submit_prints_the_id(controller: Make, gangline: Run, tmp_path: object) -> None:
    client = controller()
    path = f"{tmp_path}/job.yaml"
    with open(path, "w") as file:
        file.write("apiVersion: gangline/v1\nkind: Job\nmetadata: {name: a}\nspec: {command: 'true'}\n")

    assert gangline("submit", path) == (0, "1\n", "")
    assert json.loads(gangline("submit", path, "-o", "json").out)["id"] == 1
    assert client.submitted[0]["metadata"] == {"name": "a"}
    client.known[1] = ended(1, "failed", 9)
    assert gangline("submit", path, "--wait").code == 9
    assert gangline("submit", path, "--even-if-never").code == 0
    assert [each.get("force", False) for each in client.submitted] == [False, False, False, True]


def test_watching_prints_json_lines_on_change_only(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _Lines()
    for state in ("waiting", "waiting", "running"):
        lines.show(listing(NOW), [summary(1, state)])

    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["items"][0]["state"] for each in found] == ["waiting", "running"]


def test_watching_on_a_terminal_writes_over_the_last_frame(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "4")
    frames = _Frames()
    frames._terminal = True
    frames.show(listing(NOW), [summary(1)])
    frames.show(listing(NOW), [summary(number) for number in range(1, 9)])

    out = capsys.readouterr().out
    first, second = out.split("\x1b[2A")
    assert first.count("\n") == 2
    assert second.count("\n") == 3
    assert "... 7 more lines" in second


def test_what_if_says_where_or_why_not() -> None:
    starts = api_cluster.WhatIf(
        starts=True,
        nodes=[
            api_cluster.WhatIfNode(node="h100-01", devices=[0, 1], milli=[], tasks=2, cores=4),
            api_cluster.WhatIfNode(node="h100-02", devices=[3], milli=[250], tasks=1, cores=2),
        ],
    )
    refused = api_cluster.WhatIf(starts=False, refused=True, reason=reason("wait.gpus", fit=1))

    assert what_if_words(starts).splitlines() == [
        "it would start now on 2 nodes:",
        "",
        "  NODE     GPUS      TASKS",
        "  h100-01  0-1           2",
        "  h100-02  3 (0.25)      1",
    ]
    assert what_if_words(refused).startswith("it would be refused: ")
    assert "[wait.gpus]" in what_if_words(refused)


def test_what_if_of_an_array_says_how_many_tasks_and_why_not_the_next() -> None:
    node = api_cluster.WhatIfNode(node="h100-01", devices=[0, 1], milli=[], tasks=2, cores=4, array_tasks=2)
    some = api_cluster.WhatIf(
        starts=True, array_tasks=9, tried=9, starting=2, nodes=[node], reason=reason("wait.gpus", fit=1)
    )
    text = what_if_words(some)
    assert text.startswith(
        "2 of its 9 tasks would start now on 1 node:\n\n  NODE     GPUS  TASKS\n  h100-01  0-1"
    )
    assert "\nthe next task would wait: " in text
    every = some.model_copy(update={"array_tasks": 2, "tried": 2, "reason": None})
    assert what_if_words(every).startswith("all 2 of its tasks would start now on 1 node:")
    first = some.model_copy(update={"tried": 2, "reason": None})
    assert what_if_words(first).endswith("\nonly its first 2 tasks were looked at")
    cancelled = api_cluster.WhatIf(starts=False, reason=reason("end.dependency"))
    assert what_if_words(cancelled).startswith("it would be cancelled at once: ")


def test_what_if_sends_the_file_and_submits_nothing(
    controller: Make, gangline: Run, tmp_path: object
) -> None:
    client = controller()
    path = f"{tmp_path}/job.yaml"
    with open(path, "w") as file:
        file.write("apiVersion: gangline/v1\nkind: Job\nmetadata: {name: a}\nspec: {command: 'true'}\n")

    assert (
        gangline("explain", "--what-if", path).out
        == "it would start now on 0 nodes:\n\n  NODE  GPUS  TASKS\n"
    )
    assert gangline("explain", "--what-if", path, "--set", "spec.nodes=7").code == 0
    assert [each["spec"].get("nodes") for each in client.asked_what_if] == [None, 7]
    assert client.submitted == []
    assert gangline("explain", "1", "--what-if", path).code == 2
    assert "what-if" in gangline("explain", "1", "--set", "spec.nodes=7").err


# --- prioritize ---------------------------------------------------------------------------------------------------


def test_prioritize_says_what_each_job_has_now(controller: Make, gangline: Run) -> None:
    controller(job(1, "waiting"), job(2, "held"), job(3, "running"))

    said = gangline("prioritize", "1", "2", "3", "--priority=-5")

    assert said.code == 4
    assert said.out == "job 1 (train): waiting, priority -5\njob 2 (train): held, priority -5\n"
    assert "job 3 is running: priority decides about starts [job.has-attempt]" in said.err
    assert (
        json.loads(gangline("prioritize", "1", "--priority", "7", "-o", "json").out)["items"][0]["priority"]
        == 7
    )


def test_prioritize_wants_a_priority_that_jobs_can_have(controller: Make, gangline: Run) -> None:
    controller(job(1, "waiting"))

    assert "missing option '--priority'" in gangline("prioritize", "1").err
    assert (PRIORITY.least, PRIORITY.most) == (-HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    assert "1000001 is not -1000000 to 1000000" in gangline("prioritize", "1", "--priority", "1000001").err
