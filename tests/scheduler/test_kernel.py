"""Compiled code costs every node exactly as numpy does; where it can't be had, numpy does the work."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.ask import Ask
from orchestrator.scheduler import kernel, waste
from orchestrator.scheduler.mix import tables
from orchestrator.scheduler.presets import STANDARD
from tests.scheduler.mixed import Node, Nodes, Scene, scenes


@pytest.mark.property
@given(scenes())
def test_compiled_code_and_numpy_give_the_same_costs(scene: Scene) -> None:
    pytest.importorskip("numba")
    compiled = kernel.best()
    arrays = Nodes(scene.nodes, scene.ranks)
    made = tables(scene.mix, [node.kind for node in scene.nodes], scene.preset)
    rows = np.arange(len(scene.nodes))[::-1].copy()

    assert compiled is not waste.costs
    assert compiled(made, arrays, scene.ask).tolist() == waste.costs(made, arrays, scene.ask).tolist()
    assert (
        compiled(made, arrays, scene.ask, rows).tolist()
        == waste.costs(made, arrays, scene.ask, rows).tolist()
    )


@pytest.mark.property
@given(scene=scenes(), data=st.data())
def test_renewed_are_the_rows_that_were_touched_and_suit(scene: Scene, data: st.DataObject) -> None:
    """With what a row costs beside its waste, and none where the node is closed; compiled and numpy alike."""
    pytest.importorskip("numba")
    count = len(scene.nodes)

    def drawn(values: st.SearchStrategy[int], kind: type[np.generic]) -> np.ndarray:
        return np.array(data.draw(st.lists(values, min_size=count, max_size=count)), kind)

    arrays = Nodes(scene.nodes, scene.ranks)
    arrays.open, arrays.touched = drawn(st.integers(0, 1), np.bool_), drawn(st.integers(0, 3), np.int64)
    suits, more = drawn(st.integers(0, 1), np.bool_), drawn(st.sampled_from([0, 5, waste.NO_FIT]), np.int64)
    stale = waste.Stale(1, suits, data.draw(st.sampled_from([None, more])))
    made = tables(scene.mix, [node.kind for node in scene.nodes], scene.preset)
    before = np.arange(count, dtype=np.int32)

    wanted = waste.costs(made, arrays, scene.ask) + (0 if stale.more is None else more)
    wanted = np.where(arrays.open, np.minimum(wanted, waste.NO_FIT), waste.NO_FIT)
    wanted = np.where((arrays.touched > 1) & suits, wanted, before)
    for renew in (kernel.renewing(), kernel.renewing(compiled=False)):
        found = before.copy()
        renew(made, arrays, scene.ask, found, stale)
        assert found.tolist() == wanted.tolist()


def test_compiled_code_stays_inside_tables_that_are_too_small() -> None:
    """A node that joined after the tables were made: some cost, but no memory is read outside."""
    pytest.importorskip("numba")
    small = tables({Ask(gpus=2, cores=8): 1}, [Node(milli=(1000,)).kind], STANDARD)
    newcomer = Nodes([Node(milli=(1000,) * 8, cores=1 << 20, model=7)])

    found = kernel.best()(small, newcomer, Ask(gpus=8, cores=8))

    assert (
        found.tolist()
        == waste.costs(small, Nodes([Node(milli=(1000,) * 8, cores=1 << 20)]), Ask(gpus=8, cores=8)).tolist()
    )


def test_numpy_on_demand() -> None:
    assert kernel.best(compiled=False) is waste.costs
    assert kernel.name(waste.costs) == "numpy"


def test_numpy_where_numba_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "orchestrator.scheduler.compiled", raising=False)
    monkeypatch.delattr("orchestrator.scheduler.compiled", raising=False)

    assert kernel.best() is waste.costs


@pytest.mark.system
def test_numba_is_loaded_only_when_it_is_asked_for() -> None:
    code = "import sys; from orchestrator.scheduler import kernel as k; k.best(False); print('numba' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
