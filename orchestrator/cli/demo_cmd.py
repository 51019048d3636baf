"""`demo`: the whole of Gangline on this machine in half a minute, told as it happens.

Comes in: nothing. Goes out: a story on stdout with its timings, exit code 0 if everything was as it should be, and no
process left. Called by: the command's table, `make demo`.

What it shows is real: processes, sockets, queue, ledger. Only the GPUs are emulated, and are called that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import paths
from orchestrator.cli.arguments import COUNT, Whole
from orchestrator.cli.verbs import Example, verb
from orchestrator.model.errors import GanglineError

if TYPE_CHECKING:
    from orchestrator.cli.contexts import Context
    from orchestrator.client import Client
    from orchestrator.model.cluster import ClusterSpec
    from orchestrator.wire.api import Explanation, Job

CLUSTER = "local-demo"
RANKS = 16
END_S = 60.0  # for anything that is waited for
LOOK_S = 0.1


@verb(
    "demo",
    examples=[
        Example("gangline demo", "bring a cluster up, run two gangs, take it down"),
        Example("gangline demo --keep", "leave the cluster up, to play with"),
    ],
)
@click.option("--keep", is_flag=True, help="Leave the cluster running; `gangline down` takes it down.")
@click.option(
    "--rounds",
    type=COUNT,
    default=3,
    show_default=True,
    metavar="N",
    help="All-reduces that the first gang does at least.",
)
@click.option(
    "--mib",
    type=Whole(1, 256),
    default=4,
    show_default=True,
    metavar="SIZE",
    help="Size of each rank's vector in MiB.",
)
def demo(keep: bool, rounds: int, mib: int) -> int:
    """Show everything on this machine: 4 nodes, 32 emulated GPUs, two gangs.

    A gang of 16 processes over 2 nodes sums vectors in a ring over TCP and checks every element and every byte moved.
    A second gang needs all 4 nodes, is seen waiting with its reason, and runs when the first has ended. Then
    everything is taken down again. Nothing is installed, and nothing leaves this machine.
    """
    story = Story()
    story.say(
        f"Gangline demo: 4 nodes with 8 emulated GPUs each, all played by this machine ({os.cpu_count()} cores)."
    )
    with _home(keep, story) as folder:
        spec = _spec()
        done = False
        try:
            with _up(spec, story) as client:
                _play(client, story, folder, rounds, mib)
            done = True
        finally:
            if not (keep and done):
                _take_down(spec, story, done)
        if keep:
            story.say(
                "\nThe cluster stays up: try `gangline nodes`, `gangline jobs`; `gangline down` takes it down."
            )
            return 0
    story.say(f"\nEverything took {story.seconds():.1f} s.")
    return 0


class Story:
    """Chapters on stdout."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._chapter = 0

    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """A line."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def chapter(self, title: str) -> None:
        """A heading."""
        self._chapter += 1
        self.say(f"\n{self._chapter}. {title}")

    def tell(self, text: str) -> None:
        """Lines of a chapter."""
        self.say("\n".join(f"   {line}".rstrip() for line in text.splitlines()))


class Unexpected(GanglineError):
    """The demo saw something else than it must show."""

    def __init__(self, message: str) -> None:
        super().__init__("demo.unexpected", message, "`gangline doctor` looks for what this machine lacks")


# --- where it lives ---------------------------------------------------------------------------------------------


@contextmanager
def _home(keep: bool, story: Story) -> Iterator[Path]:
    """A home of its own below the temporary folder, swept of what a killed demo left; the usual one with `--keep`."""
    if keep:
        yield paths.state_dir(CLUSTER)
        return
    folder, lock = _free_folder(
        (paths.home() or Path(tempfile.gettempdir())) / f"gangline-demo-{os.geteuid()}"
    )
    before = os.environ.get("GANGLINE_HOME")
    os.environ["GANGLINE_HOME"] = str(folder)
    try:
        _sweep(folder, story)
        yield folder
        shutil.rmtree(folder)
    finally:
        os.close(lock)
        if before is None:
            del os.environ["GANGLINE_HOME"]
        else:
            os.environ["GANGLINE_HOME"] = before


def _free_folder(base: Path) -> tuple[Path, int]:
    """The first folder of that name that no other demo works in, and the descriptor that holds its lock."""
    for number in count():
        folder = base.with_name(f"{base.name}-{number}") if number else base
        lock = _own(folder)
        if lock is not None:
            return folder, lock
    raise AssertionError("count() never ends")


def _own(folder: Path) -> int | None:
    """Take the folder for this demo; None if another one is at work there, or it is not ours."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or folder.is_symlink():
        return None
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep(folder: Path, story: Story) -> None:
    from orchestrator.cli.local_cmd import take_down

    state = folder / "state" / CLUSTER
    if state.is_dir():
        story.say("(an earlier demo was killed: taking down what it left)")
        take_down(CLUSTER, state, cancel_jobs=True, timeout_s=END_S, tell=lambda _text: None)
    for entry in folder.iterdir():
        if entry.name != "lock":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _spec() -> ClusterSpec:
    """The bundled example with its GPUs emulated, whatever this machine has."""
    from orchestrator import bundled
    from orchestrator.cli.changing import read
    from orchestrator.model.cluster import Emulate

    spec = read(str(bundled.find("inventories", CLUSTER, "cluster.yaml")))
    pools = tuple(
        replace(pool, gpu=replace(pool.gpu, emulate=Emulate.ALWAYS)) if pool.gpu is not None else pool
        for pool in spec.pools
    )
    return replace(spec, pools=pools)


@contextmanager
def _up(spec: ClusterSpec, story: Story) -> Iterator[Client]:
    from orchestrator.cli.contexts import connect, remember
    from orchestrator.cli.local_cmd import Bringing

    story.chapter("The cluster comes up: one controller, one agent per node")
    bringing = Bringing(spec, story.tell)
    context: Context = bringing.controller()
    remember(context)
    if bringing.nodes(context, END_S) != 0:
        raise Unexpected("not all nodes became ready")
    with connect(context, patience_s=20.0) as client:
        yield client


def _take_down(spec: ClusterSpec, story: Story, done: bool) -> None:
    from orchestrator.cli.local_cmd import take_down

    state = paths.state_dir(spec.name)
    if not done:
        story.say("")
    story.chapter("The cluster is taken down")
    take_down(spec.name, state, cancel_jobs=True, timeout_s=END_S, tell=story.tell)
    left = processes_of(state)
    if left:
        raise Unexpected(f"processes are left: {', '.join(map(str, left))}")
    story.tell("no process is left")


def processes_of(state: Path) -> list[int]:
    """Processes whose command or environment names the state folder: the controller, agents, shepherds, ranks."""
    needle = str(state).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if needle in (entry / "cmdline").read_bytes() or needle in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return sorted(found)


# --- the play -----------------------------------------------------------------------------------------------------


def _play(client: Client, story: Story, folder: Path, rounds: int, mib: int) -> None:
    seen = folder / "seen"  # the first gang goes on until the second one was seen waiting
    seen.unlink(missing_ok=True)
    first = _start_ring(client, story, seen, rounds, mib)
    second = _show_waiting(client, story, first)
    seen.parent.mkdir(parents=True, exist_ok=True)
    seen.touch()
    story.chapter("The first gang finishes its sums")
    _follow(client, story, first)
    story.chapter("The second gang has its nodes")
    _follow(client, story, second)


def _document(name: str, command: list[str], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gangline/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**spec, "time_limit": "5m", "command": command},
    }


def _start_ring(client: Client, story: Story, seen: Path, rounds: int, mib: int) -> int:
    from orchestrator.cli import demo_ring

    story.chapter(f"A gang of {RANKS} processes with one emulated GPU each starts, whole or not at all")
    command = [
        sys.executable,
        "-I",
        str(Path(demo_ring.__file__)),
        "--mib",
        str(mib),
        "--rounds",
        str(rounds),
        "--until",
        str(seen),
    ]
    began = time.monotonic()
    made = client.submit(_document("ring", command, tasks=RANKS, per_task={"gpus": 1}))
    job = _until(client, made.id, lambda job: job.state == "running")
    took = time.monotonic() - began
    parts = job.attempt.parts if job.attempt is not None else []
    pids = {pid for part in parts for pid in part.pids}
    story.tell(
        f"job {job.id} (ring) runs {took:.2f} s after submit: {len(pids)} processes under {len(parts)} shepherds"
    )
    story.tell(_parts(job))
    if len(pids) != RANKS or len(parts) != 2:
        raise Unexpected(f"{RANKS} processes on 2 nodes were asked for, {len(pids)} on {len(parts)} run")
    return made.id


def _parts(job: Job) -> str:
    from orchestrator.cli.tables import Cell, Head, render
    from orchestrator.cli.text import fold, indent

    heads = [Head("NODE"), Head("RANKS", right=True), Head("EMULATED GPUS", right=True), Head("PIDS")]
    rows = [
        [
            Cell(part.node),
            Cell(fold(list(range(part.first_rank, part.first_rank + part.tasks)))),
            Cell(fold(part.slots)),
            Cell(fold(part.pids)),
        ]
        for part in (job.attempt.parts if job.attempt is not None else [])
    ]
    return indent("\n".join(render(heads, rows)))


def _show_waiting(client: Client, story: Story, first: int) -> int:
    from orchestrator.cli.explain_cmd import words
    from orchestrator.cli.text import now

    story.chapter("A second gang needs all 4 nodes at once, and the first one holds 2 of them")
    line = 'echo "rank $GANGLINE_RANK on $GANGLINE_NODE has emulated GPUs $GANGLINE_EMULATED_GPUS"'
    made = client.submit(_document("everything", ["/bin/sh", "-c", line], nodes=4, per_node={"gpus": 8}))
    found = _until_explained(client, made.id)
    story.tell(words(found, now()))
    if first not in {blocker.job for blocker in found.blockers} or found.place != 1:
        raise Unexpected("the waiting gang does not name the first one as its blocker")
    return made.id


def _follow(client: Client, story: Story, job_id: int) -> None:
    """Its output and its end; anything but success ends the demo."""
    from orchestrator.cli.job_words import ending
    from orchestrator.cli.text import fold_names, safe_lines
    from orchestrator.client import follow

    job = _until(client, job_id, lambda job: job.attempt is not None and job.attempt.started_at is not None)
    story.tell(f"job {job_id} ({job.name}) on {fold_names(job.node_names)}:")
    for piece in follow(client, job_id):
        if piece.error is not None:
            raise piece.error
        story.tell(
            "\n".join(f"| {line}" for line in safe_lines(piece.data.decode("utf-8", "replace")).splitlines())
        )
    job = client.wait(job_id, END_S)
    story.tell(ending(job))
    if job.state != "succeeded":
        raise Unexpected(f"job {job_id} did not succeed")


def _until(client: Client, job_id: int, there: Callable[[Job], bool]) -> Job:
    """The job when it is as wanted, or has ended."""
    for job in client.watch(job_id, END_S):
        if there(job) or job.ended:
            return job
    raise Unexpected(f"job {job_id} has not come so far within {END_S:.0f} s")


def _until_explained(client: Client, job_id: int) -> Explanation:
    """Its reason, once a pass has looked at it."""
    deadline = time.monotonic() + END_S
    while True:
        found = client.explain(job_id)
        if found.reason is not None and found.reason.code not in ("wait.next-pass", "wait.starting"):
            return found
        if time.monotonic() > deadline:
            raise Unexpected(f"job {job_id} waits without a reason")
        time.sleep(LOOK_S)
