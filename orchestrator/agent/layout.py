"""Where things lie on the node: the one place for names of files and folders.

Comes in: the state folder, an attempt. Goes out: paths. Called by: the daemon and every worker.

STATE/journal.jsonl  STATE/started.ids  STATE/history.jsonl  STATE/token  STATE/lock  STATE/notices
STATE/lease-SINCE
STATE/attempts/gangline-JOB-NUMBER/{plan.json,status.jsonl,prepare.jsonl,order.json,crash.txt,rank-N.log,work/,scratch/}
"""

from __future__ import annotations

import os
import zlib

from orchestrator.model.ids import AttemptId

INSTALLED = "/var/lib/gangline-agent"  # the state folder of an installed agent
PASSABLE = 0o711  # mode of folders above those that belong to users
USERS_UMASK = 0o022  # of a job's processes and of what is made in its name

LEASE = "lease"  # how its file's name begins, which ends with the time of its first contact
PLAN = "plan.json"  # what to run; written by the agent before the worker exists
STATUS = "status.jsonl"  # the worker's record; its appearance claims the attempt for one worker for ever
PREPARE = "prepare.jsonl"  # the preparer's record
ORDER = "order.json"  # the agent's wish that it ends
CRASH = "crash.txt"  # a worker's own error, for people
WORK = "work"  # the working directory of a job that names none; kept with the logs
SCRATCH = "scratch"  # purged before the attempt counts as ended


def attempt_dir(state_dir: str, attempt: AttemptId) -> str:
    """The folder of one attempt."""
    return os.path.join(state_dir, "attempts", attempt.unit)


def log_path(directory: str, rank: int) -> str:
    """The output of one rank, unless the job says where it goes."""
    return os.path.join(directory, f"rank-{rank}.log")


def place_of(node: str, state_dir: str) -> str:
    """What tells units of several agents on one machine apart: the node's name and a sum of the state folder."""
    return f"{node}.{zlib.crc32(os.path.realpath(state_dir).encode()):08x}"


def unit_suffix(state_dir: str) -> str:
    """What follows the attempt in the name of a systemd unit: nothing for the machine's own agent, and what tells its
    units apart for any other, since a machine has each name once."""
    real = os.path.realpath(state_dir)
    return "" if real == os.path.realpath(INSTALLED) else f".{zlib.crc32(real.encode()):08x}"


def marker(attempt: AttemptId, place: str) -> str:
    """The value of GANGLINE_UNIT in the environment of every process of the unit."""
    return f"{attempt.unit}@{place}"
