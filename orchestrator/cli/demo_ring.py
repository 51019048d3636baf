"""A ring all-reduce over TCP between the processes of a gang, with its sum and its bytes checked: the demo's workload.

Comes in: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, PET_LOCAL_ADDR as Gangline sets them, and options. Goes out: a
line per round and a summary from rank 0, exit code 0 if every rank's vector is right to the last element. Called by:
the ranks of the demo's first gang, as a program of its own (`python3 -I demo_ring.py`); standard library only.

Each rank holds one vector of 64-bit integers in N chunks. N-1 steps of reduce-scatter leave each rank with one finished
chunk, N-1 steps of all-gather hand those round, so that each socket moves 2 (N-1)/N of the vector per round (Patarasuk
and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). That figure is checked too.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import selectors
import socket
import struct
import sys
import time
from array import array
from dataclasses import dataclass
from typing import Any

WORD = 8  # bytes of one element
PATTERN = 1021  # elements after which a rank's vector repeats; prime, so that no chunk starts like another
TOLD, TOLD_EVERY = 5, 10  # rounds that get a line: the first five, then every tenth
PATIENCE_S = 60.0  # for the other ranks to come up, and for any one of them to move


class RingError(Exception):
    """The ring can't do its work; the text says which rank saw what."""


@dataclass
class Ring:
    """This rank's place: sockets to its neighbours, one connection to rank 0 for reports, bytes moved so far."""

    rank: int
    size: int
    right: socket.socket
    left: socket.socket
    control: dict[int, socket.socket]
    sent: int = 0
    received: int = 0
    counted: int | None = None  # what the kernel counted on the left socket


# --- meeting ---------------------------------------------------------------------------------------------------


def meet(rank: int, size: int, master: tuple[str, int], address: str) -> Ring:
    """Find the neighbours: each rank tells rank 0 where it listens, rank 0 tells all."""
    door = socket.create_server((address, 0), backlog=4)
    door.settimeout(PATIENCE_S)
    mine = list(door.getsockname()[:2])
    if rank == 0:
        control, doors = _host(size, master, mine)
    else:
        link = _join(rank, master, mine)
        control, doors = {0: link}, dict(receive_message(link))
    right = socket.create_connection(tuple(doors[(rank + 1) % size]), timeout=PATIENCE_S)
    left, _ = door.accept()
    door.close()
    for link in (left, right):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setblocking(False)
    return Ring(rank, size, right, left, control)


def _host(
    size: int, master: tuple[str, int], mine: list[Any]
) -> tuple[dict[int, socket.socket], dict[int, Any]]:
    """Rank 0: wait for all others at the rendezvous, then tell each where all listen."""
    control: dict[int, socket.socket] = {}
    doors: dict[int, Any] = {0: mine}
    with socket.create_server(master, backlog=size) as desk:
        desk.settimeout(PATIENCE_S)
        while len(control) < size - 1:
            peer, _ = desk.accept()
            peer.settimeout(PATIENCE_S)
            rank, door = receive_message(peer)
            control[rank], doors[rank] = peer, door
    for link in control.values():
        send_message(link, sorted(doors.items()))
    return control, doors


def _join(rank: int, master: tuple[str, int], mine: list[Any]) -> socket.socket:
    """Other ranks: tell rank 0 where we listen, once it is there."""
    deadline = time.monotonic() + PATIENCE_S
    while (link := _knock(master)) is None:
        if time.monotonic() > deadline:
            raise RingError(f"rank {rank}: rank 0 does not answer at {master[0]}:{master[1]}")
        time.sleep(0.02)
    send_message(link, [rank, mine])
    return link


def _knock(master: tuple[str, int]) -> socket.socket | None:
    try:
        return socket.create_connection(master, timeout=PATIENCE_S)
    except ConnectionRefusedError:
        return None


def send_message(link: socket.socket, value: object) -> None:
    """One JSON value with its length before it."""
    text = json.dumps(value).encode()
    link.sendall(struct.pack("!I", len(text)) + text)


def receive_message(link: socket.socket) -> list[Any]:
    """The inverse of `send_message`."""
    (length,) = struct.unpack("!I", _exactly(link, 4))
    value: list[Any] = json.loads(_exactly(link, length))
    return value


def _exactly(link: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = link.recv(count - len(data))
        if not piece:
            raise RingError("a rank left before it had said everything")
        data += piece
    return bytes(data)


# --- the all-reduce --------------------------------------------------------------------------------------------


def exchange(ring: Ring, outgoing: memoryview, incoming: memoryview) -> None:
    """Send one chunk to the right while one arrives from the left; neither waits for the other."""
    out, into = outgoing.cast("B"), incoming.cast("B")
    sent = got = 0
    with selectors.DefaultSelector() as ready:
        ready.register(ring.right, selectors.EVENT_WRITE)
        ready.register(ring.left, selectors.EVENT_READ)
        while sent < len(out) or got < len(into):
            events = ready.select(PATIENCE_S)
            if not events:
                raise RingError(f"rank {ring.rank}: nothing has moved for {PATIENCE_S:.0f} s")
            for key, _ in events:
                if key.fileobj is ring.right:
                    sent += ring.right.send(out[sent:])
                    if sent == len(out):
                        ready.unregister(ring.right)
                else:
                    got += _read_some(ring, into[got:])
                    if got == len(into):
                        ready.unregister(ring.left)
    ring.sent += sent
    ring.received += got


def _read_some(ring: Ring, into: memoryview) -> int:
    count = ring.left.recv_into(into)
    if count == 0:
        raise RingError(f"rank {ring.rank}: its left neighbour has gone")
    return count


def all_reduce(ring: Ring, vector: array[int]) -> None:
    """Leave the sum over all ranks in every rank's `vector`, whose length is a multiple of their number."""
    chunk = len(vector) // ring.size
    whole = memoryview(vector)
    arrived = array("q", bytes(chunk * WORD))

    def part(index: int) -> slice:
        start = index % ring.size * chunk
        return slice(start, start + chunk)

    for step in range(ring.size - 1):  # reduce-scatter
        exchange(ring, whole[part(ring.rank - step)], memoryview(arrived))
        mine = part(ring.rank - step - 1)
        whole[mine] = memoryview(array("q", map(operator.add, whole[mine], arrived)))
    for step in range(ring.size - 1):  # all-gather
        exchange(ring, whole[part(ring.rank - step + 1)], whole[part(ring.rank - step)])


# --- what is summed, and what must come out ---------------------------------------------------------------------


def initial(rank: int, length: int, turn: int) -> array[int]:
    """Rank's vector in a round: element i is (rank + 1) (i mod 1021 + turn)."""
    row = array("q", ((rank + 1) * (place + turn) for place in range(PATTERN)))
    return (row * (length // PATTERN + 1))[:length]


def expected(size: int, length: int, turn: int) -> array[int]:
    """The sum over ranks in closed form: N (N + 1) / 2 times the vector of rank 0."""
    total = size * (size + 1) // 2
    row = array("q", (total * (place + turn) for place in range(PATTERN)))
    return (row * (length // PATTERN + 1))[:length]


def ideal_bytes(size: int, length: int) -> int:
    """What each socket must move in a round: 2 (N-1)/N of the vector."""
    return 2 * (size - 1) * length * WORD // size


# --- the program ------------------------------------------------------------------------------------------------


def options() -> argparse.Namespace:
    """How much, how often."""
    reader = argparse.ArgumentParser(description="Ring all-reduce over TCP between the ranks of a gang.")
    reader.add_argument("--mib", type=float, default=4.0, help="size of each rank's vector in MiB")
    reader.add_argument("--rounds", type=int, default=1, help="how often it is summed at least; 0: for ever")
    reader.add_argument("--until", default="", help="go on until this file is there")
    return reader.parse_args()


def goes_on(ring: Ring, turn: int, rounds: int, until: str) -> bool:
    """Whether there is another round: rank 0 decides, so that all stop after the same one."""
    if ring.rank != 0:
        return bool(receive_message(ring.control[0])[0])
    more = rounds == 0 or turn < rounds or (until != "" and not os.path.exists(until))  # noqa: PTH110 - pathlib costs each rank its import
    for link in ring.control.values():
        send_message(link, [more])
    return more


def run(ring: Ring, length: int, rounds: int, until: str) -> None:
    """All rounds; each checks its sum before the next begins."""
    turn = 0
    while goes_on(ring, turn, rounds, until):
        turn += 1
        vector = initial(ring.rank, length, turn)
        began = time.monotonic()
        all_reduce(ring, vector)
        took = time.monotonic() - began
        if vector != expected(ring.size, length, turn):
            raise RingError(f"rank {ring.rank}: the sum of round {turn} is wrong")
        if ring.rank == 0 and (turn <= TOLD or turn % TOLD_EVERY == 0):
            say(f"round {turn}: {length:,} sums right on rank 0 after {took:.2f} s")
    moved = turn * ideal_bytes(ring.size, length)
    ring.counted = kernel_received(ring.left)
    if (ring.sent, ring.received) != (moved, moved) or ring.counted not in (None, moved):
        raise RingError(
            f"rank {ring.rank}: moved {ring.sent:,} bytes out and {ring.received:,} in "
            f"(the kernel says {ring.counted}); 2(N-1)/N asks for {moved:,}"
        )
    report(ring, turn, length)


TCP_INFO_RECEIVED = 128  # offset of tcpi_bytes_received in struct tcp_info (linux/tcp.h, since Linux 4.1)


def kernel_received(link: socket.socket) -> int | None:
    """Payload bytes that the kernel has counted in on this socket; None where it does not tell."""
    try:
        info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_RECEIVED + 8)
    except OSError:
        return None
    return (
        int(struct.unpack_from("Q", info, TCP_INFO_RECEIVED)[0])
        if len(info) == TCP_INFO_RECEIVED + 8
        else None
    )


def report(ring: Ring, turns: int, length: int) -> None:
    """Every rank tells rank 0 that it was right and what it moved; rank 0 prints it and lets all go."""
    mine = {
        "rank": ring.rank,
        "pid": os.getpid(),
        "node": os.environ.get("GANGLINE_NODE", ""),
        "sent": ring.sent,
        "received": ring.received,
        "counted": ring.counted,
    }
    if ring.rank != 0:
        send_message(ring.control[0], [mine])
        receive_message(ring.control[0])
        return
    found = [mine, *(receive_message(link)[0] for link in ring.control.values())]
    for link in ring.control.values():
        send_message(link, [])
    summarise(found, turns, length)


def summarise(found: list[dict[str, Any]], turns: int, length: int) -> None:
    """The lines of rank 0 at the end."""
    size = len(found)
    moved = turns * ideal_bytes(size, length)
    right = sum(1 for each in found if each["sent"] == moved and each["received"] == moved)
    pids = len({each["pid"] for each in found})
    nodes = sorted({str(each["node"]) for each in found})
    say(f"sum: right in all {length:,} elements on {size} of {size} ranks, {turns} round(s)")
    theory = f"{turns} x 2 x {size - 1}/{size} x {length * WORD:,}"
    say(f"bytes: each socket moved {moved:,} = {theory}, on {right} of {size} ranks")
    if all(each["counted"] == moved for each in found):
        say("kernel: TCP_INFO of every socket counts the same bytes")
    say(f"processes: {pids} pids on {len(nodes)} node(s): {', '.join(nodes)}")
    if right != size:
        raise RingError("a socket moved something else")


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Meet, sum, check."""
    asked = options()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    length = max(size, int(asked.mib * (1 << 20)) // WORD // size * size)
    try:
        ring = meet(rank, size, master, os.environ.get("PET_LOCAL_ADDR") or "127.0.0.1")
        run(ring, length, asked.rounds, asked.until)
    except RingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"rank {rank}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
