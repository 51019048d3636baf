"""Which controller an agent talks to: the config, what a join token pins, and what was kept of the last join."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.channel import Endpoint
from orchestrator.agent.config import Config, ConfigError
from orchestrator.agent.trust import PinError, Trust
from orchestrator.model.join_line import JoinLine
from orchestrator.provision.certificates import ensure

HERE, THERE = "https://10.0.0.1:7443", "https://10.0.0.2:7443"
OTHER = "0" * 64


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of a cluster's authority."""
    return ensure(tmp_path_factory.mktemp("c") / "c", ("10.0.0.1",), dt.datetime.now(dt.UTC)).ca


def sum_of(ca: Path) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(ca.read_text())).hexdigest()


def trust(folder: Path, line: JoinLine | None = None, **config: Any) -> Trust:
    """Of an agent with this config, and this line in its join token's file."""
    join = folder / "join"
    if line is not None:
        join.write_text(line.text + "\n")
    (folder / "s").mkdir(exist_ok=True)
    return Trust(Config("n1", str(folder / "s"), join_token_file=str(join), **config))


# What the config says, what the line says (True: the right authority), and what comes of it: "" agrees.
TABLE = [
    ("both say the same", HERE, True, HERE, True, ""),
    (
        "the same in other letters",
        "https://H.example.org:7443/",
        True,
        "https://h.EXAMPLE.org:7443",
        True,
        "",
    ),
    ("the port that https means", "https://h", True, "https://h:443", True, ""),
    ("the line says nothing", HERE, True, "", "", ""),
    ("the line says the address alone", HERE, True, HERE, "", ""),
    ("the config says nothing", "", False, HERE, True, ""),
    ("the config says the address alone", HERE, False, HERE, True, ""),
    ("nobody says an address", "", False, "", "", "has no address, and the config has no url"),
    ("another address", HERE, True, THERE, True, "is for the controller at https://10.0.0.2:7443"),
    ("another port", HERE, True, "https://10.0.0.1:7444", True, "is for the controller at"),
    ("without TLS", "http://10.0.0.1:7443", False, HERE, True, "is for the controller at"),
    ("a socket", "unix:/run/x.sock", False, HERE, True, "is for the controller at"),
    ("another authority", HERE, True, HERE, OTHER, "has no certificate with the SHA-256 0000000000000000"),
    ("an address that is none", HERE, True, "gopher://x", "", "the join token's address: expected http"),
]


@pytest.mark.parametrize(
    ("url", "has_ca", "pinned", "by", "words"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_agreement(
    tmp_path: Path, ca: Path, url: str, has_ca: bool, pinned: str, by: str | bool, words: str
) -> None:
    line = JoinLine("hidden", pinned, sum_of(ca) if by is True else str(by or ""))
    found = trust(tmp_path, url=url, ca=str(ca) if has_ca else "")
    if not words:
        found.agree(line)
        return
    with pytest.raises(PinError) as raised:
        found.agree(line)
    assert words in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_only_the_pinned_certificate_is_taken_from_anybody(tmp_path: Path, ca: Path) -> None:
    line = JoinLine("x", HERE, sum_of(ca))
    found = trust(tmp_path, line)
    assert not found.has_ca(line)
    for body in (b"", b"\xff", b"{}", ca.read_bytes().replace(b"M", b"N", 3), b"-----BEGIN CERTIFICATE-----"):
        with pytest.raises(PinError, match="is not the controller that the join token is for"):
            found.take_ca(line, body)
    assert not found.has_ca(line)
    found.take_ca(line, b"what somebody says before\n" + ca.read_bytes())
    assert found.has_ca(line)
    assert [cert["serialNumber"] for cert in found.joining(line).get_ca_certs()] == [
        cert["serialNumber"] for cert in ssl.create_default_context(cafile=str(ca)).get_ca_certs()
    ]


def test_of_a_bundle_only_the_pinned_certificate_is_trusted_for_a_join(tmp_path: Path, ca: Path) -> None:
    other = ensure(tmp_path / "other", ("x",), dt.datetime.now(dt.UTC)).ca
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(other.read_text() + ca.read_text())
    line = JoinLine("x", HERE, sum_of(ca))
    found = trust(tmp_path, line, url=HERE, ca=str(bundle))
    found.agree(line)
    assert len(found.joining(line).get_ca_certs()) == 1
    assert len(found.joining(JoinLine("x")).get_ca_certs()) == 2


def test_what_a_join_said_is_known_after_a_restart(tmp_path: Path, ca: Path) -> None:
    line = JoinLine("x", HERE, sum_of(ca))
    first = trust(tmp_path, line)
    assert first.url == ""
    first.take_ca(line, ca.read_bytes())
    first.keep(line)
    (tmp_path / "join").unlink()
    again = trust(tmp_path)
    assert again.endpoint == Endpoint("10.0.0.1", 7443, tls=True)
    context = again.context()
    assert context is not None
    assert len(context.get_ca_certs()) == 1
    assert "x" not in json.loads((tmp_path / "s" / "controller.json").read_text())
    again.keep(JoinLine("bare"))
    assert trust(tmp_path).url == HERE, "a bare secret says nothing new"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1}', '{"url": "https://h"}'])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "controller.json").write_text(text)
    assert trust(tmp_path).url == ""


@pytest.mark.parametrize(
    ("config", "line", "newer"),
    [
        ({}, JoinLine("x", HERE, OTHER), False),
        ({}, JoinLine("x", THERE, OTHER), True),
        ({}, JoinLine("x", HERE, "1" * 64), True),
        ({}, JoinLine("x"), False),
        ({"url": HERE}, JoinLine("x", THERE, OTHER), False),
        ({"url": HERE}, JoinLine("x", HERE, "1" * 64), True),
    ],
)
def test_a_line_is_newer_if_it_leads_elsewhere(
    tmp_path: Path, config: dict[str, Any], line: JoinLine, newer: bool
) -> None:
    trust(tmp_path).keep(JoinLine("", HERE, OTHER))
    assert trust(tmp_path, line, **config).newer_line() is newer


def test_without_a_file_there_is_no_newer_line(tmp_path: Path) -> None:
    found = trust(tmp_path)
    assert not found.newer_line()
    with pytest.raises(PinError, match="join: No such file"):
        found.read_line()


def test_an_authority_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.pem: No such file.*no certificate authority"):
        trust(tmp_path, url=HERE, ca=str(tmp_path / "none.pem")).context()
    assert trust(tmp_path, url="http://127.0.0.1:1", ca=str(tmp_path / "none.pem")).context() is None
