"""Takes away folders of ended attempts when they are too old, too many or too large.

Comes in: the folder of attempts, bounds, the units to spare. Goes out: less on the disk. Called by: the nursery, in
a fork of its own, since users' files lie in these folders and a walk over them may take long.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass

YOUNG_S = 60.0  # a folder as young as this may belong to an attempt that the caller did not know of yet


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds, count and bytes that folders of ended attempts may have."""

    keep_s: int
    keep_attempts: int
    keep_bytes: int


@dataclass(frozen=True, slots=True)
class _Folder:
    path: str
    changed_s: float


def run(attempts: str, bounds: Bounds, spare: Sequence[str]) -> None:
    """Remove the oldest until all bounds hold."""
    for path in excess(attempts, bounds, frozenset(spare), time.time()):
        shutil.rmtree(path, ignore_errors=True)


def excess(attempts: str, bounds: Bounds, spare: frozenset[str], now_s: float) -> list[str]:
    """What has to go, newest first kept."""
    gone: list[str] = []
    kept = size = 0
    for folder in sorted(_folders(attempts, spare), key=lambda folder: folder.changed_s, reverse=True):
        size += tree_bytes(folder.path)
        old = now_s - folder.changed_s > bounds.keep_s
        if (
            old or kept >= bounds.keep_attempts or size > bounds.keep_bytes
        ) and now_s - folder.changed_s > YOUNG_S:
            gone.append(folder.path)
        else:
            kept += 1
    return gone


def _folders(attempts: str, spare: frozenset[str]) -> list[_Folder]:
    with os.scandir(attempts) as entries:
        mine = [each for each in entries if each.name.startswith("gangline-") and each.name not in spare]
        return [
            _Folder(each.path, each.stat(follow_symlinks=False).st_mtime)
            for each in mine
            if each.is_dir(follow_symlinks=False)
        ]


def tree_bytes(top: str) -> int:
    """Bytes of all files below `top`, links not followed."""
    total = 0
    for folder, _, files in os.walk(top):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total
