"""The agent's process itself: transports, tokens, an older Python, its own faults, its size."""

from __future__ import annotations

import os
import signal
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent import procfs
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import EventKind, ReadRequest
from tests import capabilities
from tests.agent.fake_controller import FakeController
from tests.agent.running import RunningAgent, alive, launch_of, shell, until
from tests.agent.test_channel import make_certificate

pytestmark = pytest.mark.system
FIRST, SECOND = AttemptId(1, 1), AttemptId(2, 1)


@pytest.fixture
def controller() -> Iterator[FakeController]:
    made = FakeController()
    yield made
    made.close()


def test_everything_over_tls(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    controller = FakeController(tls=context)
    agent = RunningAgent(tmp_path / "a", controller, ca=str(certificate)).start()
    try:
        controller.run("n1", FIRST, shell("seq 100000"))
        assert controller.wait_for(FIRST, EventKind.ENDED).results[0].ok
        _, _, data = controller.read(ReadRequest("r", FIRST, 0, 0, 1 << 20))
        assert data == "".join(f"{n}\n" for n in range(1, 100001)).encode()
    finally:
        agent.close()
        controller.close()


def test_token_is_kept_private_and_joined_for_once(tmp_path: Path, controller: FakeController) -> None:
    agent = RunningAgent(tmp_path / "a", controller).start()
    try:
        controller.wait(lambda: controller.requests, "contact")
        token = Path(agent.state_dir) / "token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        agent.kill()
        agent.start()
        controller.run("n1", FIRST, launch_of("true"))
        controller.wait_for(FIRST, EventKind.ENDED)
        assert agent.log_text().count("joined cluster") == 1
    finally:
        agent.close()


def test_others_can_read_nothing_of_its_state(tmp_path: Path, controller: FakeController) -> None:
    agent = RunningAgent(tmp_path / "a", controller).start()
    try:
        controller.run("n1", FIRST, shell("touch mine", env=(("SECRET", "x"),), output="out/%t"))
        controller.wait_for(FIRST, EventKind.ENDED)
        users = agent.directory(FIRST) / "work"
        for folder, _, names in os.walk(agent.state_dir):
            mode = stat.S_IMODE(os.stat(folder).st_mode)
            assert mode & 0o066 == 0 or Path(folder).is_relative_to(users / "out"), folder
            for name in names:
                path = Path(folder) / name
                if not path.is_relative_to(users):
                    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
        assert stat.S_IMODE((users / "mine").stat().st_mode) == 0o644, "the job has its own umask"
    finally:
        agent.close()


def test_refused_token_is_replaced_by_joining_again(tmp_path: Path, controller: FakeController) -> None:
    agent = RunningAgent(tmp_path / "a", controller).start()
    try:
        controller.wait(lambda: controller.requests, "contact")
        controller.node_token = "another"
        controller.run("n1", FIRST, launch_of("true"))
        controller.wait_for(FIRST, EventKind.ENDED)
        assert agent.log_text().count("joined cluster") == 2
        assert (Path(agent.state_dir) / "token").read_text() == "another\n"
    finally:
        agent.close()


def test_wrong_join_token_is_told_and_tried_again(tmp_path: Path, controller: FakeController) -> None:
    agent = RunningAgent(tmp_path / "a", controller)
    (tmp_path / "a" / "join").write_text("wrong")
    agent.start()
    try:
        until(lambda: "can't join: 401: no such join token" in agent.log_text(), "the reason")
        (tmp_path / "a" / "join").write_text("let-me-in")
        controller.wait(lambda: controller.requests, "contact")
    finally:
        agent.close()


@pytest.mark.needs("python3.10")
def test_oldest_python_that_nodes_have(tmp_path: Path, controller: FakeController) -> None:
    agent = RunningAgent(tmp_path / "a", controller).start(python=str(capabilities.python310()))
    try:
        controller.run("n1", FIRST, shell("echo $RANK; exit $RANK", tasks=3))
        ended = controller.wait_for(FIRST, EventKind.ENDED)
        assert len(ended.results) == 3
        agent.kill()
        agent.start(python=str(capabilities.python310()))
        controller.run("n1", SECOND, launch_of("true"))
        assert controller.wait_for(SECOND, EventKind.ENDED).results[0].ok
    finally:
        agent.close()


FAULT = """
import os, sys
if "--config" in sys.orig_argv:
    from orchestrator.agent import reports
    right = reports.Reports.noticed
    def wrong(self, name, *, hurry):
        if os.path.exists({flag!r}):
            os.unlink({flag!r})
            raise RuntimeError("a fault of the agent")
        right(self, name, hurry=hurry)
    reports.Reports.noticed = wrong
"""


def test_fault_of_its_own_makes_it_begin_again(tmp_path: Path, controller: FakeController) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    (tmp_path / "fault").mkdir()
    (tmp_path / "fault" / "sitecustomize.py").write_text(FAULT.format(flag=str(flag)))
    agent = RunningAgent(tmp_path / "a", controller)
    agent.python_path = [str(tmp_path / "fault")]
    agent.start()
    try:
        controller.run("n1", FIRST, shell("sleep 0.2; exit 6"))
        assert controller.wait_for(FIRST, EventKind.ENDED).results[0].code == 6
        assert "begins again from its journal" in agent.log_text()
        assert agent.process is not None
        assert agent.process.poll() is None, "the same process"
        assert len(controller.of(FIRST, EventKind.STARTED)) == 1
    finally:
        agent.close()


def test_stopped_nursery_does_not_hold_sync_back(tmp_path: Path, controller: FakeController) -> None:
    """What waits for a worker waits; events of others, answers and reads go on."""
    agent = RunningAgent(tmp_path / "a", controller).start()
    try:
        controller.run("n1", FIRST, shell("echo up; exec sleep 300"))
        pid = controller.wait_for(FIRST, EventKind.STARTED).pids[0]
        nursery = _child_named(agent.pid, "gl-nursery")
        os.kill(nursery, signal.SIGSTOP)
        controller.run("n1", SECOND, launch_of("true"))
        controller.wait(lambda: [2, 1] in controller.requests[-1]["held"], "the second is held")
        assert controller.read(ReadRequest("r", FIRST, 0, 0, 10, 5))[2] == b"up\n"
        controller.end("n1", FIRST)
        controller.wait_for(FIRST, EventKind.ENDED)
        assert not alive(pid)
        assert not controller.of(SECOND, EventKind.STARTED)
        os.kill(nursery, signal.SIGCONT)
        controller.wait_for(SECOND, EventKind.ENDED)
    finally:
        agent.close()


def _child_named(parent: int, name: str) -> int:
    return next(each.pid for each in procfs.all_stats() if each.parent == parent and each.name == name)


def test_shepherd_serves_one_attempt_after_another(tmp_path: Path, controller: FakeController) -> None:
    agent = RunningAgent(tmp_path / "a", controller).start()
    try:
        workers = []
        for job in range(1, 5):
            controller.run("n1", AttemptId(job, 1), shell("echo $GANGLINE_JOB_ID; ls /proc/self/fd | wc -l"))
            ended = controller.wait_for(AttemptId(job, 1), EventKind.ENDED)
            assert ended.tail.split() == [str(job), "4"], "nothing of the shepherd's is open in a rank"
            workers.append(agent.records(AttemptId(job, 1))[0]["pid"])
        assert len(set(workers)) < 4
        fds = f"/proc/{workers[-1]}/fd"
        until(
            lambda: len(os.listdir(fds)) == 4, "three standard ones and the nursery's socket alone are open"
        )
    finally:
        agent.close()


def test_stop_leaves_no_process_when_nothing_runs(tmp_path: Path, controller: FakeController) -> None:
    agent = RunningAgent(tmp_path / "a", controller).start()
    try:
        controller.run("n1", FIRST, launch_of("true"))
        controller.wait_for(FIRST, EventKind.ENDED)
        mine = [*procfs.descendants(agent.pid)]
        assert len(mine) == 2, "the nursery and an idle shepherd"
        assert agent.stop() == 0
        assert not [pid for pid in mine if alive(pid)]
    finally:
        agent.close()


def test_size_of_its_processes(tmp_path: Path, controller: FakeController) -> None:
    agent = RunningAgent(tmp_path / "a", controller).start()
    try:
        controller.run("n1", FIRST, launch_of("sleep", "300"))
        controller.wait_for(FIRST, EventKind.STARTED)
        shepherd = agent.records(FIRST)[0]["pid"]
        nursery = _child_named(agent.pid, "gl-nursery")
        sizes = {
            name: _pss_mb(pid)
            for name, pid in (("agent", agent.pid), ("nursery", nursery), ("shepherd", shepherd))
        }
        assert all(size <= 20 for size in sizes.values()), sizes
    finally:
        agent.close()


def _pss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split("\nPss:")[1].split()[0]) / 1024
