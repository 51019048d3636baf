"""The controller as a hardened unit on a host of its own: from bare hosts to a job, through kills, hangs, sabotage and
changes of the file, over real SSH, systemd and TLS."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.testbed.bed import Bed
from tests.testbed.hosted import UNIT, HostedLab
from tests.testbed.lab import USER, Done, until

pytestmark = [pytest.mark.testbed, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
READY_S = 180  # from bare hosts to ready, at most
AGAIN_S = 10  # a second `up`, at most
WATCHDOG_S = 30 + 10  # of the unit, and what a process that is ended by it may take
MOST_EXPOSED = 2.0  # of 10, by systemd-analyze; what is left is mostly that it has a network

OURS = ("/etc/gangline", "/opt/gangline", "/var/lib/gangline", "/usr/local/bin/gangline")


@pytest.fixture(scope="module")
def first(testbed: Bed, tmp_path_factory: pytest.TempPathFactory) -> tuple[HostedLab, Done, Done]:
    """A bare controller's host with Debian 13, a bare node with Debian 12: a plan, then the first `up`."""
    lab = HostedLab(testbed, testbed.fresh(2, "13", "12"), tmp_path_factory.mktemp("hosted"))
    lab.spec["queues"] = [{"name": "default"}, {"name": "q", "borrow_limit": [{"pool": "lab", "gpus": 4}]}]
    lab.write()
    plan = lab.run("plan", str(lab.file), "--detailed-exitcode").ok(3)
    rendered = lab.folder / "rendered"
    lab.run("render", str(lab.file), "--out", str(rendered)).ok()
    assert (rendered / "controller.yml").is_file()
    left = [path for path in OURS if lab.own.inside(f"test -e {path}").code == 0]
    assert left == [], "the plan has made something on the host"
    assert lab.own.inside("getent passwd gangline").code == 2
    return lab, plan, lab.up()


@pytest.fixture
def lab(first: tuple[HostedLab, Done, Done]) -> HostedLab:
    first[2].ok()
    return first[0]


@pytest.fixture
def job(lab: HostedLab) -> Iterator[int]:
    """A job that runs until it is told to end, and then has run once, whatever happened meanwhile."""
    node, sign = lab.hosts[1], f"/home/{USER}/end"
    node.inside(f"rm -f {sign}").check()
    number = lab.submit(
        {
            "apiVersion": "gangline/v1",
            "kind": "Job",
            "metadata": {"name": "stays"},
            "spec": {
                "queue": "q",
                "nodes": 1,
                "per_node": {"gpus": 2},
                "workdir": f"/home/{USER}",
                "time_limit": "1h",
                "command": f"until test -e {sign}; do sleep 0.1; done",
            },
        }
    )
    until(lambda: lab.job(number).state == "running", "the job runs")
    yield number
    assert lab.job(number).state == "running"
    node.inside(f"touch {sign}").check()
    until(lambda: lab.job(number).ended_at, "the job has ended")
    ended = lab.job(number)
    assert (ended.state, ended.attempts) == ("succeeded", 1)


def test_bare_hosts_are_ready_and_the_plan_has_said_how(first: tuple[HostedLab, Done, Done]) -> None:
    lab, plan, done = first
    done.ok()
    print(f"\ncontroller and node were ready after {done.seconds:.1f} s")  # noqa: T201 - a figure for people
    assert done.seconds <= READY_S
    assert lab.open_nodes() == ["h2"]
    assert "controller host\n  + " in plan.out
    assert re.search(r"steps:\n  controller host: configure \(controller\)\n  controller: record\n", plan.out)


def test_a_second_up_changes_nothing_and_is_quick(lab: HostedLab) -> None:
    with lab.client() as client:
        before = client.status().seq
        done = lab.up().ok()
        assert client.status().seq == before, "the ledger heard of it"
    print(f"\nup that changes nothing: {done.seconds:.1f} s")  # noqa: T201 - a figure for people
    assert "nothing to change" in done.err
    assert "(changed)" not in done.err
    assert done.seconds <= AGAIN_S
    lab.run("plan", str(lab.file), "--detailed-exitcode").ok()
    assert lab.drift() == []


def test_the_unit_is_closed_in(lab: HostedLab) -> None:
    wanted = {
        "User": "gangline",
        "Type": "notify",
        "WatchdogUSec": "30s",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "PrivateDevices": "yes",
        "MemoryDenyWriteExecute": "yes",
        "CapabilityBoundingSet": "",
        "UMask": "0077",
        "StateDirectoryMode": "0700",
    }
    assert lab.properties(*wanted) == wanted
    status = lab.own.inside(f"cat /proc/{lab.main_pid()}/status").check()
    found = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    assert [int(found[name], 16) for name in ("CapBnd", "CapEff", "CapPrm")] == [0, 0, 0]
    assert "0" not in found["Uid"].split()
    text = lab.own.inside(f"systemd-analyze security --no-pager {UNIT}").check()
    exposure = float(re.findall(r"exposure level for \S+: ([0-9.]+)", text)[0])
    print(f"\nsystemd-analyze security: {exposure}")  # noqa: T201 - a figure for people
    assert exposure <= MOST_EXPOSED


def test_the_authority_s_key_stays_and_what_is_kept_here_is_private(lab: HostedLab) -> None:
    assert lab.own.inside("stat -c %a:%U /var/lib/gangline/lab/tls/ca.key").check() == "600:gangline"
    assert list(lab.state.rglob("*.key")) == []
    kept = [lab.home / "config" / "contexts.json", lab.state / "tls" / "ca.pem"]
    assert [oct(path.stat().st_mode & 0o777) for path in kept] == ["0o600", "0o600"]
    pinned = lab.hosts[1].inside("cat /etc/gangline/ca.pem").check()
    assert pinned == (lab.state / "tls" / "ca.pem").read_text().strip()


def test_people_here_and_on_the_host_reach_it(lab: HostedLab) -> None:
    assert "h2" in lab.run("nodes").ok().out
    assert "h2" in lab.own.inside("gangline nodes -o name").check()
    assert "h2" in lab.own.run("gangline nodes -o name").check()
    refused = lab.own.run("gangline node cordon h2 --why x")
    assert (refused.code, "ops" in refused.err) == (5, True), refused


def test_ci_plans_and_applies_from_elsewhere(lab: HostedLab) -> None:
    """With the address and a token in its environment, and nothing else that `up` has kept."""
    with lab.client() as client:
        secret = client.create_token("operator", "ci").secret
    env = lab.user() | {"GANGLINE_TOKEN": secret, "GANGLINE_HOME": str(lab.folder / "elsewhere")}
    done = lab.run("plan", str(lab.file), "--detailed-exitcode", env=env)
    assert (done.code, "nothing to change" in done.out) == (0, True), done
    lab.own.inside("chmod 700 /usr/local/bin/gangline").check()
    assert "nothing restarts" in lab.run("plan", str(lab.file), env=env).ok().out
    before = lab.main_pid()
    lab.apply(env=env).ok()
    assert (lab.drift(), lab.main_pid()) == ([], before)


def test_a_killed_controller_is_back_and_jobs_run_on(lab: HostedLab, job: int) -> None:
    before, epoch = lab.main_pid(), lab.epoch()
    lab.own.inside(f"kill -KILL {before}").check()
    until(lambda: lab.main_pid() not in (0, before), "systemd has started another one")
    assert lab.epoch() > epoch
    until(lambda: lab.node("h2").contact == "ok", "the agent has found it")


def test_one_that_hangs_is_started_anew(lab: HostedLab, job: int) -> None:
    before, epoch, began = lab.main_pid(), lab.epoch(), time.monotonic()
    lab.own.inside(f"kill -STOP {before}").check()
    until(lambda: lab.main_pid() not in (0, before), "the watchdog has ended it", WATCHDOG_S + 30)
    print(f"\nthe watchdog took {time.monotonic() - began:.1f} s")  # noqa: T201 - a figure for people
    assert lab.epoch() > epoch
    assert "watchdog" in lab.own.inside(f"journalctl -u {UNIT} --no-pager -q").check().lower()


def test_a_changed_quota_reaches_it_without_a_restart(lab: HostedLab, job: int) -> None:
    before = lab.main_pid()
    lab.spec["queues"][1]["borrow_limit"] = [{"pool": "lab", "gpus": 6}]
    lab.write()
    lab.apply().ok()
    assert lab.main_pid() == before
    with lab.client() as client:
        steps = [step.kind for step in client.applies()[0].steps]
        (queue,) = [queue for queue in client.queues() if queue.name == "q"]
    assert steps == ["record"]
    assert "6" in str(queue)


def test_a_changed_grant_reaches_it_without_a_restart(lab: HostedLab, job: int) -> None:
    before = lab.main_pid()
    lab.spec["access"] = {
        "groups": {"infra": {"users": ["ops"]}, "people": {"users": [USER]}},
        "grants": [{"role": "operator", "to": "infra"}, {"role": "submit", "to": "people"}],
    }
    lab.write()
    lab.apply().ok()
    lab.own.run("gangline node cordon h2 --why fan").check()
    lab.own.run("gangline node uncordon h2").check()
    assert lab.main_pid() == before
    assert lab.open_nodes() == ["h2"]


def test_sabotage_is_found_named_and_healed_in_the_journal(lab: HostedLab, job: int) -> None:
    own, before = lab.own, lab.epoch()
    own.inside(f"sed -i s/^NoNewPrivileges=yes/NoNewPrivileges=no/ /etc/systemd/system/{UNIT}").check()
    own.inside("truncate -s -1 /opt/gangline/controller.pyz").check()
    own.inside("echo >> /usr/local/bin/gangline").check()
    own.inside("echo 'raise SystemExit(9)' >> /opt/gangline/controller/lib/orchestrator/__init__.py").check()
    assert {each[1:] for each in lab.drift()} == {
        ("archive", "/opt/gangline/controller.pyz", "sha256"),
        ("file", "/usr/local/bin/gangline", "content"),
        ("file", f"/etc/systemd/system/{UNIT}", "content"),
        ("unit", UNIT, "runs"),
    }
    plan = lab.run("plan", str(lab.file)).ok().out
    assert "the controller restarts; jobs run on" in plan
    assert "controller host: configure (controller)" in plan
    lab.apply().ok()
    assert lab.drift() == []
    assert lab.epoch() > before
    assert lab.properties("NoNewPrivileges") == {"NoNewPrivileges": "yes"}
    with lab.client() as client:
        (step,) = client.applies()[0].steps
    assert (step.kind, step.state, [result.host for result in step.hosts]) == ("controller", "done", ["h1"])


def test_one_that_was_stopped_is_brought_back_before_the_journal(lab: HostedLab, job: int) -> None:
    lab.own.inside(f"systemctl disable --now {UNIT}; systemctl mask --runtime {UNIT}").check()
    assert ("h1", "unit", UNIT, "masked") in lab.drift() or ("h1", "unit", UNIT, "active") in lab.drift()
    lab.apply().ok()
    assert lab.drift() == []
    assert lab.properties("ActiveState") == {"ActiveState": "active"}


def test_another_address_reaches_everyone(lab: HostedLab, job: int) -> None:
    """The controller first, then the agents, whose configs it is in; what runs is not touched."""
    address = lab.spec["controller"]["address"].replace(":7443", ":7444")
    lab.spec["controller"]["address"] = address
    lab.write()
    plan = lab.run("plan", str(lab.file)).ok().out
    assert "controller.address" in plan
    assert "the controller restarts; jobs run on" in plan
    lab.apply().ok()
    assert lab.context()["server"] == address
    until(lambda: lab.node("h2").contact == "ok", "the agent calls the new address")
    assert lab.drift() == []


def test_a_ledger_is_not_left_for_an_empty_one(lab: HostedLab) -> None:
    before = lab.main_pid()
    lab.spec["controller"]["state"] = "/srv/other"
    lab.write()
    try:
        started, applied = lab.run("up", str(lab.file), "--yes"), lab.apply()
        assert (started.code, "up.controller-moved" in started.err) == (5, True), started
        assert (applied.code, "controller.state: the ledger lies there" in applied.err) == (5, True), applied
        assert lab.main_pid() == before
    finally:
        del lab.spec["controller"]["state"]
        lab.write()


def test_down_and_destroy_say_how_it_is_stopped(lab: HostedLab) -> None:
    done = lab.run("down")
    assert (done.code, f"systemctl disable --now {UNIT}" in done.err) == (2, True), done
    done = lab.run("destroy", str(lab.file), "--yes", "lab").ok()
    assert "the controller runs on, since it keeps the ledger" in done.err
    assert lab.properties("ActiveState") == {"ActiveState": "active"}


def test_a_controller_on_debian_12_that_is_a_node_too(
    testbed: Bed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lab = HostedLab(testbed, testbed.fresh(1, "12", furnished=True), tmp_path_factory.mktemp("both"))
    lab.up().ok()
    assert lab.open_nodes() == ["h1"]
    assert lab.drift() == []
    script = 'echo "$RANK $(hostname) $(id -un)"'
    done = lab.run("run", "--workdir", f"/home/{USER}", "--", "sh", "-c", script, env=lab.user()).ok()
    assert done.out == f"0 h1 {USER}\n"
    assert "nothing to change" in lab.up().ok().err
