"""Staying with a job: its waiting told once per change, its output passed on, its code returned, signals passed on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from orchestrator.cli import attached
from orchestrator.cli.attached import Attached, Status, waiting_words
from orchestrator.model.errors import Refused, Unavailable
from orchestrator.wire import api
from tests.cli.conftest import Said
from tests.cli.fakes import FakeClient, ended, first_failed, job, reason

Run = Callable[..., Said]
Make = Callable[..., FakeClient]


def explained(place: int = 1, **more: Any) -> api.Explanation:
    return api.Explanation(job=1, state="waiting", reason=reason(), place=place, waiting=3, **more)


def test_run_returns_the_jobs_code_and_passes_its_output_on(controller: Make, gangline: Run) -> None:
    client = controller(job(1, "waiting"))
    client.explanations[1] = explained()
    past = first_failed(code=7)
    client.changes = [ended(1, "failed", 7, ranks=1, past=[past])]
    past.placements[0].__dict__["tasks"] = 1
    client.output[1, 0] = b"hello\n"

    said = gangline("run", "--", "train.sh", "-x")

    assert (said.code, said.out) == (7, "hello\n")
    assert said.err.splitlines() == [
        "job 1 (train) waits (place 1 of 3): it needs 4 node(s) with 8 free GPU(s) each; 2 of 4 have them",
        "job 1 (train) failed after 3m05s: rank 3 on n1 failed first: it exited with 7",
    ]
    assert client.submitted[0]["spec"]["command"] == ["train.sh", "-x"]
    assert client.submitted[0]["spec"]["workdir"] == os.getcwd()
    assert client.submitted[0]["spec"]["env"] == {"PATH": os.environ["PATH"]}


def test_a_job_that_no_node_can_prepare_is_given_up_not_waited_for(controller: Make, gangline: Run) -> None:
    client = controller(job(1, "held", faults=["n1: /data: no such folder", "n2: /data: no such folder"]))

    said = gangline("run", "--", "true")

    assert said.code == 125
    assert (
        "could not be prepared: n1: /data: no such folder; n2: /data: no such folder [job.not-prepared]"
        in said.err
    )
    assert client.cancelled == [(1, False)]
    assert client.whys == ["it could not be prepared: n1: /data: no such folder; n2: /data: no such folder"]


@pytest.mark.parametrize(
    ("state", "code", "returned"),
    [
        ("succeeded", 0, 0),
        ("failed", 3, 3),
        ("failed", 137, 137),
        ("failed", 0, 1),
        ("failed", 256, 1),
        ("cancelled", 143, 143),
    ],
)
def test_codes(controller: Make, gangline: Run, state: str, code: int, returned: int) -> None:
    controller(ended(1, state, code, started_at=None))

    assert gangline("run", "-q", "--", "true") == (returned, "", "")


def test_a_refusal_is_126_and_a_failure_125(
    controller: Make, gangline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = controller()
    for error, code in (
        (Refused("never.queue", "no"), 126),
        (Unavailable("client.unreachable", "away"), 125),
    ):

        def submit(*_args: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(client, "submit", submit)
        assert gangline("run", "--", "true").code == code


def test_an_interrupted_submit_leaves_no_job(
    controller: Make, gangline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request may have arrived: the same key finds the job that it has made."""
    client = controller(job(1, "waiting"))
    real, keys = client.submit, []

    def submit(document: Mapping[str, Any], key: str | None = None) -> api.JobCreated:
        keys.append(key)
        if len(keys) == 1:
            raise KeyboardInterrupt
        return real(document, key)

    monkeypatch.setattr(client, "submit", submit)
    said = gangline("run", "--", "true")
    assert (said.code, client.cancelled) == (130, [(1, False)])
    assert keys[0]
    assert keys == [keys[0]] * 2
    assert client.whys == ["interrupted while it was submitted"]


def test_an_invalid_request_is_2_and_sends_nothing(controller: Make, gangline: Run) -> None:
    client = controller()

    said = gangline("run", "--memory", "lots", "--", "true")

    assert said.code == 2
    assert "spec.per_task.memory" in said.err
    assert client.submitted == []


def test_a_waiting_reason_is_told_when_it_changes_only(capsys: pytest.CaptureFixture[str]) -> None:
    status = Status()
    for text in ("a", "a", "b", "b", "a"):
        status.update(text)

    assert capsys.readouterr().err == "a\nb\na\n"


def test_a_terminal_is_rewritten(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached.sys.stderr, "isatty", lambda: True)  # type: ignore[attr-defined]
    monkeypatch.setenv("COLUMNS", "11")
    status = Status()
    status.update("one two three")
    status.update("four")
    status.say("done")

    assert capsys.readouterr().err == "one two\n    three\r\x1b[1A\x1b[Jfour\r\x1b[Jdone\n"


def test_words_of_waiting() -> None:
    held = job(1, "held", reason=reason("wait.held"))

    assert (
        waiting_words(held, None)
        == "job 1 (train): it needs 4 node(s) with 8 free GPU(s) each; 2 of 4 have them"
    )
    assert waiting_words(job(1, "starting"), None) == "job 1 (train): starting"
    assert waiting_words(job(1, "waiting"), explained(2)).startswith("job 1 (train) waits (place 2 of 3): ")


class Interrupting(FakeClient):
    """Sends us a signal while we wait, as often as told; the job ends when it was killed."""

    def __init__(self, times: int, number: int = signal.SIGINT) -> None:
        super().__init__(job(1, "waiting"))
        self.times, self.number = times, number

    def wait_once(self, number: int, timeout_s: float, seen: str = "") -> api.Job:
        if self.times:
            self.times -= 1
            os.kill(os.getpid(), self.number)
        if self.cancelled and not self.times:
            return ended(1, "cancelled", 143, started_at=None)
        return self.job(number)

    def wait(self, number: int, timeout_s: float | None = None) -> api.Job:
        return ended(1, "cancelled", 143, started_at=None)


@pytest.mark.parametrize(
    ("number", "times"), [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 1), (signal.SIGHUP, 1)]
)
def test_signals_ask_then_kill(number: int, times: int, capsys: pytest.CaptureFixture[str]) -> None:
    client = Interrupting(times, number)
    before = signal.getsignal(signal.SIGINT)

    assert Attached(client).stay(1) == 130  # type: ignore[arg-type]

    assert sorted(client.cancelled) == [(1, False), (1, True)][:times]
    assert "asking job 1 to end; once more kills it now" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_a_third_signal_leaves_it_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        Attached(Interrupting(3)).stay(1)  # type: ignore[arg-type]

    assert "left job 1 alone; `gangline job show 1` tells how it is" in capsys.readouterr().err
