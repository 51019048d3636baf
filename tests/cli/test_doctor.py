"""`doctor`: each check finds what it looks for, and a broken check is a finding."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import doctor_cmd, hosting, paths
from orchestrator.cli.contexts import Context, remember
from orchestrator.cli.doctor_cmd import Check, examine
from orchestrator.model.errors import Unavailable
from orchestrator.model.host import HostFacts, Sight, Step
from orchestrator.provision.metal.probe import words
from tests.cli.conftest import Said

Run = Callable[..., Said]


def found(name: str) -> Check:
    return next(check for check in examine() if check.name == name)


def test_a_fresh_machine_has_no_failure(gangline: Run) -> None:
    said = gangline("doctor")

    assert said.code == 0, said.out
    assert said.out.splitlines()[0].startswith("ok    python ")
    assert "warn  controller" in said.out
    assert "  -> `gangline up cluster.yaml` starts one" in said.out


def test_json(gangline: Run) -> None:
    report = json.loads(gangline("doctor", "-o", "json").out)

    assert (report["apiVersion"], report["kind"], report["ok"]) == ("gangline/v1", "DoctorReport", True)
    assert all(list(item) == ["name", "status", "message", "hint"] for item in report["items"])


def test_an_open_state_folder_is_a_warning() -> None:
    paths.private_folder(paths.state_root())
    assert found("state folder").status == "ok"
    paths.state_root().chmod(0o755)
    assert (found("state folder").status, found("state folder").hint) == (
        "warn",
        f"chmod go= {paths.state_root()}",
    )


def test_open_contexts_are_a_warning() -> None:
    remember(Context("lab", "unix:///nowhere"))
    assert found("contexts").status == "ok"
    paths.contexts_file().chmod(0o644)
    assert found("contexts").status == "warn"


def test_a_stale_endpoint_is_named() -> None:
    state = paths.private_folder(paths.state_dir("lab"))
    (state / "endpoint.json").write_text(json.dumps({"pid": 2**22 + 5, "socket": str(state / "api.sock")}))

    assert found("endpoint lab").hint == "`gangline up` starts it again"
    (state / "endpoint.json").write_text(json.dumps({"pid": os.getpid(), "socket": "/x"}))
    assert list(doctor_cmd._endpoints()) == []


def test_a_full_disk_fails(monkeypatch: pytest.MonkeyPatch, gangline: Run) -> None:
    monkeypatch.setattr(doctor_cmd, "SCARCE", 1 << 62)

    said = gangline("doctor")
    assert said.code == 1
    assert "fail  disk space" in said.out


def test_a_home_that_is_too_deep_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / ("x" * 100)))

    assert found("socket path").status == "warn"


def _failing(error: Exception) -> list[Check]:
    raise error


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def _gangline() -> Iterator[Check]:
        yield from _failing(Unavailable("a.b", "away", "wait"))

    def _system() -> Iterator[Check]:
        yield from _failing(PermissionError(13, "Permission denied", "/x"))

    monkeypatch.setattr(doctor_cmd, "CHECKS", (_gangline, _system))

    assert list(examine()) == [
        Check("gangline", "fail", "away", "wait"),
        Check("system", "fail", "/x: Permission denied"),
    ]


# --- hosts of a file ------------------------------------------------------------------------------------------------


CLUSTER = """apiVersion: gangline/v1
kind: Cluster
metadata: {name: lab}
sites: [{name: m, kind: metal}]
pools: [{name: p, site: m, nodes: h1}]
queues: [{name: default}]
"""


def facts(**changes: Any) -> HostFacts:
    return replace(HostFacts("m1", "b1", os="debian", release="12"), **changes)


@pytest.mark.parametrize(
    ("sight", "status", "code"),
    [
        (Sight("h1", Step.DONE, facts=facts()), "ok", 0),
        (Sight("h1", Step.DONE, facts=facts(reboot_needed=True)), "warn", 0),
        (Sight("h1", Step.DONE, facts=facts(clock_skew_ms=-2_500)), "warn", 0),
        (Sight("h1", Step.DONE, facts=facts(clock_skew_ms=900)), "ok", 0),
        (Sight("h1", Step.SUDO, "sudo asks for a password", "give it NOPASSWD"), "fail", 1),
    ],
)
def test_each_host_of_a_file_has_a_line(
    gangline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sight: Sight, status: str, code: int
) -> None:
    class Hosts:
        def probed(self, names: list[str]) -> list[Sight]:
            assert names == ["h1"]
            return [sight]

    monkeypatch.setattr(hosting, "hosts_of", lambda *_: Hosts())
    file = tmp_path / "c.yaml"
    file.write_text(CLUSTER)
    said = gangline("doctor", str(file))
    assert said.code == code
    (line,) = [line for line in said.out.splitlines() if " h1 " in line]
    assert line.split(None, 2) == [status, "h1", words(sight)]
    assert ("-> give it NOPASSWD" in said.out) == (status == "fail")


def test_a_file_that_can_not_be_read_is_told_as_such(gangline: Run) -> None:
    said = gangline("doctor", "nowhere.yaml")
    assert said.code == 2
    assert "nowhere.yaml" in said.err
