"""The agent's small parts, one by one: config, ids, status files, outcomes, identities, containment, housekeeping."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent import config as config_module
from orchestrator.agent import containment, housekeeping, identity, idset, layout, procfs, status
from orchestrator.agent.config import ConfigError
from orchestrator.agent.containment import CgroupBox, TreeBox
from orchestrator.agent.housekeeping import Bounds, excess
from orchestrator.agent.idset import IdSet
from orchestrator.agent.outcome import Outcome
from orchestrator.agent.procfs import Traces
from orchestrator.agent.setup import purge_scratch
from orchestrator.agent.spawn import find_program
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import Owner
from tests.agent.running import alive, until

FIRST = AttemptId(1, 1)

# --- config --------------------------------------------------------------------------------------------------------


def write_config(folder: Path, **changes: Any) -> str:
    plain = {"node": "n1", "url": "http://h:1", "state_dir": str(folder / "s"), "token_file": "/t"} | changes
    path = folder / "agent.json"
    path.write_text(json.dumps({name: value for name, value in plain.items() if value is not None}))
    return str(path)


def test_config_with_its_defaults(tmp_path: Path) -> None:
    made = config_module.load(
        write_config(tmp_path, gpus={"emulate": "always", "count": 4, "model": "H100", "memory": 5})
    )
    assert (made.min_uid, made.supervisor, made.gpus.count, made.gpus.memory) == (1000, "auto", 4, 5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node": None}, "node: missing"),
        ({"node": "a/b"}, "node: a name without a slash"),
        ({"url": "h"}, "url: expected http"),
        ({"join": "aws"}, "url: expected https://HOST:PORT, since `join` sends papers"),
        ({"state_dir": "relative"}, "state_dir: an absolute path"),
        ({"gpus": {"emulate": "maybe"}}, "gpus.emulate: one of auto, always, never"),
        ({"gpus": {"count": "8"}}, "gpus.count: expected int"),
        ({"supervisor": "runit"}, "supervisor: one of"),
        ({"token_file": None}, "token_file or join_token_file is needed"),
    ],
)
def test_config_errors_name_the_field(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_module.load(write_config(tmp_path, **changes))
    assert words in str(raised.value)
    assert str(tmp_path / "agent.json") in str(raised.value)


def test_config_that_is_no_json_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        config_module.load(str(tmp_path / "x"))
    with pytest.raises(ConfigError, match="No such file"):
        config_module.load(str(tmp_path / "y"))


# --- ids -----------------------------------------------------------------------------------------------------------

ATTEMPTS = st.builds(AttemptId, st.integers(1, 2**39), st.integers(1, 2**24 - 1))


@pytest.mark.property
@given(st.lists(ATTEMPTS), st.lists(ATTEMPTS))
def test_idset_is_a_set(inside: list[AttemptId], outside: list[AttemptId]) -> None:
    ids = IdSet()
    for attempt in inside:
        ids.add(attempt)
    assert len(ids) == len(set(inside))
    assert all(attempt in ids for attempt in inside)
    assert all((attempt in ids) == (attempt in set(inside)) for attempt in outside)


def test_ids_survive_their_file_and_a_torn_end(tmp_path: Path) -> None:
    path = str(tmp_path / "ids")
    idset.append(path, [AttemptId(5, 1), AttemptId(2, 3)])
    with open(path, "ab") as file:
        file.write(b"\x01\x02\x03")
    idset.append(path, [AttemptId(9, 9), AttemptId(5, 1)])
    ids = idset.load(path)
    assert len(ids) == 3
    assert AttemptId(9, 9) in ids


# --- status files --------------------------------------------------------------------------------------------------


def test_one_worker_alone_gets_the_claim(tmp_path: Path) -> None:
    path = str(tmp_path / "status")
    first = status.claim(path, {"k": "worker"}, "", "u")
    assert first is not None
    assert status.claim(path, {"k": "worker"}, "", "u") is None
    assert status.reopen(path, "", "u") is None, "its worker lives and holds the lock"
    first.add({"k": "ranks"})
    first.close()
    again = status.reopen(path, "", "u")
    assert again is not None
    again.close()
    assert [record["k"] for _, record in status.read_records(path)[0]] == ["worker", "ranks"]
    assert os.listdir(tmp_path) == ["status"]


def test_torn_record_is_not_read_and_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "status"
    whole = b'{"k":"worker"}\n'
    path.write_bytes(whole + b'{"k":"ran')
    records, offset = status.read_records(str(path))
    assert ([record["k"] for _, record in records], offset) == (["worker"], len(whole))
    writer = status.reopen(str(path), "", "u")
    assert writer is not None
    writer.add({"k": "ended"})
    writer.close()
    assert [record["k"] for _, record in status.read_records(str(path), offset)[0]] == ["ended"]


def test_poke_reaches_a_listener_and_nobody(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe")
    assert not status.poke(path, "u", hurry=True)
    os.mkfifo(path)
    assert not status.poke(path, "u", hurry=True), "nobody listens"
    reader = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    assert status.poke(path, "gangline-1-1", hurry=True)
    assert status.poke(path, "gangline-1-1", hurry=False)
    assert os.read(reader, 100) == b"!gangline-1-1\n.gangline-1-1\n"
    os.close(reader)


# --- outcomes ------------------------------------------------------------------------------------------------------

WORKER = {"k": "worker", "do": "run", "pid": 1, "start": 1, "boot": "b", "t": 1}
RANKS = {"k": "ranks", "ranks": [0, 1], "pids": [11, 12], "t": 2}
FAILED = {"k": "failed", "rank": 1, "code": 3, "signal": 0, "t": 3, "tail": "oh"}
EXIT = {"k": "exit", "rank": 0, "code": 0, "signal": 15, "t": 4}
ENDED = {"k": "ended", "t": 5}


def fold(*records: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    outcome = Outcome(FIRST, **more)
    return [event for event in map(outcome.feed, records) if event is not None]


def test_outcome_of_a_failed_gang_part() -> None:
    started, failed, ended = fold(WORKER, RANKS, FAILED, EXIT, ENDED)
    assert (started["kind"], started["pids"]) == ("started", [11, 12])
    assert (failed["kind"], failed["results"], failed["tail"]) == (
        "rank_failed",
        [{"rank": 1, "code": 3, "ended_us": 3}],
        "oh",
    )
    assert (ended["kind"], ended["started"], ended["tail"]) == ("ended", True, "oh")
    assert [result["rank"] for result in ended["results"]] == [0, 1]


@pytest.mark.parametrize(
    ("records", "more", "started", "cause"),
    [
        ((WORKER, ENDED), {}, False, ""),
        ((WORKER, RANKS, {"k": "lost", "error": "killed", "t": 3}, ENDED), {}, True, "node_failed"),
        ((WORKER, RANKS, {"k": "fenced", "t": 3}, EXIT, ENDED), {}, True, "fenced"),
        ((WORKER, ENDED), {"assumed_started": True}, True, "node_failed"),
        ((WORKER, ENDED), {"known_loss": "the node was restarted"}, False, "node_failed"),
        ((WORKER, ENDED | {"found": 2}), {}, True, "node_failed"),
        ((WORKER, ENDED | {"found": 0}), {}, False, ""),
    ],
)
def test_outcome_of_other_ends(
    records: tuple[dict[str, Any], ...], more: dict[str, Any], started: bool, cause: str
) -> None:
    ended = fold(*records, **more)[-1]
    assert ended["kind"] == "ended"
    assert (ended.get("started", False), ended.get("cause", "")) == (started, cause)
    assert bool(ended.get("error")) == bool(cause)


KILLED = FAILED | {"code": 0, "signal": 9}


@pytest.mark.parametrize(
    ("boot", "record", "blamed"),
    [
        pytest.param("b", KILLED, True, id="killed in this boot"),
        pytest.param("c", KILLED, False, id="killed when the node went down"),
        pytest.param("c", KILLED | {"signal": 15}, False, id="told to end when the node went down"),
        pytest.param("c", FAILED, True, id="left with an error before the node went down"),
        pytest.param("c", KILLED | {"signal": 11}, True, id="crashed before the node went down"),
        pytest.param(
            "c", KILLED | {"error": "out of memory"}, True, id="known why before the node went down"
        ),
    ],
)
@pytest.mark.parametrize("end", [(ENDED,), ({"k": "lost", "error": "restarted", "t": 4}, ENDED)])
def test_a_rank_that_the_nodes_own_end_killed_is_not_blamed(
    boot: str, record: dict[str, Any], blamed: bool, end: tuple[dict[str, Any], ...]
) -> None:
    """A node that goes down kills its processes one after the other: the shepherd may note the rank's end."""
    found = fold(WORKER, RANKS, record, *end, boot=boot)
    assert ("rank_failed" in [event["kind"] for event in found]) == blamed
    lost = not blamed or len(end) > 1
    assert found[-1].get("cause", "") == ("node_failed" if lost else "")
    assert [result["rank"] for result in found[-1]["results"]] == [1], (
        "what is known of it is told all the same"
    )


def test_outcome_of_a_refusal_and_of_a_newer_agents_record() -> None:
    refused = fold(WORKER, {"k": "of-tomorrow", "t": 2}, {"k": "refused", "code": "c", "error": "e", "t": 3})[
        -1
    ]
    assert (refused["kind"], refused["code"], refused["error"]) == ("prepare_failed", "c", "e")


# --- identities ----------------------------------------------------------------------------------------------------


def here() -> Owner:
    import pwd

    entry = pwd.getpwuid(os.geteuid())
    return Owner(
        entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    )


def test_own_user_needs_no_switch() -> None:
    found = identity.resolve(here(), run_as_self=True, min_uid=1000)
    assert not found.switch
    assert found.env()["USER"] == here().name


@pytest.mark.parametrize(
    ("owner", "code"),
    [
        (Owner("no-such-user-here", 1, 1), "unknown-user"),
        (Owner(here().name, here().uid + 1, here().gid), "identity-mismatch"),
        (Owner(here().name, here().uid, here().gid + 1), "identity-mismatch"),
        (Owner(here().name, here().uid, here().gid, (54321,)), "identity-mismatch"),
        (Owner("daemon", 1, 1), "other-user"),
    ],
)
def test_who_is_refused(owner: Owner, code: str) -> None:
    with pytest.raises(identity.Problem) as raised:
        identity.resolve(owner, run_as_self=True, min_uid=1000)
    assert raised.value.code == code


@pytest.mark.needs("root")
def test_low_uids_are_refused_where_the_agent_can_switch() -> None:
    with pytest.raises(identity.Problem) as raised:
        identity.resolve(Owner("daemon", 1, 1), run_as_self=False, min_uid=1000)
    assert raised.value.code == "uid-too-low"


# --- programs ------------------------------------------------------------------------------------------------------


def test_program_is_looked_for_as_the_job_has_its_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "prog").write_text("not executable")
    (tmp_path / "b" / "prog").write_text("#!/bin/sh\n")
    (tmp_path / "b" / "prog").chmod(0o755)
    path = f"{tmp_path}/a:{tmp_path}/b"
    assert find_program("prog", path) == f"{tmp_path}/b/prog"
    assert find_program("./prog", path) == "./prog"
    assert find_program("other", path) == ""
    assert find_program("b", str(tmp_path)) == "", "a folder is no program"


# --- processes and boxes -------------------------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Any:
    process = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 300 & exec sleep 300"],
        env={"GANGLINE_UNIT": f"gangline-1-1@t.{os.getpid()}"},
        start_new_session=True,
    )
    until(lambda: len(procfs.descendants(process.pid)) == 1, "its child runs")
    yield process
    if process.poll() is None:
        for pid in [*procfs.descendants(process.pid), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.system
def test_family_is_found_by_mark_by_group_and_by_descent(sleeper: Any) -> None:
    mark = f"GANGLINE_UNIT=gangline-1-1@t.{os.getpid()}"
    both = [sleeper.pid, *procfs.descendants(sleeper.pid)]
    assert procfs.family(mark, Traces()) == sorted(both)
    assert procfs.family("NO=MARK", Traces(frozenset({sleeper.pid}))) == sorted(both)
    later = procfs.start_of(sleeper.pid) + 1000
    assert procfs.family("NO=MARK", Traces(frozenset({sleeper.pid}), since=later)) == []
    assert containment.units_on_node("", f"t.{os.getpid()}") == [FIRST]


@pytest.mark.system
def test_tree_box_kills_and_proves(sleeper: Any) -> None:
    box = TreeBox(f"gangline-1-1@t.{os.getpid()}", Traces(), 0)
    members = box.members()
    assert len(members) == 2
    assert not box.remove()
    box.kill()
    sleeper.wait()
    until(box.remove, "the box is empty")
    assert not any(alive(pid) for pid in members)


@pytest.mark.system
@pytest.mark.needs("root")
def test_cgroup_box_finds_kills_and_removes_nested_groups(tmp_path: Path) -> None:
    base = containment.find_base(f"test.{os.getpid()}")
    if not base:
        pytest.skip("no control group of version 2 can be made here")
    home = containment.own_group()
    box = CgroupBox(f"{base}/gangline-1-1", home)
    box.create()
    assert box.remove()
    box.create()
    box.enter()
    process = subprocess.Popen(["sleep", "300"])
    box.leave()
    os.mkdir(f"{base}/gangline-1-1/inner")
    Path(f"{base}/gangline-1-1/inner/cgroup.procs").write_text(str(process.pid))
    assert containment.units_on_node(base, "") == [FIRST]
    assert box.members() == [process.pid]
    assert not box.remove()
    box.kill()
    process.wait(10)
    until(box.remove, "the group is gone")
    assert containment.units_on_node(base, "") == []
    os.rmdir(base)


@pytest.mark.system
@pytest.mark.needs("root")
def test_group_that_is_taken_away_before_it_is_entered_is_made_again() -> None:
    base = containment.find_base(f"race.{os.getpid()}")
    if not base:
        pytest.skip("no control group of version 2 can be made here")
    box = CgroupBox(f"{base}/gangline-1-1", containment.own_group())
    box.create()
    assert containment.units_on_node(base, "") == [], "an agent that starts takes empty ones away"
    box.enter()
    try:
        assert os.getpid() in box.members()
    finally:
        box.leave()
    assert box.remove()
    os.rmdir(base)


def test_description_names_a_process_and_its_state() -> None:
    assert f"{os.getpid()} (" in procfs.describe([os.getpid()])
    assert procfs.describe([2**30]) == f"{2**30} (gone)"


# --- folders -------------------------------------------------------------------------------------------------------


def test_scratch_is_emptied_without_following_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    scratch = tmp_path / layout.SCRATCH
    (scratch / "deep" / "er").mkdir(parents=True)
    (scratch / "link").symlink_to(outside)
    purge_scratch(str(tmp_path))
    assert not scratch.exists()
    assert (outside / "kept").exists()
    purge_scratch(str(tmp_path))


def make_folder(top: Path, name: str, age_s: float, size: int, now: float) -> str:
    path = top / name
    path.mkdir()
    (path / "rank-0.log").write_bytes(b"x" * size)
    os.utime(path, (now - age_s, now - age_s))
    return str(path)


def test_old_many_or_large_folders_go_oldest_first(tmp_path: Path) -> None:
    now = 1_000_000.0
    young = make_folder(tmp_path, "gangline-1-1", 10, 900, now)
    middle = make_folder(tmp_path, "gangline-2-1", 100, 100, now)
    older = make_folder(tmp_path, "gangline-3-1", 200, 100, now)
    old = make_folder(tmp_path, "gangline-4-1", 5000, 100, now)
    live = make_folder(tmp_path, "gangline-5-1", 9000, 100, now)
    make_folder(tmp_path, "something-else", 9000, 100, now)
    spare = frozenset({os.path.basename(live)})

    def gone(bounds: Bounds) -> list[str]:
        return excess(str(tmp_path), bounds, spare, now)

    assert gone(Bounds(10_000, 10, 10_000)) == []
    assert gone(Bounds(1000, 10, 10_000)) == [old]
    assert gone(Bounds(10_000, 2, 10_000)) == [older, old]
    assert gone(Bounds(10_000, 10, 1050)) == [older, old]
    assert gone(Bounds(10_000, 0, 0)) == [middle, older, old], "too young to be known to the caller stays"
    housekeeping.run(str(tmp_path), Bounds(0, 0, 0), [os.path.basename(live), os.path.basename(young)])
    assert sorted(os.listdir(tmp_path)) == ["gangline-1-1", "gangline-5-1", "something-else"]


def test_place_tells_agents_of_one_machine_apart(tmp_path: Path) -> None:
    one, two = layout.place_of("n1", str(tmp_path / "a")), layout.place_of("n1", str(tmp_path / "b"))
    assert one != two
    assert one.startswith("n1.")
    assert layout.marker(FIRST, one) == f"gangline-1-1@{one}"


# --- what the rooms promise ----------------------------------------------------------------------------------------


@pytest.mark.system
def test_agent_starts_without_what_is_large() -> None:
    """The nursery is forked from what `main` imports: what each attempt's worker would carry."""
    heavy = ["asyncio", "ssl", "http.client", "logging", "random", "threading", "pydantic", "pynvml", "numpy"]
    code = f"import sys, orchestrator.agent.main; print([name for name in {heavy} if name in sys.modules])"
    root = Path(__file__).resolve().parents[2]
    found = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
