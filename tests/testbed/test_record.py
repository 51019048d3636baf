"""Beds are told apart by who owns them: a living one's stays, a dead one's may be swept, a stranger's is left alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.testbed import record
from tests.testbed.record import Record


@pytest.fixture(autouse=True)
def _beds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_TESTBED_CACHE", str(tmp_path))


def _written(name: str, owner: str, boot: str = "") -> Record:
    found = Record(name, 3, owner, boot or record.boot_id(), {"net/ipv4/ip_forward": 0}, {"h1": (1, "12")})
    found.folder.mkdir(parents=True)
    found.write()
    return found


def test_a_record_is_read_as_it_was_written() -> None:
    assert record.read("one") is None
    written = _written("one", "")

    assert record.read("one") == written
    assert record.everyone() == [written]


def test_who_is_abandoned() -> None:
    own = record.process_mark(os.getpid())

    assert not _written("mine", own).abandoned()
    assert not _written("by-hand", "").abandoned()
    assert _written("dead", "999999999.1").abandoned()
    assert _written("reused", f"{os.getpid()}.1").abandoned()  # another process has that id now
    assert _written("before-the-boot", own, "another-boot").abandoned()


def test_a_record_of_another_version_is_left_alone() -> None:
    written = _written("one", "")
    plain = json.loads((written.folder / "bed.json").read_text())

    for text in (json.dumps({**plain, "news": 1}), "{", json.dumps({"name": "one"})):
        (written.folder / "bed.json").write_text(text)
        assert record.everyone() == []
