"""What keeps the ledger small and a start quick: snapshots, and the end of what is old. A little of it in each cycle.

Comes in: the writer between two commits, the store. Goes out: snapshots, a ledger without old days and keys. Called by:
loop, at the end of each cycle and when it ends.

A cycle stops for the copies of records (3 us a job), for some hundred records of plain form, or for one bounded piece
of pruning. A snapshot that is late costs time at the next start, and nothing else.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from itertools import islice

from orchestrator.controller.settings import Settings
from orchestrator.controller.writer import Writer
from orchestrator.ledger.snapshot import VERSION, Frozen, freeze
from orchestrator.ledger.state import State
from orchestrator.model.clock import Clock
from orchestrator.model.errors import Unavailable
from orchestrator.model.failpoints import failpoint
from orchestrator.store.base import PackedSnapshot, Store
from orchestrator.store.rows import Packer, dumps

log = logging.getLogger("gangline.controller")

RECORDS = 256  # jobs and nodes that one cycle writes down: some 5 ms
PRUNED = 5_000  # events, or keys, that one cycle drops
COLLECTED = 1_000  # events after which a moment's rest is worth a look for garbage
THOROUGH = 64  # one look in so many is at what earlier ones left alone too: 0.3 s for 100,000 jobs


class Upkeep:
    """What is under way. `busy`: the next cycle has something to do here even if nothing comes in."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._taking: Taking | None = None
        self._pruning = False
        self._collected = 0  # the last event of the ledger when garbage was looked for
        self._looks = 0

    @property
    def busy(self) -> bool:
        """Whether something is left to be done."""
        return self._taking is not None or self._pruning

    def step(self, writer: Writer, idle: bool = False) -> None:
        """A cycle's share; `idle`: it had nothing else to do. A disk that can't take a snapshot now will be asked again
        later."""
        try:
            if self._taking is not None:
                self._go_on(self._taking, writer, RECORDS)
            elif self._pruning:
                self._pruning = self._prune(PRUNED)
            elif writer.since_snapshot >= self._settings.snapshot_every:
                self._begin(writer)
            elif idle:
                self._collect(writer)
        except Unavailable as error:
            self._put_off(writer, error)

    def _collect(self, writer: Writer) -> None:
        """Look for circles, which stops both threads. What is alive then is likely to stay: few later looks see it."""
        if writer.state.seq - self._collected >= COLLECTED:
            self._collected = writer.state.seq
            self._looks += 1
            if self._looks % THOROUGH == 0:
                gc.unfreeze()
            gc.collect()
            gc.freeze()

    def finish(self, writer: Writer) -> None:
        """A snapshot of the present, and all pruning, at once."""
        try:
            self._go_on(self._begin(writer), writer, 0)
            self._pruning = self._prune(0)
        except Unavailable as error:
            self._put_off(writer, error)

    def _begin(self, writer: Writer) -> Taking:
        failpoint("controller.snapshot.before")
        self._taking = Taking(writer.state)
        return self._taking

    def _go_on(self, taking: Taking, writer: Writer, records: int) -> None:
        if taking.go_on(records):
            self._store.save_snapshot(taking.packed())
            writer.since_snapshot = writer.state.seq - taking.seq
            self._taking, self._pruning = None, True
            gc.freeze()  # what a snapshot has seen lives long: a full collection of it all would stop both threads
            failpoint("controller.snapshot.after")

    def _prune(self, at_most: int) -> bool:
        """Whether there may be more to drop."""
        now_us = self._clock.now_us()
        gone = self._store.forget_keys(now_us, at_most=at_most)
        if not at_most or gone < at_most:
            gone = self._store.prune(self._settings.keep_days, now_us, at_most=at_most)
        return bool(at_most) and gone >= at_most

    def _put_off(self, writer: Writer, error: Unavailable) -> None:
        log.warning("no snapshot: %s", error.message)
        self._taking, self._pruning = None, False
        writer.since_snapshot = 0


class Taking:
    """A snapshot on its way: State as it was at the begin, packed bit by bit."""

    def __init__(self, state: State) -> None:
        self.seq, self._t_us = state.seq, state.t_us
        self._texts = _texts(freeze(state))
        self._packer = Packer()

    def go_on(self, records: int) -> bool:
        """Pack so many more records (0: all); whether that was the end."""
        text = "".join(islice(self._texts, records or None))
        self._packer.add(text)
        return not text or not records

    def packed(self) -> PackedSnapshot:
        """The whole."""
        return self._packer.snapshot(self.seq, self._t_us, VERSION)


def _texts(frozen: Frozen) -> Iterator[str]:
    """The JSON text of `to_plain`, a record at a time: the rest first, without its closing brace."""
    yield dumps(frozen.rest)[:-1]
    for key, items in frozen.sections().items():
        between = f",{dumps(key)}:["
        for item in items:
            yield between + dumps(item)
            between = ","
        yield "]" if between == "," else between + "]"
    yield "}"
