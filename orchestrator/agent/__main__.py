"""`python -m orchestrator.agent --config FILE`: the agent without the rest of the command; `--install` puts it in
place.

Comes in: arguments. Goes out: the exit code. Called by: a person, a service file.
"""

from __future__ import annotations

import sys

from orchestrator.agent.main import run

USAGE = "usage: python -m orchestrator.agent --config FILE | --install BOOT-FILE [--anew]"


def main(argv: list[str]) -> int:
    """0 or 1 as the agent ends; 2 for wrong arguments or a wrong config."""
    if len(argv) == 1 and argv[0] in ("-h", "--help"):
        sys.stdout.write(USAGE + "\n")
        return 0
    if argv[:1] == ["--install"] and argv[2:] in ([], ["--anew"]) and len(argv) > 1:
        from orchestrator.agent import install

        return install.main(argv[1], anew=len(argv) > 2)
    if len(argv) != 2 or argv[0] != "--config":
        sys.stderr.write(USAGE + "\n")
        return 2
    return run(argv[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
