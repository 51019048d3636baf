"""Whatever is in a file or a request, the answer is a model or errors: never an exception, never a hang.

Comes in: random bytes, random YAML, and sound documents with random damage. Goes out: proof that each error has a
known code, a place inside the file and printable words.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import spec
from orchestrator.spec.inventory import read_inventory
from orchestrator.spec.source import Unreadable, text_of_bytes
from orchestrator.spec.tree import read_tree

pytestmark = pytest.mark.property

FULL = Path(__file__).parent / "full"
PLAIN = (
    "a no 1 ~ 2N - : ? [ ] { } , &x *x | > ' \" # << --- ... % @ ` \\ é 日 kind Cluster Job name pools n[1-9]"
)
SPACED = ["- ", ": ", "!!str ", "\n", "\n  ", "\t", "\r", "\u2028", "\x85", "\ufeff"]
WORDS = [*PLAIN.split(" "), *SPACED, "gangline/v1", "sites", "apiVersion"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["h100", "hall", "n[1-3]", "10m", "1GiB", "mon-fri", "17:00", "env:X", "research", "spot", "\ud800"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=6) | st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=8,
)


def sound(errors: tuple[spec.SpecError, ...], text: str) -> None:
    count = len(read_lines(text))
    for one in errors:
        assert one.code in spec.FAULTS
        assert one.message
        assert 1 <= one.line <= count + 1
        assert one.column >= 1
    printed = spec.render(errors)
    assert all(char == "\n" or char.isprintable() for char in printed), repr(printed)


def read_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").splitlines() or [""]


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    fault, text = None, ""
    try:
        text = text_of_bytes(data)
    except Unreadable as error:
        fault = error.problem
    if fault is not None:
        assert fault.code in spec.FAULTS
        return
    sound(spec.validate_text(text, "f.yaml").errors, text)
    read_inventory(text)


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=40).map("".join))
def test_random_yaml(text: str) -> None:
    sound(spec.validate_text(text, "f.yaml").errors, text)
    for fault in read_inventory(text).faults:
        assert fault.problem.code in spec.FAULTS
        assert fault.place.line >= 1


def document(name: str) -> Any:
    root = read_tree((FULL / name).read_text()).root
    assert root is not None
    return root.value


DOCUMENTS = {name: document(name) for name in ("cluster.yaml", "job.yaml", "tasks.yaml", "hosts.yml")}


@st.composite
def damaged(draw: st.DrawFn, name: str) -> Any:
    """A sound document with random values at up to four random places."""
    data = copy.deepcopy(DOCUMENTS[name])
    for _ in range(draw(st.integers(1, 4))):
        holder, steps = data, draw(st.integers(1, 6))
        for _ in range(steps):
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(holder[key], (dict, list)) and holder[key] and draw(st.integers(0, 3)):
                holder = holder[key]
                continue
            action = draw(st.sampled_from(["replace", "remove", "add"]))
            if action == "replace":
                holder[key] = draw(VALUES)
            elif action == "remove":
                del holder[key]
            elif isinstance(holder, dict):
                holder[draw(st.text(max_size=5))] = draw(VALUES)
            else:
                holder.append(draw(VALUES))
            break
    return data


def as_yaml(data: Any) -> str:
    """JSON is YAML, but for half surrogate pairs and its words for numbers that are none."""
    text = json.dumps(data, ensure_ascii=False, indent=1).encode("utf-8", "replace").decode()
    return text.replace("-Infinity", "-.inf").replace("Infinity", ".inf").replace("NaN", ".nan")


@given(damaged("cluster.yaml"))
def test_damaged_clusters(data: Any) -> None:
    text = as_yaml(data)
    loaded = spec.load_cluster_text(text, "cluster.yaml", base=str(FULL / "cluster.yaml"))
    sound(loaded.errors, text)
    assert (loaded.cluster is None) == bool(loaded.errors)


@given(damaged("job.yaml") | damaged("tasks.yaml"))
def test_damaged_jobs(data: Any) -> None:
    text = as_yaml(data)
    loaded = spec.load_job_text(text, "job.yaml", CLUSTER)
    sound(loaded.errors, text)
    assert (loaded.job is None) == bool(loaded.errors)
    told: tuple[spec.SpecError, ...] | None = None
    try:
        spec.job_from_document(data, CLUSTER)
    except spec.InvalidDocument as error:
        told = error.errors
    assert told is None or (told and all(one.code in spec.FAULTS for one in told))


CLUSTER = spec.load_cluster(str(FULL / "cluster.yaml")).cluster


@given(damaged("hosts.yml"))
def test_damaged_inventories(data: Any) -> None:
    inventory = read_inventory(as_yaml(data))
    assert all(fault.problem.code in spec.FAULTS for fault in inventory.faults)


@given(VALUES)
def test_random_values_as_jobs(data: Any) -> None:
    with pytest.raises(spec.InvalidDocument):
        spec.job_from_document(data)
