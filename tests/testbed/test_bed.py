"""The testbed does what its verbs say: a cut host is silent and runs on, a killed one keeps its disk.

Also: limits have force, hosts don't meet, and what a killed run left is swept by the next one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed import record
from tests.testbed.bed import Bed, Host
from tests.testbed.groups import Group
from tests.testbed.network import Network

pytestmark = pytest.mark.testbed
ROOT = Path(__file__).resolve().parents[2]


def test_fresh_hosts_are_as_a_person_would_find_them(testbed: Bed) -> None:
    hosts = testbed.fresh(2, "12", "13")

    for host in hosts:
        assert host.run("id -un; hostname").check() == f"ops\n{host.name}"
        assert host.run("sudo -n id -u").check() == "0"
        assert host.run("systemctl is-system-running").check() == "running"
        assert host.run(". /etc/os-release; echo $VERSION_ID").check() == host.release
        as_root = ["ssh", "-F", str(testbed.ssh_config), "-l", "root", host.name, "true"]
        refused = subprocess.run(as_root, capture_output=True, text=True, check=False)
        assert (refused.returncode, "Permission denied" in refused.stderr) == (255, True)
    ids = {host.run("cat /etc/machine-id").check() for host in hosts}
    assert len(ids | {host.boot_id() for host in hosts}) == 4


def test_a_cut_host_is_silent_and_runs_on(testbed: Bed) -> None:
    (host,) = testbed.fresh(1)

    host.cut()
    assert host.run("true").code == 255
    assert host.inside("echo $PPID").check() == "0"
    host.heal()

    assert host.run("echo back").check() == "back"


def test_a_hung_host_accepts_and_never_answers(testbed: Bed) -> None:
    (host,) = testbed.fresh(1)

    host.hang()
    with pytest.raises(subprocess.TimeoutExpired):
        host.run("true", timeout_s=1.5)
    host.wake()

    assert host.run("echo back").check() == "back"


def _reboot_in_order(host: Host) -> None:
    before = host.boot_id()
    host.run("sudo -n systemctl reboot")
    host.wait_reboot(before)


def _off_and_on(host: Host) -> None:
    host.off()
    assert not host.booted()
    host.boot()


def _kill_and_boot(host: Host) -> None:
    host.kill()
    assert not host.booted()
    host.boot()


@pytest.mark.parametrize("again", [Host.reboot, _kill_and_boot, _off_and_on, _reboot_in_order])
@pytest.mark.parametrize("release", ["12", "13"])
def test_a_host_that_boots_again_keeps_its_disk(testbed: Bed, again: object, release: str) -> None:
    (host,) = testbed.fresh(1, release)
    boot, machine = host.boot_id(), host.run("cat /etc/machine-id").check()
    host.run("echo kept > note; sudo -n touch /run/not-kept").check()
    assert callable(again)

    again(host)

    assert host.run("cat note; test -e /run/not-kept || echo gone").check() == "kept\ngone"
    assert host.run("cat /etc/machine-id").check() == machine
    assert host.boot_id() != boot


def test_a_reset_host_is_another_machine_at_the_same_address(testbed: Bed) -> None:
    (host,) = testbed.fresh(1, "12")
    before = [host.run("cat /etc/machine-id /etc/ssh/*.pub").check(), host.address]
    host.run("touch note").check()

    host.reset("13")

    assert host.run("test -e note").code == 1
    assert host.run("cat /etc/machine-id /etc/ssh/*.pub").check() != before[0]
    assert (host.address, host.run("cat /etc/debian_version").check()[:2]) == (before[1], "13")


@pytest.mark.parametrize("release", ["12", "13"])
def test_limits_of_units_have_force(testbed: Bed, release: str) -> None:
    (host,) = testbed.fresh(1, release)
    unit = "sudo -n systemd-run --wait --pipe -q -p MemoryMax=60M"
    take = "python3 -c 'held = bytearray({} << 20)'"

    assert host.run(f"{unit} {take.format(10)}").code == 0
    assert host.run(f"{unit} {take.format(200)}").code != 0


def test_units_of_one_host_are_not_those_of_another(testbed: Bed) -> None:
    one, two = testbed.fresh(2)
    for host in (one, two):
        host.run("sudo -n systemd-run -q --unit=same sleep 600").check()

    one.run("sudo -n systemctl stop same").check()

    assert one.run("systemctl is-active same").out == "inactive\n"
    assert two.run("systemctl is-active same; pgrep -x sleep | wc -l").out == "active\n1\n"


def test_hosts_install_packages_and_reach_each_other(testbed: Bed) -> None:
    one, two = testbed.fresh(2, "12", "13")

    for host in (one, two):
        host.run("sudo -n apt-get -q -y install cron", timeout_s=240).check()
    assert one.run(f"timeout 5 bash -c 'head -c4 < /dev/tcp/{two.address}/22'").check() == "SSH-"
    assert two.run(f"timeout 5 bash -c 'head -c4 < /dev/tcp/{one.address}/22'").check() == "SSH-"


KILLED = """
import os, signal
from tests.testbed import record
from tests.testbed.bed import Bed
bed = Bed.make("{name}", owner=record.process_mark(os.getpid()))
bed.boot("h1")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_is_swept(testbed: Bed) -> None:
    (kept,) = testbed.fresh(1)
    name = f"killed-{os.getpid()}"
    run = subprocess.run([sys.executable, "-c", KILLED.format(name=name)], cwd=ROOT, check=False)
    assert run.returncode == -signal.SIGKILL
    left = record.read(name)
    assert left is not None
    assert left.abandoned()

    with Bed.make(f"next-{os.getpid()}"):
        assert record.read(name) is None
        assert not Group(f"gangline-bed-{name}").pids()
        assert not Path("/sys/class/net", Network(left.number).link(1)).exists()
        assert not left.folder.exists()
        assert kept.run("echo untouched").check() == "untouched"
