"""The HTTP client and SDK: everything that the command does, for programs.

Comes in: the address of a controller and a token. Goes out: models of `wire.api`, errors of `model.errors`. Called by:
cli, and people's own programs:

    with Client("unix:///var/lib/gangline/atlas/api.sock") as client:
        made = client.submit({"apiVersion": "gangline/v1", "kind": "Job", ...})
        job = client.wait(made.id)
"""

from orchestrator.client.client import Client, LogChunk
from orchestrator.client.follow import Output, follow, ranks_of
from orchestrator.client.problems import InvalidInput

__all__ = ["Client", "InvalidInput", "LogChunk", "Output", "follow", "ranks_of"]
