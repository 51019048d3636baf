"""Fixtures of AWS without AWS: `engine` the Pulumi engine, `aws` an empty account, `pulumi_place` where stacks run.

Comes in: pytest's session. Goes out: the path of the engine, an `Account`, a `Place`. Called by: pytest, to which
tests/conftest.py names this plugin. Tests that take the engine run last, for on a fresh machine it is still being built
while all others run.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.aws import engine as engine_tool
from tests.aws.moto_server import Account, plain_environment

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = engine_tool.LONGEST_BUILD_S + 300  # for one test: the first may wait for a build
LONGEST_COMMAND_S = 300
# An inline program whose run fails leaves coroutines of Pulumi's SDK behind, which nobody awaits.
LEFT_BEHIND = "ignore::pytest.PytestUnraisableExceptionWarning"
PLUGINS = {"pulumi-resource-aws": "tests.aws.provider", "pulumi-language-python": "tests.aws.language"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with the engine need it, may take long, and come last."""
    for item in items:
        if _takes_engine(item):
            item.add_marker(pytest.mark.needs("pulumi"))
            item.add_marker(pytest.mark.filterwarnings(LEFT_BEHIND))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(LONGEST_S))
    items.sort(key=_takes_engine)


def _takes_engine(item: pytest.Item) -> bool:
    return "engine" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def engine() -> Path:
    """The program `pulumi`; waits for a build that is under way. Skips, or fails where GANGLINE_REQUIRE names it."""
    try:
        return engine_tool.wait()
    except engine_tool.NotBuilt as wrong:
        if "pulumi" in os.environ.get("GANGLINE_REQUIRE", ""):
            pytest.fail(str(wrong), pytrace=False)
        pytest.skip(str(wrong))


@pytest.fixture(scope="session")
def aws_server() -> Iterator[Account]:
    """The session's server; take `aws` instead, which is empty."""
    account = Account.start()
    yield account
    account.stop()


@pytest.fixture
def aws(aws_server: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An empty account, which is also the one that this process's own clients talk to.

    The test fails at its end where a request was made that botocore's models don't allow.
    """
    aws_server.reset()
    for name, value in aws_server.environment().items():
        monkeypatch.setenv(name, value)
    yield aws_server
    assert aws_server.misfits() == []


@dataclass
class Place:
    """Where stacks of one test live: a home, a backend and plugins of its own."""

    folder: Path
    engine: Path
    account: Account

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the engine, and for nothing of a person's."""
        return self.account.environment() | {
            "PATH": os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", "")]),
            "PULUMI_HOME": str(self.folder / "home"), "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "not a secret", "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        }  # fmt: skip

    def run(self, *words: str, cwd: Path, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """`pulumi WORDS`, as a person's CI runs it; fails unless it ends with `code` (None: whatever)."""
        began = time.monotonic()
        done = subprocess.run(
            [str(self.folder / "bin/pulumi"), *words, "--non-interactive"], cwd=cwd, text=True, check=False,
            env=plain_environment() | self.environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=LONGEST_COMMAND_S,
        )  # fmt: skip
        sys.stdout.write(f"pulumi {' '.join(words)}: {time.monotonic() - began:.1f} s\n")
        assert code is None or done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def workspace(self, program: Any, project: str = "test") -> Any:
        """A workspace of the Automation API for an inline program."""
        from pulumi import automation

        settings = automation.ProjectSettings(name=project, runtime="python")
        command = automation.PulumiCommand(str(self.folder))
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        return automation.LocalWorkspace(
            work_dir=str(work), program=program, project_settings=settings, env_vars=self.environment,
            pulumi_command=command,
        )  # fmt: skip

    def stack(self, program: Any, name: str = "dev", project: str = "test") -> Any:
        """A stack of it, made or taken."""
        from pulumi import automation

        return automation.Stack.create_or_select(name, self.workspace(program, project))


@pytest.fixture
def pulumi_place(
    tmp_path: Path, engine: Path, aws: Account, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """An empty place for stacks. This process's own PATH and PULUMI_ variables lead there too."""
    folder = tmp_path / "p"
    for name in ("bin", "home", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "bin/pulumi").symlink_to(engine)
    for name, module in PLUGINS.items():
        _program(folder / "bin" / name, module)
    place = Place(folder, engine, aws)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    yield place
    gc.collect()  # what LEFT_BEHIND is about goes here, and not in a later test


def _program(path: Path, module: str) -> None:
    """An executable that runs a module of this repository with this Python, wherever it is started."""
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m {module} "$@"\n')
    path.chmod(0o755)
