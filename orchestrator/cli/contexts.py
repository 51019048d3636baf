"""Where the controller is, and who we are to it.

Comes in: options, the environment, contexts.json, a cluster's endpoint.json. Goes out: a `Client`, or an error that
says how to get one. Called by: every verb that asks a controller; `up` and `down` keep the contexts.

Order: `--server` or GANGLINE_SERVER (with GANGLINE_TOKEN); `--context` or GANGLINE_CONTEXT; the current context; the
only cluster whose controller has left its endpoint on this machine; the controller that is a unit of this machine.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli import paths
from orchestrator.cli.session import current
from orchestrator.model.errors import GanglineError, InputError, NotFound, Unavailable

if TYPE_CHECKING:
    from orchestrator.client import Client

PATIENCE_S = 2.0  # how long a command tries again while nothing answers


@dataclass(frozen=True, slots=True)
class Context:
    """One cluster as this person reaches it. `token` empty: a Unix socket tells the controller who asks."""

    name: str
    server: str
    token: str = ""
    ca: str = ""
    state: str = ""  # its state folder, where `up` of this machine made it


@dataclass(slots=True)
class Contexts:
    """All clusters that this person knows."""

    known: dict[str, Context] = field(default_factory=dict)
    current: str = ""

    @classmethod
    def load(cls) -> Contexts:
        """Read the file; an unreadable one is an error that names it."""
        path = paths.contexts_file()
        try:
            plain: dict[str, Any] = json.loads(path.read_text())
            rows = [Context(**row) for row in plain["contexts"]]
            return cls({row.name: row for row in rows}, str(plain.get("current", "")))
        except FileNotFoundError:
            return cls()
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                "cli.bad-contexts",
                f"the file is not one of Gangline's: {error}",
                "put it right, or move it away: `gangline up` writes it again",
                str(path),
            ) from None

    def save(self) -> None:
        """Write the file, readable by its owner alone."""
        rows = [asdict(self.known[name]) for name in sorted(self.known)]
        text = json.dumps(
            {"apiVersion": "gangline/v1", "kind": "Contexts", "current": self.current, "contexts": rows},
            indent=2,
        )
        paths.write_private(paths.contexts_file(), text + "\n")

    def named(self, name: str) -> Context:
        """The context of that name."""
        if name in self.known:
            return self.known[name]
        hint = (
            f"this machine knows: {', '.join(sorted(self.known))}"
            if self.known
            else "`gangline up cluster.yaml` makes one"
        )
        raise NotFound("cli.no-context", f"this machine knows no cluster '{name}'", hint)


def remember(context: Context) -> None:
    """Make it known, and the one that is meant when nothing else is said."""
    contexts = Contexts.load()
    if contexts.known.get(context.name) != context or contexts.current != context.name:
        contexts.known[context.name] = context
        contexts.current = context.name
        contexts.save()


def forget(name: str) -> None:
    """The cluster can't be reached any more: another one becomes current if there is just one."""
    contexts = Contexts.load()
    if contexts.known.pop(name, None) is None:
        return
    if contexts.current == name:
        contexts.current = next(iter(contexts.known)) if len(contexts.known) == 1 else ""
    contexts.save()


def endpoint(state: Path) -> dict[str, Any] | None:
    """What a controller says of itself in its state folder; None if none ever answered there, or it can't be read."""
    try:
        found: dict[str, Any] = json.loads((state / paths.ENDPOINT).read_text())
        return found
    except (OSError, ValueError):
        return None


def chosen() -> Context:
    """The context that this call means."""
    session = current()
    token = os.environ.get("GANGLINE_TOKEN", "")
    ca = os.environ.get("GANGLINE_CA", "")
    if session.server:
        return Context("", session.server, token, ca)
    contexts = Contexts.load()
    name = session.context or contexts.current
    found = contexts.named(name) if name else _only_local()
    return replace(found, token=token or found.token, ca=ca or found.ca)


def _only_local() -> Context:
    root = paths.state_root()
    states = sorted(path.parent for path in root.glob(f"*/{paths.ENDPOINT}"))
    found = [_local(state) for state in states]
    if len(found) == 1:
        return found[0]
    if not found and paths.home() is None and paths.MACHINE_SOCKET.exists():
        return Context("", f"unix://{paths.MACHINE_SOCKET}")
    if found:
        names = ", ".join(each.name for each in found)
        raise InputError(
            "cli.which-cluster", f"this machine has several clusters: {names}", "name one by --context"
        )
    raise Unavailable(
        "cli.no-controller",
        "no controller is known here",
        "`gangline up cluster.yaml` starts one on this machine, `gangline demo` shows one; "
        "for one elsewhere set GANGLINE_SERVER, GANGLINE_TOKEN and GANGLINE_CA",
    )


def _local(state: Path) -> Context:
    plain = endpoint(state) or {}
    return Context(state.name, server_of(plain) or f"unix://{state / 'api.sock'}", state=str(state))


def server_of(plain: dict[str, Any]) -> str:
    """The address in an endpoint file: the Unix socket where there is one, since it needs no token."""
    socket = plain.get("socket")
    return f"unix://{socket}" if socket else str(plain.get("url", ""))


def connect(
    context: Context | None = None, *, patience_s: float = PATIENCE_S, timeout_s: float = 30.0
) -> Client:
    """A client for the context (default: the one that this call means)."""
    from orchestrator.client import Client

    found = context or chosen()
    return Client(found.server, found.token, ca_file=found.ca, patience_s=patience_s, timeout_s=timeout_s)


def own_name(context: Context) -> str:
    """The POSIX name that jobs of ours run under: whose token it is, or who we are on this machine."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise GanglineError(
            "cli.no-name", f"uid {os.geteuid()} has no name on this machine", "give --user NAME"
        ) from None
