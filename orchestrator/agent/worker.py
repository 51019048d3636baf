"""What all workers share: reading their plan, saying who they are, writing down their own crash.

Comes in: an attempt's folder. Goes out: plans, first records, crash notes. Called by: shepherd, preparer, mop,
nursery.
"""

from __future__ import annotations

import ctypes
import json
import os
from functools import lru_cache

from orchestrator.agent import layout, procfs
from orchestrator.agent.plan import Plan
from orchestrator.agent.status import Record
from orchestrator.model.clock import Clock
from orchestrator.model.codec import CodecError, decode
from orchestrator.model.protocol import EndOrder

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def become_subreaper() -> None:
    """From now on, what our descendants leave behind becomes our child."""
    if _libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@lru_cache(maxsize=1)
def boot_id() -> str:
    """The kernel's name for this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def read_plan(directory: str) -> Plan:
    """The plan that the agent wrote before the worker existed."""
    with open(os.path.join(directory, layout.PLAN), encoding="utf-8") as file:
        return decode(Plan, json.load(file))


def identity_record(kind: str, clock: Clock) -> Record:
    """Who writes this file: pid and start together name one process of one boot."""
    pid = os.getpid()
    return {
        "k": "worker",
        "do": kind,
        "pid": pid,
        "start": procfs.start_of(pid),
        "boot": boot_id(),
        "t": clock.now_us(),
    }


def warm_up() -> None:
    """Do once, before the forks, what each worker would else do for itself."""
    _libc()
    boot_id()
    for cls in (Plan, EndOrder):
        try:
            decode(cls, {})
        except CodecError:
            pass


def name_process(name: str) -> None:
    """What `ps` and `top` show, at most 15 bytes."""
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)


def note_crash(directory: str, error: BaseException) -> None:
    """Leave the error where the agent finds it: it becomes the attempt's error."""
    try:
        with open(os.path.join(directory, layout.CRASH), "w", encoding="utf-8") as file:
            file.write(f"{type(error).__name__}: {error}\n")
    except OSError:
        pass


def read_crash(directory: str) -> str:
    """What a worker left, on one line; empty if nothing."""
    try:
        with open(os.path.join(directory, layout.CRASH), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
