"""A job that we stay with: its waiting told, its output passed on, its end returned.

Comes in: a client, a job's id. Goes out: output on stdout, words on stderr, an exit code. Called by: run_cmd,
submit_cmd (`--wait`), demo_cmd.
"""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from orchestrator.cli.completing import LIVE
from orchestrator.cli.errors import INTERRUPTED, lines
from orchestrator.cli.job_words import ending, title
from orchestrator.cli.logs_cmd import Printer
from orchestrator.cli.text import fold_names, safe, safe_lines, wrap
from orchestrator.model.errors import GanglineError, Unavailable

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.wire.api import Explanation, Job

PATIENCE_S = 120.0  # how long a controller may be away, as during its restart, until we give up staying
LOOK_S = 2.0  # between two looks at why a job waits
SOON_S = 0.7  # a start takes less: until then these are not worth a line
BRIEF = ("wait.next-pass", "wait.starting")
LONGEST_WHY = 1024  # characters that the API takes
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Status:
    """What a job waits for: rewritten in place on a terminal, a new line elsewhere when it changes."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._shown = ""
        self._height = 0

    def update(self, text: str) -> None:
        """Show this instead of the last one."""
        if self._quiet or text == self._shown:
            return
        self.clear()
        if self._terminal:
            most = shutil.get_terminal_size((100, 24)).columns - 1
            lines = wrap(text, "    ", most).split("\n")
            self._height = len(lines)
            text_shown = "\n".join(lines)
        else:
            text_shown = text + "\n"
        sys.stderr.write(text_shown)
        sys.stderr.flush()
        self._shown = text

    def clear(self) -> None:
        """Take it away before something else is printed."""
        if self._height:
            up = f"\x1b[{self._height - 1}A" if self._height > 1 else ""
            sys.stderr.write(f"\r{up}\x1b[J")
            sys.stderr.flush()
        self._shown, self._height = "", 0

    def leave(self) -> None:
        """Let it stand where it is, since the terminal has echoed a key behind it, and go on below."""
        if self._height:
            sys.stderr.write("\n")
        self._shown, self._height = "", 0

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self.clear()
            sys.stderr.write(text + "\n")
            sys.stderr.flush()


class Attached:
    """One job and this terminal. Signals ask it to end; its code becomes ours."""

    def __init__(
        self,
        client: Client,
        *,
        label: bool = False,
        quiet: bool = False,
        output: bool = True,
        own: bool = False,
    ) -> None:
        """`output`: pass it on. `own`: the job is ours alone, and one that can't be prepared is not left behind."""
        self._own = own
        self._client = client
        self._label = label
        self._output = output
        self._status = Status(quiet=quiet)
        self._job = 0
        self._asked = 0  # how often we were asked to leave

    def stay(self, job_id: int) -> int:
        """Stay with a job until its end; its exit code, or 130 if it ended because we were interrupted."""
        self._job = job_id
        with self._signals():
            started = self._wait_for_start()
            if self._output and (not started.ended or started.past):
                self._stream()
            job = self._client.wait(job_id)
        self._status.say(ending(job))
        if self._asked:
            return INTERRUPTED
        return _code(job)

    # --- waiting ----------------------------------------------------------------------------------------------

    def _wait_for_start(self) -> Job:
        """Tell why it waits until its ranks run, or it is over without having run."""
        job = self._client.job(self._job)
        tell_at = time.monotonic() + SOON_S
        while not job.ended and (job.attempt is None or job.attempt.started_at is None):
            if job.state == "held" and job.faults and not self._asked:
                self._give_up(job)
            told = self._explain()
            brief = told is None or told.reason is None or told.reason.code in BRIEF
            soon = tell_at - time.monotonic() if brief else 0.0
            if soon <= 0:
                self._status.update(waiting_words(job, told))
            job = self._client.wait_once(self._job, soon if soon > 0 else LOOK_S, job.revision)
        self._status.clear()
        if job.attempt is not None and not job.ended:
            self._status.say(f"{title(job)} runs on {fold_names(job.node_names)}")
        return job

    def _give_up(self, job: Job) -> NoReturn:
        """No node can set it up: it is held until a person repairs it, and nobody may be there to do that."""
        self._status.clear()
        if self._own:
            self._cancel(f"it could not be prepared: {'; '.join(job.faults)}")
            hint = "it was cancelled; put right what the nodes say, and run it again"
        else:
            hint = f"put right what the nodes say, then `gangline release {job.id}`"
        raise Unavailable(
            "job.not-prepared", f"{title(job)} could not be prepared: {'; '.join(job.faults)}", hint
        )

    def _explain(self) -> Explanation | None:
        try:
            return self._client.explain(self._job)
        except GanglineError:
            return None

    # --- output -----------------------------------------------------------------------------------------------

    def _stream(self) -> None:
        from orchestrator.client import follow

        printer: Printer | None = None
        try:
            for piece in follow(self._client, self._job):
                if printer is None:
                    printer = Printer(self._client.job(self._job).ranks, label=self._label)
                if piece.error is not None:
                    self._status.say(f"rank {piece.rank}: {safe(piece.error.message)} [{piece.error.code}]")
                printer.write(piece.rank, piece.data)
            if printer is not None:
                printer.finish()
        except BrokenPipeError:
            self._reader_left()

    def _reader_left(self) -> None:
        """Nobody reads on (`| head`): what would end a command here ends the job."""
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self._status.say(f"nobody reads the output any more: asking job {self._job} to end")
        self._cancel("nobody read its output any more")

    # --- signals ----------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Our signals become requests to the job; only in the main thread, where Python has them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._asked += 1
        self._status.leave()
        if self._asked > 2:
            self._status.say(f"left job {self._job} alone; `gangline job show {self._job}` tells how it is")
            raise KeyboardInterrupt
        if self._asked == 1:
            self._status.say(f"asking job {self._job} to end; once more kills it now")
        else:
            self._status.say(f"killing job {self._job}; once more leaves it alone")
        threading.Thread(target=self._cancel, args=("interrupted", self._asked > 1), daemon=True).start()

    def _cancel(self, why: str, now: bool = False) -> None:
        """`why` stays with the job: whoever looks at it later has nothing else."""
        try:
            self._client.cancel(self._job, why[:LONGEST_WHY], now=now)
        except GanglineError as error:
            if error.http_status != 409:  # it has ended by itself
                self._status.say(safe_lines(lines(error)).rstrip())


def waiting_words(job: Job, explained: Explanation | None) -> str:
    """One line: that it waits, why, at which place."""
    reason = explained.reason if explained is not None else job.reason
    if reason is None:
        return f"{title(job)}: {job.state}"
    place = (
        f" (place {explained.place} of {explained.waiting})"
        if explained is not None and explained.place
        else ""
    )
    if job.state == "held":
        return f"{title(job)}: {safe(reason.sentence)}"
    return f"{title(job)} waits{place}: {safe(reason.sentence)}"


def stay_with_array(client: Client, array: int) -> int:
    """Until all tasks of an array have ended; 0 if all have succeeded, else the highest of their codes."""
    while True:
        left = list(client.jobs(array=array, states=LIVE, most=1))
        if not left:
            break
        client.wait_once(left[0].label, LOOK_S)
    tasks = client.job(array).tasks
    if tasks is None or set(tasks.states) <= {"succeeded"}:
        return 0
    return tasks.exit_code & 0xFF or 1


def _code(job: Job) -> int:
    """The job's code as a process may return it; one that failed without a code of its own returns 1."""
    if job.state == "succeeded":
        return 0
    return (job.exit_code or 0) & 0xFF or 1
