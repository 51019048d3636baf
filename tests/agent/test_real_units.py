"""Real processes: what runs, what it sees, how it ends. One agent against the fake controller."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.model.ids import AttemptId
from orchestrator.model.job import LaunchKind, Owner
from orchestrator.model.protocol import Desired, EndOrder, EventKind, GangPart, Phase, ReadRequest
from tests.agent.fake_controller import FakeController
from tests.agent.running import SUPERVISORS, RunningAgent, alive, launch_of, shell, until

pytestmark = pytest.mark.system
FIRST = AttemptId(1, 1)


@pytest.fixture
def controller() -> Iterator[FakeController]:
    made = FakeController()
    yield made
    made.close()


@pytest.fixture(params=SUPERVISORS)
def agent(
    request: pytest.FixtureRequest, tmp_path: Path, controller: FakeController
) -> Iterator[RunningAgent]:
    made = RunningAgent(tmp_path / "a", controller, supervisor=request.param, stuck_s=0.5).start()
    yield made
    made.close()


@pytest.fixture
def tree_agent(tmp_path: Path, controller: FakeController) -> Iterator[RunningAgent]:
    made = RunningAgent(tmp_path / "a", controller, supervisor="process-tree", stuck_s=0.5).start()
    yield made
    made.close()


def test_true_starts_and_ends_once(agent: RunningAgent, controller: FakeController) -> None:
    controller.run("n1", FIRST, launch_of("true"))
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert ended.started
    assert [(result.rank, result.exit_code) for result in ended.results] == [(0, 0)]
    assert [event.kind for event in controller.events] == [EventKind.STARTED, EventKind.ENDED]


def test_scratch_is_purged_before_the_end_and_links_in_it_are_not_followed(
    agent: RunningAgent, controller: FakeController, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    line = f'cd "$GANGLINE_SCRATCH" && mkdir -p a/b && touch a/b/c && ln -s {kept} link && ls'
    controller.run("n1", FIRST, shell(line))
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert ended.tail == "a\nlink\n"
    assert not (agent.directory(FIRST) / "scratch" / "a").exists()
    assert (kept / "file").exists()


def test_sixteen_ranks_and_the_first_failure_ends_them(
    agent: RunningAgent, controller: FakeController
) -> None:
    line = 'test "$RANK" = 11 && sleep 0.2 && echo going down && exit 7; sleep 300'
    controller.run("n1", FIRST, shell(line, tasks=16))
    pids = controller.wait_for(FIRST, EventKind.STARTED).pids
    assert len(set(pids)) == 16
    failed = controller.wait_for(FIRST, EventKind.RANK_FAILED)
    assert [(result.rank, result.code) for result in failed.results] == [(11, 7)]
    assert failed.tail == "going down\n"
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert ended.t_us - failed.t_us < 2_000_000
    assert [result.rank for result in ended.results] == list(range(16))
    assert not any(alive(pid) for pid in pids)


def test_killed_rank_is_named_with_its_signal(agent: RunningAgent, controller: FakeController) -> None:
    controller.run("n1", FIRST, shell("trap '' TERM; sleep 300 & wait", tasks=3))
    pids = controller.wait_for(FIRST, EventKind.STARTED).pids
    os.kill(pids[1], signal.SIGKILL)
    failed = controller.wait_for(FIRST, EventKind.RANK_FAILED)
    assert [(result.rank, result.signal) for result in failed.results] == [(1, signal.SIGKILL)]
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert ended.t_us - failed.t_us < 2_000_000, "SIGTERM is ignored: SIGKILL comes after a second"


def test_stopped_rank_stops_and_is_ended_by_an_order(agent: RunningAgent, controller: FakeController) -> None:
    controller.run("n1", FIRST, launch_of("sleep", "300", tasks=2))
    pids = controller.wait_for(FIRST, EventKind.STARTED).pids
    os.kill(pids[0], signal.SIGSTOP)
    controller.end("n1", FIRST, EndOrder("cancelled", grace_s=30))
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert {result.signal for result in ended.results} == {signal.SIGTERM}


def test_order_to_the_launcher_alone_leaves_the_rest_their_grace(
    agent: RunningAgent, controller: FakeController
) -> None:
    line = "trap 'echo saved; exit 0' USR1; touch ready; while :; do sleep 0.05; done"
    controller.run("n1", FIRST, shell(line, kind=LaunchKind.LAUNCHER))
    controller.wait_for(FIRST, EventKind.STARTED)
    until((agent.directory(FIRST) / "work" / "ready").exists, "the trap is set")
    controller.end("n1", FIRST, EndOrder("preempted", "SIGUSR1", "launcher", 30))
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert [result.exit_code for result in ended.results] == [0]
    assert ended.tail == "saved\n"


def test_grace_runs_out_and_everything_is_killed(agent: RunningAgent, controller: FakeController) -> None:
    controller.run("n1", FIRST, shell("trap '' TERM; touch ready; while :; do sleep 0.05; done"))
    controller.wait_for(FIRST, EventKind.STARTED)
    until((agent.directory(FIRST) / "work" / "ready").exists, "the trap is set")
    asked = time.time_ns() // 1000
    controller.end("n1", FIRST, EndOrder("cancelled", grace_s=1))
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert ended.results[0].signal == signal.SIGKILL
    assert 900_000 < ended.t_us - asked < 5_000_000


def test_second_order_shortens_the_grace(agent: RunningAgent, controller: FakeController) -> None:
    controller.run("n1", FIRST, shell("trap '' TERM; touch ready; while :; do sleep 0.05; done"))
    controller.wait_for(FIRST, EventKind.STARTED)
    until((agent.directory(FIRST) / "work" / "ready").exists, "the trap is set")
    controller.end("n1", FIRST, EndOrder("time limit", grace_s=300))
    until((agent.directory(FIRST) / "order.json").exists, "the first order")
    controller.end("n1", FIRST, EndOrder("cancelled", grace_s=0))
    controller.wait_for(FIRST, EventKind.ENDED)


@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & echo $!",
        "setsid sh -c 'sleep 300 & echo $!'",
        "env -i setsid sh -c 'sleep 300 & echo $!'",
    ],
)
def test_daemon_that_left_its_group_is_found_and_ended(
    agent: RunningAgent, controller: FakeController, command: str
) -> None:
    controller.run(
        "n1",
        FIRST,
        shell(f"({command}); kill -0 $(cat daemon) || exit 9".replace("echo $!", "echo $! > daemon")),
    )
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert ended.results[0].ok, "the daemon lived when its rank ended"
    assert not alive(int((agent.directory(FIRST) / "work" / "daemon").read_text()))


def test_order_with_a_signal_that_is_none_asks_with_sigterm(
    agent: RunningAgent, controller: FakeController
) -> None:
    controller.run("n1", FIRST, launch_of("sleep", "300"))
    controller.wait_for(FIRST, EventKind.STARTED)
    controller.end("n1", FIRST, EndOrder("cancelled", "SIG_DFL", grace_s=30))
    assert controller.wait_for(FIRST, EventKind.ENDED).results[0].signal == signal.SIGTERM


def test_environment_that_is_too_large_is_refused_with_the_reason(
    tree_agent: RunningAgent, controller: FakeController
) -> None:
    controller.run("n1", FIRST, launch_of("true", env=(("X", "x" * 200_000),)))
    failed = controller.wait_for(FIRST, EventKind.PREPARE_FAILED)
    assert failed.code == "start-failed"
    assert "too long" in failed.error


def test_output_that_is_no_file_has_nothing_to_read(
    tree_agent: RunningAgent, controller: FakeController, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    controller.run("n1", FIRST, shell("echo hello", workdir=str(tmp_path), output="pipe"))
    assert controller.wait_for(FIRST, EventKind.ENDED).results[0].ok
    assert controller.read(ReadRequest("r", FIRST, 0, 0, 10, 5))[0] == -1


def test_unknown_command_is_a_failure_of_the_job(agent: RunningAgent, controller: FakeController) -> None:
    controller.run("n1", FIRST, launch_of("no-such-program"))
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert ended.results[0].code == 127
    assert ended.tail == "gangline: no-such-program: command not found\n"


def test_file_that_cannot_be_executed_is_126(
    agent: RunningAgent, controller: FakeController, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("no program")
    controller.run("n1", FIRST, launch_of(str(tmp_path / "data")))
    assert controller.wait_for(FIRST, EventKind.ENDED).results[0].code == 126


def test_missing_workdir_is_refused_and_leaves_nothing(
    agent: RunningAgent, controller: FakeController
) -> None:
    controller.run("n1", FIRST, launch_of("true", workdir="/no/such/folder"))
    failed = controller.wait_for(FIRST, EventKind.PREPARE_FAILED)
    assert failed.code == "workdir-missing"
    assert "/no/such/folder" in failed.error
    assert not failed.started
    until(lambda: not agent.directory(FIRST).exists(), "its folder is gone")
    controller.end("n1", FIRST)
    assert not controller.wait_for(FIRST, EventKind.ENDED).started


def test_owner_with_another_uid_here_is_refused(agent: RunningAgent, controller: FakeController) -> None:
    wrong = Owner("nobody", 12345, 12345)
    controller.run("n1", FIRST, launch_of("true", owner=wrong))
    failed = controller.wait_for(FIRST, EventKind.PREPARE_FAILED)
    assert failed.code == "identity-mismatch"
    assert "12345" in failed.error


def test_gang_prepares_before_it_runs(agent: RunningAgent, controller: FakeController) -> None:
    launch = shell("echo up")
    controller.want("n1", Desired(FIRST, Phase.PREPARE, launch=launch))
    controller.wait_for(FIRST, EventKind.PREPARED)
    assert agent.records(FIRST) == [], "no worker has claimed it"
    controller.want("n1", Desired(FIRST, Phase.RUN, launch=launch))
    assert controller.wait_for(FIRST, EventKind.ENDED).results[0].ok
    assert [event.kind for event in controller.events] == [
        EventKind.PREPARED,
        EventKind.STARTED,
        EventKind.ENDED,
    ]


def test_prepared_gang_that_is_given_up_leaves_nothing(
    agent: RunningAgent, controller: FakeController
) -> None:
    controller.want("n1", Desired(FIRST, Phase.PREPARE, launch=launch_of("true")))
    controller.wait_for(FIRST, EventKind.PREPARED)
    controller.end("n1", FIRST)
    assert not controller.wait_for(FIRST, EventKind.ENDED).started
    until(lambda: not agent.directory(FIRST).exists(), "its folder is gone")
    controller.run("n1", FIRST, launch_of("true"))  # a start that comes late must not start
    controller.run("n1", AttemptId(2, 1), launch_of("true"))
    controller.wait_for(AttemptId(2, 1), EventKind.ENDED)
    assert not controller.of(FIRST, EventKind.STARTED)


def test_end_of_what_was_never_heard_of(agent: RunningAgent, controller: FakeController) -> None:
    controller.end("n1", FIRST)
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert (ended.started, ended.cause) == (False, "")


def test_what_may_have_run_here_and_left_no_trace_is_ended_by_the_node(
    agent: RunningAgent, controller: FakeController
) -> None:
    controller.want("n1", Desired(FIRST, Phase.RUN, started=True, launch=launch_of("true")))
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert (ended.started, ended.cause) == (True, "node_failed")
    assert not controller.of(FIRST, EventKind.STARTED)


def test_output_of_two_nodes_worth_of_variables(tree_agent: RunningAgent, controller: FakeController) -> None:
    parts = (GangPart("n0", "10.0.0.1", 0, 2), GangPart("n1", "10.0.0.2", 2, 2))
    controller.run("n1", FIRST, shell("env", tasks=2, parts=parts, index=1, slots=(0, 1, 2, 3)))
    controller.wait_for(FIRST, EventKind.ENDED)
    _, ended, data = controller.read(ReadRequest("r", FIRST, 3, 0, 1 << 20))
    env = dict(line.split("=", 1) for line in data.decode().splitlines())
    assert ended
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == (
        "3",
        "1",
        "4",
        "2",
    )
    assert (env["GANGLINE_EMULATED_GPUS"], env["GANGLINE_RANK_GPUS"], env["CUDA_VISIBLE_DEVICES"]) == (
        "0,1,2,3",
        "2,3",
        "",
    )
    assert "SLURM_JOB_ID" not in env


def test_logs_by_range_and_waiting_for_more(tree_agent: RunningAgent, controller: FakeController) -> None:
    controller.run("n1", FIRST, shell("echo first; while ! test -e go; do sleep 0.02; done; echo second"))
    controller.wait_for(FIRST, EventKind.STARTED)
    assert controller.read(ReadRequest("a", FIRST, 0, 0, 100, 10)) == (6, False, b"first\n")
    assert controller.read(ReadRequest("b", FIRST, 0, 2, 3)) == (6, False, b"rst")
    assert controller.read(ReadRequest("c", FIRST, 0, 6, 100)) == (6, False, b"")
    (tree_agent.directory(FIRST) / "work" / "go").touch()
    size, _, data = controller.read(ReadRequest("d", FIRST, 0, 6, 100, 10))
    assert (size, data) == (13, b"second\n")
    controller.wait_for(FIRST, EventKind.ENDED)
    assert controller.read(ReadRequest("e", FIRST, 0, 13, 100, 10)) == (13, True, b"")
    assert controller.read(ReadRequest("f", AttemptId(9, 9), 0, 0, 100))[0] == -1
    assert controller.read(ReadRequest("g", FIRST, 5, 0, 100))[0] == -1


def test_job_names_its_output(tree_agent: RunningAgent, controller: FakeController, tmp_path: Path) -> None:
    launch = shell("echo rank $RANK", tasks=2, workdir=str(tmp_path), output="logs/%j-%r-%t-%N%%.out")
    controller.run("n1", FIRST, launch)
    controller.wait_for(FIRST, EventKind.ENDED)
    assert (tmp_path / "logs" / "1-1-1-n1%.out").read_text() == "rank 1\n"
    assert controller.read(ReadRequest("a", FIRST, 1, 0, 100, 10)) == (7, True, b"rank 1\n")


@pytest.mark.needs("root", "freezer")
def test_process_that_cannot_be_killed_is_stuck_until_it_can(
    agent: RunningAgent, controller: FakeController
) -> None:
    group = Path(f"/sys/fs/cgroup/freezer/gangline-test-{os.getpid()}")
    controller.run("n1", FIRST, launch_of("sleep", "300"))
    pid = controller.wait_for(FIRST, EventKind.STARTED).pids[0]
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        controller.end("n1", FIRST, EndOrder("cancelled", grace_s=0))
        stuck = controller.wait_for(FIRST, EventKind.STUCK)
        assert f"{pid} (sleep) state D" in stuck.error
        assert not controller.of(FIRST, EventKind.ENDED)
        (group / "freezer.state").write_text("THAWED")
        assert controller.wait_for(FIRST, EventKind.ENDED).results[0].signal in (
            signal.SIGTERM,
            signal.SIGKILL,
        )
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not alive(pid), "the process is gone")
        group.rmdir()


@pytest.mark.needs("root")
def test_job_of_another_user_runs_with_their_rights(tmp_path: Path, controller: FakeController) -> None:
    agent = RunningAgent(tmp_path / "a", controller, run_as_self=False, min_uid=100).start()
    try:
        home = tmp_path / "theirs"
        home.mkdir()
        os.chown(home, 65534, 65534)
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == os.getuid() and folder.stat().st_mode & 0o001 == 0:
                folder.chmod(folder.stat().st_mode | 0o011)
        nobody = Owner("nobody", 65534, 65534)
        line = "id -u; id -g; id -G; cat /proc/self/status | grep -E '^(Uid|Gid|CapEff)'"
        controller.run("n1", FIRST, shell(line, owner=nobody, workdir=str(home), output="o/%t.txt"))
        ended = controller.wait_for(FIRST, EventKind.ENDED)
        assert ended.results[0].ok, ended
        lines = ended.tail.split("\n")
        assert lines[:3] == ["65534", "65534", "65534"]
        assert set("".join(lines[3:5]).replace("Uid:", "").replace("Gid:", "").split()) == {"65534"}
        assert lines[5].split()[1] == "0" * 16
        assert (home / "o" / "0.txt").stat().st_uid == 65534
        assert controller.read(ReadRequest("r", FIRST, 0, 0, 5))[2] == b"65534"
    finally:
        agent.close()


@pytest.mark.needs("root")
def test_output_that_leads_to_a_file_of_another_user_is_refused(
    tmp_path: Path, controller: FakeController
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not for you")
    secret.chmod(0o600)
    home = tmp_path / "theirs"
    home.mkdir()
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder.stat().st_mode & 0o001 == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    os.chown(home, 65534, 65534)
    (home / "out").symlink_to(secret)
    agent = RunningAgent(tmp_path / "a", controller, run_as_self=False, min_uid=100).start()
    try:
        controller.run(
            "n1",
            FIRST,
            shell("echo overwritten", owner=Owner("nobody", 65534, 65534), workdir=str(home), output="out"),
        )
        failed = controller.wait_for(FIRST, EventKind.PREPARE_FAILED)
        assert failed.code == "start-failed"
        assert secret.read_text() == "not for you"
    finally:
        agent.close()


@pytest.mark.needs("root")
def test_root_jobs_are_refused_by_an_agent_that_can_switch(
    tmp_path: Path, controller: FakeController
) -> None:
    agent = RunningAgent(tmp_path / "a", controller, run_as_self=False).start()
    try:
        controller.run("n1", FIRST, launch_of("true"))
        assert controller.wait_for(FIRST, EventKind.PREPARE_FAILED).code == "uid-too-low"
    finally:
        agent.close()
