"""The controller's own CA: what it signs is trusted by who pins it, and by nobody else."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from pathlib import Path

import pytest

from orchestrator.model.errors import Unavailable
from orchestrator.provision.certificates import RENEW_DAYS, SERVER_DAYS, Certificates, ca_of, ensure

NOW = dt.datetime.now(dt.UTC)
NAMES = ("localhost", "127.0.0.1", "10.20.0.1", "fd00::1")


def shake(found: Certificates, ca: Path, name: str) -> str:
    """A TLS handshake over a socket pair; empty, or why the client refuses."""
    server_side, client_side = socket.socketpair()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(found.cert, found.key)
    client = ssl.create_default_context(cafile=str(ca))

    def serve() -> None:
        try:
            server.wrap_socket(server_side, server_side=True).close()
        except OSError:
            server_side.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client.wrap_socket(client_side, server_hostname=name).close()
        return ""
    except ssl.SSLError as error:
        client_side.close()
        return str(error)
    finally:
        thread.join()


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_controller_is_served(tmp_path: Path, name: str) -> None:
    found = ensure(tmp_path / "atlas", NAMES, NOW)
    assert shake(found, found.ca, name) == ""


def test_other_names_and_other_clusters_are_refused(tmp_path: Path) -> None:
    found, other = ensure(tmp_path / "atlas", NAMES, NOW), ensure(tmp_path / "other", NAMES, NOW)
    assert "mismatch" in shake(found, found.ca, "example.org")
    assert "verify failed" in shake(found, other.ca, "localhost")


def test_made_once_and_kept(tmp_path: Path) -> None:
    found = ensure(tmp_path, NAMES, NOW)
    before = [path.read_bytes() for path in (found.ca, found.cert, found.key)]
    again = ensure(tmp_path, NAMES[:2], NOW)
    assert [path.read_bytes() for path in (again.ca, again.cert, again.key)] == before


@pytest.mark.parametrize(
    ("names", "days"), [((*NAMES, "new.example.org"), 0), (NAMES, SERVER_DAYS - RENEW_DAYS + 1)]
)
def test_a_new_name_or_a_near_end_makes_a_new_one_of_the_same_ca(
    tmp_path: Path, names: tuple[str, ...], days: int
) -> None:
    found = ensure(tmp_path, NAMES, NOW)
    ca, cert = found.ca.read_bytes(), found.cert.read_bytes()
    again = ensure(tmp_path, names, NOW + dt.timedelta(days=days))
    assert again.ca.read_bytes() == ca
    assert again.cert.read_bytes() != cert
    if not days:
        assert shake(again, again.ca, names[-1]) == ""


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    ensure(tmp_path / "atlas", NAMES, NOW)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "atlas/tls").iterdir()}
    assert modes == {"ca.key": 0o600, "server.key": 0o600, "ca.pem": 0o644, "server.pem": 0o644}
    assert (tmp_path / "atlas/tls").stat().st_mode & 0o777 == 0o700


def test_a_lost_key_of_the_ca_makes_a_new_one(tmp_path: Path) -> None:
    found = ensure(tmp_path, NAMES, NOW)
    (tmp_path / "tls/ca.key").unlink()
    again = ensure(tmp_path, NAMES, NOW)
    assert shake(again, found.ca, "localhost") == ""


@pytest.mark.parametrize(
    "clock",
    [NOW + dt.timedelta(days=300), NOW + dt.timedelta(days=9000), dt.datetime(1970, 1, 2, tzinfo=dt.UTC)],
)
def test_a_clock_that_is_put_right_after_the_first_start_locks_nobody_out(
    tmp_path: Path, clock: dt.datetime
) -> None:
    pinned = ensure(tmp_path, NAMES, clock).ca.read_bytes()
    again = ensure(tmp_path, NAMES, NOW)
    assert again.ca.read_bytes() == pinned, "hosts have it already"
    assert shake(again, again.ca, "localhost") == ""


@pytest.mark.parametrize("left", ["server.pem", "server.key"])
def test_what_a_kill_has_left_of_another_pair_is_made_anew(tmp_path: Path, left: str) -> None:
    """Of an authority that was made anew, or with half of a renewed pair."""
    old = ensure(tmp_path / "old" / "atlas", NAMES, NOW)
    new = ensure(tmp_path / "new" / "atlas", NAMES, NOW)
    (new.cert.parent / left).write_bytes((old.cert.parent / left).read_bytes())
    again = ensure(tmp_path / "new" / "atlas", NAMES, NOW)
    assert shake(again, again.ca, "localhost") == ""


@pytest.mark.parametrize("name", ["server.pem", "server.key"])
def test_a_torn_pair_is_made_anew(tmp_path: Path, name: str) -> None:
    found = ensure(tmp_path, NAMES, NOW)
    (found.cert.parent / name).write_bytes(b"")
    assert shake(ensure(tmp_path, NAMES, NOW), found.ca, "localhost") == ""


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "tls").write_text("")
    with pytest.raises(Unavailable, match="tls"):
        ensure(tmp_path, NAMES, NOW)


def test_looking_makes_nothing(tmp_path: Path) -> None:
    assert ca_of(tmp_path / "atlas") == ""
    assert not (tmp_path / "atlas").exists()
    found = ensure(tmp_path / "atlas", NAMES, NOW)
    assert ca_of(tmp_path / "atlas") == found.ca.read_text()
