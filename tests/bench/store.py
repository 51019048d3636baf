"""`make bench-store`: how fast the store is, and which way to insert is the quickest.

Comes in: BENCH_SECONDS (for each size of transaction), BENCH_EVENTS (in the ledger that is read and pruned). Goes out:
figures as JSON lines. Called by: the Makefile. Every commit is synced to the disk of TMPDIR, so the figures are that
disk's as much as the store's; `cpu` figures are not. The three ways (Core's execute, driver SQL on SQLAlchemy's
connection, the bare driver) take turns, so that a busy machine slows all alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from orchestrator.ledger.events import StoredEvent
from orchestrator.store import connect, rows
from orchestrator.store.backup import verify
from orchestrator.store.base import HistoryQuery, HistoryRow, Snapshot
from orchestrator.store.open import open_store
from orchestrator.store.sqlite import SqliteStore
from orchestrator.store.tables import EVENTS, META
from tests.bench import common
from tests.bench.common import Figures, Options, workplace

SIZES = (1, 10, 100, 1000)
DAY_US = rows.DAY_US
T0 = 1_796_000_000_000_000 // DAY_US * DAY_US
NODE = {"slots": [0, 1, 2, 3, 4, 5, 6, 7], "cores": 96, "memory": 1030792151040}
BODY = {  # an allocation of two nodes: 253 bytes of JSON, a usual size
    "attempt": [1234, 1],
    "placements": [{"node": "n0", **NODE}, {"node": "n1", **NODE}],
    "master_address": "10.20.0.3",
    "master_port": 21234,
    "time_limit_s": 14400,
}
Way = Callable[[Connection, list[StoredEvent]], None]


def events(first: int, count: int, epoch: int, per_day: int = 0) -> list[StoredEvent]:
    day = DAY_US // per_day if per_day else 1
    return [
        StoredEvent(seq, T0 + seq * day, epoch, "attempt.allocated", 1, "job/1234", first, "scheduler", BODY)
        for seq in range(first, first + count)
    ]


def job(number: int) -> HistoryRow:
    names = (f"train-{number % 500}", f"user{number % 40}", f"queue{number % 8}", "succeeded")
    return HistoryRow(number, *names, 0, T0 + number, T0 + number, {"spec": BODY, "attempts": [BODY, BODY]})


# --- ways to insert -----------------------------------------------------------------------------------------------


def by_core(connection: Connection, batch: list[StoredEvent]) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    connection.execute(select(META.c.epoch, select(func.max(EVENTS.c.seq)).scalar_subquery())).one()
    names = StoredEvent._fields
    connection.execute(
        EVENTS.insert(), [dict(zip(names, rows.event_row(event), strict=True)) for event in batch]
    )
    connection.commit()


def by_driver_sql(connection: Connection, batch: list[StoredEvent]) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    connection.exec_driver_sql(rows.HEAD).one()
    connection.exec_driver_sql(rows.INSERT_EVENTS, [rows.event_row(event) for event in batch])
    connection.commit()


def by_bare_driver(connection: Connection, batch: list[StoredEvent]) -> None:
    bare: Any = connection.connection.driver_connection
    bare.execute("BEGIN IMMEDIATE")
    bare.execute(rows.HEAD).fetchone()
    bare.executemany(rows.INSERT_EVENTS, [rows.event_row(event) for event in batch])
    bare.execute("COMMIT")


WAYS: dict[str, Way] = {"core": by_core, "driver-sql": by_driver_sql, "bare-driver": by_bare_driver}


def bench_ways(figures: Figures, folder: Path, seconds: float) -> None:
    for size in SIZES:
        connections = {name: _connection(folder / f"{name}-{size}") for name in WAYS}
        spent = dict.fromkeys(WAYS, 0.0)
        done = 0
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for name, way in WAYS.items():
                batch = events(done * size + 1, size, 1)
                begun = time.process_time()
                way(connections[name], batch)
                spent[name] += time.process_time() - begun
            done += 1
        for name, connection in connections.items():
            figures.emit(f"cpu/{name}/{size}", spent[name] / done * 1e6, "us per transaction")
            connection.close()


def _connection(state: Path) -> Connection:
    open_store(state).close()
    return connect.engine(state / connect.NAME, "rw").connect()


# --- the store itself -----------------------------------------------------------------------------------------------


def _claimed(state: Path) -> SqliteStore:
    store = open_store(state)
    store.claim(1)
    return store


def bench_append(figures: Figures, folder: Path, seconds: float) -> None:
    for size in SIZES:
        store = _claimed(folder / f"append-{size}")
        times: list[float] = []
        last, cpu = 0, 0.0
        while sum(times) < seconds:
            batch = events(last + 1, size, 1)
            begun, used = time.perf_counter(), time.process_time()
            store.append(batch)
            times.append(time.perf_counter() - begun)
            cpu += time.process_time() - used
            last += size
        store.close()
        _emit_times(figures, f"append/{size}", sorted(times), size, cpu)


def _emit_times(figures: Figures, case: str, times: list[float], size: int, cpu: float) -> None:
    count = len(times)
    figures.emit(case, count * size / sum(times), "events/s")
    figures.emit(f"{case}/cpu", cpu / count * 1e6, "us per transaction")
    for name, place in (("p50", count // 2), ("p99", count * 99 // 100), ("max", -1)):
        figures.emit(f"{case}/{name}", times[place] * 1e3, "ms")


def bench_whole(figures: Figures, folder: Path, count: int) -> None:
    """A ledger of `count` events over ten days and a tenth as many jobs: what upkeep and reading cost."""
    store = _claimed(folder / "whole")
    for first in range(1, count + 1, 1000):
        ended = [job(number) for number in range(first // 10, first // 10 + 100)]
        store.append(events(first, 1000, 1, per_day=count // 10), ended)
    _timed(figures, "tail", count, "events/s", lambda: sum(1 for _ in store.tail(0)))
    body = {"jobs": {str(n): BODY for n in range(count // 50)}}
    _timed(figures, "snapshot/save", 1, "per s", lambda: store.save_snapshot(Snapshot(count, T0, 1, body)))
    _timed(figures, "snapshot/load", 1, "per s", store.load_snapshot)
    _timed(figures, "backup", count, "events/s", lambda: store.backup(str(folder / "backup")))
    _timed(figures, "verify", count, "events/s", lambda: verify(folder / "backup"))
    reader = store.reader()
    pages = {
        "newest": HistoryQuery(),
        "owner": HistoryQuery(owner="user7"),
        "since-late": HistoryQuery(since_us=T0 + count // 10 - 20),
        "since-early": HistoryQuery(since_us=T0 + 1),
        "nothing-found": HistoryQuery(owner="user7", queue="queue0"),
    }
    for name, query in pages.items():
        _timed(figures, f"history/{name}", 1, "pages/s", partial(reader.page, query))
    _timed(figures, "prune", count * 9 // 10, "events/s", lambda: store.prune(0, T0 + 11 * DAY_US))
    store.close()


def _timed(figures: Figures, case: str, count: int, unit: str, work: Callable[[], object]) -> None:
    begun = time.perf_counter()
    work()
    figures.emit(case, count / (time.perf_counter() - begun), unit)


def main() -> None:
    """Measure all of it."""
    options = Options(SECONDS=3.0, EVENTS=200_000)
    with workplace() as folder:
        figures = Figures("store", folder)
        bench_append(figures, folder, options.number("SECONDS"))
        bench_ways(figures, folder, options.number("SECONDS"))
        bench_whole(figures, folder, options.count("EVENTS"))


if __name__ == "__main__":
    common.run(main)
