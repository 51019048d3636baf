"""The testbed by hand: `python -m tests.testbed boot 3 --release 12,13`, then cut, heal, kill, … and `down`.

Comes in: arguments. Goes out: hosts, and a line on stdout for each. Called by: people, as root. The bed stays when the
command ends; `--bed NAME` (or GANGLINE_BED) keeps several people's beds apart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from tests.testbed import base, record
from tests.testbed.bed import Bed, Host, sweep

VERBS = (
    "boot",
    "fresh",
    "cut",
    "heal",
    "hang",
    "wake",
    "kill",
    "off",
    "reboot",
    "reset",
    "run",
    "inside",
    "ssh",
)
EPILOG = """
  boot 3 | boot h1 web2      power hosts on; a number N stands for h1 to hN
  fresh 3 --release 12,13    h1 to h3 as just installed, all others off
  cut|heal|hang|wake|kill|off|reboot|reset h1 [h2 …]   (no name: all hosts)
  run h1 -- uname -a         over SSH as ops; `inside h1 -- COMMAND` as root past the network
  ssh h1                     an interactive shell
  status, list, down
  build                      make the base trees now (a minute or two each) rather than when they are first needed
  sweep                      end the beds of runs that were killed
"""


def main(argv: list[str]) -> int:
    """Carry one verb out. Returns the exit code."""
    cut = argv.index("--") if "--" in argv else len(argv)
    asked, command = _parser().parse_args(argv[:cut]), " ".join(argv[cut + 1 :])
    if asked.verb == "list":
        return _list()
    if asked.verb == "build":
        _say(*map(str, base.trees(furnish=True)))
        return 0
    if asked.verb == "sweep":
        with record.locked():
            _say(*sweep())
        return 0
    bed = Bed.find(asked.bed)
    if bed is None:
        if asked.verb not in ("boot", "fresh"):
            _complain(f"there is no bed '{asked.bed}': `boot 3` makes one")
            return 2
        bed = Bed.make(asked.bed)
    if asked.verb == "down":
        bed.down()
        return 0
    return _act(bed, asked.verb, asked.hosts, asked.release.split(","), command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.testbed", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bed", default=os.environ.get("GANGLINE_BED", "hand"), help="whose bed; default: hand"
    )
    parser.add_argument("--release", default="12", help="releases in turn, such as 12,13")
    parser.add_argument("verb", choices=[*VERBS, "status", "list", "down", "sweep", "build"])
    parser.add_argument("hosts", nargs="*")
    return parser


def _names(words: list[str]) -> list[str]:
    return [f"h{at + 1}" for at in range(int(words[0]))] if len(words) == 1 and words[0].isdigit() else words


def _act(bed: Bed, verb: str, words: list[str], releases: list[str], command: str) -> int:
    began = time.monotonic()
    names = _names(words) or list(bed.hosts)
    if verb == "boot":
        bed.boot(*names, releases=releases)
    elif verb == "fresh":
        bed.fresh(len(names), *releases)
    elif unknown := [name for name in names if name not in bed.hosts]:
        _complain(f"there is no host {', '.join(unknown)} in bed '{bed.folder.name}'")
        return 2
    elif verb in ("run", "inside"):
        return max(_run(bed.hosts[name], verb, command) for name in names)
    elif verb == "ssh":
        return subprocess.run(["ssh", "-t", "-F", str(bed.ssh_config), names[0]], check=False).returncode
    elif verb != "status":
        for name in names:
            getattr(bed.hosts[name], verb)()
    _say(f"bed {bed.folder.name}: gateway {bed.gateway}, ssh -F {bed.ssh_config}, key {bed.key}")
    for host in bed.hosts.values():
        state = f"on, {host.memory() >> 20} MiB" if host.booted() else "off"
        _say(f"{host.name}  {host.address}  debian-{host.release}  {state}")
    _complain(f"{verb}: {time.monotonic() - began:.1f} s")
    return 0


def _run(host: Host, verb: str, command: str) -> int:
    done = host.run(command) if verb == "run" else host.inside(command)
    sys.stdout.write(done.out)
    sys.stderr.write(done.err)
    return done.code


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _complain(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _list() -> int:
    for found in record.everyone():
        state = "abandoned" if found.abandoned() else "owned" if found.owner else "by hand"
        _say(f"{found.name}  gb{found.number}  {state}  {' '.join(found.hosts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
