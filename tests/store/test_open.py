"""Opening side by side: a new ledger is made once, and whoever needs it alone is waited for, but not for ever."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.model.errors import Unavailable
from orchestrator.store import lock
from orchestrator.store.open import open_store
from tests.store.contract import claimed

ROOT = Path(__file__).parents[2]


@pytest.mark.system
def test_processes_that_open_a_new_ledger_at_once_share_it(tmp_path: Path) -> None:
    code = (
        "import sys; from orchestrator.store.open import open_store; sys.stdin.readline();"
        " print(open_store(sys.argv[1]).claim(1))"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "state")]
    children = [
        subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    try:
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        epochs = [int(child.communicate(timeout=60)[0]) for child in children]
    finally:
        for child in children:
            child.kill()
    assert sorted(epochs) == [1, 2, 3, 4]


def test_whoever_has_the_ledger_alone_is_waited_for_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "WAIT_S", 0.05)
    open_store(tmp_path).close()
    with (tmp_path / lock.NAME).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="created, upgraded or restored") as caught:
            open_store(tmp_path)
        assert caught.value.code == "ledger.locked"
    open_store(tmp_path).close()


def test_a_store_that_could_not_be_opened_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(ValueError, match="damaged"):
        open_store(tmp_path)
    held = lock.LedgerLock(tmp_path)
    assert held.alone()
    held.close()


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    """Others may have to reach a socket in it; the ledger's own files are closed to them anyway."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    store = open_store(folder)
    claimed(store)
    assert folder.stat().st_mode & 0o777 == 0o755
    store.close()
