"""Revisions: migrations make the tables that the code has, an older ledger is upgraded, a newer one refused."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from orchestrator.ledger.events import StoredEvent
from orchestrator.model.clock import ManualClock
from orchestrator.model.errors import Conflict, GanglineError
from orchestrator.store import connect, schema
from orchestrator.store.backup import verify
from orchestrator.store.base import KeyRow
from orchestrator.store.faults import Damaged
from orchestrator.store.open import open_store
from orchestrator.store.restore import restore
from orchestrator.store.schema import MIGRATIONS, Schema
from orchestrator.store.tables import EVENTS, METADATA, REVISION
from tests.store.contract import T0, applied, batch, claimed, ended, event

GOLDEN = Path(__file__).with_name("golden")

SECOND = '''
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "0003", "0002", None, None
def upgrade():
    with op.batch_alter_table("history") as history:
        history.add_column(sa.Column("user_note", sa.Text, nullable=False, server_default="none"))
    {then}
'''  # fmt: skip


def _next_schema(tmp_path: Path, then: str = "pass") -> Schema:
    """The schema of a Gangline one revision newer than this one."""
    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "r0003.py").write_text(SECOND.format(then=then))
    return Schema(folder, "0003")


def _old_ledger(state: Path) -> list[StoredEvent]:
    store = open_store(state)
    events = batch(1, 30, claimed(store))
    store.append(events, [ended(1), ended(2)])
    store.close()
    return events


def _columns(path: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def test_migrations_make_the_tables_that_the_code_has(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with connect.engine(tmp_path / connect.NAME, "ro").connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, METADATA) == []


def test_the_named_revision_is_the_newest_one() -> None:
    script = ScriptDirectory.from_config(schema._config(Schema()))
    assert script.get_heads() == [REVISION]


def test_events_are_stored_in_the_order_of_their_fields() -> None:
    assert tuple(column.name for column in EVENTS.c) == StoredEvent._fields


def test_opening_a_current_ledger_imports_no_alembic(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    code = (
        "import sys; from orchestrator.store.open import open_store; store = open_store(sys.argv[1]);"
        " store.claim(1); store.close(); sys.exit('alembic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=Path(__file__).parents[2])


def test_an_older_ledger_is_upgraded_after_a_copy(tmp_path: Path) -> None:
    state = tmp_path / "state"
    events = _old_ledger(state)
    newer = _next_schema(tmp_path)
    store = open_store(state, ManualClock(T0), schema=newer)
    assert list(store.tail(0)) == events
    assert store.reader().job(2) == ended(2)
    assert _columns(state / "ledger.db", "history")[-1] == "user_note"
    store.close()
    copies = sorted(path.name for path in state.iterdir() if "revision" in path.name)
    assert copies == ["ledger.db.revision-0002-20261130T000000Z"]
    assert verify(state / copies[0]).last == 30
    assert "user_note" not in _columns(state / copies[0], "history")
    open_store(state, schema=newer).close()
    assert sorted(path.name for path in state.iterdir() if "revision" in path.name) == copies


def test_a_newer_ledger_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    state = tmp_path / "state"
    _old_ledger(state)
    open_store(state, schema=_next_schema(tmp_path)).close()
    before = (state / "ledger.db").read_bytes()
    for use in (lambda: open_store(state), lambda: verify(state / "ledger.db")):
        with pytest.raises(GanglineError, match=r"newer Gangline \(revision 0003.*knows 0002") as caught:
            use()
        assert caught.value.code == "ledger.newer"
    assert (state / "ledger.db").read_bytes() == before


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    _old_ledger(tmp_path)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
        connection.execute("UPDATE meta SET format = 2")
    with pytest.raises(GanglineError, match="format 2") as caught:
        open_store(tmp_path)
    assert caught.value.code == "ledger.newer"


def test_an_upgrade_that_fails_leaves_the_old_revision_whole(tmp_path: Path) -> None:
    state = tmp_path / "state"
    events = _old_ledger(state)
    broken = _next_schema(
        tmp_path, "op.execute('DELETE FROM events'); raise OSError(28, 'No space left on device')"
    )
    with pytest.raises(GanglineError, match="No space left") as caught:
        open_store(state, schema=broken)
    assert caught.value.code == "ledger.disk-full"
    store = open_store(state)
    assert list(store.tail(0)) == events
    assert "user_note" not in _columns(state / "ledger.db", "history")
    store.close()


def test_an_upgrade_that_breaks_references_is_taken_back(tmp_path: Path) -> None:
    state = tmp_path / "state"
    _old_ledger(state)
    with pytest.raises(GanglineError, match="2 rows point nowhere"):
        open_store(state, schema=_next_schema(tmp_path, "op.execute('DELETE FROM history')"))
    assert verify(state / "ledger.db").last == 30


def test_no_upgrade_under_a_running_controller(tmp_path: Path) -> None:
    state = tmp_path / "state"
    store = open_store(state)
    with pytest.raises(Conflict, match="can't upgrade") as caught:
        open_store(state, schema=_next_schema(tmp_path))
    assert caught.value.code == "ledger.in-use"
    store.append([event(1, claimed(store))])
    store.close()


def test_a_backup_of_an_older_revision_is_upgraded_as_it_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _old_ledger(tmp_path / "old")
    newer = _next_schema(tmp_path)
    monkeypatch.setattr(Schema.__init__, "__defaults__", (newer.folder, newer.newest))
    restore(tmp_path / "old" / "ledger.db", tmp_path / "state", T0)
    assert _columns(tmp_path / "state" / "ledger.db", "history")[-1] == "user_note"
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["ledger.db", "ledger.lock"]
    assert verify(tmp_path / "state" / "ledger.db").last == 30


@pytest.mark.parametrize("dump", sorted(GOLDEN.glob("*.sql")), ids=lambda path: path.stem)
def test_a_ledger_of_every_released_revision_opens(tmp_path: Path, dump: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        connection.executescript(dump.read_text())
    store = open_store(tmp_path)
    assert [(found.seq, found.type, found.body) for found in store.tail(2)] == [
        (3, "job.submitted", {"of": 1})
    ]
    snapshot = store.load_snapshot()
    assert snapshot is not None
    assert snapshot.body == {"jobs": {"1": "x"}}
    assert store.reader().job(1) == ended(1)
    assert claimed(store) == 1_796_000_001
    store.close()


APPLIED = """INSERT INTO "events" VALUES(4,1796083200000001,1796000000,'cluster.applied',1,'cluster',4,'user:root',
'{"spec":{"name":"atlas"},"digest":"d4","commit":"0123abc"}');
INSERT INTO "events" VALUES(5,1796083200000002,1796000000,'cluster.applied',1,'cluster',5,'user:root',
'{"spec":{"name":"atlas"},"digest":"d5"}');
INSERT INTO "events" VALUES(6,1796083200000003,1796000000,'job.submitted',1,'job/6',6,'user:alice',
'{"job":6,"key":"alice:1","digest":"d"}');
COMMIT;"""


def test_what_an_older_ledger_has_applied_is_kept_from_then_on(tmp_path: Path) -> None:
    dump = (GOLDEN / "0001.sql").read_text().replace("COMMIT;", APPLIED)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        connection.executescript(dump)
    assert verify(tmp_path / "ledger.db").last == 6
    store = open_store(tmp_path)
    found = [(row.seq, row.by, row.digest, row.commit) for row in store.reader().applied()]
    assert found == [(5, "user:root", "d5", ""), (4, "user:root", "d4", "0123abc")]
    kept = store.reader().applied_at(4)
    assert kept is not None
    assert kept.body["spec"] == {"name": "atlas"}
    assert store.key("alice:1") == KeyRow("alice:1", 6, "d", 1796083200000003)
    store.close()


def test_a_record_that_can_not_be_read_is_told_with_its_place(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append([event(1, claimed(store))], (), [applied(1)])
    store.close()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
        connection.execute("UPDATE applied SET body = '{'")
    with pytest.raises(Damaged, match="what event 1 has applied"):
        verify(tmp_path / "ledger.db")
    with pytest.raises(Damaged, match="what event 1 has applied"):
        open_store(tmp_path).reader().applied_at(1)
