"""The server's process: `python -m tests.aws.server` listens on a free port of loopback and prints it.

Comes in: stdin, which the starter holds open. Goes out: the port on stdout. Called by: tests.aws.moto_server. The
process ends when stdin ends, so it outlives no test run, however that was killed.
"""

from __future__ import annotations

import logging
import sys
import threading

from werkzeug.serving import WSGIRequestHandler, make_server

from tests.aws.server import fleets, guard, in_use, launches, missing, quotas
from tests.aws.server.front import Front


class _Quiet(WSGIRequestHandler):
    """No line for each request, and connections that stay open, as AWS's do."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        return


def main() -> None:
    """Serve until stdin ends."""
    for part in (launches, fleets, missing, in_use, quotas, guard):
        part.install()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, Front(), threaded=True, request_handler=_Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
