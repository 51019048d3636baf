"""What every test gets: a state folder of its own, no sockets below the system tier, honest skips.

pytest reads this first. In come the markers (pyproject.toml lists them) and GANGLINE_REQUIRE; out go skips,
failures and the fixtures below.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests import capabilities

# Which process runs what, and how much of it; the fixture `testbed`: real hosts; `aws`, `engine` and `pulumi_place`: an
# account and an engine without AWS.
pytest_plugins = ["tests.spread", "tests.effort", "tests.testbed.fixture", "tests.aws.fixture"]

SOCKET_TIERS = frozenset({"system", "testbed", "cloud", "bench"})

# Set for a whole run by its caller; every other GANGLINE_ variable is the caller's own affair and hidden from tests.
_KEPT_VARIABLES = frozenset(
    {"GANGLINE_DATA", "GANGLINE_REQUIRE", "GANGLINE_TESTBED_CACHE", "GANGLINE_ENGINE_CACHE"}
)
# Credentials, stacks and plugins of a person: no test may meet them.
_PERSONS = ("GANGLINE_", "AWS_", "PULUMI_")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a GANGLINE_REQUIRE that names what no probe knows, rather than never checking it."""
    if unknown := sorted(capabilities.required() - capabilities.PROBES.keys()):
        raise pytest.UsageError(f"GANGLINE_REQUIRE names unknown capabilities: {', '.join(unknown)}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose `needs` are absent; fail it where GANGLINE_REQUIRE says that they must be there."""
    needs = [name for mark in item.iter_markers("needs") for name in mark.args]
    if decided := capabilities.verdict(needs, capabilities.required()):
        action, reason = decided
        if action == "fail":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def gangline_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test its own GANGLINE_HOME and PULUMI_HOME, and hide the caller's variables of both and of AWS.

    Returns the first folder.

    The name is one letter because Unix socket paths below it may have 107 bytes at most.
    """
    for name in [name for name in os.environ if name.startswith(_PERSONS) and name not in _KEPT_VARIABLES]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "pulumi-home"))
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    home = tmp_path / "h"
    monkeypatch.setenv("GANGLINE_HOME", str(home))
    return home


class SocketRefused(RuntimeError):
    """A test of a tier without sockets used one."""


def _refuse(*_args: object, **_kwargs: object) -> NoReturn:
    raise SocketRefused("this tier of test uses no socket: mark it `system` if it means to")


def _local_only(name: str) -> Any:
    original = getattr(socket.socket, name)

    def guarded(self: socket.socket, *args: Any, **kwargs: Any) -> Any:
        if self.family != socket.AF_UNIX:
            _refuse()
        return original(self, *args, **kwargs)

    return guarded


@pytest.fixture(autouse=True)
def _sockets_off(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuse every socket that is not a Unix one (event loops need a pair of those), except in SOCKET_TIERS."""
    if any(request.node.get_closest_marker(tier) for tier in SOCKET_TIERS):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in ("bind", "connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, _local_only(name))
        patch.setattr(socket, "getaddrinfo", _refuse)
        yield


@pytest.fixture
def data_dir() -> Path:
    """Return the folder of public data sets; use it with `@pytest.mark.needs("data")`."""
    found = capabilities.data_dir()
    assert found is not None, "mark the test needs('data')"
    return found
