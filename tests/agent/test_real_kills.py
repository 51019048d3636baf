"""Kills at every step: whatever dies, an attempt starts once and ends once, and its processes are proved gone."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent import layout, procfs
from orchestrator.model.failpoints import NAMES
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import OnLost
from orchestrator.model.protocol import Desired, EndOrder, EventKind, Phase, ReadRequest
from tests.agent.fake_controller import FakeController
from tests.agent.running import SUPERVISORS, RunningAgent, alive, launch_of, shell, until

pytestmark = pytest.mark.system
FIRST = AttemptId(1, 1)
AGENT_POINTS = sorted(name for name in NAMES if name.startswith("agent."))
SHEPHERD_POINTS = sorted(name for name in NAMES if name.startswith("shepherd."))
START_ONCE = 'echo "$$" >> "$MARK"; '


@pytest.fixture
def controller() -> Iterator[FakeController]:
    made = FakeController()
    yield made
    made.close()


@pytest.fixture(params=SUPERVISORS)
def agent(
    request: pytest.FixtureRequest, tmp_path: Path, controller: FakeController
) -> Iterator[RunningAgent]:
    made = RunningAgent(tmp_path / "a", controller, supervisor=request.param, stuck_s=1.0)
    yield made
    made.close()


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that every start of the rank adds a line to."""
    return tmp_path / "starts"


def starts(mark: Path) -> int:
    return len(mark.read_text().splitlines()) if mark.exists() else 0


def test_killed_agent_adopts_what_runs(agent: RunningAgent, controller: FakeController, mark: Path) -> None:
    agent.start()
    launch = shell(
        START_ONCE + "while ! test -e go; do sleep 0.02; done", tasks=4, env=(("MARK", str(mark)),)
    )
    controller.run("n1", FIRST, launch)
    pids = controller.wait_for(FIRST, EventKind.STARTED).pids
    agent.kill()
    assert all(alive(pid) for pid in pids)
    agent.start()
    controller.wait(lambda: controller.requests[-1]["held"] == [[1, 1]], "the new agent holds it")
    (agent.directory(FIRST) / "work" / "go").touch()
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert all(result.ok for result in ended.results)
    assert starts(mark) == 4
    assert len(controller.of(FIRST, EventKind.STARTED)) == 1


def test_end_while_the_agent_is_dead_is_reported_by_the_next(
    agent: RunningAgent, controller: FakeController
) -> None:
    agent.start()
    controller.run("n1", FIRST, shell("while ! test -e go; do sleep 0.02; done; exit 5"))
    controller.wait_for(FIRST, EventKind.STARTED)
    agent.kill()
    (agent.directory(FIRST) / "work" / "go").touch()
    until(lambda: agent.records(FIRST)[-1]["k"] == "ended", "the shepherd has recorded the end")
    agent.start()
    assert controller.wait_for(FIRST, EventKind.ENDED).results[0].code == 5
    assert len(controller.of(FIRST, EventKind.RANK_FAILED)) == 1


@pytest.mark.parametrize("point", AGENT_POINTS)
def test_agent_killed_at(agent: RunningAgent, controller: FakeController, mark: Path, point: str) -> None:
    """Three attempts go through every step: a short one, a gang that is prepared first, a long one that is ended."""
    agent.start(point)
    env = (("MARK", str(mark)),)
    short = shell(START_ONCE + "exit 0", env=env)
    long = shell(START_ONCE + "sleep 300", env=env)
    gang = AttemptId(2, 1)
    controller.run("n1", FIRST, short)
    controller.want("n1", Desired(gang, Phase.PREPARE, launch=long))
    deaths = _until_event(agent, controller, FIRST, EventKind.ENDED)
    deaths += _until_event(agent, controller, gang, EventKind.PREPARED)
    controller.run("n1", gang, long)
    deaths += _until_event(agent, controller, gang, EventKind.STARTED)
    controller.end("n1", gang, EndOrder("cancelled", grace_s=0))
    deaths += _until_event(agent, controller, gang, EventKind.ENDED)
    assert deaths == 1, f"passing {point} kills once"
    assert starts(mark) == 2
    for attempt in (FIRST, gang):
        assert len(controller.of(attempt, EventKind.STARTED)) == 1
        assert len(controller.of(attempt, EventKind.ENDED)) == 1


def _until_event(agent: RunningAgent, controller: FakeController, attempt: AttemptId, kind: EventKind) -> int:
    """Wait for an event; start the agent again (without failpoint) when it dies. How often it died."""
    deaths = 0

    def ready() -> bool:
        nonlocal deaths
        assert agent.process is not None
        if agent.process.poll() is not None:
            deaths += 1
            agent.start()
        return bool(controller.of(attempt, kind))

    until(ready, f"{kind} of {attempt}")
    return deaths


@pytest.mark.parametrize("point", SHEPHERD_POINTS)
def test_shepherd_killed_at(agent: RunningAgent, controller: FakeController, mark: Path, point: str) -> None:
    agent.start(point)
    controller.run("n1", FIRST, shell(START_ONCE + "exit 3", env=(("MARK", str(mark)),)))
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert (ended.cause, ended.error) == ("node_failed", "the shepherd was killed")
    assert starts(mark) <= 1
    assert len(controller.of(FIRST, EventKind.ENDED)) == 1


@pytest.mark.parametrize(
    "line", ["exec sleep 300", "setsid sleep 300 & wait", "env -i setsid sleep 300 & wait"]
)
def test_killed_shepherd_leaves_nothing(agent: RunningAgent, controller: FakeController, line: str) -> None:
    agent.start()
    controller.run("n1", FIRST, shell(f"({line}) & sleep 0.3; touch ready; wait", tasks=2))
    pids = list(controller.wait_for(FIRST, EventKind.STARTED).pids)
    until((agent.directory(FIRST) / "work" / "ready").exists, "everything is started")
    shepherd = agent.records(FIRST)[0]["pid"]
    pids += procfs.descendants(shepherd)
    os.kill(shepherd, signal.SIGKILL)
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert ended.cause == "node_failed"
    assert not [pid for pid in pids if alive(pid)]


def test_other_workers_survive_a_killed_shepherd(
    agent: RunningAgent, controller: FakeController, tmp_path: Path
) -> None:
    """A reader that waits is a child of the nursery too, and was left by no shepherd."""
    agent.start()
    other = AttemptId(2, 1)
    line = f"while ! test -e {tmp_path}/go; do sleep 0.02; done; echo there"
    controller.run("n1", other, shell(line, workdir=str(tmp_path), output="out"))
    controller.run("n1", FIRST, launch_of("sleep", "300"))
    controller.wait_for(other, EventKind.STARTED)
    controller.wait_for(FIRST, EventKind.STARTED)
    controller._reads["r"] = ReadRequest("r", other, 0, 0, 100, 20)
    controller._bump()
    reader = until(
        lambda: [pid for pid in procfs.descendants(agent.pid) if "(gl-read)" in procfs.describe([pid])],
        "the reader waits",
    )
    os.kill(agent.records(FIRST)[0]["pid"], signal.SIGKILL)
    controller.wait_for(FIRST, EventKind.ENDED)
    assert alive(reader[0])
    (tmp_path / "go").touch()
    controller.wait(lambda: "r" in controller.bodies, "the answer")
    assert controller.bodies["r"][2] == b"there\n"


def test_gang_that_is_given_up_while_it_is_prepared(agent: RunningAgent, controller: FakeController) -> None:
    agent.start()
    controller.run("n1", FIRST, launch_of("sleep", "300"))
    pid = controller.wait_for(FIRST, EventKind.STARTED).pids[0]
    gang = AttemptId(2, 1)
    controller.want("n1", Desired(gang, Phase.PREPARE, launch=launch_of("true")))
    controller.end("n1", gang)
    assert not controller.wait_for(gang, EventKind.ENDED).started
    assert alive(pid)
    assert not controller.of(gang, EventKind.STARTED)


def test_shepherd_killed_while_the_agent_was_dead(agent: RunningAgent, controller: FakeController) -> None:
    agent.start()
    controller.run("n1", FIRST, launch_of("sleep", "300"))
    pids = controller.wait_for(FIRST, EventKind.STARTED).pids
    agent.kill()
    os.kill(agent.records(FIRST)[0]["pid"], signal.SIGKILL)
    agent.start()
    assert controller.wait_for(FIRST, EventKind.ENDED).cause == "node_failed"
    assert not alive(pids[0])


def test_killed_nursery_is_replaced(agent: RunningAgent, controller: FakeController) -> None:
    agent.start()
    controller.run("n1", FIRST, launch_of("sleep", "300"))
    pids = controller.wait_for(FIRST, EventKind.STARTED).pids
    os.kill(_nursery_of(agent), signal.SIGKILL)
    controller.run("n1", AttemptId(2, 1), launch_of("true"))
    assert controller.wait_for(AttemptId(2, 1), EventKind.ENDED).results[0].ok
    assert alive(pids[0])
    controller.end("n1", FIRST)
    controller.wait_for(FIRST, EventKind.ENDED)


def _nursery_of(agent: RunningAgent) -> int:
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                text = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            if "(gl-nursery)" in text and text.rsplit(")", 1)[1].split()[1] == str(agent.pid):
                return int(name)
    raise AssertionError("no nursery")


def test_after_a_reboot_everything_has_failed_with_the_node(
    agent: RunningAgent, controller: FakeController
) -> None:
    """The journal of another boot: what was prepared or ran is ended, what had ended keeps its result."""
    agent.start()
    gang = AttemptId(2, 1)
    controller.run("n1", FIRST, launch_of("sleep", "300"))
    controller.want("n1", Desired(gang, Phase.PREPARE, launch=launch_of("true")))
    pid = controller.wait_for(FIRST, EventKind.STARTED).pids[0]
    controller.wait_for(gang, EventKind.PREPARED)
    agent.kill()
    os.kill(agent.records(FIRST)[0]["pid"], signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    _pretend_other_boot(agent)
    agent.start()
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert (ended.started, ended.cause) == (True, "node_failed")
    assert "restarted" in ended.error
    assert (controller.wait_for(gang, EventKind.ENDED).started) is False


def _pretend_other_boot(agent: RunningAgent) -> None:
    """Put another boot id where the journal and the status file name the present one."""
    from binascii import crc32

    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    other = boot[::-1]
    status = agent.directory(FIRST) / layout.STATUS
    status.write_text(status.read_text().replace(boot, other))
    journal = Path(agent.state_dir) / "journal.jsonl"
    lines = [line[9:].replace(boot, other) for line in journal.read_text().splitlines()]
    journal.write_text("".join(f"{crc32(line.encode()):08x} {line}\n" for line in lines))


def test_lost_state_folder_makes_an_orphan_that_ends_on_order(
    agent: RunningAgent, controller: FakeController
) -> None:
    agent.start()
    controller.run("n1", FIRST, launch_of("sleep", "300"))
    pid = controller.wait_for(FIRST, EventKind.STARTED).pids[0]
    agent.kill()
    shepherd = agent.records(FIRST)[0]["pid"]
    os.kill(shepherd, signal.SIGKILL)
    (Path(agent.state_dir) / "journal.jsonl").unlink()
    controller._wishes.clear()
    agent.start()
    controller.wait(lambda: controller.requests[-1]["held"] == [[1, 1]], "the orphan is reported as held")
    controller.ask_inventory()
    found = controller.wait(
        lambda: [r["inventory"] for r in controller.requests if "inventory" in r], "the inventory"
    )
    assert found[0] == [{"attempt": [1, 1], "launch": None, "started": True}]
    assert alive(pid), "nothing is ended without an order"
    controller.end("n1", FIRST)
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert (ended.started, ended.cause) == (True, "node_failed")
    assert not alive(pid)


def test_agent_is_told_of_the_end_and_killed_before_it_reports(
    agent: RunningAgent, controller: FakeController
) -> None:
    agent.start("agent.event.after-outbox:2")
    controller.run("n1", FIRST, launch_of("sleep", "300"))
    controller.wait_for(FIRST, EventKind.STARTED)
    controller.run("n1", AttemptId(2, 1), launch_of("true"))
    until(lambda: agent.process is not None and agent.process.poll() is not None, "the failpoint")
    agent.start()
    assert controller.wait_for(AttemptId(2, 1), EventKind.ENDED).results[0].ok
    assert len(controller.of(AttemptId(2, 1), EventKind.ENDED)) == 1


def test_stop_leaves_the_work_running(agent: RunningAgent, controller: FakeController) -> None:
    agent.start()
    controller.run("n1", FIRST, launch_of("sleep", "300"))
    pid = controller.wait_for(FIRST, EventKind.STARTED).pids[0]
    assert agent.stop() == 0
    assert alive(pid)
    agent.start()
    controller.end("n1", FIRST)
    controller.wait_for(FIRST, EventKind.ENDED)


def test_two_agents_on_one_folder(agent: RunningAgent, controller: FakeController, tmp_path: Path) -> None:
    agent.start()
    controller.wait(lambda: controller.requests, "contact")
    other = RunningAgent(tmp_path / "b", controller, state_dir=agent.state_dir).start()
    assert other.wait_died() == 2
    assert "another agent runs with this state folder" in other.log_text()


def test_restored_controller_gets_ends_again_and_starts_nothing_twice(
    agent: RunningAgent, controller: FakeController, mark: Path
) -> None:
    agent.start()
    launch = shell(START_ONCE + "exit 4", env=(("MARK", str(mark)),))
    controller.run("n1", FIRST, launch)
    controller.wait_for(FIRST, EventKind.ENDED)
    controller.run("n1", AttemptId(2, 1), launch_of("sleep", "300"))
    controller.wait_for(AttemptId(2, 1), EventKind.STARTED)
    for _ in range(2):  # the second is asked for after the answer to the first, which acknowledged everything
        before = len(controller.requests)
        controller.ask_facts()
        controller.wait(lambda: any("facts" in each for each in controller.requests[before:]), "facts")  # noqa: B023
    with controller._changed:
        controller.events.clear()
    controller.epoch += 1
    controller.run("n1", FIRST, launch)  # as the backup knew it
    ended = controller.wait_for(FIRST, EventKind.ENDED)
    assert ended.results[0].code == 4
    controller.ask_inventory()
    found = controller.wait(
        lambda: [r["inventory"] for r in controller.requests if "inventory" in r], "the inventory"
    )[-1]
    assert {(tuple(each["attempt"]), "ended" in each, each["launch"]["job"]["name"]) for each in found} == {
        ((1, 1), True, "test"),
        ((2, 1), False, "test"),
    }
    assert starts(mark) == 1


def test_older_controller_is_ignored(agent: RunningAgent, controller: FakeController) -> None:
    controller.epoch = 5
    agent.start()
    controller.wait(lambda: any(request["epoch"] == 5 for request in controller.requests), "epoch 5 is known")
    controller.epoch = 4
    controller.run("n1", FIRST, launch_of("true"))
    until(lambda: "older than 5" in agent.log_text(), "the answer is ignored")
    assert not agent.directory(FIRST).exists()
    controller.epoch = 6
    controller.wait_for(FIRST, EventKind.ENDED)


def test_absent_controller_ends_nothing(agent: RunningAgent, controller: FakeController) -> None:
    controller.lease_s = 2
    agent.start()
    controller.run("n1", FIRST, launch_of("sleep", "300", on_lost=OnLost.SELF_FENCE))
    pid = controller.wait_for(FIRST, EventKind.STARTED).pids[0]
    port = controller.port
    controller.close()
    with pytest.raises(AssertionError):
        until(lambda: not alive(pid), "the lease", 3.0)
    again = FakeController(port=port, lease_s=2)
    try:
        again.wait(lambda: again.requests and again.requests[-1]["held"] == [[1, 1]], "back in contact")
        assert alive(pid)
    finally:
        agent.close()
        again.close()


@pytest.mark.parametrize("dead", [False, True])
def test_lost_contact_fences_only_who_chose_it(
    agent: RunningAgent, controller: FakeController, dead: bool
) -> None:
    """Out of contact because the agent is stopped or dead: the shepherd keeps the lease by itself."""
    controller.lease_s = 2
    agent.start()
    other = AttemptId(2, 1)
    controller.run("n1", FIRST, launch_of("sleep", "300", on_lost=OnLost.SELF_FENCE))
    controller.run("n1", other, launch_of("sleep", "300"))
    fenced = controller.wait_for(FIRST, EventKind.STARTED).pids[0]
    kept = controller.wait_for(other, EventKind.STARTED).pids[0]
    if dead:
        agent.kill()
    else:
        os.kill(agent.pid, signal.SIGSTOP)
    until(lambda: not alive(fenced), "fenced", 4.0)
    assert alive(kept)
    if dead:
        agent.start()
    else:
        os.kill(agent.pid, signal.SIGCONT)
    assert controller.wait_for(FIRST, EventKind.ENDED).cause == "fenced"
    assert alive(kept)


@pytest.mark.parametrize("over", [False, True])
def test_an_answer_that_was_read_after_the_lease_starts_nothing_that_ends_with_it(
    agent: RunningAgent, controller: FakeController, tmp_path: Path, over: bool
) -> None:
    """It lay in the agent's socket while the agent was stopped. By now the attempt is over for the controller, which
    tells nobody who does not hold it; or it is still wanted, and starts."""
    controller.lease_s = 2
    agent.start()
    controller.wait(lambda: len(controller.requests) > 1, "a poll is held")
    mark = tmp_path / "mark"
    os.kill(agent.pid, signal.SIGSTOP)
    controller.run("n1", FIRST, shell(f"echo ran > {mark}", on_lost=OnLost.SELF_FENCE))
    time.sleep(2 * controller.lease_s)
    if over:
        controller.forget("n1", FIRST)
        controller.run("n1", AttemptId(2, 1), shell("true", on_lost=OnLost.SELF_FENCE))
    os.kill(agent.pid, signal.SIGCONT)
    last = AttemptId(2, 1) if over else FIRST
    assert controller.wait_for(last, EventKind.ENDED).cause == ""
    assert {event.attempt for event in controller.events} == {last}
    assert mark.exists() is not over


def test_a_lease_that_becomes_shorter_fences_in_time(agent: RunningAgent, controller: FakeController) -> None:
    """A controller that was started again with a shorter lease starts the job elsewhere sooner, too."""
    agent.start()
    controller.run("n1", FIRST, launch_of("sleep", "300", on_lost=OnLost.SELF_FENCE))
    fenced = controller.wait_for(FIRST, EventKind.STARTED).pids[0]
    seen = len(controller.requests)
    controller.lease_s = 2
    controller.run("n1", AttemptId(2, 1), launch_of("sleep", "300"))  # an answer that has the new lease
    controller.wait_for(AttemptId(2, 1), EventKind.STARTED)
    controller.wait(lambda: len(controller.requests) > seen + 2, "the lease is known")
    os.kill(agent.pid, signal.SIGSTOP)
    until(lambda: not alive(fenced), "fenced", 4.0)
    os.kill(agent.pid, signal.SIGCONT)
    assert controller.wait_for(FIRST, EventKind.ENDED).cause == "fenced"


def test_reads_survive_the_agent(agent: RunningAgent, controller: FakeController) -> None:
    agent.start()
    controller.run("n1", FIRST, shell("echo kept"))
    controller.wait_for(FIRST, EventKind.ENDED)
    agent.kill()
    agent.start()
    assert controller.read(ReadRequest("r", FIRST, 0, 0, 100)) == (5, True, b"kept\n")


def test_journal_is_plain_to_read(agent: RunningAgent, controller: FakeController) -> None:
    agent.start()
    controller.run("n1", FIRST, launch_of("true"))
    controller.wait_for(FIRST, EventKind.ENDED)
    lines = (Path(agent.state_dir) / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line[9:])["k"] for line in lines][:3] == ["head", "epoch", "intent"]
