"""What Gangline writes for OpenSSH: a config of its own, the key where the spec's reference leads, errors in words."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.model.cluster import Host, Site, SiteKind, Ssh
from orchestrator.model.errors import InputError
from orchestrator.provision.metal import ssh
from orchestrator.provision.metal.ssh import JUMP, Access, lay

HOSTS = (Host("h1", "10.0.0.1"), Host("h2", "fd00::2"), Host("by-name"))
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nnot a real one\n"


def _site(**values: object) -> Site:
    return Site("hall-a", SiteKind.METAL, ssh=Ssh(**values), hosts=HOSTS)  # type: ignore[arg-type]


def _asked(access: Access, host: str) -> dict[str, str]:
    """What OpenSSH itself understands of the config, by keyword in small letters."""
    done = subprocess.run(
        ["ssh", "-G", "-F", str(access.config), host], capture_output=True, text=True, check=True
    )
    return {key: value for key, _, value in (line.partition(" ") for line in done.stdout.splitlines())}


@pytest.fixture(autouse=True)
def _no_socket_folders_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="g") as short:
        monkeypatch.setattr(ssh, "SHORT", Path(short))
        yield


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "a key"
    path.write_text(PRIVATE)
    path.chmod(0o600)
    return path


@pytest.mark.system
@pytest.mark.needs("ssh")
def test_openssh_reads_the_config_as_it_is_meant(tmp_path: Path, key: Path) -> None:
    access = lay(_site(user="ops", key=f"file:{key}", port=2222), tmp_path / "state", {})

    for host, address in (("h1", "10.0.0.1"), ("h2", "fd00::2"), ("by-name", "by-name")):
        found = _asked(access, host)
        assert (found["hostname"], found["hostkeyalias"]) == (address, host)
        assert (found["user"], found["port"], found["identityfile"]) == ("ops", "2222", str(key))
        assert found["userknownhostsfile"] == str(access.known_hosts.path)
        assert found["stricthostkeychecking"] in ("true", "yes")
        assert (found["batchmode"], found["identitiesonly"]) == ("yes", "yes")
        assert (found["forwardagent"], found["hashknownhosts"], found["updatehostkeys"]) == (
            "no",
            "no",
            "false",
        )
        assert len(found["controlpath"]) + 18 < 107


@pytest.mark.system
@pytest.mark.needs("ssh")
def test_a_jump_host_is_reached_by_the_same_config(tmp_path: Path) -> None:
    access = lay(_site(jump="bastion.test", port=2222), tmp_path, {})

    words = shlex.split(_asked(access, "h1")["proxycommand"])
    assert words[:2] == ["sh", "-c"]
    assert (
        words[2]
        == f"exec ssh -F {access.config} -W '[%h]:%p' {JUMP} 2>>\"${{GANGLINE_JUMP_LOG:-/dev/null}}\""
    )
    jump = _asked(access, JUMP)
    assert (jump["hostname"], jump["port"]) == ("bastion.test", "22")
    assert "proxycommand" not in jump
    assert str(access.config_first) in access.config_first.read_text()


def test_writing_it_again_changes_nothing(tmp_path: Path, key: Path) -> None:
    site = _site(user="ops", key=f"file:{key}")
    first = lay(site, tmp_path, {})
    before = {path: path.stat().st_mtime_ns for path in first.folder.iterdir()}

    assert lay(site, tmp_path, {}) == first
    assert {path: path.stat().st_mtime_ns for path in first.folder.iterdir()} == before


def test_all_of_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    access = lay(_site(key="env:KEY"), tmp_path, {"KEY": PRIVATE})

    for path in (access.folder, access.sockets, *access.folder.iterdir()):
        assert not path.stat().st_mode & 0o077, path
    assert Path(access.key).read_text() == PRIVATE


def test_folders_of_sockets_that_nobody_enters_go_after_a_day(tmp_path: Path) -> None:
    old, busy, young = (lay(_site(), tmp_path / name, {}).sockets for name in ("old", "busy", "young"))
    (busy / "socket").touch()
    for folder in (old, busy):
        os.utime(folder, (0, 0))

    again = lay(_site(), tmp_path / "again", {}).sockets

    assert [folder.exists() for folder in (old, busy, young, again)] == [False, True, True, True]
    (busy / "socket").unlink()


def test_two_clusters_share_no_connection(tmp_path: Path) -> None:
    one, two = lay(_site(), tmp_path / "one", {}), lay(_site(), tmp_path / "two", {})

    assert one.sockets != two.sockets


@pytest.mark.parametrize(
    ("reference", "code", "message", "hint"),
    [
        (
            "file:{}/gone",
            "ssh.key-missing",
            "the private key {}/gone can't be read: No such file",
            "name a file",
        ),
        ("file:{}/open", "ssh.key-open", "{}/open is open to others (mode 0644)", "chmod 600 {}/open"),
        ("file:{}/public", "ssh.key-public", "{}/public is a public key", "without .pub"),
        (
            "env:NOT_THERE",
            "ssh.key-missing",
            "environment variable NOT_THERE is not set",
            "private key's text",
        ),
        ("aws-secret:a/b", "ssh.key-reference", "can't come from 'aws-secret:'", "file: or an env:"),
    ],
)
def test_a_key_that_cannot_be_used_is_an_error_in_words(
    tmp_path: Path, reference: str, code: str, message: str, hint: str
) -> None:
    (tmp_path / "open").write_text(PRIVATE)
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "public").write_text("ssh-ed25519 AAAA me\n")
    (tmp_path / "public").chmod(0o600)

    with pytest.raises(InputError) as caught:
        lay(_site(key=reference.format(tmp_path)), tmp_path / "state", {})

    error = caught.value
    assert (error.code, error.path) == (code, "sites[hall-a].ssh.key")
    assert message.format(tmp_path) in error.message
    assert hint.format(tmp_path) in error.hint


def test_a_folder_that_is_somebody_elses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "ssh").mkdir()
    (tmp_path / "ssh/hall-a").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(InputError, match="not a folder of your own"):
        lay(_site(), tmp_path, {})


def test_places_name_host_and_port(tmp_path: Path) -> None:
    access = lay(_site(port=2222, jump="bastion.test"), tmp_path, {})

    assert access.place("h1") == "h1 (10.0.0.1:2222)"
    assert access.place("h2") == "h2 ([fd00::2]:2222)"
    assert access.place(JUMP) == "jump host (bastion.test:22)"


def test_another_key_or_jump_host_shares_no_connection(tmp_path: Path, key: Path) -> None:
    """One that stands would let a key in that no host knows."""
    other = tmp_path / "other"
    other.write_text(PRIVATE)
    other.chmod(0o600)

    def sockets(**values: object) -> Path:
        return lay(_site(**values), tmp_path / "state", {}).sockets

    first = sockets(key=f"file:{key}")
    assert sockets(key=f"file:{key}") == first
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nexchanged\n")
    os.utime(key, ns=(1, 1))
    found = [first, sockets(key=f"file:{key}"), sockets(key=f"file:{other}"), sockets(), sockets(jump="b")]
    assert len(set(found)) == len(found)
