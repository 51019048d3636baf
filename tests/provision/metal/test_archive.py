"""The agent's archive: the same bytes from every checkout, and an agent that needs nothing but Python 3.10."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestrator
from orchestrator.model.errors import NotFound
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import EventKind
from orchestrator.provision.metal import archive
from tests import capabilities
from tests.agent.fake_controller import FakeController
from tests.agent.running import RunningAgent, alive, shell, until

PACKAGE = Path(orchestrator.__file__).parent
ROOT = PACKAGE.parent
FIRST, SECOND = AttemptId(1, 1), AttemptId(2, 1)


def test_two_checkouts_give_the_same_bytes(tmp_path: Path) -> None:
    pynvml = tmp_path / "pynvml.py"
    pynvml.write_text("# as vendored\n")
    other = tmp_path / "elsewhere" / "orchestrator"
    shutil.copytree(PACKAGE, other, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns("*.pyc"))
    for path in other.rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o700)

    first, second = archive.build(PACKAGE, pynvml), archive.build(other, pynvml)

    assert first == second


def test_a_changed_line_gives_another_archive(tmp_path: Path) -> None:
    pynvml = tmp_path / "pynvml.py"
    pynvml.write_text("A = 1\n")
    before = archive.build(PACKAGE, pynvml)
    pynvml.write_text("A = 2\n")

    assert archive.build(PACKAGE, pynvml).sha256 != before.sha256


def test_all_who_apply_with_one_version_carry_one_release_of_pynvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra asks for it, the lock file has it, and another one is refused: two people would undo each other's."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"nvidia-ml-py=={archive.PYNVML}" in extras["metal"]
    assert f"nvidia-ml-py=={archive.PYNVML} " in (ROOT / "constraints" / "locked.txt").read_text()
    assert archive._pynvml().name == "pynvml.py"

    (tmp_path / "pynvml.py").write_text("# a later release\n")
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)  # one that was imported would be found instead
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NotFound, match=f"carry nvidia-ml-py {archive.PYNVML}") as refused:
        archive._pynvml()
    assert refused.value.hint == f"pip install 'nvidia-ml-py=={archive.PYNVML}'"


def test_it_holds_the_rooms_of_the_node_and_no_other() -> None:
    with zipfile.ZipFile(io.BytesIO(archive.agent_archive().data)) as opened:
        names = opened.namelist()
        times = {entry.date_time for entry in opened.infolist()}

    rooms = {name.split("/")[1] for name in names if name.startswith("orchestrator/")}
    assert rooms == {"__init__.py", *archive.ROOMS}
    assert {name for name in names if "/" not in name} == {"__main__.py", "VERSION", "pynvml.py"}
    assert names == sorted(names)
    assert times == {archive.EPOCH}


class ArchivedAgent(RunningAgent):
    """An agent that runs from the archive, with nothing of the checkout in reach."""

    def start(self, failpoint: str = "", python: str = sys.executable) -> RunningAgent:
        path = Path(self.config_path).with_name(archive.NAME)
        path.write_bytes(archive.agent_archive().data)
        argv = [python, "-I", "-S", str(path), "--config", str(self.config_path)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                argv,
                env={"PATH": os.environ["PATH"]},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self


@pytest.fixture
def controller() -> Iterator[FakeController]:
    made = FakeController()
    yield made
    made.close()


@pytest.mark.system
@pytest.mark.needs("python3.10")
def test_jobs_run_from_the_archive_on_the_oldest_python(tmp_path: Path, controller: FakeController) -> None:
    """Also over a kill of the agent: a rank outlives it, and the next agent from the archive ends it."""
    python = str(capabilities.python310())
    agent = ArchivedAgent(tmp_path / "a", controller)
    agent.start(python=python)
    try:
        controller.run("n1", FIRST, shell("echo rank $RANK", tasks=3))
        assert len(controller.wait_for(FIRST, EventKind.ENDED).results) == 3
        controller.run("n1", SECOND, shell("exec sleep 300"))
        pid = controller.wait_for(SECOND, EventKind.STARTED).pids[0]
        agent.kill()
        assert alive(pid)
        agent.start(python=python)
        controller.end("n1", SECOND)
        controller.wait_for(SECOND, EventKind.ENDED)
        until(lambda: not alive(pid), "the rank is gone")
    finally:
        agent.close()


@pytest.mark.system
@pytest.mark.needs("python3.10")
def test_without_a_config_it_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / archive.NAME
    path.write_bytes(archive.agent_archive().data)

    done = subprocess.run(
        [str(capabilities.python310()), "-I", "-S", str(path), "--config", str(tmp_path / "absent")],
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip

    assert done.returncode == 2
    assert "absent: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr
