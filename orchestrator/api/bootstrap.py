"""Files beside the ledger that let people in: the admin's token, and where the controller answers.

Comes in: a started controller, its state directory, its addresses. Goes out: STATE/admin.token (0600) and
STATE/endpoint.json. Called by: serve. The command reads both.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from orchestrator.api.tokens import new_id, new_secret, sha256_of
from orchestrator.controller.commands import CreateToken
from orchestrator.controller.service import Controller
from orchestrator.model.cluster import Role
from orchestrator.model.errors import Unavailable
from orchestrator.provision.files import write_whole

ADMIN_TOKEN = "admin.token"  # noqa: S105 - a file's name
ENDPOINT = "endpoint.json"


async def ensure_admin(controller: Controller, state: Path, name: str) -> bool:
    """Make the first token, for `name`; True if it was made now.

    A secret that the ledger does not know any more (it was revoked, or a backup was put back) is replaced, not let in
    again.
    """
    path = state / ADMIN_TOKEN
    known = _read(path)
    if known and controller.token(known) is not None:
        return False
    secret = new_secret()
    write_private(path, secret + "\n")  # before the ledger knows it: a crash in between leaves a useless file
    await controller.do(CreateToken(new_id(), sha256_of(secret), str(Role.ADMIN), name, "controller"))
    return True


def write_endpoint(state: Path, url: str, unix_path: str, epoch: int) -> None:
    """Tell the command where the controller answers; written when it does."""
    record = {"url": url, "socket": unix_path, "pid": os.getpid(), "epoch": epoch}
    write_private(state / ENDPOINT, json.dumps(record) + "\n")


def remove_endpoint(state: Path, epoch: int) -> None:
    """Take it back at the end, unless a newer controller has written its own."""
    path = state / ENDPOINT
    try:
        if json.loads(path.read_text(encoding="utf-8")).get("epoch") == epoch:
            path.unlink()
    except (OSError, ValueError, AttributeError):
        return


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner alone."""
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise Unavailable(
            "server.state", f"{path} can't be written: {error.strerror}", path=str(path)
        ) from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
