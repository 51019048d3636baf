"""Addresses, certificates and sockets before anything listens."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from orchestrator.api import listen
from orchestrator.model.errors import InputError, Unavailable


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("127.0.0.1:7443", ("127.0.0.1", 7443)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(text: str, wanted: tuple[str, int]) -> None:
    assert listen.parse_listen(text) == wanted


@pytest.mark.parametrize("text", ["", "7443", ":7443", "host", "host:", "host:x", "host:65536", "host:-1"])
def test_bad_addresses_are_told(text: str) -> None:
    with pytest.raises(InputError) as caught:
        listen.parse_listen(text)

    assert caught.value.code == "server.listen"


@pytest.mark.system
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_what_is_not_loopback_needs_tls_before_it_is_bound(host: str) -> None:
    with pytest.raises(InputError) as caught:
        listen.bind_tcp(host, 0, None)

    assert caught.value.code == "server.tls-required"


@pytest.mark.system
@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost"])
def test_loopback_is_bound_without(host: str) -> None:
    with listen.bind_tcp(host, 0, None) as sock:
        url = listen.url_of(sock, None)

    assert url.startswith("http://")
    assert not url.endswith(":0")


@pytest.mark.system
@pytest.mark.parametrize(
    ("host", "code", "kind"),
    [("no-such-host.invalid", "server.listen", InputError), ("192.0.2.1", "server.bind", Unavailable)],
)
def test_address_of_another_machine_is_told(host: str, code: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        listen.bind_tcp(host, 0, listen.Tls("cert", "key"))

    assert getattr(caught.value, "code", "") == code


@pytest.mark.system
def test_url_of_all_addresses_names_this_machine() -> None:
    tls = listen.Tls("cert", "key")
    with listen.bind_tcp("0.0.0.0", 0, tls) as sock:
        assert listen.url_of(sock, tls) == f"https://{socket.getfqdn()}:{sock.getsockname()[1]}"


# --- TLS ------------------------------------------------------------------------------------------------------------


def test_no_certificate_is_no_tls() -> None:
    assert listen.check_tls("", "") is None


@pytest.mark.parametrize(
    ("cert", "key"), [("text", ""), ("", "text"), ("missing", "text"), ("text", "text"), (".", ".")]
)
def test_bad_certificate_is_told(tmp_path: Path, cert: str, key: str) -> None:
    (tmp_path / "text").write_text("hello")

    with pytest.raises(InputError) as caught:
        listen.check_tls(cert and str(tmp_path / cert), key and str(tmp_path / key))

    assert caught.value.code == "server.tls"


# --- Unix sockets ---------------------------------------------------------------------------------------------------


def test_unix_socket_is_open_for_all_and_its_folder_is_not(tmp_path: Path) -> None:
    path = tmp_path / "new" / "api.sock"

    with listen.bind_unix(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert os.listdir(path.parent) == ["api.sock"]


def test_newer_socket_takes_the_name_and_the_older_does_not_take_it_away(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with listen.bind_unix(path):
        older = listen.inode_of(path)
        with listen.bind_unix(path) as newer, socket.socket(socket.AF_UNIX) as client:
            listen.unlink_if_mine(path, older)
            client.connect(str(path))
            newer.accept()[0].close()
            listen.unlink_if_mine(path, listen.inode_of(path))
    listen.unlink_if_mine(path, older)

    assert not path.exists()


def test_socket_left_by_a_dead_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    listen.bind_unix(path).close()

    with listen.bind_unix(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_long_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        listen.bind_unix(tmp_path / ("x" * 120))

    assert (caught.value.code, caught.value.path) == ("server.socket-path", str(tmp_path / ("x" * 120)))


def test_folder_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Unavailable) as caught:
        listen.bind_unix(tmp_path / "file" / "api.sock")

    assert caught.value.code == "server.bind"
