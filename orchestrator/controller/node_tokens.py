"""What lets a node in, taken away: its own tokens, and the join tokens of its name.

Comes in: a node's name. Goes out: the revocations as facts. Called by: intake (a node joins), admission (a bought one
is let in), instances (one is gone).
"""

from __future__ import annotations

from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.records import Token


def revoke(desk: Desk, node: str, by: str, *, unspent: bool = False) -> None:
    """Its own tokens and the join tokens that it has spent are worth nothing from now on; those that it has not spent
    are only if `unspent` says so."""
    for token in list(desk.state.tokens.values()):
        if token.name == node and _lets_in(token, unspent):
            desk.writer.token(token.id, events.TokenRevoked(token.id), by)


def _lets_in(token: Token, unspent: bool) -> bool:
    return token.role == "node" or (token.role == "join" and (unspent or token.key != ""))
