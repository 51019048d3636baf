"""The ring all-reduce: right sums, exact bytes, on real sockets; and it notices when a neighbour is wrong or gone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from orchestrator.cli import demo_ring


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def start(ranks: int, *options: str) -> list[subprocess.Popen[str]]:
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, "-I", demo_ring.__file__, *options],
            env={
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GANGLINE_NODE": f"n{rank % 2}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


def end(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    done = []
    for process in processes:
        out, err = process.communicate(timeout=60)
        done.append((process.returncode, out, err))
    return done


@pytest.mark.system
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_sum_is_right_and_every_socket_moves_what_theory_says(ranks: int) -> None:
    done = end(start(ranks, "--mib", "0.5", "--rounds", "2"))

    assert [code for code, _, _ in done] == [0] * ranks, done
    length = int(0.5 * (1 << 20)) // 8 // ranks * ranks
    lines = done[0][1].splitlines()
    assert f"sum: right in all {length:,} elements on {ranks} of {ranks} ranks, 2 round(s)" in lines
    moved = 2 * 2 * (ranks - 1) * (length // ranks) * 8
    theory = f"2 x 2 x {ranks - 1}/{ranks} x {length * 8:,}"
    assert f"bytes: each socket moved {moved:,} = {theory}, on {ranks} of {ranks} ranks" in lines
    nodes = ["n0", "n1"][:ranks]
    assert lines[-1] == f"processes: {ranks} pids on {len(nodes)} node(s): {', '.join(nodes)}"
    assert [out for _, out, _ in done[1:]] == [""] * (ranks - 1)


@pytest.mark.system
def test_it_goes_on_until_the_file_is_there(tmp_path: Path) -> None:
    flag = tmp_path / "seen"
    ranks = start(2, "--mib", "0.1", "--until", str(flag))
    try:
        assert ranks[0].stdout is not None
        for number in range(1, demo_ring.TOLD + 1):
            assert ranks[0].stdout.readline().startswith(f"round {number}: ")
        flag.touch()
        assert [code for code, _, _ in end(ranks)] == [0, 0]
    finally:
        for each in ranks:
            each.kill()


@pytest.mark.system
def test_a_rank_that_dies_fails_its_neighbours() -> None:
    ranks = start(3, "--mib", "0.1", "--rounds", "0")
    assert ranks[0].stdout is not None
    ranks[0].stdout.readline()
    ranks[1].kill()

    done = end(ranks)
    assert [code for code, _, _ in done] == [1, -9, 1]
    assert "rank 2: " in done[2][2]
    assert "Traceback" not in done[0][2] + done[2][2]


def test_the_closed_form_is_the_sum() -> None:
    size, length, turn = 7, 3000, 3
    total = array("q", bytes(8 * length))
    for rank in range(size):
        total = array("q", map(int.__add__, total, demo_ring.initial(rank, length, turn)))

    assert total == demo_ring.expected(size, length, turn)


def test_ideal_bytes_of_the_demo() -> None:
    assert demo_ring.ideal_bytes(16, (4 << 20) // 8) == 2 * 15 * (4 << 20) // 16 == 7_864_320


def test_a_wrong_sum_is_an_error() -> None:
    class Wrong(demo_ring.Ring):
        pass

    ring = Wrong(rank=0, size=1, right=socket.socket(), left=socket.socket(), control={})
    original = demo_ring.initial
    try:
        demo_ring.initial = lambda *_: array("q", bytes(80))
        with pytest.raises(demo_ring.RingError, match="the sum of round 1 is wrong"):
            demo_ring.run(ring, 10, 1, "")
    finally:
        demo_ring.initial = original
        ring.right.close()
        ring.left.close()


def test_ranks_need_nothing_of_the_environment_but_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["demo_ring.py", "--rounds", "1"])
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert "RANK" not in os.environ
    with pytest.raises(KeyError):
        demo_ring.main()
