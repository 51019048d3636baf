"""Everything that an attempt needs on the node before a process may start, and taking it away again.

Comes in: a plan. Goes out: folders, or a `Problem` after which nothing is left. Called by: preparer and shepherd
(setting up again is harmless), the gate (scratch).
"""

from __future__ import annotations

import errno
import os
import shutil

from orchestrator.agent import layout
from orchestrator.agent.identity import Identity, Problem, acting_as, resolve
from orchestrator.agent.plan import Plan


def prepare(plan: Plan, directory: str) -> Identity:
    """Check the owner, the working directory and the output folders; make work and scratch folders."""
    if plan.problem:
        raise Problem("unsupported-launch", plan.problem)
    identity = resolve(plan.owner, run_as_self=plan.run_as_self, min_uid=plan.min_uid)
    try:
        _own_folder(os.path.join(directory, layout.SCRATCH), identity)
        if plan.workdir == os.path.join(directory, layout.WORK):
            _own_folder(plan.workdir, identity)
        with acting_as(identity):
            _check_workdir(plan.workdir)
            _make_output_folders(plan)
    except OSError as error:
        code = "disk-full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "setup-failed"
        raise Problem(code, f"{error.filename or directory}: {error.strerror}") from None
    return identity


def _own_folder(path: str, identity: Identity) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    if identity.switch:
        os.chown(path, identity.uid, identity.gid)


def _check_workdir(path: str) -> None:
    try:
        os.chdir(path)
    except (FileNotFoundError, NotADirectoryError):
        raise Problem(
            "workdir-missing", f"{path}: no such folder on this node; make it, or name another workdir"
        ) from None
    except OSError as error:
        raise Problem(
            "workdir-inaccessible", f"{path}: {error.strerror} for the job's user on this node"
        ) from None
    finally:
        os.chdir("/")


def _make_output_folders(plan: Plan) -> None:
    ours = os.umask(layout.USERS_UMASK)
    try:
        _make_folders(plan)
    finally:
        os.umask(ours)


def _make_folders(plan: Plan) -> None:
    for folder in sorted({os.path.dirname(rank.output) for rank in plan.ranks if rank.output}):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise Problem(
                "output-unwritable", f"{error.filename}: {error.strerror} (the job's output goes there)"
            ) from None
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            raise Problem(
                "output-unwritable",
                f"{folder}: the job's user may not write there (the job's output goes there)",
            )


def purge_scratch(directory: str) -> None:
    """Empty the scratch folder; OSError says what holds it. Links in it are not followed.

    The empty folder stays with the logs: ext4 looks at every inode that was lately freed before it gives a new one,
    so freeing one per attempt would cost a tenth of the whole attempt.
    """
    path = os.path.join(directory, layout.SCRATCH)
    try:
        with os.scandir(path) as entries:
            used = next(entries, None) is not None
    except FileNotFoundError:
        return
    if used:
        shutil.rmtree(path)


def undo(directory: str) -> None:
    """Take away what `prepare` made."""
    for name in (layout.SCRATCH, layout.WORK):
        shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
