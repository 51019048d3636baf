"""The command against a real controller with real agents: jobs, output, codes, interruption, waiting, tokens."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.lab import Lab, until

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("cli-lab")]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two nodes with four emulated GPUs each."""
    made = Lab(tmp_path_factory.mktemp("l"))
    made.write()
    try:
        done = made("up", str(made.file))
        assert done.returncode == 0, done.stderr
        yield made
        assert made("down", "--cancel-jobs").returncode == 0
    finally:
        made.sweep()


def test_output_of_all_ranks_and_the_jobs_own_code(lab: Lab) -> None:
    done = lab("run", "-n", "3", "--label", "--", "sh", "-c", "echo out $RANK; echo err $RANK >&2")

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}] {kind} {rank}" for rank in range(3) for kind in ("err", "out")
    ]
    assert "succeeded" in done.stderr
    assert lab("run", "-q", "--", "sh", "-c", "exit 7").returncode == 7
    assert lab("run", "-q", "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_a_job_runs_in_our_folder_with_our_path_and_the_variables_given(lab: Lab) -> None:
    done = lab(
        "run",
        "--env",
        "A=b c",
        "--",
        "sh",
        "-c",
        'pwd; echo "$PATH"; echo "$A"; echo "${HIDDEN:-unset}"',
        HIDDEN="x",
    )

    assert done.stdout.splitlines() == [str(lab.home), os.environ["PATH"], "b c", "unset"]


def test_the_first_failed_rank_is_named(lab: Lab) -> None:
    done = lab(
        "run", "-n", "4", "--", "sh", "-c", 'if [ "$RANK" = 2 ]; then echo bad luck; exit 9; fi; sleep 600'
    )

    assert done.returncode == 9
    assert "rank 2 on n" in done.stderr
    assert "exited with 9" in done.stderr
    number = lab.json("jobs", "-n", "1")["items"][0]["id"]  # type: ignore[index]
    assert "  | bad luck" in lab("job", "show", str(number)).stdout


def test_what_can_never_run_is_refused(lab: Lab) -> None:
    done = lab("run", "-N", "9", "--gpus-per-node", "4", "--", "true")

    assert done.returncode == 126
    assert "[never." in done.stderr
    assert "  hint: " in done.stderr
    assert done.stdout == ""


def test_without_a_controller_run_fails_as_gangline_not_as_the_job(lab: Lab) -> None:
    done = lab("run", "--", "true", GANGLINE_SERVER="unix:///no/such.sock")

    assert done.returncode == 125
    assert "[client.unreachable]" in done.stderr


def test_interrupting_run_ends_the_job(lab: Lab) -> None:
    with lab.start(
        "run", "--", "sh", "-c", "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert out.splitlines()[-1] == "asked"
    assert "once more kills it now" in err


def test_a_reader_that_leaves_ends_the_job(lab: Lab) -> None:
    with lab.start("run", "--", "sh", "-c", "while :; do echo y; sleep 0.01; done") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(60) != 0

    assert "nobody reads the output any more" in err
    assert "Traceback" not in err


def test_a_gang_that_does_not_fit_waits_with_its_reason_and_then_runs(lab: Lab) -> None:
    first = lab.submit("spec.tasks=5", "spec.per_task.gpus=1")
    until(lambda: lab.job(first).state == "running")
    with lab.start("run", "-N", "2", "--gpus-per-node", "4", "--", "echo", "ran") as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        while "waits (place 1 of 1)" not in line:
            assert line, "it never said that it waits"
            line = process.stderr.readline()
        assert "it needs 2 node(s) with 4 free GPU(s) each" in line
        second = int(line.split()[1])
        found = lab("explain", str(second))
        assert found.returncode == 0
        assert "[wait.gpus]" in found.stdout
        assert f"\n        {first}  " in found.stdout or f"  {first}  " in found.stdout
        assert lab("cancel", str(first)).returncode == 0
        out, _ = process.communicate(timeout=60)

    assert (process.returncode, sorted(out.splitlines())) == (0, ["ran", "ran"])


def test_hold_release_requeue_logs(lab: Lab) -> None:
    number = str(lab.submit("spec.hold=true", 'spec.command="echo $GANGLINE_ATTEMPT; sleep 600"'))
    assert lab.job(int(number)).state == "held"
    assert "[wait.held]" in lab("explain", number).stdout
    assert lab("release", number).returncode == 0
    until(lambda: lab.log(int(number)) == "1\n")
    assert lab("hold", number).returncode == 1
    assert lab("requeue", number, "--why", "again").returncode == 0
    until(lambda: lab.log(int(number)) == "2\n")
    assert lab("logs", number, "--attempt", "1").stdout == "1\n"
    assert lab("cancel", number, "--now").returncode == 0
    until(lambda: lab.job(int(number)).state == "cancelled")
    assert lab("release", number).returncode == 1


def test_submit_with_a_key_makes_one_job(lab: Lab) -> None:
    path = lab.home / "once.yaml"
    path.write_text("apiVersion: gangline/v1\nkind: Job\nmetadata: {name: once}\nspec: {command: 'true'}\n")
    first = lab("submit", str(path), "--key", "k1", "--wait")
    again = lab("submit", str(path), "--key", "k1")

    assert (first.returncode, again.returncode) == (0, 0)
    assert first.stdout == again.stdout


def test_cordoned_nodes_get_no_work_and_say_why(lab: Lab) -> None:
    assert lab("node", "cordon", "n1", "--why", "fan").stdout == "n1: cordoned (fan)\n"
    line = next(line for line in lab("nodes").stdout.splitlines() if line.startswith("n1"))
    assert line.split()[2] == "cordoned"
    assert line.endswith("fan")
    assert lab("node", "uncordon", "n1").stdout == "n1: open\n"
    missing = lab("node", "cordon", "n9")
    assert (missing.returncode, "[node.not-found]" in missing.stderr) == (1, True)


def test_lists_of_capacity(lab: Lab) -> None:
    assert [line.split()[:3] for line in lab("nodes", "--no-headers").stdout.splitlines()] == [
        ["n1", "p", "open"],
        ["n2", "p", "open"],
    ]
    assert "emulated H100-SXM5-80GB  p        8      8" in lab("gpus").stdout
    assert lab("queues", "-o", "name").stdout == "default\n"
    assert "8 free of 8, 0 allocated, all emulated" in lab("status").stdout


def test_a_token_over_tcp_is_who_it_says(lab: Lab) -> None:
    made = lab("token", "create", "--role", "read", "--name", "nobody")
    url = json.loads((lab.state / "endpoint.json").read_text())["url"]
    as_reader = {"GANGLINE_SERVER": url, "GANGLINE_TOKEN": made.stdout.strip()}

    assert lab("nodes", **as_reader).returncode == 0
    refused = lab("node", "cordon", "n1", **as_reader)
    assert refused.returncode == 5
    number = lab.json("token", "list")["items"][-1]["id"]  # type: ignore[index]
    assert lab("token", "revoke", str(number)).returncode == 0
    assert lab("nodes", **as_reader).returncode == 5


def test_doctor_finds_nothing_to_repair(lab: Lab) -> None:
    done = lab("doctor", "-o", "json")
    found = {item["name"]: item["status"] for item in json.loads(done.stdout)["items"]}

    assert done.returncode == 0, done.stdout
    assert (found["controller"], found["nodes"], found["clocks"]) == ("ok", "ok", "ok")


def test_a_backup_of_the_running_controller(lab: Lab) -> None:
    target = lab.home / "b.ledger"
    done = lab("server", "backup", str(target), "--cluster", "lab")

    assert (done.returncode, done.stdout) == (0, f"{target}\n"), done.stderr
    assert lab("server", "backup", str(target), "--cluster", "lab").returncode == 1
    nowhere = lab("server", "backup", str(lab.home / "no" / "b.ledger"), "--cluster", "lab")
    assert (nowhere.returncode, f"there is no folder {lab.home / 'no'}" in nowhere.stderr) == (1, True)
    assert lab("server", "backup", str(lab.home / "current.ledger")).returncode == 0, "as the tutorial has it"
    in_use = lab("server", "restore", str(target), "--cluster", "lab")
    assert in_use.returncode == 1
    assert "[ledger.in-use]" in in_use.stderr


def test_the_unix_socket_and_tokens_are_the_owners_alone(lab: Lab) -> None:
    assert lab.state.stat().st_mode & 0o777 == 0o700
    for path in [
        lab.state / "admin.token",
        *lab.state.glob("nodes/*/join"),
        *lab.state.glob("nodes/*/state/token"),
    ]:
        assert path.stat().st_mode & 0o077 == 0, path
    assert Path(lab.home / "config" / "contexts.json").stat().st_mode & 0o777 == 0o600
