"""The provider's process: `python -m tests.aws.provider ENGINE` prints its port, serves, and ends when the engine does.

Comes in: the engine's address, which is not needed. Goes out: the port as the first line of stdout. Called by: the
engine, through the program `pulumi-resource-aws` that tests.aws.fixture writes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from tests.aws.provider.server import Provider

LONGEST_MESSAGE = 400 << 20  # as the engine's


def main() -> None:
    """Serve until the engine is gone."""
    parent = os.getppid()
    limits = [("grpc.max_receive_message_length", LONGEST_MESSAGE), ("grpc.so_reuseport", 0)]
    server = grpc.server(ThreadPoolExecutor(max_workers=32), options=limits)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Provider(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    server.wait_for_termination()


def _end_with(parent: int) -> None:
    """A killed engine says nothing; its plugins must not stay."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    main()
