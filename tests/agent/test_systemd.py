"""Units of systemd on real hosts: limits, users, kills, restarts of everything around them, and nothing left behind.

One host of each release, one agent as its service, the fake controller on the bed's gateway.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent import properties
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import LaunchKind, Owner, Stop
from orchestrator.model.protocol import AgentEvent, EndOrder, EventKind, Launch
from tests.agent.fake_controller import FakeController
from tests.agent.on_host import PLACE, SERVICE, STATE, HostAgent
from tests.agent.running import ROOT, launch_of, shell, until
from tests.testbed.bed import Bed

pytestmark = pytest.mark.testbed
OPS = Owner("ops", 1000, 1000, (1000, 2001))
GROUP = "groupadd -f -g 2001 modellers; usermod -aG modellers ops"
MIB = 1 << 20


class Node:
    """A host with its agent and its controller; attempts are numbered through."""

    def __init__(self, bed: Bed, release: str) -> None:
        self.controller = FakeController(host=bed.gateway)
        (self.host,) = bed.fresh(1, release)
        self.agent = HostAgent(self.host, self.controller).install()
        self.agent.do(GROUP)
        self._jobs = itertools.count(1)

    def run(self, launch: Launch) -> AttemptId:
        attempt = AttemptId(next(self._jobs), 1)
        self.controller.run(self.host.name, attempt, launch)
        return attempt

    def running(self, launch: Launch) -> AttemptId:
        """Started."""
        attempt = self.run(launch)
        self.controller.wait_for(attempt, EventKind.STARTED)
        return attempt

    def end(self, attempt: AttemptId) -> AgentEvent:
        self.controller.end(self.host.name, attempt, EndOrder("the test is over", grace_s=2))
        return self.ended(attempt)

    def ended(self, attempt: AttemptId) -> AgentEvent:
        return self.controller.wait_for(attempt, EventKind.ENDED, deadline_s=60)

    def output(self, attempt: AttemptId) -> list[str]:
        return self.agent.do(f"cat {STATE}/attempts/{attempt.unit}/rank-0.log").splitlines()

    def wait_line(self, attempt: AttemptId, line: str) -> None:
        until(lambda: line in self.output(attempt), f"{attempt} says {line}")

    def nothing_left(self) -> None:
        """No unit of an attempt, none failed, and of the shepherds' units the living nursery's alone."""
        self.agent.wait_units()
        assert "gangline" not in self.agent.do("systemctl list-units --failed --plain --no-legend")


@pytest.fixture(autouse=True)
def no_unit_outlives_its_test(node: Node) -> Iterator[None]:
    """One failure stays one."""
    yield
    left = node.agent.units()
    node.host.inside(f"systemctl kill -s KILL {' '.join(left)}" if left else "true")


@pytest.fixture(scope="module", params=["12", "13"])
def node(request: pytest.FixtureRequest, testbed: Bed) -> Iterator[Node]:
    made = Node(testbed, request.param)
    yield made
    made.controller.close()


def scope_of(attempt: AttemptId) -> str:
    return f"{attempt.unit}.scope"


def test_a_unit_has_its_limits_and_runs_as_its_user(node: Node) -> None:
    line = "id -un; id -Gn; cat /proc/self/oom_score_adj; ls -di /dev/shm; exec sleep 300"
    attempt = node.running(replace(shell(line, tasks=2, owner=OPS), cores=3, memory=512 * MIB))

    shown = node.agent.show(
        scope_of(attempt),
        *("MemoryMax", "CPUWeight", "TasksMax", "DevicePolicy", "DeviceAllow", "Slice", "Description"),
        *(
            "Delegate",
            "KillMode",
            "KillSignal",
            "CollectMode",
            "TimeoutStopUSec",
            "ControlGroup",
            "ActiveState",
        ),
    )
    pids = node.agent.do(f"cat /sys/fs/cgroup/unified/gangline.slice/{scope_of(attempt)}/cgroup.procs")
    node.wait_line(attempt, "0")
    output = node.output(attempt)

    assert {name: shown[name] for name in sorted(shown) if name != "DeviceAllow"} == {
        "ActiveState": "active",
        "CPUWeight": "30",
        "CollectMode": "inactive-or-failed",
        "ControlGroup": f"/gangline.slice/{scope_of(attempt)}",
        "Delegate": "yes",
        "Description": f"Gangline job {attempt.job}, attempt 1 (ops)",
        "DevicePolicy": "closed",
        "KillMode": "control-group",
        "KillSignal": str(int(properties.STOP_SIGNAL)),
        "MemoryMax": str(512 * MIB),
        "Slice": "gangline.slice",
        "TasksMax": str(properties.TASKS_MAX),
        "TimeoutStopUSec": "45s",
    }
    ranks = node.controller.of(attempt, EventKind.STARTED)[0].pids
    assert sorted(map(int, pids.split())) == sorted([node.agent.shepherd(attempt), *ranks])
    assert output[:3] == ["ops", "ops modellers", "0"]
    assert output[3].split()[0] == node.agent.do("ls -di /dev/shm").split()[0], "the node's own /dev/shm"
    node.end(attempt)
    node.nothing_left()


def test_a_job_that_takes_more_memory_ends_and_is_told_so(node: Node) -> None:
    take = "held = bytearray(200 << 20); print(len(held))"
    attempt = node.run(replace(launch_of("python3", "-c", take, owner=OPS), memory=60 * MIB))

    ended = node.ended(attempt)

    assert ended.results[0].signal == 9
    assert "used more than their 0.06 GiB of memory" in ended.error
    node.nothing_left()


def test_only_the_allocations_own_gpus_can_be_opened(node: Node) -> None:
    """No driver is behind these nodes: to be let through to it shows as ENXIO, to be refused as EPERM."""
    node.agent.do(
        "mkdir -p /dev/infiniband; for n in 0 1 255; do mknod -m 666 /dev/nvidia$n c 195 $n 2>/dev/null; done;"
        "mv /dev/nvidia255 /dev/nvidiactl 2>/dev/null; mknod -m 666 /dev/infiniband/uverbs0 c 231 192 2>/dev/null; true"
    )
    script = """
import errno, os
from orchestrator.agent.plan import Box, Limits
from orchestrator.agent.scope import ScopeBox
unit = "gangline-900-1.scope"
folder = "/sys/fs/cgroup/unified/gangline.slice/" + unit
box = ScopeBox(Box("systemd", folder, unit=unit, limits=Limits(minors=(1,))), "a test", os.getpid())
box.create(); box.enter()
for name in "nvidia0", "nvidia1", "nvidiactl", "infiniband/uverbs0":
    try: os.open("/dev/" + name, os.O_RDWR)
    except OSError as error: print(name, errno.errorcode[error.errno])
box.leave(); print(box.remove())
"""
    said = node.agent.do(f"PYTHONPATH={PLACE} python3 - 2>&1", feed=script).splitlines()

    assert said == ["nvidia0 EPERM", "nvidia1 ENXIO", "nvidiactl ENXIO", "infiniband/uverbs0 ENXIO", "True"]
    node.nothing_left()


def test_facts_say_that_every_limit_has_force(node: Node) -> None:
    node.controller.ask_facts()
    facts = node.controller.wait(
        lambda: [each["facts"] for each in node.controller.requests if each.get("facts")], "facts"
    )[-1]

    assert (facts["supervisor"], facts.get("unenforced", [])) == ("systemd", [])


def test_systemctl_stop_gives_the_job_its_own_signal_and_says_who_ended_it(node: Node) -> None:
    line = "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.05; done"
    launch = shell(line, owner=OPS, kind=LaunchKind.LAUNCHER, stop=Stop("SIGUSR1", "launcher", 20))
    attempt = node.running(launch)
    node.wait_line(attempt, "ready")

    node.agent.do(f"systemctl stop {scope_of(attempt)}")

    ended = node.ended(attempt)
    assert (ended.cause, [result.code for result in ended.results]) == ("node_failed", [0])
    assert f"systemd stopped its unit {scope_of(attempt)} (by systemctl stop" in ended.error
    assert ended.tail.endswith("saved\n")
    node.nothing_left()


def test_systemctl_kill_is_survived_by_no_process(node: Node) -> None:
    attempt = node.running(shell("setsid sleep 300 & exec sleep 300", owner=OPS))

    node.agent.do(f"systemctl kill -s KILL {scope_of(attempt)}")

    ended = node.ended(attempt)
    assert (ended.cause, ended.error) == ("node_failed", "the shepherd was killed")
    node.nothing_left()


def test_a_killed_shepherd_leaves_nothing(node: Node) -> None:
    attempt = node.running(shell("env -i setsid sleep 300 & exec sleep 300", owner=OPS))

    node.agent.do(f"kill -9 {node.agent.shepherd(attempt)}")

    assert node.ended(attempt).error == "the shepherd was killed"
    node.nothing_left()


KILLS = {
    "agent killed": "kill -9 $(systemctl show -P MainPID {service})",
    "nursery killed": "kill -9 $(pgrep -x gl-nursery)",
    "agent and nursery killed": "kill -9 $(pgrep -x gl-nursery) $(systemctl show -P MainPID {service})",
    "agent's unit killed whole": "systemctl kill -s KILL {service}",
    "agent's unit restarted": "systemctl restart {service}",
    "agent's unit stopped and started": "systemctl stop {service}; systemctl start {service}",
    "agent's unit stopped with all its processes": "mkdir -p /run/systemd/system/{service}.d; "
    "printf '[Service]\\nKillMode=control-group\\n' > /run/systemd/system/{service}.d/k.conf; "
    "systemctl daemon-reload; systemctl restart {service}; rm -r /run/systemd/system/{service}.d; "
    "systemctl daemon-reload",
    "systemd executes itself again": "systemctl daemon-reexec",
}


@pytest.mark.parametrize("how", KILLS)
def test_a_unit_outlives_what_is_around_it(node: Node, how: str) -> None:
    attempt = node.running(
        shell("while ! test -e /tmp/go-on-$GANGLINE_JOB_ID; do sleep 0.05; done; exit 3", owner=OPS)
    )
    node.agent.do(KILLS[how].format(service=SERVICE))
    second = node.running(shell("exit 0", owner=OPS))
    node.ended(second)
    assert node.agent.show(scope_of(attempt), "ActiveState") == {"ActiveState": "active"}
    node.agent.do(f"touch /tmp/go-on-{attempt.job}")

    ended = node.ended(attempt)
    assert ([result.code for result in ended.results], ended.cause) == ([3], "")
    node.nothing_left()


def test_units_start_while_systemd_executes_itself_again(node: Node) -> None:
    attempts = []
    for _ in range(5):
        attempts += [node.run(launch_of("true", owner=OPS)) for _ in range(4)]
        node.agent.do("systemctl daemon-reexec")

    ends = [node.ended(attempt) for attempt in attempts]

    assert [(end.started, end.cause, end.error) for end in ends] == [(True, "", "")] * 20
    node.nothing_left()


def test_two_hundred_short_attempts_leave_no_unit(node: Node) -> None:
    attempts = [node.run(launch_of("false" if at % 2 else "true", owner=OPS)) for at in range(200)]

    codes = [node.ended(attempt).results[0].code for attempt in attempts]

    assert codes == [0, 1] * 100
    node.nothing_left()
    units = node.agent.do("systemctl list-units --all --plain --no-legend 'gangline*'").splitlines()
    shepherds = [line for line in units if line.startswith("gangline-shepherds-")]
    assert len(shepherds) == 1, "the nursery's own"


def test_a_unit_of_which_all_records_are_lost_is_held_and_can_be_ended(node: Node) -> None:
    attempt = node.running(shell("exec sleep 300", owner=OPS))

    node.agent.do(f"systemctl stop {SERVICE}; rm -rf {STATE}; systemctl start {SERVICE}")

    held = [attempt.job, attempt.number]
    node.controller.wait(lambda: held in node.controller.requests[-1]["held"], "it is held")
    assert node.agent.show(scope_of(attempt), "ActiveState") == {"ActiveState": "active"}
    node.end(attempt)
    node.nothing_left()


def test_a_shutdown_stops_units_with_a_reason_and_a_power_cut_is_told_from_it(node: Node) -> None:
    stopped = node.running(shell("trap 'exit 0' TERM; while :; do sleep 0.05; done", owner=OPS))
    node.host.off()
    node.host.boot()
    node.agent.do(f"systemctl start {SERVICE}")
    assert "systemd stopped its unit" in node.ended(stopped).error

    cut = node.running(shell("exec sleep 300", owner=OPS))
    node.agent.do(f"systemctl stop {SERVICE}")  # not all die at once here: it would see the shepherd die
    node.host.reboot()
    node.agent.do(f"systemctl start {SERVICE}")
    assert node.ended(cut).error == "the node was restarted while the attempt ran"
    node.nothing_left()


CONTRACT = ("tests/agent/test_real_units.py", "tests/agent/test_real_kills.py")
# In plain Python, so that they run under the host's own.
_NEEDED = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "pytest_timeout.py", "py.py")


def test_the_contract_of_units_holds_with_systemd(node: Node) -> None:
    """The tests that every supervisor passes, on the host itself."""
    site = Path(pytest.__file__).resolve().parents[1]
    packed = subprocess.run(
        ["tar", "-cz", "--exclude=__pycache__", *[f"-C{site}", *(each for each in _NEEDED if (site / each).exists())],
         f"-C{ROOT}", "orchestrator", "tests", "pyproject.toml"],
        capture_output=True, check=True,
    )  # fmt: skip
    place = "/root/contract"
    node.host.machine.inside(["sh", "-c", f"mkdir -p {place}; tar -xzC {place}"], packed.stdout)
    chosen = "-k 'systemd and not process-tree and not cgroup2'"
    options = (
        "-q --noconftest -p no:cacheprovider -p pytest_timeout -o addopts=--import-mode=importlib -m system"
    )
    done = node.host.inside(
        f"cd {place} && PYTHONPATH={place} python3 -m pytest {options} {chosen} {' '.join(CONTRACT)}",
        timeout_s=280,
    )

    assert done.code == 0, done.out[-3000:] + done.err[-1000:]
    assert "passed" in done.out
    node.nothing_left()
