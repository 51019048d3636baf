"""Files that are whole or not there, and closed to others from their first moment on."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from orchestrator.provision.files import private_folder, write_whole


@pytest.mark.parametrize(("umask", "mode"), [(0o000, 0o600), (0o077, 0o644), (0o022, 0o600)])
def test_the_mode_is_that_which_was_asked_for(tmp_path: Path, umask: int, mode: int) -> None:
    path = tmp_path / "f"
    before = os.umask(umask)
    try:
        write_whole(path, b"one", mode)
        write_whole(path, b"two", mode)
    finally:
        os.umask(before)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"two", mode)
    assert os.listdir(tmp_path) == ["f"]


def test_what_can_not_be_written_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    write_whole(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_draft_that_somebody_has_put_there_is_not_written_through(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    (tmp_path / f".f.{os.getpid()}").symlink_to(other)
    write_whole(tmp_path / "f", b"secret")
    assert other.read_bytes() == b"mine"
    assert not (tmp_path / "f").is_symlink()


def test_folders_on_the_way_are_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        private_folder(tmp_path / "a" / "b")
        private_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a/b")] == [0o700] * 2
