"""Processes that outlive their starter: recorded before they exist, known by start time, ended through a pidfd."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.model.errors import Unavailable
from orchestrator.provision import daemons, detach
from orchestrator.provision.daemons import Daemon, Daemons, last_lines, wait_for

pytestmark = pytest.mark.system

SLEEP = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()",
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Daemons]:
    made = Daemons(tmp_path / "up")
    yield made
    for name in made.names():
        made.stop(name, 0)


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def start(place: Daemons, tmp_path: Path, argv: list[str]) -> Daemon:
    found = place.start("one", argv, tmp_path / "log", tmp_path)
    until(lambda: "up" in last_lines(tmp_path / "log"))
    return found


def test_it_runs_in_a_session_and_folder_of_its_own_with_its_output_in_the_log(
    place: Daemons, tmp_path: Path
) -> None:
    found = start(place, tmp_path, SLEEP)

    assert os.getsid(found.pid) == found.pid
    assert os.readlink(f"/proc/{found.pid}/cwd") == str(tmp_path)
    assert os.readlink(f"/proc/{found.pid}/fd/0") == os.devnull
    assert (tmp_path / "log").read_text() == "up\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert place.get("one") == found
    assert place.names() == ["one"]


def test_what_it_leaves_is_the_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    """Whoever can write to a folder on the way to a token can put another file in its place."""
    before = os.umask(0)
    try:
        place = Daemons(tmp_path / "state" / "up")
        log, folder = tmp_path / "state" / "nodes" / "n-1" / "log", tmp_path / "state" / "nodes" / "n-1"
        daemon = place.start("it", [sys.executable, "-c", "open('made', 'w'); print('x')"], log, folder)
        until((folder / "made").exists)
    finally:
        os.umask(before)
    place.stop(daemon.name, 1)
    open_to_others = [path for path in (tmp_path / "state").rglob("*") if path.stat().st_mode & 0o077]
    assert open_to_others == []


def test_it_outlives_the_process_that_started_it(place: Daemons, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from orchestrator.provision.daemons import Daemons;"
        f"here = Path(sys.argv[1]); Daemons(here / 'up').start('one', {SLEEP!r}, here / 'log', here)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)

    found = place.get("one")
    assert found is not None
    assert Path(f"/proc/{found.pid}/stat").read_text().split()[3] != str(os.getpid())


def test_stop_ends_it_gently_and_forgets_it(place: Daemons, tmp_path: Path) -> None:
    found = start(place, tmp_path, SLEEP)

    assert place.stop("one", 20) is True
    assert not found.alive()
    assert place.get("one") is None
    assert place.names() == []
    assert place.stop("one", 20) is True


def test_a_stubborn_one_is_killed_after_its_grace(place: Daemons, tmp_path: Path) -> None:
    found = start(place, tmp_path, STUBBORN)

    assert place.stop("one", 0.1) is False
    assert not found.alive()


def test_another_process_of_the_same_number_is_not_it(place: Daemons, tmp_path: Path) -> None:
    found = start(place, tmp_path, SLEEP)
    record = tmp_path / "up" / "one.json"
    plain = json.loads(record.read_text())
    for change in ({"start": plain["start"] - 1}, {"boot": "another"}):
        record.write_text(json.dumps(plain | change))
        assert place.get("one") is None
        assert place.stop("one", 1) is True
        assert found.alive()
    record.write_text(json.dumps(plain))


def test_a_dead_child_that_nobody_waited_for_is_dead(place: Daemons, tmp_path: Path) -> None:
    found = start(place, tmp_path, SLEEP)
    os.kill(found.pid, signal.SIGKILL)

    until(lambda: not found.alive())
    assert place.get("one") is None


def test_the_record_is_there_before_the_program_is(tmp_path: Path) -> None:
    record, log = tmp_path / "one.json", tmp_path / "log"
    program = [sys.executable, "-c", f"print(open({str(record)!r}).read())"]
    subprocess.run(
        [sys.executable, "-I", "-S", detach.__file__, str(record), str(log), str(tmp_path), *program],
        check=True,
    )

    plain = json.loads(log.read_text())
    assert plain == json.loads(record.read_text())
    assert plain["argv"] == program


def test_a_program_that_is_not_there_says_so_in_the_log(place: Daemons, tmp_path: Path) -> None:
    found = place.start("one", ["/no/such/program"], tmp_path / "log", tmp_path)

    assert wait_for(found, lambda: False, 20) is False
    assert last_lines(tmp_path / "log") == "/no/such/program: No such file or directory"


def test_what_can_not_be_started_is_unavailable(place: Daemons, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()

    with pytest.raises(Unavailable) as caught:
        place.start("one", SLEEP, tmp_path / "log", tmp_path)

    assert caught.value.code == "local.not-started"


def test_wait_for_ends_when_it_is_ready_or_dead(place: Daemons, tmp_path: Path) -> None:
    found = start(place, tmp_path, SLEEP)
    answers = iter([False, False, True])

    assert wait_for(found, lambda: next(answers), 20) is True
    assert wait_for(found, lambda: False, 0.01) is False
    place.stop("one", 20)
    assert wait_for(found, lambda: False, 20) is False


def test_a_large_log_is_set_aside(place: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "LARGEST_LOG", 3)
    (tmp_path / "log").write_text("long")
    start(place, tmp_path, SLEEP)

    assert (tmp_path / "log.1").read_text() == "long"
    assert (tmp_path / "log").read_text() == "up\n"


def test_what_was_meant_for_this_command_is_not_inherited(
    place: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGLINE_TOKEN", "secret")
    monkeypatch.setenv("GANGLINE_HOME", "/h")
    found = start(place, tmp_path, SLEEP)
    environment = Path(f"/proc/{found.pid}/environ").read_bytes()

    assert b"secret" not in environment
    assert b"GANGLINE_HOME=/h" in environment


def test_it_is_ended_from_a_process_with_many_descriptors(place: Daemons, tmp_path: Path) -> None:
    found = start(place, tmp_path, SLEEP)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    taken: list[int] = []
    try:
        while not taken or taken[-1] <= 1100:  # beyond what select takes
            taken.append(os.open(os.devnull, os.O_RDONLY))
        assert place.stop("one", 20)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not found.alive()
