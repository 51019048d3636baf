"""The controller on a host of its own, as far as this machine has a say: what is refused, kept and told."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import contexts, hosting, paths
from orchestrator.cli.contexts import Context, remember
from orchestrator.model.cluster import ClusterSpec, Controller, Host, Site, SiteKind
from orchestrator.model.errors import GanglineError, InputError, Refused, Unavailable
from orchestrator.model.host import HostFacts, Sight, Step
from orchestrator.planning.desired_controller import unit_text
from orchestrator.provision.metal.channel import Ran
from orchestrator.provision.metal.wheels import Target
from tests.cli.conftest import Said

SITE = Site("hall", SiteKind.METAL, hosts=(Host("c1", "10.0.0.9"), Host("c2", "10.0.0.8")))
URL = "https://10.0.0.9:7443"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path))
    return tmp_path


def spec_of(host: str = "c1", address: str = URL, state: str = "") -> ClusterSpec:
    return ClusterSpec("atlas", controller=Controller(address=address, host=host, state=state), sites=(SITE,))


def placed(state: Path, host: str = "c1", ledger: str = "/var/lib/gangline/atlas") -> None:
    paths.write_private(state / hosting.PLACE, json.dumps({"host": host, "ledger": ledger}))


@pytest.mark.parametrize(
    ("spec", "code", "path"),
    [
        (spec_of(address=""), "apply.controller-address", "controller.address"),
        (spec_of(address="http://10.0.0.9:7443"), "apply.controller-address", "controller.address"),
        *(
            (spec_of(state=state), "apply.controller-state", "controller.state")
            for state in (
                "/home/me/ledger",
                "/home",
                "/",
                "//home/me",
                "/srv",
                "/srv/ledger/",
                "/etc/ledger",
                "/usr/local/ledger",
                "/var/lib",
                "/var/run/ledger",
                "/opt/gangline",
                "/opt/gangline/controller",
                "/var/lib/gangline-agent",
                '/srv/"x"',
                "/srv/$HOME",
            )
        ),
    ],
)
def test_a_place_that_can_t_work_is_refused_with_what_to_write(
    spec: ClusterSpec, code: str, path: str
) -> None:
    with pytest.raises(InputError) as caught:
        hosting.check_place(spec)
    assert (caught.value.code, caught.value.path) == (code, path)
    assert "controller" in caught.value.hint


@pytest.mark.parametrize(
    "state",
    ["", "/var/lib/gangline", "/srv/gangline", "/data1/my ledgers/100%", "/opt/ledger", "/etcetera/x"],
)
def test_a_folder_of_its_own_is_taken(state: str) -> None:
    hosting.check_place(spec_of(state=state))


@dataclass
class Shell:
    """A host whose scripts run here."""

    text: str = ""

    def ask(self, host: str, script: str) -> Any:
        if self.text:
            return Ran(host, 0, self.text.encode(), b"")
        done = subprocess.run(["/bin/sh", "-s"], input=script.encode(), capture_output=True, check=False)
        return Ran(host, done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("state", ["/var/lib/gangline/atlas", "/srv/my ledgers/100%"])
def test_the_ledger_of_a_unit_is_found_however_it_is_written(state: str) -> None:
    host = Shell(unit_text(spec_of(state=state)))
    hosting._check_same_ledger(spec_of(state=state), host)  # type: ignore[arg-type]
    with pytest.raises(Refused) as caught:
        hosting._check_same_ledger(spec_of(state="/srv/other"), host)  # type: ignore[arg-type]
    assert f"keeps its ledger in {state}, and" in caught.value.message


@pytest.mark.needs("root")
def test_what_a_controller_has_written_is_read_with_its_own_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.planning.desired_controller.USER", "nobody")
    with tempfile.TemporaryDirectory(prefix="gangline-test-", dir="/tmp") as folder:
        open_to_all = Path(folder)
        open_to_all.chmod(0o755)
        secret, own = open_to_all / "roots", open_to_all / "own file"
        secret.write_text("of root alone")
        secret.chmod(0o600)
        own.write_text("gln_x")
        own.chmod(0o644)
        (open_to_all / "link").symlink_to(secret)

        assert hosting._read(Shell(), "c1", str(own)) == "gln_x"  # type: ignore[arg-type]
        with pytest.raises(Unavailable, match="Permission denied"):
            hosting._read(Shell(), "c1", str(open_to_all / "link"))  # type: ignore[arg-type]


def test_a_machine_that_runs_the_controller_itself_may_say_nothing() -> None:
    hosting.check_place(ClusterSpec("atlas", sites=(SITE,)))


@pytest.mark.parametrize(("version", "target"), [("3.11.2", "3.11"), ("3.13.5", "3.13")])
def test_the_hosts_python_says_which_libraries_it_needs(version: str, target: str) -> None:
    facts = HostFacts("m", "b", python=version, arch="x86_64")
    assert hosting.target_of(Sight("c1", Step.DONE, facts=facts)) == Target(target, "x86_64")


def test_a_host_that_is_too_old_is_refused_before_anything_is_touched() -> None:
    facts = HostFacts("m", "b", python="3.10.12", arch="x86_64")
    with pytest.raises(InputError, match=r"c1 has Python 3\.10\.12"):
        hosting.target_of(Sight("c1", Step.DONE, facts=facts))


@pytest.mark.parametrize(
    ("python", "arch"), [("", "x86_64"), ("3", "x86_64"), ("three.eleven", "x86_64"), ("3.11", "../x 86")]
)
def test_a_host_that_says_nothing_known_of_itself_is_refused(python: str, arch: str) -> None:
    with pytest.raises(Unavailable, match="c1 says that it has"):
        hosting.target_of(Sight("c1", Step.DONE, facts=HostFacts("m", "b", python=python, arch=arch)))


def test_the_context_of_a_controller_needs_the_authority_that_was_pinned(home: Path) -> None:
    state = paths.state_dir("atlas")
    remember(Context("atlas", URL, "gln_x", str(state / hosting.CA)))
    assert hosting.known(spec_of(), state) is None
    placed(state)
    paths.write_private(state / hosting.CA, "PEM")
    found = hosting.known(spec_of(address="https://atlas:1"), state)
    assert found is not None
    assert found.server == URL, "an older address: that is where it answers today"


@pytest.mark.parametrize(
    "spec",
    [spec_of(host="c2"), spec_of(state="/srv/other"), ClusterSpec("atlas", sites=(SITE,))],
)
def test_a_ledger_elsewhere_is_not_left_for_an_empty_one(spec: ClusterSpec) -> None:
    state = paths.state_dir("atlas")
    placed(state)
    with pytest.raises(Refused) as caught:
        hosting.check_not_moved(spec, state)
    assert "on c1 in /var/lib/gangline/atlas" in caught.value.message
    assert "gangline server backup" in caught.value.hint
    hosting.check_not_moved(spec_of(), state)


def test_nor_is_one_on_this_machine() -> None:
    state = paths.state_dir("atlas")
    state.mkdir(parents=True)
    hosting.check_not_moved(spec_of(), state)
    (state / "ledger.db").touch()
    with pytest.raises(Refused, match="on this machine"):
        hosting.check_not_moved(spec_of(), state)
    hosting.check_not_moved(ClusterSpec("atlas", sites=(SITE,)), state)


def test_a_file_of_ours_that_is_torn_counts_as_none(home: Path) -> None:
    state = paths.state_dir("atlas")
    paths.write_private(state / hosting.PLACE, "{")
    assert hosting.placed(state) == {}


def test_down_says_how_it_is_stopped(gangline: Callable[..., Said]) -> None:
    placed(paths.state_dir("atlas"))
    remember(Context("atlas", URL, "gln_x"))
    for arguments in (("down",), ("down", "atlas")):
        said = gangline(*arguments)
        assert (said.code, "[down.hosted]" in said.err) == (2, True), said
        assert "on that host: sudo systemctl disable --now gangline-controller.service" in said.err


def test_pools_that_this_machine_plays_do_not_go_with_it() -> None:
    from orchestrator.model.cluster import Pool

    local = Site("here", SiteKind.LOCAL)
    spec = ClusterSpec(
        "atlas", controller=spec_of().controller, sites=(SITE, local), pools=(Pool("toy", "here", ("t1",)),)
    )
    with pytest.raises(InputError, match="pool toy is played by the machine that the controller runs on"):
        hosting.up(spec)


def test_people_on_the_controllers_host_need_no_context(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GANGLINE_HOME")
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(paths, "MACHINE_SOCKET", tmp_path / "api.sock")
    with pytest.raises(GanglineError):
        contexts.chosen()
    (tmp_path / "api.sock").touch()
    assert contexts.chosen().server == f"unix://{tmp_path}/api.sock"
