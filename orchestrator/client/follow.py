"""A job's output as it is written, of all its ranks at once.

Comes in: a client, a job, ranks. Goes out: pieces of output in the order in which they arrive, each rank's bytes
complete and in order. Called by: cli (`logs -f`, `run`), SDK users.

Reads are long polls, one thread per rank up to `MOST_READERS`; larger gangs share the threads, whose polls are then
short. The consumer sets the pace: at most `PIECES_AHEAD` pieces are read ahead of it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.client.client import Client
from orchestrator.model.errors import GanglineError, Unavailable
from orchestrator.wire.api import Job

MOST_READERS = 32
PIECES_AHEAD = 256
LONG_POLL_S = 20
OUTAGE_S = (
    60.0  # a controller may be away for so long, beyond the client's own patience, before a rank is given up
)
RETRY_S = 1.0  # between two tries meanwhile
_TICK_S = 0.2  # how often a blocked reader looks whether the consumer has gone


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of one rank's output. `error` instead of data: the rest of this rank can't be read, and why."""

    attempt: int
    rank: int
    data: bytes
    error: GanglineError | None = None


def follow(
    client: Client,
    job: int,
    ranks: Sequence[int] = (),
    *,
    attempt: int | None = None,
    from_start: bool = True,
) -> Iterator[Output]:
    """Pieces of output until the job has ended; of `attempt` alone if given. `ranks` empty: all.

    Waits for the first attempt. `from_start` False: only what is written from now on. NotFound for an unknown job.
    """
    done = 0
    for seen in client.watch(job):
        number = _attempt_of(seen) if attempt is None else attempt
        if number > done and (attempt is not None or _has_output(seen, number)):
            wanted = tuple(ranks) or tuple(range(ranks_of(seen, number)))
            yield from _follow_attempt(_Readers(client, job, number, wanted), from_start=from_start)
            done = number
            if attempt is not None:
                return


def ranks_of(job: Job, attempt: int) -> int:
    """How many ranks an attempt has."""
    if job.attempt is not None and job.attempt.number == attempt:
        return sum(part.tasks for part in job.attempt.parts)
    for past in job.past:
        if past.number == attempt:
            return sum(placement.tasks for placement in past.placements)
    return job.ranks


def _attempt_of(job: Job) -> int:
    if job.attempt is not None:
        return job.attempt.number
    return job.past[-1].number if job.past else 0


def _has_output(job: Job, number: int) -> bool:
    """An attempt that never started printed nothing."""
    if job.attempt is not None and job.attempt.number == number:
        return job.attempt.started_at is not None
    return any(past.number == number and past.started_at is not None for past in job.past)


class _Readers:
    """Threads that take ranks from one deque, read on, and put them back until they have ended."""

    def __init__(self, client: Client, job: int, attempt: int, ranks: Sequence[int]) -> None:
        self._client, self._job, self.attempt = client, job, attempt
        self._ranks: deque[tuple[int, int]] = deque((rank, 0) for rank in ranks)
        self._wait_s = LONG_POLL_S if len(ranks) <= MOST_READERS else 1
        self.pieces: queue.Queue[Output | None] = queue.Queue(PIECES_AHEAD)
        self.stop = threading.Event()
        self._open = len(ranks)
        self._away_since: dict[int, float] = {}  # ranks whose last read found nobody
        self._lock = threading.Lock()

    def start(self, from_start: bool) -> None:
        """Start the threads; None in `pieces` means that all ranks have ended."""
        if not self._ranks:
            self.pieces.put(None)
            return
        if not from_start:
            self._skip_to_end()
        for number in range(min(len(self._ranks), MOST_READERS)):
            threading.Thread(target=self._run, name=f"logs-{number}", daemon=True).start()

    def _skip_to_end(self) -> None:
        self._ranks = deque(
            (rank, self._client.logs(self._job, rank, limit=1, attempt=self.attempt).size)
            for rank, _ in self._ranks
        )

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                rank, offset = self._ranks.popleft()
            except IndexError:
                return  # every rank left is in another thread's hands
            if self._read(rank, offset):
                self._rank_ended()

    def _read(self, rank: int, offset: int) -> bool:
        """One read of a rank; True when it has no more."""
        try:
            chunk = self._client.logs(
                self._job, rank, offset=offset, wait_s=self._wait_s, attempt=self.attempt
            )
        except GanglineError as error:
            if isinstance(error, Unavailable) and self._may_come_back(rank):
                self.stop.wait(RETRY_S)
                self._ranks.append((rank, offset))
                return False
            self._put(Output(self.attempt, rank, b"", error))
            return True
        self._away_since.pop(rank, None)
        if chunk.data:
            self._put(Output(self.attempt, rank, chunk.data))
        if chunk.ended and chunk.next >= chunk.size:
            return True
        self._ranks.append((rank, chunk.next))
        return False

    def _may_come_back(self, rank: int) -> bool:
        """Whether the outage that this rank's reads meet is still short."""
        now = time.monotonic()
        return now - self._away_since.setdefault(rank, now) < OUTAGE_S

    def _rank_ended(self) -> None:
        with self._lock:
            self._open -= 1
            last = self._open == 0
        if last:
            self._put(None)

    def _put(self, piece: Output | None) -> None:
        while not self.stop.is_set():
            try:
                self.pieces.put(piece, timeout=_TICK_S)
                return
            except queue.Full:
                continue


def _follow_attempt(readers: _Readers, *, from_start: bool) -> Iterator[Output]:
    try:
        readers.start(from_start)
        while (piece := readers.pieces.get()) is not None:
            yield piece
    finally:
        readers.stop.set()
