"""Properties of units, device nodes, D-Bus bytes, groups: what needs no systemd. The rest is in test_systemd.py."""

from __future__ import annotations

import errno
import fnmatch
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent import closing, dbus, device_nodes, hierarchies, layout, properties, scope, systemd
from orchestrator.agent.boxes import open_box
from orchestrator.agent.outcome import Outcome
from orchestrator.agent.plan import Box, Gpu, Limits, NodeContext, bare, build
from orchestrator.agent.supervisor import Supervisor
from orchestrator.model.codec import decode, encode
from orchestrator.model.ids import AttemptId
from tests.agent.running import launch_of

GIB = 1 << 30
FIRST = AttemptId(1, 1)
CONTEXT = NodeContext(
    "n1",
    "n1.00000000",
    "/var/lib/gangline-agent",
    "/n",
    "systemd",
    box_base="/sys/fs/cgroup/gangline.slice",
    gpus=(Gpu(0, 0, "GPU-a", minor=3), Gpu(1, 1, "GPU-b", minor=0), Gpu(2, 2, emulated=True)),
    devices=("/dev/hsm*",),
)  # fmt: skip


def table_of(limits: Limits, *devices: str) -> dict[str, Any]:
    return {name: value for name, (_, value) in properties.of_unit(limits, 7, "what", devices)}


def test_closed_addresses_are_denied_as_systemd_has_them() -> None:
    denied = table_of(Limits(closed=closing.ADDRESSES))["IPAddressDeny"]
    assert denied == [
        (socket.AF_INET, bytes([169, 254, 169, 254]), 32),
        (socket.AF_INET6, bytes.fromhex("fd000ec2000000000000000000000254"), 128),
    ]
    packed = dbus.encode("a(iayu)", (denied,))
    assert dbus.decode("a(iayu)", packed) == (denied,)
    assert "IPAddressDeny" not in table_of(Limits())


@pytest.mark.parametrize(
    ("error", "address", "reached"),
    [
        (None, "169.254.169.254", True),
        (PermissionError(errno.EPERM, ""), "169.254.169.254", False),
        (PermissionError(errno.EACCES, ""), "169.254.169.254", False),
        (ConnectionRefusedError(errno.ECONNREFUSED, ""), "fd00:ec2::254", False),
        (OSError(errno.ENETUNREACH, ""), "169.254.169.254", True),  # the network may come later
        (OSError(errno.ENETUNREACH, ""), "fd00:ec2::254", False),  # there is no IPv6
    ],
)
def test_only_a_refusal_shows_that_an_address_is_closed(
    monkeypatch: pytest.MonkeyPatch, error: OSError | None, address: str, reached: bool
) -> None:
    class Sock:
        def __enter__(self) -> Sock:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def sendto(self, _: bytes, to: tuple[str, int]) -> None:
            assert to == (address, 9)
            if error is not None:
                raise error

    monkeypatch.setattr("orchestrator.agent.scope.socket.socket", lambda *_: Sock())
    assert scope.reaches(address) is reached


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("holds", ["nft", "ip", ""])
def test_a_rule_that_holds_is_made_beside_the_units_own_and_where_none_does_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], holds: str, unit: bool
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(closing, "_run", lambda rule: ran.append(rule[0][0][0]))
    monkeypatch.setattr(closing, "_reached", lambda: holds not in ran)
    found = closing.close(Supervisor("systemd", "p", closes=unit), 1000)
    open_to_jobs = not holds and not unit
    assert ran == (["nft"] if holds == "nft" else ["nft", "ip"])
    assert found.addresses == (closing.ADDRESSES if unit else ())
    assert found.unenforced == (("metadata",) if open_to_jobs else ())
    assert ("can reach its metadata service" in capsys.readouterr().err) is open_to_jobs


# --- from an allocation to properties ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        (
            Limits(),
            {"MemoryMax": None, "MemorySwapMax": None, "CPUWeight": None, "TimeoutStopUSec": 15_000_000},
        ),
        (Limits(memory=GIB), {"MemoryMax": GIB, "MemorySwapMax": 0, "CPUWeight": None}),
        (Limits(cores=1), {"CPUWeight": 10, "MemoryMax": None}),
        (Limits(cores=96), {"CPUWeight": 960}),
        (Limits(cores=5000), {"CPUWeight": 10_000}),
        (Limits(stop_s=600), {"TimeoutStopUSec": 615_000_000}),
    ],
)
def test_limits_become_properties(limits: Limits, wanted: dict[str, Any]) -> None:
    made = table_of(limits)
    assert {name: made.get(name) for name in wanted} == wanted


def test_every_unit_is_delegated_collected_and_stopped_by_its_shepherd() -> None:
    made = table_of(Limits(), "/dev/nvidia3", "/dev/fuse")
    assert made["PIDs"] == [7]
    assert (made["Delegate"], made["CollectMode"]) == (True, "inactive-or-failed")
    assert made["KillSignal"] == signal.SIGCONT, "the one that a rank ignores"
    assert (made["DevicePolicy"], made["DeviceAllow"]) == (
        "closed",
        [("/dev/nvidia3", "rw"), ("/dev/fuse", "rw")],
    )


def test_plan_names_unit_limits_and_the_allocations_own_gpus() -> None:
    launch = launch_of("true", slots=(0, 2), node="n1")
    box = build(FIRST, launch, CONTEXT).box
    assert (box.kind, box.unit) == ("systemd", "gangline-1-1.scope")
    assert box.path == "/sys/fs/cgroup/gangline.slice/gangline-1-1.scope"
    assert box.limits == Limits(0, 0, (3,), ("/dev/hsm*",), launch.job.stop.grace_s)
    assert decode(Box, encode(box)) == box
    assert bare(FIRST, CONTEXT).box.path == box.path, "the mop finds the same group"


def test_box_of_a_unit_is_opened_for_its_supervisor() -> None:
    assert isinstance(open_box(build(FIRST, launch_of("true"), CONTEXT)), scope.ScopeBox)


def test_only_the_machines_own_agent_has_units_without_a_suffix(tmp_path: Path) -> None:
    assert layout.unit_suffix("/var/lib/gangline-agent/") == ""
    one, two = layout.unit_suffix(str(tmp_path / "1")), layout.unit_suffix(str(tmp_path / "2"))
    assert one != two
    assert one.startswith(".")


def test_units_of_this_agent_in_which_something_lives(tmp_path: Path) -> None:
    for name, pids in {
        "gangline-1-1.scope/ranks": "17\n",
        "gangline-2-1.scope": "",
        "gangline-3-1.0a0b0c0d.scope": "5\n",
        "gangline-shepherds-44.scope": "44\n",
        "gangline-probe-44.scope": "45\n",
    }.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "cgroup.procs").write_text(pids)
    assert scope.units_in(str(tmp_path), "") == ["gangline-1-1"]
    assert scope.units_in(str(tmp_path), ".0a0b0c0d") == ["gangline-3-1"]
    assert scope.units_in(str(tmp_path / "none"), "") == []


# --- device nodes -----------------------------------------------------------------------------------------------


def test_nodes_of_other_gpus_are_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [
        "/dev/nvidia0",
        "/dev/nvidia1",
        "/dev/nvidia10",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/hsm0",
    ]
    there += ["/dev/infiniband/uverbs0", "/dev/infiniband/umad0", "/dev/nvidia-caps/nvidia-cap1", "/dev/sda"]
    monkeypatch.setattr("glob.glob", lambda pattern: fnmatch.filter(there, pattern))
    found = device_nodes.allowed((1,), ("/dev/hsm*",))
    shared = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/infiniband/uverbs0"]
    assert found == [*shared, "/dev/nvidia1", "/dev/hsm0"]
    assert device_nodes.allowed((-1,)) == shared, "a GPU whose node is not known opens none"


def test_minor_is_read_from_the_driver(tmp_path: Path) -> None:
    (tmp_path / "0000:1b:00.0").mkdir()
    (tmp_path / "0000:1b:00.0" / "information").write_text("Model: \t H200\nDevice Minor: \t 5\n")
    assert device_nodes.minor_of("00000000:1B:00.0", str(tmp_path)) == 5
    assert device_nodes.minor_of("00000000:1C:00.0", str(tmp_path)) == -1
    assert device_nodes.minor_of("", str(tmp_path)) == -1


# --- groups -----------------------------------------------------------------------------------------------------


def test_folder_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"": ("/cg/unified", "/"), "memory": ("/cg/memory", "/outer"), "cpu": ("/cg/cpu", "/")}
    monkeypatch.setattr(hierarchies, "mounts", lambda: places)
    assert hierarchies.folder_of("", "/gangline.slice/a.scope") == "/cg/unified/gangline.slice/a.scope"
    assert hierarchies.folder_of("memory", "/outer/a.scope") == "/cg/memory/a.scope"
    assert hierarchies.folder_of("cpu,cpuacct", "/") == "/cg/cpu"
    assert hierarchies.folder_of("rdma", "/a") == ""


def test_going_back_writes_where_it_left_and_version_2_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("v2", "memory", "pids"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(hierarchies, "mounts", lambda: {
        "": (str(tmp_path), "/"), "memory": (str(tmp_path), "/"), "pids": (str(tmp_path), "/")
    })  # fmt: skip
    now = {"": "/s", "memory": "/s", "pids": "/pids"}
    monkeypatch.setattr(hierarchies, "groups_of", lambda _: now)
    assert hierarchies.go_back({"": "/v2", "memory": "/memory", "pids": "/pids"})
    assert (tmp_path / "memory" / "cgroup.procs").read_text() == "0"
    assert not (tmp_path / "pids" / "cgroup.procs").exists()
    assert not hierarchies.go_back({"": "/gone"})


# --- what is made of a stop and of hunger -----------------------------------------------------------------------


def test_a_stop_by_systemd_is_the_reason_even_if_the_shepherd_dies_of_it() -> None:
    fold = Outcome(FIRST)
    for record in ({"k": "ranks", "pids": [5], "t": 1}, {"k": "stopped", "error": "systemd did", "t": 2}):
        fold.feed(record)
    fold.feed({"k": "lost", "error": "the shepherd was killed", "t": 3})
    ended = fold.feed({"k": "ended", "t": 4})
    assert ended is not None
    assert (ended["cause"], ended["error"]) == ("node_failed", "systemd did")


def test_hunger_is_told_with_the_failing_rank_and_at_the_end() -> None:
    fold = Outcome(FIRST)
    fold.feed({"k": "ranks", "pids": [5], "t": 1})
    failed = fold.feed(
        {"k": "failed", "rank": 0, "code": 0, "signal": 9, "tail": "", "error": "too much", "t": 2}
    )
    ended = fold.feed({"k": "ended", "t": 3})
    assert failed is not None
    assert ended is not None
    assert (failed["error"], ended["error"], ended.get("cause", "")) == ("too much", "too much", "")


# --- the wire of D-Bus ------------------------------------------------------------------------------------------


def test_known_bytes_of_the_specification() -> None:
    assert dbus.encode("s", ("foo",)) == struct.pack("=I", 3) + b"foo\0"
    assert dbus.encode("yt", (1, 2)) == b"\1" + bytes(7) + struct.pack("=Q", 2)
    assert dbus.encode("at", ([5],)) == struct.pack("=II", 8, 0) + struct.pack("=Q", 5), (
        "no padding in the length"
    )
    assert dbus.encode("at", ([],)) == struct.pack("=II", 0, 0), (
        "an empty array is padded to its elements too"
    )
    assert dbus.encode("v", (("b", True),)) == b"\1b\0\0" + struct.pack("=I", 1)


def test_signatures_are_split_into_complete_types() -> None:
    assert dbus.split("ssa(sv)a(sa(sv))") == ["s", "s", "a(sv)", "a(sa(sv))"]
    with pytest.raises(ValueError, match="no end"):
        dbus.split("a(s")


_TYPES: dict[str, st.SearchStrategy[Any]] = {
    "s": st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    "t": st.integers(0, (1 << 64) - 1),
    "u": st.integers(0, (1 << 32) - 1),
    "i": st.integers(-(1 << 31), (1 << 31) - 1),
    "b": st.booleans(),
    "y": st.integers(0, 255),
    "ay": st.binary(),
}
_TYPES |= {f"a{kind}": st.lists(_TYPES[kind]) for kind in "stui"}
_TYPES["a(st)"] = st.lists(st.tuples(_TYPES["s"], _TYPES["t"]))
_TYPES["a{su}"] = st.dictionaries(_TYPES["s"], _TYPES["u"])
_TYPES["(yt(sb))"] = st.tuples(_TYPES["y"], _TYPES["t"], st.tuples(_TYPES["s"], _TYPES["b"]))


@given(st.lists(st.sampled_from(sorted(_TYPES)).flatmap(lambda kind: st.tuples(st.just(kind), _TYPES[kind]))))
def test_what_is_encoded_is_decoded(parts: list[tuple[str, Any]]) -> None:
    signature = "".join(kind for kind, _ in parts)
    values = tuple(value for _, value in parts)
    assert dbus.decode(signature, dbus.encode(signature, values)) == values
    boxed = [("v", part) for part in parts]
    assert dbus.decode("v" * len(parts), dbus.encode("v" * len(parts), tuple(v for _, v in boxed))) == tuple(
        parts
    )


class FakeManager:
    """Answers one connection after the other, each by the next of `lives`, on a Unix socket."""

    def __init__(self, path: str, *lives: Callable[[socket.socket], None]) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen()
        self.served = 0
        self._thread = threading.Thread(target=self._serve, args=(lives,), daemon=True)
        self._thread.start()

    def _serve(self, lives: tuple[Callable[[socket.socket], None], ...]) -> None:
        for life in lives:
            try:
                made, _ = self._listening.accept()
            except OSError:
                return
            with made:
                made.recv(4096)
                made.sendall(b"OK 0123456789abcdef\r\n")
                made.recv(65536)
                self.served += 1
                life(made)

    def close(self) -> None:
        """Ends the thread too, should it still wait for somebody."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5)


def message(kind: int, fields: list[tuple[int, tuple[str, Any]]], signature: str, *values: Any) -> bytes:
    body = dbus.encode(signature, values)
    fields = [*fields, (8, ("g", signature))]
    mark = ord("l") if sys.byteorder == "little" else ord("B")
    head = dbus.encode("yyyyuua(yv)", (mark, kind, 0, 1, len(body), 9, fields))
    return head + bytes(-len(head) % 8) + body


def starts(made: socket.socket) -> None:
    """Signals of others, the answer, the end of the job; in pieces."""
    foreign = message(dbus.SIGNAL, [(3, ("s", "JobRemoved"))], "uoss", 1, "/other", "x.scope", "failed")
    answer = message(dbus.RETURN, [(5, ("u", 1))], "o", "/job/7")
    removed = message(dbus.SIGNAL, [(3, ("s", "JobRemoved"))], "uoss", 7, "/job/7", "a.scope", "done")
    data = foreign + answer + foreign + removed
    for at in range(0, len(data), 11):
        made.sendall(data[at : at + 11])


def refuses(made: socket.socket) -> None:
    fields = [(5, ("u", 1)), (4, ("s", "org.freedesktop.DBus.Error.InvalidArgs"))]
    made.sendall(message(dbus.ERROR, fields, "s", "MemoryMax is no number"))


def exists(made: socket.socket) -> None:
    fields = [(5, ("u", 1)), (4, ("s", systemd.UNIT_EXISTS))]
    made.sendall(message(dbus.ERROR, fields, "s", "Unit a.scope already exists."))


def vanishes(_: socket.socket) -> None:
    """It executes itself again before it answers."""


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = str(tmp_path / "m")
    monkeypatch.setattr(systemd, "PRIVATE", path)
    made: list[FakeManager] = []

    def make(*lives: Callable[[socket.socket], None]) -> FakeManager:
        made.append(FakeManager(path, *lives))
        return made[0]

    yield make
    for each in made:
        each.close()


PROPERTIES = properties.of_unit(Limits(GIB, 4), os.getpid(), "a test", ["/dev/null"])


@pytest.mark.parametrize(
    ("lives", "there"),
    [
        ((starts,), False),
        ((vanishes, starts), False),
        ((vanishes,), True),
        ((vanishes, exists), True),
        ((vanishes, exists, exists, starts), False),  # what the old manager had begun, the new one gives up
    ],
)
def test_a_unit_is_made_once(manager: Any, lives: Any, there: bool) -> None:
    asked: list[int] = []
    served = manager(*lives)

    def is_there() -> bool:
        asked.append(1)
        return there and len(asked) == len(lives)

    systemd.start_scope("a.scope", PROPERTIES, is_there, 5)
    assert served.served == len(lives)


@pytest.mark.parametrize(("life", "words"), [(refuses, "MemoryMax is no number"), (exists, "already exists")])
def test_a_refusal_has_systemds_own_words(manager: Any, life: Any, words: str) -> None:
    manager(life)
    with pytest.raises(OSError, match=words) as caught:
        systemd.start_scope("a.scope", PROPERTIES, lambda: False, 5)
    assert caught.value.filename == "a.scope"


def test_a_manager_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "PRIVATE", str(tmp_path / "none"))
    monkeypatch.setattr(systemd, "BUS", str(tmp_path / "none"))
    with pytest.raises(OSError, match="systemd does not answer: No such file"):
        systemd.start_scope("a.scope", PROPERTIES, lambda: False, 0.1)
