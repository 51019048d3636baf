"""An empty ledger without the revisions that make one, which take longer than most tests that need one.

Comes in: a state folder. Goes out: a store on a ledger there; where there was none, a copy of an empty one that this
process has made. Called by: tests above the store; the store's own tests make theirs as a controller does.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from orchestrator.model.clock import Clock
from orchestrator.store import connect
from orchestrator.store.open import open_store
from orchestrator.store.sqlite import SqliteStore


def open_quickly(folder: Path, clock: Clock | None = None) -> SqliteStore:
    """As `open_store` opens a ledger, or makes one."""
    ledger = folder / connect.NAME
    if not ledger.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ledger.touch(mode=0o600)
        ledger.write_bytes(_empty())
    return open_store(folder, clock)


@cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        open_store(folder).close()
        ledger = Path(folder) / connect.NAME
        assert list(ledger.parent.glob(f"{connect.NAME}*")) == [ledger], "all of it is in the one file"
        return ledger.read_bytes()
