"""A process that owns a store, for tests that kill it, starve it or take its ledger away.

In comes `python -m tests.store.child STATE MODE [...]`; out goes one line on stdout for each thing that is done, and on
stdin the parent says when to go on where a mode waits. Exit 3: Fenced.

    loop             append batches of 1 to 17 events until killed; prints the last seq after each
    step FLAG        append 5 events; make FLAG; append (prints the error's code and last seq); then as told by a line:
                     `go` removes FLAG and appends other events, anything else ends like a power cut
    limit            as `step`, with files limited to their present size in place of a flag
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from orchestrator.model.errors import Fenced, GanglineError
from orchestrator.store.open import open_store
from orchestrator.store.sqlite import SqliteStore
from tests.store.contract import batch, claimed, ended


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


def loop(store: SqliteStore) -> None:
    epoch = claimed(store)
    last, t_us = store.last()
    size = 1
    say("ready", last)
    while True:
        size = size % 17 + 1
        try:
            store.append(batch(last + 1, size, epoch, max(t_us, 1)), [ended(last + 1)])
        except Fenced:
            say("fenced", last)
            sys.exit(3)
        last += size
        say("acknowledged", last)


def step(store: SqliteStore, begin: object, end: object) -> None:
    epoch = claimed(store)
    store.append(batch(1, 5, epoch))
    begin()  # type: ignore[operator]
    try:
        store.append(batch(6, 5, epoch), [ended(6)])
        say("no-error", *store.last())
    except GanglineError as error:
        say(error.code, store.last()[0], error.message)
    if sys.stdin.readline().strip() == "go":
        end()  # type: ignore[operator]
        store.append(batch(6, 2, epoch))
        say("acknowledged", store.last()[0])
    os.kill(os.getpid(), signal.SIGKILL)


def limit_files() -> None:
    """No file may grow from now on: writes fail with EFBIG, which SQLite knows for an I/O error of no special kind."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))


def main() -> None:
    state, mode, *rest = sys.argv[1:]
    store = open_store(state)
    if mode == "loop":
        loop(store)
    elif mode == "step":
        flag = Path(rest[0])
        step(store, flag.touch, flag.unlink)
    else:
        step(store, limit_files, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1)))


if __name__ == "__main__":
    main()
