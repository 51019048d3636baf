"""Pulumi's own program, which keeps the record of a stack and carries changes out: where it is, and how it is called.

Comes in: the environment, the state folder. Goes out: `Engine`. Called by: stack. It is no Python package: people
install it as Pulumi says, or name it by GANGLINE_PULUMI.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from pulumi.automation import PulumiCommand
from semver import VersionInfo

from orchestrator.model.cluster import Stack
from orchestrator.model.errors import Unavailable
from orchestrator.provision.files import private_folder, write_whole

NAMED = "GANGLINE_PULUMI"
# The release of Pulumi's Python packages that this was written for; an older program lacks replacement triggers.
OLDEST = (3, 272, 0)
ANSWER_S = 30
INSTALL = "install it as https://www.pulumi.com/docs/install/ says, or name the program by GANGLINE_PULUMI"


@dataclass(frozen=True, slots=True)
class Engine:
    """The program, the folder for its own files (None: the person's, ~/.pulumi), whether it may fetch plugins."""

    program: Path
    version: str
    home: Path | None = None
    fetch: bool = False

    def command(self) -> PulumiCommand:
        """The Automation API's handle on it."""
        return _Command(self)

    def environment(self, folder: Path, stack: Stack) -> dict[str, str]:
        """The variables that a run needs besides the caller's own."""
        found = {
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # A person's wish to confirm everything would be refused beside a preview.
            "PULUMI_SKIP_CONFIRMATIONS": "false",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "false" if self.fetch else "true",
            "PULUMI_BACKEND_URL": backend_of(folder, stack),
        }
        if self.home is not None:
            found["PULUMI_HOME"] = str(self.home)
        if not stack.secrets and "PULUMI_CONFIG_PASSPHRASE" not in os.environ:
            found["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(passphrase(folder))
        return found


class _Command(PulumiCommand):
    """The API looks for the program on PATH only, and asks it for its release each time."""

    def __init__(self, engine: Engine) -> None:
        self.command = str(engine.program)
        self.version = VersionInfo.parse(engine.version)


def find(home: Path | None = None, fetch: bool = False) -> Engine:
    """The engine of this machine. Raises Unavailable with what to do if there is none, or if it is too old."""
    named = os.environ.get(NAMED, "")
    found = named or shutil.which("pulumi")
    if not found or not os.access(found, os.X_OK):
        words = (
            f"{NAMED} names '{named}', which is no program" if named else "there is no program 'pulumi' here"
        )
        raise Unavailable("aws.no-engine", f"an aws site needs Pulumi: {words}", INSTALL)
    program = Path(found).resolve()
    version = _version(program)
    if version < OLDEST:
        raise Unavailable(
            "aws.old-engine",
            f"{program} is release {_dotted(version)}, and an aws site needs {_dotted(OLDEST)} or newer",
            INSTALL,
        )
    return Engine(program, _dotted(version), home, fetch)


def _version(program: Path) -> tuple[int, ...]:
    environment = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        done = subprocess.run(
            [str(program), "version"],
            capture_output=True,
            text=True,
            env=environment,
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable("aws.no-engine", f"{program} can't be run: {error}", INSTALL) from error
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", done.stdout.strip())
    if found is None:
        raise Unavailable("aws.no-engine", f"{program} does not tell its release", INSTALL)
    return tuple(int(part) for part in found.groups())


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def backend_of(folder: Path, stack: Stack) -> str:
    """Where the record of the stack lies: as the file says, else in the state folder. No notes lie beside files."""
    if stack.backend:
        return without_notes(stack.backend)
    record = folder / "record"
    private_folder(record)
    return without_notes(f"file://{record}")


# Pulumi replaces a file of its record whole, but writes the note beside it (sizes and sums, which it never needs) in
# place. Whoever is killed in between, or reads then, finds an empty note and takes the whole record for unreadable.
_NOTES_OFF = {"metadata": "skip"}
_NOTES = (
    "*.attrs",
    "stacks/**/*.attrs",
    "locks/**/*.attrs",
)  # of what each run reads, under the folder .pulumi


def without_notes(backend: str) -> str:
    """The address with which Pulumi writes no notes; those that older runs left go. Others than files stay as is."""
    split = urlsplit(backend)
    if split.scheme != "file":
        return backend
    for pattern in _NOTES:
        for note in (_folder_of(split) / ".pulumi").glob(pattern):
            note.unlink(missing_ok=True)
    return f"file://{split.netloc}{split.path}?{urlencode(dict(parse_qsl(split.query)) | _NOTES_OFF)}"


def _folder_of(file: SplitResult) -> Path:
    return Path(unquote(file.netloc + file.path)).expanduser()


def passphrase(folder: Path) -> Path:
    """The file with the passphrase that encrypts secrets of the stacks in that folder; made at first use, mode 0600."""
    path = folder / "passphrase"
    if not path.exists():
        private_folder(folder)
        write_whole(path, secrets.token_urlsafe(32).encode(), 0o600)
    return path
