"""`doctor`: what Gangline needs of this machine, of the way to the controller, and of a file's hosts, one by one.

Comes in: the machine, the contexts, a cluster file if one is given. Goes out: a line for each check, ok, warn or fail,
with what to do; exit code 1 if one fails. Called by: the command's table. It changes nothing.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from orchestrator.cli import options, paths
from orchestrator.cli.session import current
from orchestrator.cli.verbs import Example, verb
from orchestrator.model.errors import GanglineError

OK, WARN, FAIL = "ok", "warn", "fail"
SERVER_PACKAGES = ("fastapi", "sqlalchemy", "uvicorn", "uvloop")
SCARCE, TIGHT = 100 << 20, 1 << 30  # bytes free: fails, warns
FILES = 4096  # open files that a controller of a few hundred nodes has room in
CLOCK_S = 2.0  # seconds by which two clocks may differ before leases and limits look odd
LONGEST_SOCKET_PATH = 107  # bytes (unix(7))


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    status: str
    message: str
    hint: str = ""


@verb(
    "doctor",
    examples=[
        Example("gangline doctor", "this machine and the way to the controller"),
        Example("gangline doctor cluster.yaml", "and every host of the file's metal sites, over SSH"),
        Example(
            "gangline doctor -o json | jq '.items[] | select(.status != \"ok\")'",
            "what is not right, for a script",
        ),
    ],
)
@click.argument("file", required=False, metavar="[FILE]")
@options.output("text", "json")
@options.controller
def doctor(file: str | None) -> int:
    """Check this machine, the way to the controller, and hosts.

    With FILE, each host of its metal sites is asked over SSH what it is, all at once: a line for each, or at which step
    it can't be used and what to do. Nothing is changed; the key of a host that is seen for the first time is recorded.

    Exit code 1: something must be put right. A warning is something that works, but not as well as it could.
    """
    found = list(examine())
    if file:
        found += _hosts(file)
    if current().output == "json":
        good = all(check.status != FAIL for check in found)
        envelope = {
            "apiVersion": "gangline/v1",
            "kind": "DoctorReport",
            "ok": good,
            "items": [asdict(check) for check in found],
        }
        sys.stdout.write(json.dumps(envelope, indent=2) + "\n")
    else:
        _print(found)
    return 1 if any(check.status == FAIL for check in found) else 0


def _hosts(file: str) -> Iterator[Check]:
    """A line for each host; a file that can't be read ends it all."""
    from orchestrator.cli.looking import probed
    from orchestrator.model.host import Step

    for sight, words, odd in probed(file):
        if sight.reached is not Step.DONE:
            yield Check(sight.host, FAIL, words, sight.hint)
        elif odd:
            yield Check(
                sight.host, WARN, words, "leases and logs need clocks that agree, and kernels a reboot"
            )
        else:
            yield Check(sight.host, OK, words)


def examine() -> Iterator[Check]:
    """All checks; one that breaks is a finding, not an end."""
    for check in CHECKS:
        try:
            yield from check()
        except GanglineError as error:
            yield Check(check.__name__.strip("_"), FAIL, error.message, error.hint)
        except OSError as error:
            yield Check(
                check.__name__.strip("_"), FAIL, f"{error.filename or ''}: {error.strerror}".lstrip(": ")
            )


def _print(found: list[Check]) -> None:
    from orchestrator.cli.tables import paint
    from orchestrator.cli.text import safe

    moods = {OK: "ok", WARN: "wait", FAIL: "bad"}
    colors = current().colors(sys.stdout)
    wide = max(len(check.name) for check in found)
    for check in found:
        sys.stdout.write(
            f"{paint(f'{check.status:4}', moods[check.status], colors)}  {check.name:{wide}}  {safe(check.message)}\n"
        )
        if check.hint and check.status != OK:
            sys.stdout.write(f"{'':4}  {'':{wide}}  -> {safe(check.hint)}\n")


# --- this machine -------------------------------------------------------------------------------------------------


def _python() -> Iterator[Check]:
    good = sys.version_info >= (3, 11)
    yield Check(
        "python", OK if good else FAIL, f"Python {platform.python_version()}", "Gangline needs 3.11 or newer"
    )


def _server_part() -> Iterator[Check]:
    missing = [name for name in SERVER_PACKAGES if find_spec(name) is None]
    if missing:
        yield Check(
            "server part",
            WARN,
            f"not installed: {', '.join(missing)}",
            "pip install 'gangline[server]', to run a controller here",
        )
    else:
        yield Check("server part", OK, "installed")


def _state() -> Iterator[Check]:
    from orchestrator.store import netfs

    root = paths.state_root()
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    if root.exists():
        yield _private("state folder", root)
    else:
        usable = os.access(place, os.W_OK | os.X_OK)
        yield Check(
            "state folder",
            OK if usable else FAIL,
            f"{root} is made at the first `gangline up`",
            f"{place} can't be written",
        )
    free = shutil.disk_usage(place).free
    status = FAIL if free < SCARCE else WARN if free < TIGHT else OK
    yield Check(
        "disk space",
        status,
        f"{free / (1 << 30):.1f} GiB free for {root}",
        "the ledger refuses work on a full disk: make room",
    )
    try:
        netfs.refuse_network(root)
        yield Check("file system", OK, "local")
    except GanglineError as error:
        yield Check("file system", FAIL, error.message, error.hint)
    if len(os.fsencode(root / "CLUSTER" / "api.sock")) > LONGEST_SOCKET_PATH:
        yield Check(
            "socket path",
            WARN,
            f"paths below {root} are too long for a Unix socket",
            "`gangline up` puts it below the temporary folder; for `server run` choose a shorter GANGLINE_HOME",
        )


def _private(name: str, path: Path) -> Check:
    """Whether only we can look into it."""
    found = path.stat()
    if found.st_uid != os.geteuid():
        return Check(
            name, FAIL, f"{path} belongs to uid {found.st_uid}", "use it as that user, or set GANGLINE_HOME"
        )
    if found.st_mode & 0o077:
        return Check(
            name, WARN, f"{path} is open to others ({stat.filemode(found.st_mode)})", f"chmod go= {path}"
        )
    return Check(name, OK, str(path))


def _contexts() -> Iterator[Check]:
    from orchestrator.cli.contexts import Contexts

    path = paths.contexts_file()
    if path.exists():
        known = Contexts.load()
        private = _private("contexts", path)
        named = f"{path}: {', '.join(sorted(known.known)) or 'none'}; current: {known.current or 'none'}"
        yield private if private.status != OK else Check("contexts", OK, named)


def _gpus() -> Iterator[Check]:
    from orchestrator.cli.text import fold_models
    from orchestrator.telemetry.devices import GpuConfig, discover

    found = discover(GpuConfig(emulate="never"))
    if found:
        yield Check(
            "GPUs", OK, f"{len(found)} x {fold_models([(each.device.model, False) for each in found])}"
        )
    else:
        yield Check("GPUs", OK, "NVML finds none: those of local sites are emulated")


def _containment() -> Iterator[Check]:
    from orchestrator.agent import containment, systemd

    if os.geteuid() == 0 and systemd.is_manager():
        yield _units()
        return
    base = containment.find_base(f"doctor-{os.getpid()}")
    if base:
        Path(base).rmdir()
        yield Check("containment", OK, "control groups (version 2) can be made: cgroup2")
    else:
        yield Check(
            "containment",
            WARN,
            "no control group can be made here: process-tree",
            "run agents as root or under systemd with Delegate=yes, so that no process of a job can hide",
        )


def _units() -> Check:
    """A unit of systemd is made for a moment and looked at."""
    from orchestrator.agent import scope

    try:
        _, missing = scope.probe()
    except OSError as error:
        what = f"systemd makes no unit for jobs: {error.strerror or error}"
        return Check("containment", WARN, what, "jobs run in control groups instead, without limits")
    if missing:
        what = f"systemd, but nothing holds jobs to their {', '.join(missing)} here"
        return Check("containment", WARN, what, "is this a container that sees its control groups read-only?")
    return Check("containment", OK, "systemd: one unit for each attempt, limits have force")


def _limits() -> Iterator[Check]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= FILES
    shown = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    yield Check(
        "open files",
        OK if enough else WARN,
        f"at most {shown}",
        f"ulimit -Hn {FILES}, for a controller of many nodes",
    )
    _, locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if locked != resource.RLIM_INFINITY and Path("/dev/nvidiactl").exists():
        yield Check(
            "locked memory",
            WARN,
            f"at most {locked:,} bytes",
            "RDMA between GPUs needs `ulimit -l unlimited` for agents",
        )


# --- the controller -----------------------------------------------------------------------------------------------


def _endpoints() -> Iterator[Check]:
    """Endpoint files whose controller is gone: it was killed, and commands would wait for it."""
    from orchestrator.cli.contexts import endpoint

    for path in sorted(paths.state_root().glob(f"*/{paths.ENDPOINT}")):
        plain = endpoint(path.parent) or {}
        pid = plain.get("pid")
        if not isinstance(pid, int) or not Path(f"/proc/{pid}").exists():
            yield Check(
                f"endpoint {path.parent.name}",
                WARN,
                f"its controller (process {pid}) is gone without saying so",
                "`gangline up` starts it again",
            )


def _controller() -> Iterator[Check]:
    import time

    from orchestrator.cli.contexts import chosen, connect
    from orchestrator.cli.text import now

    try:
        context = chosen()
    except GanglineError as error:
        yield Check("controller", WARN, error.message, error.hint)
        return
    with connect(context, patience_s=0.0, timeout_s=5.0) as client:
        client.version()
        began = time.monotonic()
        found = client.status()
        took = time.monotonic() - began
        yield Check(
            "controller", OK, f"{context.server} answers in {took * 1000:.0f} ms, version {found.version}"
        )
        apart = (found.now - now()).total_seconds()
        even = abs(apart) <= CLOCK_S + took
        yield Check("clocks", OK if even else WARN, f"{abs(apart):.1f} s apart", "let NTP set both clocks")
        counts = found.nodes
        status = OK if counts.open == counts.total else WARN
        yield Check(
            "nodes",
            status,
            f"{counts.open} of {counts.total} may be given work",
            "`gangline nodes` says why the others may not",
        )


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    _python,
    _server_part,
    _state,
    _contexts,
    _gpus,
    _containment,
    _limits,
    _endpoints,
    _controller,
)
