"""A job in words: the card to the letter, how it ended, where it is."""

from __future__ import annotations

import pytest

from orchestrator.cli import job_words
from orchestrator.wire import api
from tests.cli.fakes import NOW, ago, ended, first_failed, job, reason, summary


def part(node: str, first: int) -> api.Part:
    return api.Part(
        node=node,
        state="started",
        slots=list(range(8)),
        first_rank=first,
        tasks=8,
        pids=list(range(100 + first, 108 + first)),
        contact="ok",
    )


def test_card_of_a_running_job() -> None:
    attempt = api.Attempt(
        id="1/2",
        number=2,
        state="running",
        parts=[part("n1", 0), part("n2", 8)],
        allocated_at=ago(190),
        started_at=ago(185),
        deadline_at=NOW,
        master_address="10.0.0.1",
        master_port=20000,
    )

    assert job_words.card(job(attempt=attempt, time_limit_s=3600)).split("\n") == [
        "job 1 (train)",
        "  state       running",
        "  user        alice",
        "  queue       default, priority 0",
        "  asks for    16 tasks with 1 GPU each",
        "  command     python train.py 'a b'",
        "  workdir     /home/alice",
        "  time limit  1h00m",
        "  submitted   2026-11-30T11:50:00Z",
        "  started     2026-11-30T11:56:55Z",
        "",
        "attempt 1/2: running, until 2026-11-30T12:00:00Z",
        "  NODE  STATE    RANKS  SLOTS  PIDS     ERROR",
        "  n1    started    0-7  0-7    100-107  -",
        "  n2    started   8-15  0-7    108-115  -",
    ]


def test_card_says_which_time_limit_a_job_without_its_own_has() -> None:
    card = job_words.card(job(state="waiting"))

    assert "  time limit  none of its own: its queue's, else 4h00m for batch work" in card


def test_card_of_a_failed_job_has_the_first_failed_rank_and_its_last_lines() -> None:
    past = first_failed(tail="loading\nNaN \x1b[31mloss\n")
    lines = job_words.card(ended(1, "failed", 1, past=[past], why="rank 3 on n1 failed first")).split("\n")

    at = lines.index("attempt 1/1: rank_failed, ran 3m05s on n1, exit 1")
    assert lines[at + 1 :] == [
        "  rank 3 on n1 failed first: it exited with 1",
        "  the end of its output:",
        "  | loading",
        "  | NaN \\x1b[31mloss",
    ]


def test_card_names_nodes_that_could_not_prepare_it() -> None:
    assert job_words.card(job(faults=["n1: no such folder"])).endswith(
        "could not be prepared on:\n  n1: no such folder"
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (ended(1, "succeeded", 0), "job 1 (train) succeeded after 3m05s"),
        (
            ended(1, "failed", 1, past=[first_failed()]),
            "job 1 (train) failed after 3m05s: rank 3 on n1 failed first: it exited with 1",
        ),
        (
            ended(1, "failed", 137, past=[first_failed(code=0, signal=9)]),
            "job 1 (train) failed after 3m05s: rank 3 on n1 failed first: it was killed by signal 9 (SIGKILL)",
        ),
        (
            ended(1, "cancelled", 130, started_at=None, why="cancelled by user:bob"),
            "job 1 (train) cancelled: cancelled by user:bob",
        ),
    ],
)
def test_ending(found: api.Job, words: str) -> None:
    assert job_words.ending(found) == words


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (summary(1, "running"), "n[1-2]"),
        (summary(1, "waiting", reason=reason("wait.order")), "(wait.order)"),
        (summary(1, "held", hold="looks first"), "(looks first)"),
        (summary(1, "succeeded", ended_at=ago(0), exit_code=0), "-"),
        (summary(1, "failed", ended_at=ago(0), exit_code=3), "exit 3"),
        (
            summary(1, "cancelled", ended_at=ago(0), exit_code=0, why="cancelled by user:bob"),
            "(cancelled by user:bob)",
        ),
    ],
)
def test_where_or_why(found: api.JobSummary, words: str) -> None:
    assert job_words.where_or_why(found) == words


def test_a_lost_job_is_called_lost() -> None:
    assert job_words.state(summary(1, "running", lost=True)).text == "lost"


def test_every_state_has_a_mood() -> None:
    from orchestrator.model.attempt import JobState

    assert set(job_words.MOODS) == {str(state) for state in JobState}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"nodes": 2, "tasks": 0, "per_node": {"gpus": 8, "cores": 96, "memory_bytes": 960 << 30}},
            "2 nodes with 8 GPUs, 96 cores, 960GiB each",
        ),
        ({"nodes": 1, "tasks": 0, "tasks_per_node": 4}, "1 node, 4 tasks on each"),
        (
            {"tasks": 1, "per_task": {"gpus": 1, "cores": 0, "memory_bytes": 0, "gpu_models": ["H100"]}},
            "1 task with 1 GPU (H100) each",
        ),
    ],
)
def test_request(spec: dict[str, object], words: str) -> None:
    base = job().spec.model_dump() | {"per_node": None, "per_task": None} | spec

    assert job_words.request(job(spec=api.JobSpec.model_validate(base))) == words
