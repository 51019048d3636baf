"""The process that Ansible runs in: ansible-runner, away from the process that wants it.

Comes in: on stdin one line of JSON with what to run, then nothing until its end. Goes out: on stdout one line of JSON
per event, and a last one with the exit code. Called by: ansible.py, as a program.

The end of stdin means that whoever wanted this is gone or has changed their mind: then everything that was started
here is ended, found by a mark in its environment, since Ansible's workers leave its process group.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK = "GANGLINE_ANSIBLE_RUN"
# What is passed on of an event: the rest repeats the playbook, and may hold what nobody should keep.
KEPT = ("host", "role", "task", "task_action", "ignore_errors", "duration")
KEPT_RESULT = (
    "changed",
    "msg",
    "changes",
    "dest",
    "notes",
    "acceptance",
    "module_stderr",
    "stderr",
    "exception",
    "censored",
)


def main() -> int:
    """Run, tell, end."""
    job = json.loads(sys.stdin.readline())
    gone = threading.Event()
    threading.Thread(target=_wait_for_end, args=(gone,), daemon=True).start()
    import ansible_runner  # type: ignore[import-untyped,import-not-found,unused-ignore] # the extra `metal`

    runner = ansible_runner.run(
        private_data_dir=job["private"],
        project_dir=job["folder"],
        inventory=job["inventory"],
        playbook=job["playbook"],
        cmdline=job["options"],
        tags=job["tags"] or None,
        forks=job["forks"],
        settings={"suppress_env_files": True, "pexpect_use_poll": True},
        event_handler=_tell,
        cancel_callback=gone.is_set,
        quiet=True,
    )
    sweep()
    _print({"end": runner.rc, "status": runner.status})
    return 0


def _wait_for_end(gone: threading.Event) -> None:
    """Until nobody wants this any more; what was started must end even if the runner is busy."""
    while os.read(0, 4096):
        pass
    gone.set()
    sweep()
    os._exit(1)


def _tell(event: dict[str, Any]) -> bool:
    """Print what is known of a host; False: nothing of it is kept on disk."""
    data = event.get("event_data", {})
    if "host" in data or event["event"] == "playbook_on_stats":
        plain = {key: data[key] for key in KEPT if key in data}
        result = data.get("res") or {}
        plain["result"] = {key: result[key] for key in KEPT_RESULT if key in result}
        _print({"event": event["event"], **plain})
    elif event["event"] in ("warning", "error", "verbose") and event.get("stdout"):
        _print({"event": "said", "text": event["stdout"]})
    return False


def _print(plain: dict[str, Any]) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(plain, default=str) + "\n")
        sys.stdout.flush()


def sweep() -> None:
    """End every process that carries this run's mark, but this one."""
    mark = f"{MARK}={os.environ.get(MARK, '')}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid != os.getpid() and _marked(folder, mark):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _marked(folder: Path, mark: bytes) -> bool:
    try:
        return mark in (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
