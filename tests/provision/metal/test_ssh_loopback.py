"""Programs run on hosts over real SSH: exit codes, shared connections, deadlines, and never the person's own config."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from orchestrator.model.cluster import Host, Site, SiteKind, Ssh
from orchestrator.model.errors import InputError
from orchestrator.model.host import Step
from orchestrator.provision.metal.channel import Channel, Ran, Way
from orchestrator.provision.metal.diagnosis import Unreached
from orchestrator.provision.metal.probe import accept_host_key, probe
from orchestrator.provision.metal.probe import words as words_of
from orchestrator.provision.metal.ssh import CONNECT_S, Access, lay
from tests.provision.metal import sshd
from tests.provision.metal.sshd import Servers
from tests.system.processes import until

pytestmark = [pytest.mark.system, pytest.mark.needs("ssh", "sshd")]
T = TypeVar("T")
FIRST = Way(first=True, deadline_s=30)
UNTIL_CUT = "while echo .; do sleep 0.1; done"  # leaves nothing behind: it ends when nobody reads any more
HOSTS = {f"h{at}": f"127.0.77.{at}" for at in range(1, 5)}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    folder = tmp_path / "sshd"
    folder.mkdir()
    with Servers(folder, dict.fromkeys(HOSTS.values(), sshd.GOOD)) as found:
        yield found


def _access(
    servers: Servers, state: Path, key: str = "", environment: dict[str, str] | None = None
) -> Access:
    ssh = Ssh(user=servers.user, key=key or f"file:{servers.key}", port=servers.port)
    hosts = tuple(Host(name, address) for name, address in HOSTS.items())
    return lay(Site("hall", SiteKind.METAL, ssh=ssh, hosts=hosts), state, environment or {})


def _carry(channel: Channel, deed: Coroutine[Any, Any, T]) -> T:
    """Run it, and leave no shared connection behind."""

    async def all_of_it() -> T:
        try:
            return await deed
        finally:
            await channel.close()

    return asyncio.run(all_of_it())


def test_a_program_gets_its_input_and_its_output_comes_back(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path))
    argv = ["sh", "-c", 'cat; echo "$1" >&2; exit 7', "sh", "it's 2 > 1"]

    ran = _carry(channel, channel.run("h1", argv, b"fed\n" * 50_000, FIRST))

    assert (ran.code, ran.stdout, ran.stderr) == (7, b"fed\n" * 50_000, b"it's 2 > 1\n")
    recorded = channel.access.known_hosts.keys("h1")
    assert [key.fingerprint for key in recorded] == [ran.key]


def test_a_second_program_needs_no_second_login(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path))

    async def three() -> list[Ran]:
        ways = (FIRST, FIRST, Way(fresh=True))
        return [await channel.run("h1", ["echo", "x"], way=way) for way in ways]

    ran = _carry(channel, three())

    assert [(each.code, each.stdout, each.stderr) for each in ran] == [(0, b"x\n", b"")] * 3
    assert [bool(each.key) for each in ran] == [True, False, True]
    assert servers.connections[HOSTS["h1"]] == 2


def test_a_shared_connection_that_died_is_replaced(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path))

    async def twice() -> Ran:
        await channel.run("h1", ["true"], way=FIRST)
        servers.hang_up()
        return await channel.run("h1", ["echo", "again"])

    assert _carry(channel, twice()).stdout == b"again\n"
    assert servers.connections[HOSTS["h1"]] == 2


def test_a_program_whose_connection_is_lost_is_not_run_again(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path))
    runs = tmp_path / "runs"
    once = ["sh", "-c", f"echo run >> '{runs}'; {UNTIL_CUT}"]

    async def lose_it() -> None:
        await channel.run("h1", ["true"], way=FIRST)
        task = asyncio.create_task(channel.run("h1", once))
        await asyncio.to_thread(until, runs.exists, "the program has begun")
        servers.hang_up()
        await task

    with pytest.raises(Unreached, match="the connection was lost"):
        _carry(channel, lose_it())

    assert runs.read_text() == "run\n"


def test_a_program_may_itself_end_with_255(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path))

    async def twice() -> list[Ran]:
        ways = (FIRST, Way(fresh=True))
        return [await channel.run("h1", ["sh", "-c", "exit 255"], way=way) for way in ways]

    assert [ran.code for ran in _carry(channel, twice())] == [255, 255]


def test_a_host_without_a_recorded_key_is_refused_until_it_is_asked_for(
    servers: Servers, tmp_path: Path
) -> None:
    channel = Channel(_access(servers, tmp_path))

    with pytest.raises(Unreached, match="none is recorded yet") as caught:
        _carry(channel, channel.run("h1", ["true"]))

    assert caught.value.step is Step.HOST_KEY
    assert not channel.access.known_hosts.keys("h1")


def test_a_changed_key_is_refused_until_it_is_accepted_by_name(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path))
    old = _carry(channel, channel.run("h1", ["true"], way=FIRST)).key
    servers.does[HOSTS["h1"]] = sshd.OTHER_KEY

    (refused,) = _carry(channel, probe(channel, ["h1"], first=True))
    accepted = _carry(channel, accept_host_key(channel, "h1"))
    (found,) = _carry(channel, probe(channel, ["h1"]))

    assert refused.reached is Step.HOST_KEY
    assert old in refused.error
    assert accepted.now in refused.error
    assert (accepted.host, accepted.before) == ("h1", old)
    assert found.facts is not None


def test_accepting_a_host_that_is_away_keeps_the_old_key(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path))
    _carry(channel, channel.run("h1", ["true"], way=FIRST))
    before = channel.access.known_hosts.path.read_text()
    servers.does[HOSTS["h1"]] = sshd.ENDS

    with pytest.raises(Unreached):
        _carry(channel, accept_host_key(channel, "h1"))

    assert channel.access.known_hosts.path.read_text() == before


def test_a_host_that_never_stops_talking_is_not_heard_out(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.provision.metal.channel.MOST_OUTPUT", 1 << 20)
    channel = Channel(_access(servers, tmp_path))

    ran = _carry(channel, channel.run_on(["h1"], ["sh", "-c", "cat /dev/zero"], way=FIRST))["h1"]

    assert isinstance(ran, Unreached)
    assert "says more than 1 MiB" in ran.message


def test_a_deadline_ends_ssh_and_hides_no_other_host(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path))

    async def both() -> dict[str, Ran | Unreached]:
        await channel.run_on(["h1", "h2"], ["true"], way=FIRST)
        script = f"case $SSH_CONNECTION in *{HOSTS['h2']}*) {UNTIL_CUT} ;; esac; echo done"
        return await channel.run_on(["h1", "h2"], ["sh", "-c", script], way=Way(deadline_s=3))

    began = time.monotonic()
    ran = _carry(channel, both())

    good, late = ran["h1"], ran["h2"]
    assert isinstance(good, Ran)
    assert good.stdout == b"done\n"
    assert isinstance(late, Unreached)
    assert "did not answer within 3 s" in late.message
    assert time.monotonic() - began < 60
    assert not [child for child in psutil.Process().children() if child.name() == "ssh"]


def test_every_ssh_is_told_to_read_gangline_s_config_alone(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With -F, OpenSSH reads neither ~/.ssh/config nor /etc/ssh/ssh_config; a stand-in notes how it is called."""
    channel = Channel(_access(servers, tmp_path))
    (tmp_path / "bin").mkdir()
    words = tmp_path / "words"
    (tmp_path / "bin/ssh").write_text(
        f'#!/bin/sh\necho "$1 $2" >> {words}\nexec {shutil.which("ssh")} "$@"\n'
    )
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    _carry(channel, channel.run("h1", ["true"], way=FIRST))
    _carry(channel, channel.run("h1", ["true"]))

    own = [channel.access.config_first, channel.access.config]
    asked = words.read_text().splitlines()
    assert {f"-F {path}" for path in own} == set(asked)
    assert len(asked) == 4  # two programs, two farewells to the shared connection


def test_a_key_from_the_environment(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path, "env:KEY", {"KEY": servers.key.read_text()}))

    assert _carry(channel, channel.run("h1", ["echo", "in"], way=FIRST)).stdout == b"in\n"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("stranger", "does not let '{user}' in with the key {key}"),
        ("locked", "would let '{user}' in, but the key needs a passphrase: {key}"),
    ],
)
def test_a_key_that_does_not_open_is_told_in_time(
    servers: Servers, tmp_path: Path, key: str, message: str
) -> None:
    """No prompt, no loop: a stranger's key, and one whose passphrase nobody can type."""
    path = servers.folder / key
    channel = Channel(_access(servers, tmp_path, f"file:{path}"))

    with pytest.raises(Unreached) as caught:
        _carry(channel, channel.run("h1", ["true"], way=FIRST))

    assert caught.value.step is Step.AUTH
    assert message.format(user=servers.user, key=path) in caught.value.message


def test_a_name_that_the_site_lacks(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path))

    with pytest.raises(InputError, match="site 'hall' has no host 'h9'"):
        asyncio.run(channel.run("h9", ["true"]))


def test_every_host_gets_its_line_and_none_waits_for_another(tmp_path: Path) -> None:
    """Twenty hosts, most of them broken in one way each; those that hang cost no more than one of them."""
    kinds = [sshd.GOOD] * 8 + [sshd.SILENT] * 4 + [sshd.WEB, sshd.ENDS, sshd.TRUSTS_NOBODY, sshd.OTHER_KEY]
    addresses = {f"n{at:02}": f"127.0.78.{at + 1}" for at in range(len(kinds))}
    closed = {f"n{at}": f"127.0.79.{at}" for at in range(16, 20)}  # nothing listens there
    (tmp_path / "sshd").mkdir()
    with Servers(tmp_path / "sshd", dict(zip(addresses.values(), kinds, strict=True))) as servers:
        ssh = Ssh(user=servers.user, key=f"file:{servers.key}", port=servers.port)
        hosts = tuple(Host(name, address) for name, address in {**addresses, **closed}.items())
        channel = Channel(lay(Site("hall", SiteKind.METAL, ssh=ssh, hosts=hosts), tmp_path, {}))
        blob = (servers.folder / "host-a.pub").read_text().split()[1]
        channel.access.known_hosts.path.write_text(f"n15 ssh-ed25519 {blob}\n")

        began = time.monotonic()
        found = _carry(channel, probe(channel, channel.access.addresses, first=True))
        took = time.monotonic() - began

    print(f"\n20 hosts on loopback in {took:.2f} s", *map(words_of, found), sep="\n  ")  # noqa: T201 - the figure is wanted
    said = {sight.host: words_of(sight) for sight in found}
    assert [sight.host for sight in found] == [*addresses, *closed]
    assert all(sight.facts is not None for sight in found[:8])
    assert all("accepts connections and says nothing" in said[f"n{at:02}"] for at in range(8, 12))
    assert "no SSH server: it says 'HTTP/1.1 400 Bad Request'" in said["n12"]
    assert "ended the connection" in said["n13"]
    assert "does not let" in said["n14"]
    assert "shows the host key" in said["n15"]
    assert all("refuses connections" in said[f"n{at}"] for at in range(16, 20))
    assert (
        took < 4 * CONNECT_S + 30
    )  # one after the other, the silent ones alone would take four times CONNECT_S


def test_nothing_is_left_when_a_caller_gives_up(servers: Servers, tmp_path: Path) -> None:
    channel = Channel(_access(servers, tmp_path))
    servers.does[HOSTS["h1"]] = sshd.SILENT

    async def give_up() -> None:
        task = asyncio.create_task(channel.run("h1", ["true"], way=FIRST))
        await asyncio.to_thread(servers.connected.wait, 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(give_up())
    assert not [child for child in psutil.Process().children() if child.name() == "ssh"]
