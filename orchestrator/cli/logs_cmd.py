"""`logs`: what the ranks of a job have written, to the end or as it appears.

Comes in: an id, ranks. Goes out: the bytes on stdout, each rank's in order. Called by: the command's table; `run` uses
`Printer`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, BinaryIO

import click

from orchestrator.cli import completing, options
from orchestrator.cli.arguments import COUNT, JOB, NUMBER
from orchestrator.cli.session import note
from orchestrator.cli.verbs import Example, verb
from orchestrator.model.errors import GanglineError, InputError

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.wire.api import Job

LONGEST_HELD = 65536  # bytes of an unfinished line that are kept back for its end
READ = 1 << 20
PATIENCE_S = 30.0  # how long the controller may be away in the midst of it, as during its restart


class Printer:
    """Writes output of ranks so that lines of different ranks never mix.

    With one rank everything is passed on at once. With several, a line goes out when it is whole, behind its rank's
    number if labels are wanted.
    """

    def __init__(self, ranks: int, *, label: bool, sink: BinaryIO | None = None) -> None:
        self._whole_lines = ranks > 1 or label
        self._label = label
        self._wide = len(str(max(0, ranks - 1)))
        self._held: dict[int, bytes] = {}
        self._sink = sink if sink is not None else sys.stdout.buffer

    def write(self, rank: int, data: bytes) -> None:
        """Bytes of a rank."""
        if self._whole_lines:
            *lines, rest = (self._held.pop(rank, b"") + data).split(b"\n")
            if len(rest) >= LONGEST_HELD:
                lines, rest = [*lines, rest], b""
            if rest:
                self._held[rank] = rest
            data = b"".join(self._labelled(rank, line + b"\n") for line in lines)
        if data:
            self._sink.write(data)
            self._sink.flush()

    def finish(self) -> None:
        """Write what has no line end."""
        for rank in sorted(self._held):
            self._sink.write(self._labelled(rank, self._held[rank]) + b"\n")
        self._held.clear()
        self._sink.flush()

    def _labelled(self, rank: int, line: bytes) -> bytes:
        return f"[{rank:{self._wide}}] ".encode() + line if self._label else line


@verb(
    "logs",
    examples=[
        Example("gangline logs 12", "what all ranks of job 12 have written, rank by rank"),
        Example("gangline logs 12 -f --label", "as it appears, with the rank before each line"),
        Example(
            "gangline logs 12 --rank 3 --attempt 1 --tail 20",
            "the last lines of one rank of an earlier attempt",
        ),
    ],
)
@click.argument("name", metavar="ID", type=JOB, shell_complete=completing.any_job)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--rank", "ranks", multiple=True, metavar="N", help="Only these ranks; `all` is the default.")
@click.option("--attempt", type=COUNT, metavar="N", help="Of this attempt; the newest is the default.")
@click.option("--tail", type=NUMBER, metavar="LINES", help="Only so many last lines of each rank.")
@click.option("--label/--no-label", default=False, help="Write each line's rank before it.")
@options.controller
def logs(
    name: int | str, follow: bool, ranks: tuple[str, ...], attempt: int | None, tail: int | None, label: bool
) -> int:
    """Print what a job has written.

    Without -f each rank's output comes whole, rank after rank. With -f lines come as they appear, also those of later
    attempts. The output is passed on as the job wrote it.
    """
    from orchestrator.cli.contexts import connect
    from orchestrator.client.follow import ranks_of

    with connect() as client:  # where nobody answers at all, that is said soon
        job = client.job(name)
    _one_task(job)
    job_id = job.id
    number = attempt or _newest(job)
    if number == 0:
        _tell_nothing(job)
        if job.ended or not follow:
            return 0
    with connect(patience_s=PATIENCE_S) as client:
        wanted = _ranks(ranks, ranks_of(job, number) if number else job.ranks)
        printer = Printer(max(wanted, default=0) + 1 if len(wanted) > 1 else 1, label=label)
        if follow:
            failed = _follow(client, job_id, wanted if ranks else [], attempt, printer, tail)
        else:
            failed = _read_all(client, job_id, number, wanted, printer, tail)
    printer.finish()
    return 1 if failed else 0


def _one_task(job: Job) -> None:
    if job.tasks is not None:
        hint = (
            f"name a task, as in {job.label}; its tasks are {job.spec.array.tasks if job.spec.array else ''}"
        )
        raise InputError("logs.array", f"job {job.id} is an array, and each task has output of its own", hint)


def _newest(job: Job) -> int:
    if job.attempt is not None:
        return job.attempt.number
    return job.past[-1].number if job.past else 0


def _ranks(given: tuple[str, ...], count: int) -> list[int]:
    """`--rank 3 --rank 5-7`, or all."""
    words = [word for each in given for word in each.split(",")]
    if not words or "all" in words:
        return list(range(count))
    found: list[int] = []
    for word in words:
        first, _, last = word.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise click.BadParameter(f"'{word}' is no rank: write 3, 0-7 or all", param_hint="--rank")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def _tell_nothing(job: Job) -> None:
    why = f": {job.reason.sentence}" if job.reason else ""
    note(f"job {job.label} has not started yet{why}" if not job.ended else f"job {job.label} never started")


def _read_all(
    client: Client, job_id: int, attempt: int, ranks: list[int], printer: Printer, tail: int | None
) -> bool:
    """Each rank whole, as far as it has come; True if one could not be read."""
    failed = False
    for rank in ranks:
        try:
            if tail is not None:
                printer.write(rank, last_lines(client, job_id, attempt, rank, tail))
                continue
            offset = 0
            while True:
                chunk = client.logs(job_id, rank, offset=offset, limit=READ, attempt=attempt)
                printer.write(rank, chunk.data)
                offset = chunk.next
                if not chunk.data or offset >= chunk.size:
                    break
        except GanglineError as error:
            failed = True
            _complain(rank, error)
    return failed


def last_lines(client: Client, job_id: int, attempt: int, rank: int, count: int) -> bytes:
    """The last lines of what a rank has written so far, within its last mebibyte."""
    size = client.logs(job_id, rank, limit=1, attempt=attempt).size
    chunk = client.logs(job_id, rank, offset=max(0, size - READ), limit=READ, attempt=attempt)
    return last(chunk.data, count)


class Tail:
    """Keeps back what was there at the start of a follow, and lets only its last lines through."""

    def __init__(self, sizes: dict[int, int], count: int) -> None:
        self._left = dict(sizes)
        self._count = count
        self._kept: dict[int, bytes] = {}

    def pass_on(self, rank: int, data: bytes) -> bytes:
        """What of these bytes may be seen now."""
        left = self._left.get(rank, 0)
        if left <= 0:
            return data
        old, new = data[:left], data[left:]
        self._left[rank] = left - len(old)
        self._kept[rank] = (self._kept.get(rank, b"") + old)[-READ:]
        if self._left[rank] > 0:
            return b""
        return last(self._kept.pop(rank), self._count) + new


def last(data: bytes, count: int) -> bytes:
    """The last lines of some bytes; one without its end counts."""
    if count == 0:
        return b""
    lines = data.split(b"\n")
    return b"\n".join(lines[-(count + 1 if data.endswith(b"\n") else count) :])


def _follow(
    client: Client, job_id: int, ranks: list[int], attempt: int | None, printer: Printer, tail: int | None
) -> bool:
    from orchestrator.client import follow

    failed = False
    first = Tail(_sizes(client, job_id, ranks, attempt) if tail is not None else {}, tail or 0)
    for piece in follow(client, job_id, ranks, attempt=attempt):
        if piece.error is not None:
            failed = True
            _complain(piece.rank, piece.error)
        printer.write(piece.rank, first.pass_on(piece.rank, piece.data))
    return failed


def _sizes(client: Client, job_id: int, ranks: list[int], attempt: int | None) -> dict[int, int]:
    """How much each rank has written by now; nothing for a job that has not started."""
    job = client.job(job_id)
    number = attempt or _newest(job)
    if number == 0:
        return {}
    return {
        rank: client.logs(job_id, rank, limit=1, attempt=number).size for rank in ranks or range(job.ranks)
    }


def _complain(rank: int, error: GanglineError) -> None:
    from orchestrator.cli.text import safe

    note(f"rank {rank}: {safe(error.message)} [{error.code}]")
