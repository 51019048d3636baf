"""The engine by hand: `python -m tests.aws.engine build` makes it if there is none; `path` says where it lies.

Comes in: one verb. Goes out: the path on stdout; exit code 1 with the reason where there is no engine. Called by:
people, and .ci/run, which starts `build` in the background.
"""

from __future__ import annotations

import sys

from tests.aws import engine


def main(argv: list[str]) -> int:
    """Carry the verb out. Returns the exit code."""
    if argv not in (["build"], ["path"]):
        sys.stderr.write("usage: python -m tests.aws.engine build|path\n")
        return 2
    try:
        sys.stdout.write(f"{engine.build() if argv == ['build'] else engine.wait()}\n")
    except engine.NotBuilt as wrong:
        sys.stderr.write(f"engine: {wrong}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
