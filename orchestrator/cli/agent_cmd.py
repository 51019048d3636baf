"""`agent`: a node's agent in the foreground, for service managers and for looking at.

Comes in: a config file. Goes out: the agent, in this very process. Called by: the command's table. One of the modules
that start a long-running part; it imports the agent's room inside the function that runs it.
"""

from __future__ import annotations

import click

from orchestrator.cli.verbs import Example, verb


@verb(
    "agent",
    examples=[Example("gangline agent --config /etc/gangline/agent.json", "what a service unit runs")],
)
@click.option("--config", required=True, metavar="FILE", type=click.Path(), help="Its config, a JSON file.")
def agent(config: str) -> int:
    """Run a node's agent in the foreground.

    It takes work from the controller that the config names until it gets SIGTERM. What it has started runs on and is
    adopted by the next agent. On nodes without this command: python3 -m orchestrator.agent --config FILE.
    """
    from orchestrator.agent.main import run

    return run(config)
