"""The engine is built once for a recipe, never half, and whoever needs it waits for a build that is under way.

A stand-in for `go` builds here: what is tested is who builds when, and what is said where it fails.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.aws import engine

ROOT = Path(__file__).resolve().parents[2]
# Notes each call, and writes to the file that follows `-o`.
GO = """#!/bin/sh
echo "$@" >> "$GO_CALLS"
while [ "$1" != -o ]; do shift; done
echo program > "$2"
"""
BROKEN = '#!/bin/sh\necho "no module" >&2\nexit 1\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a `go` on PATH that notes its calls in `calls`."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GANGLINE_ENGINE_CACHE", str(folder))
    monkeypatch.setenv("GO_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    go(tmp_path, GO)
    return folder


def go(folder: Path, text: str) -> None:
    (folder / "go").write_text(text)
    (folder / "go").chmod(0o755)


def test_it_is_built_once_and_named_by_version_and_recipe(cache: Path, tmp_path: Path) -> None:
    built = engine.build()

    assert engine.build() == built
    assert built.parent.name.startswith(f"{engine.version()}-")
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert f"{engine.VERSION_VARIABLE}={engine.version()}" in call
    assert call.endswith(engine.PROGRAM)
    assert engine.absence() is None


@pytest.mark.system
def test_two_that_build_at_once_build_once(cache: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.aws.engine", "build"]
    both = [
        subprocess.Popen(command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]

    said = {process.communicate()[0] for process in both}

    assert said == {f"{engine.program()}\n"}
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_a_build_that_fails_says_gos_words_and_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    go(tmp_path, BROKEN)

    with pytest.raises(engine.NotBuilt, match="ended with 1: no module"):
        engine.build()

    assert not engine.program().exists()
    assert "no module" in str(engine.absence())


def test_without_go_the_reason_says_what_is_needed(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "go").unlink()

    assert "where the program 'go' is" in str(engine.absence())
    with pytest.raises(engine.NotBuilt, match="needs the program 'go'"):
        engine.build()


def test_a_build_under_way_counts_as_there_and_is_waited_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = engine.program()
    program.parent.mkdir(parents=True)
    with (program.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert engine.absence() is None
        monkeypatch.setattr(
            engine.time, "sleep", lambda _: (program.touch(), fcntl.flock(lock, fcntl.LOCK_UN))
        )
        assert engine.wait() == program


def test_whoever_waits_hears_of_a_build_that_failed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = engine.program()
    program.parent.mkdir(parents=True)
    (program.parent / "build.log").write_text("went wrong\n")
    with (program.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(engine.time, "sleep", lambda _: fcntl.flock(lock, fcntl.LOCK_UN))
        with pytest.raises(engine.NotBuilt, match="went wrong"):
            engine.wait()


def test_the_recipe_asks_for_one_version_of_both_modules() -> None:
    text = (engine.FOLDER / "go.mod").read_text()

    assert f"github.com/pulumi/pulumi/sdk/v3 {engine.version()}" in text
    assert f"tool {engine.PROGRAM}\n" in text
