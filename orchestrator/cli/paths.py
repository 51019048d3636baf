"""Where the command keeps what it must remember: DESIGN section 7 in one place.

Comes in: the environment. Goes out: paths; nothing is made here. Called by: contexts, local_cmd, demo_cmd, doctor_cmd,
server_cmd, known, catalog_cmd. `GANGLINE_HOME` moves all of them, so that tests and demos never meet.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from orchestrator.model.errors import InputError

MACHINE_SOCKET = Path("/run/gangline/api.sock")  # of the controller that is a unit of this machine
ENDPOINT = "endpoint.json"  # a controller writes it into its state folder when it answers


def home() -> Path | None:
    """The folder that holds everything, if the caller asked for one."""
    found = os.environ.get("GANGLINE_HOME", "")
    return Path(found).absolute() if found else None


def _own() -> Path:
    """This person's home folder; InputError where nobody knows one, as in a container with a user of its own."""
    try:
        return Path.home()
    except RuntimeError:
        raise InputError(
            "cli.no-home", f"uid {os.geteuid()} has no home folder here", "set GANGLINE_HOME to a folder"
        ) from None


def state_root() -> Path:
    """The folder with one state folder per cluster of this person."""
    moved = home()
    if moved is not None:
        return moved / "state"
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else _own() / ".local" / "state") / "gangline"


def state_dir(cluster: str) -> Path:
    """The state folder of a person's own cluster."""
    return state_root() / cluster


def config_dir() -> Path:
    """The folder of contexts and tokens."""
    moved = home()
    if moved is not None:
        return moved / "config"
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else _own() / ".config") / "gangline"


def cache_dir() -> Path:
    """The folder of what can be fetched or made again."""
    moved = home()
    if moved is not None:
        return moved / "cache"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else _own() / ".cache") / "gangline"


def prices_dir() -> Path:
    """The folder of prices that `gangline catalog refresh` fetched, one file a region."""
    return config_dir() / "prices"


def contexts_file() -> Path:
    """The known controllers, mode 0600 because it holds tokens."""
    return config_dir() / "contexts.json"


def private_folder(path: Path) -> Path:
    """Make a folder, and those missing above it, for the owner alone, as the XDG base directory specification asks."""
    for folder in reversed([path, *path.parents]):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    return path


def write_private(path: Path, text: str) -> None:
    """Replace a file at once, readable by its owner alone; folders on the way are made for the owner alone too."""
    private_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
