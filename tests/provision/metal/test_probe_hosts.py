"""The probe on hosts that really boot: what is wrong with each is said in one line, and none delays another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.model import cluster
from orchestrator.model.cluster import Site, SiteKind, Ssh
from orchestrator.model.host import Sight, Step
from orchestrator.provision.metal.channel import Channel
from orchestrator.provision.metal.probe import accept_host_key, probe
from orchestrator.provision.metal.probe import words as words_of
from orchestrator.provision.metal.ssh import JUMP, Access, lay
from tests.testbed.base import USER
from tests.testbed.bed import Bed, Host

PATIENCE_S = 6  # twenty hosts on two processors answer later than twenty machines would

pytestmark = pytest.mark.testbed


def _access(bed: Bed, hosts: Sequence[Host], state: Path, jump: str = "") -> Access:
    known = tuple(cluster.Host(host.name, host.address) for host in hosts)
    ssh = Ssh(user=USER, key=f"file:{bed.key}", jump=jump)
    return lay(Site("hall", SiteKind.METAL, ssh=ssh, hosts=known), state, {}, PATIENCE_S)


def _probe(access: Access, hosts: Sequence[Host], first: bool = False, fresh: bool = True) -> list[Sight]:
    async def look() -> list[Sight]:
        channel = Channel(access)
        try:
            return await probe(channel, [host.name for host in hosts], first, fresh, deadline_s=60)
        finally:
            await channel.close()

    return asyncio.run(look())


def _timed(access: Access, hosts: Sequence[Host], first: bool = False) -> tuple[float, list[Sight]]:
    began = time.monotonic()
    found = _probe(access, hosts, first)
    return time.monotonic() - began, found


PASSWORD = f"echo '{USER} ALL=(ALL) ALL' > /etc/sudoers.d/{USER}"
NO_PYTHON = "mkdir /away; mv /usr/bin/python3* /away"
OLD_PYTHON = f"{NO_PYTHON}; printf '#!/bin/sh\\necho 3.9.2\\n' > /usr/bin/python3; chmod 755 /usr/bin/python3"
OLD_SYSTEM = """sed -i -e 's/^VERSION_ID=.*/VERSION_ID="9"/' \
    -e 's/^PRETTY_NAME=.*/PRETTY_NAME="Debian 9"/' /etc/os-release"""
OTHER_KEY = """rm /etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
systemctl restart ssh"""
# Two GPUs, a console's chip and a network card, as sysfs shows them; the host has none of its own.
GPUS = """touch /run/reboot-required
device() { at=/run/pci/$1; mkdir -p $at; echo $2 > $at/class; echo $3 > $at/vendor; echo $4 > $at/device; }
device 0000:1b:00.0 0x030200 0x10de 0x2330
device 0000:43:00.0 0x030000 0x10de 0x2330
device 0000:44:00.0 0x030000 0x1a03 0x2000
device 0000:45:00.0 0x020700 0x15b3 0x1021
mount --bind /run/pci /sys/bus/pci/devices"""

# What is done to a host as root; then its step, and words of its line and hint.
BROKEN = [
    (PASSWORD, Step.SUDO, "sudo asks for a password", "NOPASSWD"),
    ("rm /usr/bin/sudo", Step.SUDO, "there is no sudo", "NOPASSWD"),
    (NO_PYTHON, Step.PYTHON, "there is no Python; 3.10 or newer is needed", "apt-get install python3"),
    (OLD_PYTHON, Step.PYTHON, "its Python is 3.9.2; 3.10 or newer is needed", "newer release"),
    (OLD_SYSTEM, Step.SYSTEM, "it runs Debian 9, which Gangline does not support", "debian 12 and 13"),
    (OTHER_KEY, Step.HOST_KEY, "shows the host key SHA256:", "--accept-host-key"),
    (f"rm /home/{USER}/.ssh/authorized_keys", Step.AUTH, f"does not let '{USER}' in with the key", "authorized_keys"),
    (f"usermod -s /usr/sbin/nologin {USER}", Step.AUTH, "lets Gangline in, and runs nothing", "POSIX shell"),
    ("systemctl stop ssh.socket ssh", Step.TCP, "refuses connections", "openssh-server"),
    ("systemctl stop systemd-user-sessions", Step.AUTH, "is shutting down, and lets nobody in", "in a minute"),
]  # fmt: skip


def test_twenty_hosts(testbed: Bed, tmp_path: Path) -> None:
    hosts = testbed.fresh(20, "12", "13")
    access = _access(testbed, hosts, tmp_path)

    took, found = _timed(access, hosts, first=True)
    again, _ = _timed(access, hosts)
    print(f"\n20 hosts: at first contact {took:.2f} s, then {again:.2f} s")  # noqa: T201 - the figures are wanted
    assert [sight.error for sight in found] == [""] * 20

    for host, sight in zip(hosts, found, strict=True):
        assert sight.facts is not None
        assert sight.facts.boot_id == host.boot_id()
        assert (sight.facts.os, sight.facts.release, sight.facts.hostname) == (
            "debian",
            host.release,
            host.name,
        )
        assert sight.facts.clock_skew_ms == 0  # one kernel, one clock
    machines = {sight.facts.machine_id for sight in found if sight.facts is not None}
    assert len(machines) == 20
    _break_and_look(hosts, access)


def _break_and_look(hosts: list[Host], access: Access) -> None:
    """Each host gets a fault of its own; all are told in one probe that is no slower for those that hang."""
    broken = dict(zip(hosts, BROKEN, strict=False))
    cut, hung, killed, gpus, *good = hosts[len(BROKEN) :]
    for host, (command, *_) in broken.items():
        host.inside(command).check()
    gpus.inside(GPUS).check()
    cut.cut()
    hung.hang()
    killed.kill()

    took, sights = _timed(access, hosts)
    print(f"20 hosts, 13 of them broken: {took:.2f} s", *map(words_of, sights), sep="\n  ")  # noqa: T201 - the same
    found = dict(zip(hosts, sights, strict=True))

    for host, (_, step, words, hint) in broken.items():
        assert (found[host].reached, words in words_of(found[host])) == (step, True), words_of(found[host])
        assert hint in found[host].hint
    assert found[cut].reached is Step.TCP
    assert found[killed].reached is Step.TCP
    assert "accepts connections and says nothing" in found[hung].error
    assert all(found[host].reached is Step.DONE for host in good)
    seen = found[gpus].facts
    assert seen is not None
    assert seen.gpus == ("0000:1b:00.0 10de:2330", "0000:43:00.0 10de:2330")
    assert words_of(found[gpus]).endswith("2 GPUs (10de:2330), a reboot is pending")
    _come_back(access, cut, hung)


def _come_back(access: Access, cut: Host, hung: Host) -> None:
    """A host that was away is itself again: nothing was done to it, and nothing needs to be done."""
    cut.heal()
    hung.wake()

    assert [sight.error for sight in _probe(access, [cut, hung])] == ["", ""]


def test_a_host_that_was_installed_anew_is_refused_until_accepted(testbed: Bed, tmp_path: Path) -> None:
    (host,) = testbed.fresh(1)
    access = _access(testbed, [host], tmp_path)
    (before,) = _probe(access, [host], first=True)
    host.reset()

    (refused,) = _probe(access, [host], first=True)
    accepted = asyncio.run(accept_host_key(Channel(access), host.name))
    (after,) = _probe(access, [host])

    assert refused.reached is Step.HOST_KEY
    assert accepted.before in refused.error
    assert accepted.now in refused.error
    assert before.facts is not None
    assert after.facts is not None
    assert before.facts.machine_id != after.facts.machine_id


def test_a_shared_connection_outlives_no_reboot(testbed: Bed, tmp_path: Path) -> None:
    (host,) = testbed.fresh(1, "13")
    access = _access(testbed, [host], tmp_path)

    async def over_a_reboot() -> list[Sight]:
        channel = Channel(access)
        first = await probe(channel, [host.name], first=True)
        await asyncio.to_thread(host.reboot)
        try:
            return first + await probe(channel, [host.name], fresh=False)
        finally:
            await channel.close()

    before, after = asyncio.run(over_a_reboot())
    assert before.facts is not None
    assert after.facts is not None
    assert before.facts.boot_id != after.facts.boot_id


def test_hosts_behind_a_jump_host(testbed: Bed, tmp_path: Path) -> None:
    """The jump host's key is recorded like any other, and what fails behind it is told from what fails on it."""
    jump, inner = testbed.fresh(2, "13", "12")
    access = _access(testbed, [inner], tmp_path, jump=jump.address)

    (found,) = _probe(access, [inner], first=True)
    inner.inside("systemctl stop ssh.socket ssh").check()
    (stopped,) = _probe(access, [inner])
    jump.kill()
    (unreachable,) = _probe(access, [inner])

    assert found.reached is Step.DONE
    assert access.known_hosts.keys(JUMP)
    assert "can't be reached from the jump host" in stopped.error
    assert "the way through the jump host failed" in unreachable.error
    assert (stopped.reached, unreachable.reached) == (Step.TCP, Step.TCP)
