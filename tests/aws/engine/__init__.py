"""The Pulumi engine as a test tool: built once by Go from its published module, kept outside the repository.

Comes in: go.mod and go.sum beside this file. Goes out: the path of the program `pulumi`. Called by: tests.aws.fixture,
tests.capabilities, and `python -m tests.aws.engine build`, which .ci/run starts in the background. Standard library
only: it runs before there is a .venv.

A program is named by its version and by the sum of its recipe, is made as a draft and renamed when it is whole, so that
a killed build never counts. Who builds holds a lock, by which others see that a build is under way and wait for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PROGRAM = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
# Without it the program calls itself v3.0.0-dev…, which the Automation API takes for too old.
VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
LONGEST_BUILD_S = 2400  # a cold build takes 8 to 18 minutes on two processors


class NotBuilt(RuntimeError):
    """There is no engine; the words say why, and what to do."""


def cache() -> Path:
    """The folder of built programs; GANGLINE_ENGINE_CACHE moves it."""
    if named := os.environ.get("GANGLINE_ENGINE_CACHE"):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/var/cache/gangline-engine")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gangline-engine"


def version() -> str:
    """Version of the engine that go.mod asks for, as in v3.274.1."""
    found = re.search(r"github\.com/pulumi/pulumi/pkg/v3 (v[0-9.]+)", (FOLDER / "go.mod").read_text())
    assert found, "go.mod requires pulumi's pkg/v3"
    return found[1]


def program() -> Path:
    """Where the program of this recipe lies, or will."""
    recipe = (FOLDER / "go.mod").read_bytes() + (FOLDER / "go.sum").read_bytes()
    return cache() / f"{version()}-{hashlib.sha256(recipe).hexdigest()[:12]}" / "pulumi"


def absence() -> str | None:
    """Why there is no engine and none is coming, or None."""
    if program().exists() or building():
        return None
    how = "`python -m tests.aws.engine build` makes it"
    go = "" if shutil.which("go") else ", where the program 'go' is"
    return f"needs the Pulumi engine: {how}{go}{_last_words()}"


def building() -> bool:
    """Whether a process builds it at this moment."""
    path = _lock_file()
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait() -> Path:
    """The program, after a build that is under way has ended. NotBuilt where that fails or takes LONGEST_BUILD_S."""
    deadline = time.monotonic() + LONGEST_BUILD_S
    while building():
        if time.monotonic() > deadline:
            raise NotBuilt(f"the Pulumi engine is still being built after {LONGEST_BUILD_S} s{_last_words()}")
        time.sleep(1)
    if reason := absence():
        raise NotBuilt(reason)
    return program()


def build() -> Path:
    """The program, built now if there is none. NotBuilt with Go's last words where that fails."""
    path = program()
    if path.exists():
        return path
    with _locked():
        if not path.exists():
            draft = path.with_name("pulumi.draft")
            _go_build(draft)
            draft.rename(path)
    return path


def _lock_file() -> Path:
    return program().with_name("lock")


def _log_file() -> Path:
    return program().with_name("build.log")


@contextmanager
def _locked() -> Iterator[None]:
    path = _lock_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _go_build(draft: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise NotBuilt("building the Pulumi engine needs the program 'go' (Go 1.26 or newer)")
    flags = f"-s -w -X {VERSION_VARIABLE}={version()}"
    command = [go, "build", "-ldflags", flags, "-o", str(draft), PROGRAM]
    with _log_file().open("wb") as log:
        done = subprocess.run(
            command, cwd=FOLDER, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
        )
    if done.returncode != 0:
        raise NotBuilt(f"`go build` ended with {done.returncode}{_last_words()}")


def _last_words() -> str:
    """What Go said last in a build that failed, with a colon before it; empty where there is none."""
    try:
        lines = _log_file().read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f": {lines[-1]}" if lines and not program().exists() else ""
