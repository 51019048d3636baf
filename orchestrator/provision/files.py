"""Files and folders on this machine that are whole or not there at all, and open to nobody whom they do not concern.

Comes in: a path, what it is to hold. Goes out: the file, replaced in one step and on disk. Called by: whatever of
`provision` and `api` keeps keys, tokens and configurations. The base installation of the command has its own (cli
paths), since it comes without this room; the agent too, since it is another machine's.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file: whole or not at all, and never readable by others for a moment. OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def private_folder(path: Path) -> None:
    """Make a folder, and those missing above it, for the owner alone: mkdir's own `parents` go by the umask."""
    for folder in reversed([path, *path.parents]):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
