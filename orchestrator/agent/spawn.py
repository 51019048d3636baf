"""Starting the ranks of a unit: one process group each, born inside the box, with the user's rights.

Comes in: a plan, an identity, a box. Goes out: pids and open outputs. Called by: the shepherd.

posix_spawn, not fork: the shepherd enters the box and takes the user's rights for a moment, so that each rank is
born with both, and no copy of an interpreter is made per rank.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.agent import layout
from orchestrator.agent.containment import Containment
from orchestrator.agent.identity import Identity, acting_as
from orchestrator.agent.plan import Plan

NOT_FOUND = 127  # as shells say it
NOT_EXECUTABLE = 126

# Prints a message and leaves with a code: stands in for a command that can't be started, so that such a rank has a
# pid, an output and a result like any other.
_COMPLAIN = 'printf "gangline: %s\\n" "$1" >&2; exit "$2"'

# What the job names is opened with the user's rights, so that no link leads to what is not theirs.
_OUTPUT = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOCTTY

_RESET = [
    signal.SIGPIPE,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGCHLD,
    signal.SIGUSR1,
]
_RESET += [signal.SIGXFSZ]


@dataclass(slots=True)
class Rank:
    """A process that the shepherd started. `output` is open for reading too: the tail is read from it."""

    rank: int
    pid: int
    output: int


def start_all(plan: Plan, directory: str, identity: Identity, box: Containment) -> list[Rank]:
    """Start every rank of the plan, in order. OSError if the node can't make processes or open an output."""
    _raise_limits()
    ours = os.umask(layout.USERS_UMASK)
    devnull = os.open("/dev/null", os.O_RDONLY)
    own_logs = {each.rank: _open_own_log(directory, each.rank) for each in plan.ranks if not each.output}
    env = {**identity.env(), **plan.env}
    started: list[Rank] = []
    with _inside(box), acting_as(identity):
        os.chdir(plan.workdir)
        for each in plan.ranks:
            output = own_logs[each.rank] if each.rank in own_logs else os.open(each.output, _OUTPUT, 0o644)
            started.append(Rank(each.rank, _spawn(plan.argv, {**env, **each.env}, devnull, output), output))
    os.chdir("/")
    os.umask(ours)
    os.close(devnull)
    return started


@contextlib.contextmanager
def _inside(box: Containment) -> Iterator[None]:
    box.create()
    box.enter()
    try:
        yield
    finally:
        box.leave()


def _raise_limits() -> None:
    """Pinned memory has no bound for RDMA and CUDA; without CAP_SYS_RESOURCE it is what the agent itself may have."""
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    for limit in (resource.RLIM_INFINITY, hard):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
            return


def _open_own_log(directory: str, rank: int) -> int:
    """In the attempt's folder, which is the agent's: opened with its rights, and written through the descriptor."""
    return os.open(layout.log_path(directory, rank), _OUTPUT | os.O_NOFOLLOW, 0o600)


def _spawn(argv: tuple[str, ...], env: dict[str, str], devnull: int, output: int) -> int:
    path = find_program(argv[0], env.get("PATH", ""))
    try:
        return _posix_spawn(path or argv[0], argv, env, devnull, output)
    except (FileNotFoundError, NotADirectoryError):
        return _complain(f"{argv[0]}: command not found", NOT_FOUND, env, devnull, output)
    except OSError as error:
        return _complain(f"{argv[0]}: {error.strerror}", NOT_EXECUTABLE, env, devnull, output)


def _complain(message: str, code: int, env: dict[str, str], devnull: int, output: int) -> int:
    return _posix_spawn(
        "/bin/sh", ("sh", "-c", _COMPLAIN, "gangline", message, str(code)), env, devnull, output
    )


def _posix_spawn(path: str, argv: tuple[str, ...], env: dict[str, str], devnull: int, output: int) -> int:
    return os.posix_spawn(
        path,
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, devnull, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setpgroup=0,
        setsigmask=[],
        setsigdef=_RESET,
    )


def find_program(name: str, path: str) -> str:
    """Where `name` is found in a PATH, as the job's own environment has it; empty if nowhere. Names with a slash
    are taken as they are."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK, effective_ids=True) and not os.path.isdir(candidate):
            return candidate
    return ""
