"""Letting bought instances in: the ledger alone says which instance is waited for, and each comes once.

Comes in: `AdmitInstance`, after its document was proved true. Goes out: the node's token as a fact, or Refused with the
reason. Called by: intake's table.

The token keeps the instance's id and its key. The same instance with the same key gets another token, so an answer that
was lost, or an agent that was killed, asks again; with another key it is refused for as long as there is a token of it:
its document may be in other hands. `gangline token revoke` lets it come anew.
"""

from __future__ import annotations

from orchestrator.controller import capacity_tasks, commands, node_tokens
from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.records import Node
from orchestrator.ledger.state import State
from orchestrator.model.errors import Refused


def admit(desk: Desk, command: commands.AdmitInstance) -> commands.Admitted:
    """The node that waits for the instance gets its token; one that it had before is worth nothing from now on."""
    try:
        node = _node(desk.state, command)
    except Refused:
        capacity_tasks.doubt_facts(desk, capacity_tasks.DOUBT_S)
        raise
    tokens = desk.state.tokens.values()
    if any(token.instance == command.instance and token.key != command.key for token in tokens):
        raise Refused(
            "join.other-key",
            f"instance {command.instance} has joined with another key pair",
            f"if its key is lost, revoke its token: `gangline token list` has it as node {node.name}'s",
        )
    by = f"node:{node.name}"
    node_tokens.revoke(desk, node.name, by)
    body = events.TokenCreated(
        command.token_id,
        command.sha256,
        "node",
        node.name,
        key=command.key,
        instance=command.instance,
        address=command.address,
    )
    desk.writer.token(command.token_id, body, by)
    desk.writer.touched_nodes[node.name] = True
    return commands.Admitted(node.name)


def _node(state: State, command: commands.AdmitInstance) -> Node:
    node = state.nodes.get(command.fixed or launched_node(state, command.instance))
    if node is None or not node.wanted:
        raise Refused(
            "join.not-expected",
            f"nobody waits for instance {command.instance}",
            "the agent asks again; a launch or an apply that is not recorded yet will be in a moment",
        )
    return node


def launched_node(state: State, instance: str) -> str:
    """The node that a recorded launch has the instance for; empty for none."""
    fleet = state.fleets.get(state.instances.get(instance, ""))
    return next((one.node for one in fleet.instances if one.id == instance), "") if fleet is not None else ""
