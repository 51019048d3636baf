"""`up` and `down` for real: convergence after changes, deaths and kills; jobs that outlive both; no strays."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from orchestrator.cli.demo_cmd import processes_of
from orchestrator.wire.api import Attempt
from tests.cli.lab import Lab, alive, until

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


def up(lab: Lab) -> str:
    done = lab("up", str(lab.file))
    assert done.returncode == 0, done.stderr
    return done.stderr


def down(lab: Lab, *options: str) -> None:
    done = lab("down", *options)
    assert done.returncode == 0, done.stderr
    assert processes_of(lab.state) == []


def attempt(lab: Lab, number: int) -> Attempt:
    found = lab.job(number).attempt
    assert found is not None
    return found


def test_up_is_repeatable_and_repairs(lab: Lab) -> None:
    first = up(lab)
    assert "2 of 2 nodes are ready" in first
    before = lab.daemons()
    assert set(before) == {"server", "agent-n1", "agent-n2"}

    assert "controller: runs" in up(lab)
    assert lab.daemons() == before

    os.kill(before["agent-n1"], signal.SIGKILL)
    os.kill(before["server"], signal.SIGKILL)
    until(lambda: not alive(before["server"]))
    repaired = up(lab)
    assert "controller: started" in repaired
    assert "agents: started 1 of 2" in repaired
    after = lab.daemons()
    assert after["agent-n2"] == before["agent-n2"]
    assert len({after["server"], after["agent-n1"], before["server"], before["agent-n1"]}) == 4
    down(lab)


def test_up_follows_the_file(lab: Lab) -> None:
    up(lab)
    lab.write("n[2-3]")
    said = up(lab)

    assert "node n1: not in the file any more, stopped" in said
    assert "agents: started 1 of 2" in said
    assert set(lab.daemons()) == {"server", "agent-n2", "agent-n3"}
    lab.file.write_text(lab.file.read_text().replace("count: 4", "count: 2"))
    assert "agents: started 2 of 2" in up(lab)
    assert lab("gpus").stdout.splitlines()[1].split()[3:5] == ["4", "4"]
    down(lab)


def test_jobs_outlive_down_and_are_taken_back(lab: Lab) -> None:
    up(lab)
    number = lab.submit(
        'spec.command="echo begun; while [ ! -e stop ]; do sleep 0.1; done; echo finished; exit 5"',
        f"spec.workdir={lab.home}",
    )
    until(lambda: lab.log(number) == "begun\n")
    pid = attempt(lab, number).parts[0].pids[0]

    done = lab("down")
    assert (done.returncode, "1 job(s) run on without them" in done.stderr) == (0, True)
    assert alive(pid)
    up(lab)
    assert attempt(lab, number).number == 1
    assert alive(pid)
    (lab.home / "stop").touch()
    until(lambda: lab.job(number).state == "failed")
    assert lab.job(number).exit_code == 5
    assert lab("logs", str(number)).stdout == "begun\nfinished\n"
    down(lab)


def test_down_with_cancel_jobs_ends_them_first(lab: Lab) -> None:
    up(lab)
    running = lab.submit()
    waiting = lab.submit("spec.hold=true")
    until(lambda: lab.job(running).state == "running")
    down(lab, "--cancel-jobs")

    up(lab)
    assert [lab.job(number).state for number in (running, waiting)] == ["cancelled", "cancelled"]
    down(lab)


def test_down_does_not_claim_to_cancel_without_a_controller(lab: Lab) -> None:
    up(lab)
    running = lab.submit()
    until(lambda: lab.job(running).state == "running")
    pid = attempt(lab, running).parts[0].pids[0]
    assert lab("down").returncode == 0

    done = lab("down", "--cancel-jobs")

    assert (done.returncode, "[down.no-controller]" in done.stderr) == (1, True)
    assert alive(pid)
    up(lab)
    assert lab.job(running).state == "running"
    assert "jobs: cancelling 1" in lab("down", "--cancel-jobs").stderr
    assert not alive(pid)
    again = lab("down", "--cancel-jobs")
    assert (again.returncode, "jobs: none runs" in again.stderr) == (0, True)


def test_an_agent_is_let_in_again_when_the_ledger_is_new(lab: Lab) -> None:
    up(lab)
    down(lab)
    for path in lab.state.glob("ledger.*"):
        path.unlink()
    (lab.state / "admin.token").unlink()

    assert "2 of 2 nodes are ready" in up(lab)
    down(lab)


def test_up_starts_nothing_where_it_could_not_be_found_again(lab: Lab) -> None:
    contexts = lab.home / "config" / "contexts.json"
    contexts.parent.mkdir(parents=True, exist_ok=True)
    contexts.write_text("{")

    done = lab("up", str(lab.file))

    assert (done.returncode, "[cli.bad-contexts]" in done.stderr) == (2, True)
    assert lab.daemons() == {}


def test_down_of_what_does_not_run_is_no_error(lab: Lab) -> None:
    assert lab("down", "lab").returncode == 1
    up(lab)
    down(lab)
    assert "controller: none runs" in lab("down", str(lab.file)).stderr


def test_two_ups_at_once_do_not_meet(lab: Lab) -> None:
    with lab.start("up", str(lab.file)) as one, lab.start("up", str(lab.file)) as two:
        ends = [(process.communicate(timeout=60), process.returncode) for process in (one, two)]
    codes = sorted(code for _, code in ends)

    assert codes in ([0, 0], [0, 1]), ends
    if codes[1]:
        assert any("[local.busy]" in err for (_, err), _ in ends)
    assert len(processes_of(lab.state)) >= 3
    up(lab)
    assert set(lab.daemons()) == {"server", "agent-n1", "agent-n2"}
    down(lab)


FAR = """apiVersion: gangline/v1
kind: Cluster
metadata: {name: far}
sites: [{name: use1, kind: aws, region: us-east-1, zones: [us-east-1a]}]
pools: []
"""
STEPS = ["up/server.json", "endpoint.json", "nodes/n1/join", "up/agent-n1.json"]


@pytest.mark.parametrize("step", STEPS)
def test_an_up_that_is_killed_can_be_run_again(lab: Lab, step: str) -> None:
    """Killed as soon as the step has left its file: nothing is doubled, nothing is left over."""
    with lab.start("up", str(lab.file)) as process:
        until(lambda: (lab.state / step).exists() or process.poll() is not None)
        process.kill()
        process.communicate()

    assert "2 of 2 nodes are ready" in up(lab)
    recorded = set(lab.daemons().values())
    servers = [
        pid
        for pid in processes_of(lab.state)
        if b"\0server\0run\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert servers == [pid for pid in servers if pid in recorded]
    assert len(servers) == 1
    down(lab)


@pytest.mark.parametrize("step", ["up/agent-n1.json", "up/server.json"])
def test_a_down_that_is_killed_can_be_run_again(lab: Lab, step: str) -> None:
    up(lab)
    with lab.start("down") as process:
        until(lambda: not (lab.state / step).exists() or process.poll() is not None)
        process.kill()
        process.communicate()
    down(lab)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("kind: Clutser", 2, "did you mean 'Cluster'"),
        (
            FAR,
            2,
            "nodes elsewhere must be able to call the controller",
        ),
    ],
)
def test_files_that_up_does_not_take(lab: Lab, text: str, code: int, words: str) -> None:
    lab.file.write_text(text)
    done = lab("up", str(lab.file))

    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert not lab.state.exists()


def test_a_controller_that_can_not_start_says_why(lab: Lab) -> None:
    lab.state.mkdir(parents=True)
    (lab.state / "ledger.db").write_text("not a ledger at all, but long enough to be looked at")
    done = lab("up", str(lab.file))

    assert done.returncode == 1
    assert "[up.no-controller]" in done.stderr
    assert "ledger" in done.stderr
    assert "Traceback" not in done.stderr


def test_nodes_that_do_not_come_are_named_with_their_last_words(lab: Lab) -> None:
    up(lab)
    down(lab)
    shutil.rmtree(lab.state / "nodes" / "n2" / "state")
    (lab.state / "nodes" / "n2" / "state").write_text("in the way")
    done = lab("up", str(lab.file), "--timeout", "20s")

    assert done.returncode == 4
    assert "node n2: its agent has ended" in done.stderr
    assert "1 node(s) not ready" in done.stderr
    (lab.state / "nodes" / "n2" / "state").unlink()
    up(lab)
    down(lab)


def test_the_demo_leaves_nothing_and_keeps_its_promises(lab: Lab) -> None:
    with lab.start("demo") as process:
        out, err = process.communicate(timeout=120)

    assert process.returncode == 0, out + err
    for words in (
        "16 processes under 2 shepherds",
        "it needs 4 node(s) with 8 free GPU(s) each; 2 of 4 open node(s)",
        "place: 1 of 1 waiting in its queue",
        "on 16 of 16 ranks",
        "rank 3 on local-4 has emulated GPUs",
        "no process is left",
    ):
        assert words in out
    assert processes_of(lab.home) == []
    assert not list(lab.home.glob("gangline-demo-*/state"))


def test_a_demo_that_was_killed_is_swept_by_the_next(lab: Lab) -> None:
    with lab.start("demo") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        while "processes under 2 shepherds" not in line:
            assert line, "the demo ended early"
            line = process.stdout.readline()
        process.kill()
        process.communicate()
    left = processes_of(lab.home)
    assert len(left) > 16

    done = lab("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "an earlier demo was killed" in done.stdout
    assert processes_of(lab.home) == []
    assert json.loads(lab("version", "-o", "json").stdout)["server"] is None
