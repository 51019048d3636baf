"""Files that can't be read: one error each, without waiting, and at the first bad byte where there is one.

Comes in: folders, pipes, sockets, large and broken files. Goes out: proof of code and place.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from orchestrator import spec
from orchestrator.spec.source import LARGEST_FILE


def only(path: Path | str) -> spec.SpecError:
    (error,) = spec.validate_file(str(path)).errors
    return error


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    error = only(tmp_path / "none.yaml")
    assert (error.code, error.line, error.column) == ("spec.file-not-found", 0, 0)
    assert spec.render([error]).split("\n")[0].endswith("[spec.file-not-found]")
    assert only(tmp_path / "none.yaml" / "deeper").code == "spec.file-not-found"
    assert only("a\0b").code == "spec.file-not-found"


def test_a_folder(tmp_path: Path) -> None:
    assert "a folder" in only(tmp_path).message
    assert only(tmp_path).code == "spec.not-a-file"


def test_a_pipe_that_nobody_writes_to_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert only(tmp_path / "pipe").code == "spec.not-a-file"


def test_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        assert only("s").code == "spec.not-a-file"


def test_devices() -> None:
    assert only("/dev/zero").code == "spec.not-a-file"
    assert only("/dev/null").code == "spec.not-a-file"


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "a")
    assert only(tmp_path / "a").code == "spec.file-unreadable"


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (LARGEST_FILE + 1))
    assert only(path).code == "spec.too-large"
    path.write_bytes(b"#" * LARGEST_FILE)
    assert only(path).code == "spec.empty"


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b"a: 1\nb: caf\xe9\n", 2, 7),
        (b"\xff\xfea\x00:\x00", 1, 1),
        (b"\xef\xbb\xbfa: \xc3\xa9\xff", 1, 5),
        (b"a: \xed\xa0\x80", 1, 4),
        (b"a: \xc0\x80", 1, 4),
    ],
)
def test_bytes_that_are_not_utf8(tmp_path: Path, data: bytes, line: int, column: int) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(data)
    error = only(path)
    assert (error.code, error.line, error.column) == ("spec.not-utf8", line, column)
