"""`version` and `completion`.

Comes in: a shell's name. Goes out: versions; a script. Called by: the command's table.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import click

from orchestrator import __version__
from orchestrator.cli import options
from orchestrator.cli.verbs import Example, verb


@verb(
    "version",
    examples=[
        Example("gangline version", "of the command, and of the controller if one answers"),
        Example("gangline version -o json", "for a script"),
    ],
)
@click.option("--client", "client_only", is_flag=True, help="Ask no controller.")
@options.output("text", "json", "yaml")
@options.controller
def version(client_only: bool) -> None:
    """Print the version of Gangline and what it speaks."""
    from orchestrator.cli.output import record

    found: dict[str, Any] = {
        "version": __version__,
        "spec": "gangline/v1",
        "api": "v1",
        "python": platform.python_version(),
        "server": None if client_only else _server(),
    }
    record("Version", found, lambda: _words(found, client_only))


def _server() -> dict[str, Any] | None:
    from orchestrator.cli.contexts import chosen, connect
    from orchestrator.model.errors import GanglineError

    try:
        context = chosen()
        with connect(context, patience_s=0.0, timeout_s=2.0) as client:
            answer = client.version()
        return {"address": context.server, **answer.model_dump(mode="json")}
    except GanglineError:
        return None


def _words(found: dict[str, Any], client_only: bool) -> str:
    lines = [f"gangline {found['version']} (API v1, Python {found['python']})"]
    server = found["server"]
    if server is not None:
        lines.append(f"controller {server['version']} at {server['address']}")
    elif not client_only:
        lines.append("no controller answers")
    return "\n".join(lines)


@verb(
    "completion",
    examples=[
        Example('eval "$(gangline completion bash)"', "in ~/.bashrc"),
        Example('eval "$(gangline completion zsh)"', "in ~/.zshrc, after compinit"),
        Example("gangline completion fish > ~/.config/fish/completions/gangline.fish", "for fish"),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    Verbs and options are completed, and the ids of jobs and the names of nodes and queues where a controller answers
    within 300 ms.
    """
    from click.shell_completion import get_completion_class

    from orchestrator.cli.main import COMPLETION, root

    kind = get_completion_class(shell)
    assert kind is not None
    sys.stdout.write(kind(root, {}, "gangline", COMPLETION).source())
