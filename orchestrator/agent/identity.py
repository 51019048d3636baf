"""As whom a job runs: the node resolves the name itself and refuses what differs.

Comes in: the owner as the controller has it. Goes out: `Identity`, and `acting_as` to do something with its rights.
Called by: preparer and shepherd, in their own processes: a name service may hang, and only they wait for it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.model.job import Owner


class Problem(Exception):
    """The node can't set the attempt up: `code` is a stable word, the text says what and what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as this node knows it. `switch`: the worker is another one and must change to it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str
    switch: bool

    def env(self) -> dict[str, str]:
        """The variables that a login sets."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


def resolve(owner: Owner, *, run_as_self: bool, min_uid: int) -> Identity:
    """The owner as this node has it; Problem if it has none, another one, or one that may not run jobs."""
    try:
        entry = pwd.getpwnam(owner.name)
    except KeyError:
        raise Problem(
            "unknown-user",
            f"this node does not know the user {owner.name!r}: add it to the node's name service",
        ) from None
    groups = tuple(sorted(os.getgrouplist(entry.pw_name, entry.pw_gid)))
    found = Identity(
        entry.pw_name,
        entry.pw_uid,
        entry.pw_gid,
        groups,
        entry.pw_dir,
        entry.pw_shell or "/bin/sh",
        entry.pw_uid != os.geteuid(),
    )
    _compare(owner, found)
    _allow(found, run_as_self or os.geteuid() != 0, min_uid)
    return found


def _compare(owner: Owner, found: Identity) -> None:
    """An owner without groups states none; one with groups must have the node's."""
    differences = []
    if owner.uid != found.uid:
        differences.append(f"uid {owner.uid} there, {found.uid} here")
    if owner.gid != found.gid:
        differences.append(f"gid {owner.gid} there, {found.gid} here")
    stated = set(owner.groups)
    if stated and stated | {owner.gid} != set(found.groups) | {found.gid}:
        differences.append(f"groups {_list(stated)} there, {_list(set(found.groups))} here")
    if differences:
        raise Problem(
            "identity-mismatch",
            f"user {owner.name!r} is not the same on the controller and on this node: {'; '.join(differences)}. "
            "Use one name service for both",
        )


def _list(numbers: set[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def _allow(found: Identity, only_self: bool, min_uid: int) -> None:
    if only_self:
        if found.switch:
            raise Problem(
                "other-user",
                f"this agent runs jobs of its own user (uid {os.geteuid()}) only, not of {found.name!r}: "
                "run the agent as root, or submit as its user",
            )
        return
    if found.uid < min_uid:
        raise Problem(
            "uid-too-low",
            f"user {found.name!r} has uid {found.uid}; jobs run from uid {min_uid} up (min_uid)",
        )


@contextlib.contextmanager
def acting_as(identity: Identity) -> Iterator[None]:
    """Do what follows with the user's rights, in a single-threaded process.

    The saved user stays root: so the user can't trace this process meanwhile, it can come back, and a program that
    is exec'd here has all three ids of the user (exec copies the effective one).
    """
    if not identity.switch:
        yield
        return
    os.setgroups(identity.groups)
    os.setresgid(identity.gid, identity.gid, 0)
    os.setresuid(identity.uid, identity.uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups([])
