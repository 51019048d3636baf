"""A controller in a process forked from one that has loaded its modules: what `gangline server run` does after that.

Comes in: a state folder, an address or none, settings, a log. Goes out: an exit code. Called by: harness, through
`processes.warm`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
from pathlib import Path

from orchestrator.api.serve import Options, main
from orchestrator.controller.settings import Settings
from orchestrator.model.errors import GanglineError


def run(state: Path, log: Path, address: str, settings: Settings) -> None:
    """Serve until a signal; its exit code is what the command's would be."""
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.setsid()
    threading.Thread(target=_end_with_tester, daemon=True).start()
    logging.getLogger().handlers.clear()
    try:
        code = main(Options(state, address=address, cluster="sys", settings=settings))
    except GanglineError as error:
        sys.stderr.write(f"error: {error.message} [{error.code}]\n")
        code = 1
    sys.stderr.flush()
    os._exit(code)


def _end_with_tester() -> None:
    """A test that is killed can't end its controller."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
