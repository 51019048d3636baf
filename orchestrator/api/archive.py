"""The agent's own code over HTTP: bought nodes fetch it from the controller that they are to join.

Comes in: GET of `/api/v1/agent`, by anybody: the code is public. Goes out: the archive, whose SHA-256 is its ETag.
Called by: gate.

A node knows it by where it comes from (the certificate authority that its user-data pins), not by a sum in its
user-data: with a sum there, every new version of Gangline would change all launch templates. It is sent in pieces and
for so long at most, since slow readers may be anybody.
"""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from orchestrator.api.bodies import Gone, header
from orchestrator.api.hub import Hub
from orchestrator.model.errors import NotFound, Unavailable

TYPE = "application/zip"
PIECE = 64 * 1024  # bytes; so much of it at most waits for each reader
LONGEST_S = 120.0  # for the whole of it: some 10 kB/s


async def get(hub: Hub, scope: Scope, receive: Receive) -> Response:
    """The agent of this controller's version. Where it can't be made, the log says what to install: whoever asks may be
    anybody."""
    from orchestrator.provision.metal.archive import agent_archive  # reads the whole package, once

    try:
        made = await asyncio.to_thread(agent_archive)
    except NotFound as error:
        hub.refusals.warn(error.code, f"bought nodes get no agent from here: {error.message}; {error.hint}")
        raise Unavailable(
            "archive.none", "this controller has no agent to give", "its log says why"
        ) from None
    etag = f'"{made.sha256}"'
    if header(scope, b"if-none-match") == etag:
        return Response(status_code=304, headers={"etag": etag})
    return _Pieces(made.data, headers={"etag": etag}, media_type=TYPE)


class _Pieces(Response):
    """A body that is sent piece by piece, each when the one before it is gone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        data = memoryview(bytes(self.body))
        try:
            async with asyncio.timeout(LONGEST_S):
                for at in range(0, len(data), PIECE):
                    more = at + PIECE < len(data)
                    piece = bytes(data[at : at + PIECE])
                    await send({"type": "http.response.body", "body": piece, "more_body": more})
        except TimeoutError:
            raise Gone from None
