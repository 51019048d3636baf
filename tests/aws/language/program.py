"""One run of a Pulumi program: `python -m tests.aws.language.program` with the engine's request as JSON on stdin.

Comes in: project, stack, configuration, addresses, and the folder of the program. Goes out: its resources, to the
engine; exit code 0, 32 where Pulumi has said what is wrong, else 1 with the traceback. Called by: `Host.Run`.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import pulumi
import pulumi.runtime
from pulumi.runtime.config import set_all_config
from pulumi.runtime.stack import run_in_stack

BAILED = 32


def main(asked: dict[str, Any]) -> int:
    """Run it. Returns the exit code."""
    info = asked.get("info", {})
    pulumi.runtime.configure(
        pulumi.runtime.Settings(
            project=asked["project"], stack=asked["stack"], monitor=asked["monitor_address"], engine=asked["engine"],
            parallel=asked.get("parallel"), dry_run=asked.get("dryRun", False),
            organization=asked.get("organization"), root_directory=info.get("root_directory"),
        )
    )  # fmt: skip
    set_all_config(asked.get("config", {}), asked.get("configSecretKeys", []))
    entry = Path(
        info.get("program_directory") or os.getcwd(), info.get("entry_point") or asked.get("program", ".")
    )
    # `__main__.py` of a folder finds its neighbours, as with the real host.
    sys.path.insert(0, str(entry if entry.is_dir() else entry.parent))
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(run_in_stack(lambda: _run(entry)))
    except pulumi.RunError as wrong:
        pulumi.log.error(str(wrong))
        return BAILED
    except Exception:  # noqa: BLE001 - whatever the program raises is its own, and people want to see where
        traceback.print_exc()
        return 1
    finally:
        loop.close()
        sys.stdout.flush()
    return 0


def _run(entry: Path) -> None:
    runpy.run_path(str(entry), run_name="__main__")


if __name__ == "__main__":
    code = main(json.load(sys.stdin))
    sys.stderr.flush()
    os._exit(code)  # gRPC's threads would keep the process
