"""Real processes: killed while they append, robbed of their ledger, on disks that fail."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.model.clock import ManualClock
from orchestrator.model.errors import Unavailable
from orchestrator.store.backup import backup, verify
from orchestrator.store.base import HistoryQuery
from orchestrator.store.open import open_store
from orchestrator.store.sqlite import SqliteStore
from tests.store.contract import T0, batch, claimed, ended

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]


@contextmanager
def _child(state: Path, *words: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.store.child", str(state), *words],
        cwd=ROOT,
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def _said(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    return child.stdout.readline().split()


def _tell(child: subprocess.Popen[str], word: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{word}\n")
    child.stdin.flush()


def _whole_batches(store: SqliteStore) -> int:
    """The last seq, after a look at every event: gapless, and every batch as long as its events say."""
    count = 0
    for first, events in itertools.groupby(store.tail(0), key=lambda found: found.batch):
        members = list(events)
        assert first == count + 1
        assert [found.body["of"] for found in members] == [len(members)] * len(members)
        count += len(members)
    return count


def test_kill_at_random_moments_loses_nothing_acknowledged_and_tears_no_batch(tmp_path: Path) -> None:
    acknowledged = 0
    for patience in (1, 3, 40, 11, 150, 2, 25, 80):
        with _child(tmp_path, "loop") as child:
            lines = [_said(child) for _ in range(patience)]
            child.kill()
            assert child.stdout is not None
            lines += [line.split() for line in child.stdout if line.endswith("\n")]
        acknowledged = int(lines[-1][1])
        store = open_store(tmp_path)
        last = _whole_batches(store)
        assert acknowledged <= last <= acknowledged + 17
        history = [row.job for row in store.reader().page(HistoryQuery(limit=10_000))]
        assert history == sorted({found.batch for found in store.tail(0)}, reverse=True)
        store.close()
    assert acknowledged > 100


def test_a_newer_owner_stops_an_older_process(tmp_path: Path) -> None:
    with _child(tmp_path, "loop") as child:
        while _said(child)[0] != "acknowledged":
            pass
        store = open_store(tmp_path)
        epoch = claimed(store)
        after, t_us = store.last()
        store.append(batch(after + 1, 3, epoch, t_us))
        assert child.stdout is not None
        lines = [line.split() for line in child.stdout]
        assert child.wait(timeout=60) == 3
    assert lines[-1] == ["fenced", str(after)]  # all it had acknowledged came before the claim
    assert _whole_batches(store) == after + 3
    store.close()


def test_backups_beside_a_busy_writer_are_whole(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with _child(state, "loop") as child:
        for number in range(4):
            before = max(int(_said(child)[1]) for _ in range(20))
            backup(state, tmp_path / f"backup-{number}", ManualClock(T0))
            after = int(_said(child)[1])
            contents = verify(tmp_path / f"backup-{number}")
            assert before <= contents.last
            assert contents.first == 1
            assert after > before
        assert child.poll() is None


# --- disks that fail --------------------------------------------------------------------------------------------


def test_an_io_error_at_commit_takes_the_batch_back_and_work_goes_on(tmp_path: Path) -> None:
    with _child(tmp_path, "limit") as child:
        code, last, *_ = _said(child)
        assert (code, last) == ("ledger.io", "5")
        _tell(child, "go")
        assert _said(child) == ["acknowledged", "7"]
    store = open_store(tmp_path)
    assert _whole_batches(store) == 7
    assert store.reader().page(HistoryQuery()) == []
    store.close()


_FAILING_SYNC = """
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static int fails(void) { const char *flag = getenv("FAIL_SYNC"); return flag && access(flag, F_OK) == 0; }
int fsync(int fd) { if (fails()) { errno = EIO; return -1; } return syscall(SYS_fsync, fd); }
int fdatasync(int fd) { if (fails()) { errno = EIO; return -1; } return syscall(SYS_fdatasync, fd); }
"""


@pytest.fixture(scope="module")
def failing_sync(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that makes fsync fail while the file that FAIL_SYNC names exists."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs the program 'cc' (Debian package gcc)")
    folder = tmp_path_factory.mktemp("sync")
    (folder / "sync.c").write_text(_FAILING_SYNC)
    library = folder / "sync.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(folder / "sync.c")], check=True)
    return library


@pytest.mark.parametrize("then", ["go", "die"])
def test_a_sync_that_fails_is_an_error_and_the_batch_not_there(
    tmp_path: Path, failing_sync: Path, then: str
) -> None:
    """If the process dies before it writes again, the batch may be found by recovery: whole, or not at all."""
    flag, state = tmp_path / "flag", tmp_path / "state"
    with _child(state, "step", str(flag), LD_PRELOAD=str(failing_sync), FAIL_SYNC=str(flag)) as child:
        code, last, *_ = _said(child)
        assert (code, last) == ("ledger.io", "5")
        _tell(child, then)
        assert _said(child) == (["acknowledged", "7"] if then == "go" else [])
        child.wait(timeout=60)
    store = open_store(state)
    assert _whole_batches(store) in ({7} if then == "go" else {5, 10})
    store.close()


@contextmanager
def _small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.needs("root", "tmpfs")
def test_a_full_disk_is_told_loses_nothing_and_work_goes_on_after_it(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk", 1500) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(400_000))
        store = open_store(disk / "state")
        epoch, last = claimed(store), 0
        with pytest.raises(Unavailable) as caught:  # noqa: PT012
            while True:
                store.append(batch(last + 1, 50, epoch), [ended(last + 1)])
                last += 50
        assert caught.value.code == "ledger.disk-full"
        assert str(disk / "state" / "ledger.db") in caught.value.message
        assert "bytes free" in caught.value.message
        assert last > 500
        for _ in range(3):
            with pytest.raises(Unavailable, match="bytes free"):
                store.append(batch(last + 1, 200, epoch), [ended(last + 1)])
        assert _whole_batches(store) == last
        assert store.last() == (last, T0)
        assert len(store.reader().page(HistoryQuery(limit=1000))) == last // 50
        ballast.unlink()
        store.append(batch(last + 1, 50, epoch), [ended(last + 1)])
        store.close()
        store = open_store(disk / "state")
        assert _whole_batches(store) == last + 50
        store.close()


def _fill(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


@pytest.mark.needs("root", "tmpfs")
def test_a_ledger_on_a_full_disk_opens_and_reads(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk", 1500) as disk:
        store = open_store(disk / "state")
        store.append(batch(1, 10, claimed(store)))
        store.close()
        _fill(disk / "ballast")
        with pytest.raises(Unavailable) as caught:
            open_store(disk / "state")  # SQLite needs 32 KiB for its index
        assert caught.value.code == "ledger.disk-full"
        with pytest.raises(Unavailable) as caught:
            open_store(disk / "other")
        assert caught.value.code == "ledger.disk-full"
        (disk / "ballast").unlink()
        store = open_store(disk / "state")
        assert _whole_batches(store) == 10
        store.close()


@pytest.mark.needs("root", "tmpfs")
def test_a_backup_to_a_full_disk_leaves_it_as_it_was(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    store.append(batch(1, 3000, claimed(store)))
    with _small_disk(tmp_path / "disk", 200) as disk:
        with pytest.raises(Unavailable) as caught:
            store.backup(str(disk / "backup"))
        assert caught.value.code == "ledger.disk-full"
        assert str(disk / "backup") in caught.value.message
        assert list(disk.iterdir()) == []
    store.close()


@pytest.mark.needs("root", "tmpfs")
def test_a_disk_that_turned_read_only_is_told(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk", 4000) as disk:
        store = open_store(disk / "state")
        store.append(batch(1, 10, claimed(store)))
        store.close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for state in (disk / "state", disk / "new"):
            with pytest.raises(Unavailable) as caught:
                open_store(state)
            assert caught.value.code == "ledger.read-only"


# --- permissions ------------------------------------------------------------------------------------------------


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Root may do anything, so be somebody else for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that another user can reach, unlike tmp_path."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_that_may_not_be_written_is_told(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with _as_nobody(), pytest.raises(Unavailable) as caught:
        open_store(open_folder / "state")
    assert caught.value.code == "ledger.permission"
    assert str(open_folder / "state") in caught.value.message
    assert "owner" in caught.value.hint


def test_a_ledger_of_somebody_else_is_told(open_folder: Path) -> None:
    store = open_store(open_folder / "state")
    store.append(batch(1, 1, claimed(store)))
    store.close()
    for path in (open_folder / "state", *(open_folder / "state").iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with _as_nobody(), pytest.raises(Unavailable) as caught:
        open_store(open_folder / "state")
    assert caught.value.code == "ledger.permission"
    (open_folder / "state").chmod(0o755)
