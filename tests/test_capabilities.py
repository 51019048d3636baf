"""A test that needs what a machine lacks is skipped with its reason, and fails where the machine must have it.

Also the fixtures that every test gets from tests/conftest.py: a state folder of its own, and no sockets.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import capabilities
from tests.conftest import SocketRefused

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two capabilities: `here` is there, `gone` is not."""
    monkeypatch.setattr(capabilities, "PROBES", {"here": lambda: None, "gone": lambda: "needs a thing"})
    monkeypatch.setattr(capabilities, "absence", lambda name: capabilities.PROBES[name]())


@pytest.mark.usefixtures("probes")
@pytest.mark.parametrize(
    ("needs", "must_have", "decided"),
    [
        ([], [], None),
        (["here"], [], None),
        (["here"], ["here"], None),
        (["gone"], [], ("skip", "needs a thing")),
        (["here", "gone"], ["here"], ("skip", "needs a thing")),
        (["gone"], ["gone"], ("fail", "GANGLINE_REQUIRE names 'gone', but: needs a thing")),
    ],
)
def test_verdict(needs: list[str], must_have: list[str], decided: tuple[str, str] | None) -> None:
    assert capabilities.verdict(needs, frozenset(must_have)) == decided


@pytest.mark.usefixtures("probes")
def test_unknown_capability_is_a_mistake_in_the_test() -> None:
    with pytest.raises(KeyError):
        capabilities.verdict(["gnoe"], frozenset())


def test_required_reads_a_comma_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_REQUIRE", "root, tmpfs,,data ")

    assert capabilities.required() == {"root", "tmpfs", "data"}


def _run_pytest(folder: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one small test file with this repository's conftest and markers, but not its other tests."""
    (folder / "test_small.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-o", "addopts=", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), str(folder)]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("GANGLINE_", "PYTEST_"))
    }
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


NEEDS_DATA = (
    "import pytest\n@pytest.mark.needs('data')\ndef test_it(data_dir):\n    assert data_dir.is_dir()\n"
)


def test_absent_capability_skips_with_its_reason(tmp_path: Path) -> None:
    done = _run_pytest(tmp_path, NEEDS_DATA)

    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout


def test_absent_capability_that_is_required_fails(tmp_path: Path) -> None:
    done = _run_pytest(tmp_path, NEEDS_DATA, GANGLINE_REQUIRE="data", GANGLINE_DATA=str(tmp_path / "nowhere"))

    assert done.returncode == 1, done.stdout
    assert "GANGLINE_REQUIRE names 'data', but: needs the data sets" in done.stdout


def test_present_capability_that_is_required_runs(tmp_path: Path) -> None:
    done = _run_pytest(tmp_path, NEEDS_DATA, GANGLINE_REQUIRE="data", GANGLINE_DATA=str(tmp_path))

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_required_name_that_no_probe_knows_stops_the_run(tmp_path: Path) -> None:
    done = _run_pytest(tmp_path, NEEDS_DATA, GANGLINE_REQUIRE="rooot")

    assert done.returncode == 4, done.stdout
    assert "unknown capabilities: rooot" in done.stdout + done.stderr


def test_state_folder_is_the_tests_own(tmp_path: Path, gangline_home: Path) -> None:
    assert os.environ["GANGLINE_HOME"] == str(gangline_home)
    assert gangline_home.parent == tmp_path


def test_callers_own_variables_are_hidden(tmp_path: Path) -> None:
    text = "import os\ndef test_it():\n    assert 'GANGLINE_FAILPOINT' not in os.environ\n"

    assert _run_pytest(tmp_path, text, GANGLINE_FAILPOINT="after-intent").returncode == 0


def test_a_persons_cloud_and_stacks_are_hidden(tmp_path: Path) -> None:
    text = (
        "import os\ndef test_it(tmp_path):\n"
        "    assert not {'AWS_PROFILE', 'AWS_ACCESS_KEY_ID', 'PULUMI_ACCESS_TOKEN'} & os.environ.keys()\n"
        "    assert os.environ['PULUMI_HOME'].startswith(str(tmp_path))\n"
        "    assert os.environ['AWS_CONFIG_FILE'] == os.environ['AWS_SHARED_CREDENTIALS_FILE'] == os.devnull\n"
    )
    mine = {
        "AWS_PROFILE": "work",
        "AWS_ACCESS_KEY_ID": "mine",
        "PULUMI_ACCESS_TOKEN": "mine",
        "PULUMI_HOME": "/home",
    }

    assert _run_pytest(tmp_path, text, **mine).returncode == 0


def test_sockets_are_refused_in_the_default_tier() -> None:
    with socket.socket() as sock:
        with pytest.raises(SocketRefused):
            sock.connect(("127.0.0.1", 9))
        with pytest.raises(SocketRefused):
            sock.bind(("127.0.0.1", 0))
    with pytest.raises(SocketRefused):
        socket.getaddrinfo("localhost", 80)


def test_event_loops_and_unix_sockets_still_work(tmp_path: Path) -> None:
    async def nothing() -> int:
        return 7

    assert asyncio.run(nothing()) == 7
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))


@pytest.mark.system
def test_system_tier_has_loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        connection, peer = server.accept()
        connection.close()
    assert peer[0] == "127.0.0.1"


@pytest.mark.needs("freezer")
def test_freezer_probe_leaves_nothing_behind() -> None:
    parent = capabilities.freezer_parent()

    assert parent is not None
    assert list(parent.glob("gangline-probe-*")) == []
