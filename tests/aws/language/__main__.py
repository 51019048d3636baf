"""The host's process: `python -m tests.aws.language … ENGINE` prints its port and runs programs until the engine ends.

Comes in: the engine's address as the last argument, LanguageRuntime of pulumi/language.proto. Goes out: the port on
stdout, one process of `tests.aws.language.program` for each run. Called by: the engine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, json_format  # type: ignore[import-untyped]
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

ROOT = Path(__file__).resolve().parents[3]
BAILED = 32  # a program's exit code where it said itself what was wrong


class Host(language_pb2_grpc.LanguageRuntimeServicer):
    """What `pulumi up`, `preview`, `refresh` and `destroy` ask of a language."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.running: set[subprocess.Popen[bytes]] = set()

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.engine = request.engine_address or self.engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version="3.274.1")

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:  # noqa: N802
        """None: providers lie on PATH, and the engine finds them when a program first needs one."""
        return language_pb2.GetRequiredPackagesResponse()

    def GetRequiredPlugins(self, request: Any, context: Any) -> Any:  # noqa: N802
        return language_pb2.GetRequiredPluginsResponse()

    def RuntimeOptionsPrompts(self, request: Any, context: Any) -> Any:  # noqa: N802
        return language_pb2.RuntimeOptionsResponse()

    def About(self, request: Any, context: Any) -> Any:  # noqa: N802
        return language_pb2.AboutResponse(executable=sys.executable, version=sys.version.split()[0])

    def Run(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Run the program to its end."""
        asked = json_format.MessageToDict(request, preserving_proto_field_name=True) | {"engine": self.engine}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.aws.language.program"], cwd=request.pwd or request.info.program_directory,
            stdin=subprocess.PIPE, env=os.environ | {"PYTHONPATH": _path()},
        )  # fmt: skip
        self.running.add(process)
        process.communicate(json.dumps(asked).encode())
        self.running.discard(process)
        if process.returncode == BAILED:
            return language_pb2.RunResponse(bail=True)
        wrong = f"the program ended with exit code {process.returncode}" if process.returncode else ""
        return language_pb2.RunResponse(error=wrong)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        for process in list(self.running):
            process.terminate()
        return empty_pb2.Empty()


def _path() -> str:
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def main(argv: list[str]) -> None:
    """Serve until the engine is gone."""
    parent = os.getppid()
    server = grpc.server(ThreadPoolExecutor(max_workers=8), options=[("grpc.so_reuseport", 0)])
    host = Host(next((word for word in reversed(argv) if not word.startswith("-")), ""))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    threading.Thread(target=_end_with, args=(parent, host), daemon=True).start()
    with suppress(KeyboardInterrupt):  # how the engine ends a host that has done its work
        server.wait_for_termination()


def _end_with(parent: int, host: Host) -> None:
    """A killed engine says nothing; neither the host nor a program must stay."""
    while os.getppid() == parent:
        time.sleep(1)
    host.Cancel(None, None)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
