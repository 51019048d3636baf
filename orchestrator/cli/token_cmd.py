"""`token`: who may ask the controller, and as whom.

Comes in: a role, a name. Goes out: a secret, once; lists without secrets. Called by: the command's table.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from orchestrator.cli import options
from orchestrator.cli.arguments import SPAN
from orchestrator.cli.session import current, note
from orchestrator.cli.verbs import SETTINGS, Example, Verbs, verb

if TYPE_CHECKING:
    from orchestrator.cli.output import Listing
    from orchestrator.wire.api_cluster import Token

ROLES = ("read", "submit", "operator", "admin", "join")


@click.group(
    "token",
    cls=Verbs,
    context_settings=SETTINGS,
    examples=[Example("gangline token create --role submit --name alice --expires 30d", "a token for alice")],
)
def token() -> None:
    """Create, list or revoke access tokens."""


@verb(
    "create",
    group=token,
    examples=[
        Example(
            "gangline token create --role submit --name alice --expires 30d", "alice may submit for a month"
        ),
        Example("gangline token create --role join --name 'h100-07' > join", "lets the agent of h100-07 in"),
    ],
)
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="What it allows; each includes the ones before it.",
)
@click.option(
    "--name", required=True, metavar="NAME", help="POSIX name that it acts as; for join: the node, or *."
)
@click.option("--expires", type=SPAN, metavar="AGE", help="When it ends, such as 30d; without it: never.")
@options.output("text", "json", "yaml")
@options.controller
def create(role: str, name: str, expires: int | None) -> None:
    """Make a token and print its secret, this once.

    The controller keeps a hash only. Give the secret to a client by GANGLINE_TOKEN. A join token is one line for the
    agent's join token file: where the controller's address and its certificate authority are known they are part of it,
    and the agent talks to no other one.
    """
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.output import record

    with connect() as client:
        made = client.create_token(role, name, expires or 0)
    record("TokenCreated", made, lambda: made.join_line or made.secret)
    if current().output == "text":
        note(f"token {made.id} ({role} as {name}); the secret is not shown again")


@verb(
    "list", group=token, examples=[Example("gangline token list", "ids, roles, names, ends; never secrets")]
)
@options.listing
@options.controller
def list_tokens() -> None:
    """List tokens, without their secrets."""
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.text import now

    with connect() as client:
        token_listing(now()).print(client.tokens())


def token_listing(now: datetime) -> Listing[Token]:
    """The list of tokens as of now."""
    from orchestrator.cli.output import Column, Listing
    from orchestrator.cli.text import ago, instant, left

    def end(item: Token) -> str:
        if item.expires_at is None:
            return "never"
        return left(item.expires_at, now) if item.expires_at > now else "ended"

    columns: tuple[Column[Token], ...] = (
        Column("ID", lambda item: item.id),
        Column("ROLE", lambda item: item.role),
        Column("NAME", lambda item: item.name, cut=True),
        Column("AGE", lambda item: ago(item.created_at, now), right=True),
        Column("ENDS IN", end, right=True),
        Column("CREATED", lambda item: instant(item.created_at), wide=True),
        Column("EXPIRES", lambda item: instant(item.expires_at), wide=True),
        Column("KEY", lambda item: item.key[:16] or "-", wide=True),
    )
    return Listing("TokenList", columns, lambda item: item.id, "no tokens")


@verb(
    "revoke",
    group=token,
    examples=[Example("gangline token revoke tok-93b690f56224", "it is worth nothing from now on")],
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.controller
def revoke(ids: tuple[str, ...]) -> None:
    """Make tokens worth nothing."""
    from orchestrator.cli.contexts import connect
    from orchestrator.cli.text import safe

    with connect() as client:
        for token_id in ids:
            client.revoke_token(token_id)
            sys.stdout.write(f"{safe(token_id)}: revoked\n")
            sys.stdout.flush()
