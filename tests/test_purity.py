"""The pure rooms are pure: their results depend on their arguments alone, in whatever order a set keeps its members.

tests/purity.py finds what is not; the tables here prove that it finds each kind and accepts what is fine, and the last
test runs the pure rooms' own tests again under another hash seed than this process has.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.purity import Names, declared_names, findings

ROOT = Path(__file__).resolve().parent.parent
PURE_ROOMS = ("model", "ledger", "scheduler", "autoscale", "planning")
# The edges that model/ holds for everybody: the injected clock, the failpoints that read their variable, and the
# calendar, which asks the machine for time zones. No pure room may ask it: months come to them as facts.
EDGES = frozenset(
    {
        "orchestrator/model/calendar.py",
        "orchestrator/model/clock.py",
        "orchestrator/model/failpoints.py",
    }
)


def pure_files() -> list[Path]:
    files = [path for room in PURE_ROOMS for path in sorted((ROOT / "orchestrator" / room).rglob("*.py"))]
    return [path for path in files if str(path.relative_to(ROOT)) not in EDGES]


@pytest.fixture(scope="module")
def shared_names() -> Names:
    return declared_names([ast.parse(path.read_text()) for path in pure_files()])


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(ROOT / "orchestrator")))
def test_pure_room_touches_nothing_but_its_arguments(path: Path, shared_names: Names) -> None:
    found = [f"{path.relative_to(ROOT)}:{f.line}: {f.what}" for f in findings(path.read_text(), shared_names)]

    assert found == []


def test_no_pure_room_asks_the_calendar() -> None:
    named = [path for path in pure_files() if "model.calendar" in path.read_text()]

    assert named == []


def test_edges_are_still_where_the_exception_says() -> None:
    assert sorted(name for name in EDGES if not (ROOT / name).is_file()) == []


BAD = {
    "clock": "import time\n",
    "clock from": "from time import monotonic\n",
    "date": "from datetime import datetime\nx = datetime.now()\n",
    "date module": "import datetime\nx = datetime.datetime.utcnow()\n",
    "dice": "import random\n",
    "uuid": "from uuid import uuid4\n",
    "numpy dice": "import numpy as np\nx = np.random.default_rng()\n",
    "numpy dice from": "from numpy import random\n",
    "environment": "import os\n",
    "file": "def f(p):\n    return open(p)\n",
    "path": "from pathlib import Path\n",
    "socket": "import socket\n",
    "process": "import subprocess\n",
    "thread": "import threading\n",
    "log": "import logging\n",
    "address": "def f(a):\n    return id(a)\n",
    "seeded hash": "def f(a):\n    return hash(a) % 8\n",
    "global": "N = 0\ndef f():\n    global N\n",
    "for over display": "for x in {1, 2}:\n    pass\n",
    "for over call": "for x in set('ab'):\n    pass\n",
    "for over frozenset": "for x in frozenset('ab'):\n    pass\n",
    "for over set comprehension": "for x in {y for y in 'ab'}:\n    pass\n",
    "for over annotated argument": "def f(a: set[int]):\n    for x in a:\n        pass\n",
    "for over optional argument": "def f(a: 'set[int] | None'):\n    for x in a or ():\n        pass\n",
    "for over local": "def f(b):\n    a = set(b)\n    for x in a:\n        pass\n",
    "for over annotated local": "def f(b):\n    a: frozenset[str] = b\n    for x in a:\n        pass\n",
    "for over union": "def f(a: set[int], b):\n    for x in a | b:\n        pass\n",
    "for over key views": "def f(a, b):\n    for x in a.keys() & b.keys():\n        pass\n",
    "for over method": "def f(a: set[int], b):\n    for x in a.union(b):\n        pass\n",
    "for over self": "class C:\n    m: set[int]\n    def f(self):\n        for x in self.m:\n            pass\n",
    "for over field": "class C:\n    m: frozenset[int]\ndef f(c):\n    return [x for x in c.m]\n",
    "for over set in init": "class C:\n    def __init__(self):\n        self.m: set[int] = set()\n"
    "    def f(self):\n        return [x for x in self.m]\n",
    "for over returned set": "def g() -> set[int]:\n    return {1}\ndef f():\n    for x in g():\n        pass\n",
    "list of": "x = list({1, 2})\n",
    "tuple of": "x = tuple({1, 2})\n",
    "enumerate": "def f(a: set[int]):\n    return [x for x in enumerate(a)]\n",
    "join": "x = ','.join({'a', 'b'})\n",
    "star": "x = [*{1, 2}]\n",
    "star argument": "f(*{1, 2})\n",
    "unpack": "a, b = {1, 2}\n",
    "pop": "def f(a: set[int]):\n    return a.pop()\n",
    "next iter": "def f(a: set[int]):\n    return next(iter(a))\n",
    "min with a key": "def f(a: set[int]):\n    return min(a, key=abs)\n",
    "generator": "def f(a: set[int]):\n    return g(x for x in a)\n",
    "dict comprehension": "def f(a: set[int]):\n    return {x: 1 for x in a}\n",
    "yield from": "def f(a: set[int]):\n    yield from a\n",
    "dict.fromkeys": "def f(a: set[int]):\n    return dict.fromkeys(a)\n",
}


@pytest.mark.parametrize("source", BAD.values(), ids=BAD.keys())
def test_impure_snippet_is_found_once_or_more(source: str) -> None:
    assert findings(source) != []


GOOD = {
    "sorted": "def f(a: set[int]):\n    for x in sorted(a):\n        pass\n",
    "membership": "def f(a: set[int], b):\n    return b in a and len(a) > 1\n",
    "any over a set": "def f(a: set[int]):\n    return any(x > 1 for x in a)\n",
    "sum over a set": "def f(a: set[int]):\n    return sum(x for x in a)\n",
    "min without a key": "def f(a: set[int]):\n    return min(a)\n",
    "set from a set": "def f(a: set[int]):\n    return {x + 1 for x in a}\n",
    "sorted generator": "def f(a: set[int]):\n    return sorted(x + 1 for x in a)\n",
    "dictionary": "def f(a: dict[str, int]):\n    for x in a:\n        pass\n",
    "rebound name": "def f(a):\n    a = sorted(set(a))\n    for x in a:\n        pass\n",
    "list pop": "def f(a: list[int]):\n    return a.pop()\n",
    "now as an argument": "def f(now: int):\n    return now + 1\n",
    "now as a field": "def f(pass_):\n    return pass_.now\n",
    "own hash": "class C:\n    def __hash__(self):\n        return hash((1, 2))\n",
    "date arithmetic": "from datetime import timedelta\nx = timedelta(days=1)\n",
    "local called id": "def f(id):\n    return id(1)\n",
    "integer subtraction": "def f(a: int, b: int):\n    return list(range(a - b))\n",
    "name that is both": "class A:\n    m: set[int]\nclass B:\n    m: list[int]\n"
    "    def f(self):\n        return [x for x in self.m]\n",
}


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD.keys())
def test_pure_snippet_is_accepted(source: str) -> None:
    assert findings(source) == []


def test_finding_names_line_and_thing() -> None:
    (finding,) = findings("def f(a: set[int]):\n\n    for x in a:\n        pass\n")

    assert (finding.line, finding.what) == (3, "iterates over a set: a (sort it first)")


@pytest.mark.system
@pytest.mark.parametrize("seed", ["1", "4294967295"])
def test_pure_rooms_pass_under_hash_seed(seed: str) -> None:
    folders = [f"tests/{room}" for room in PURE_ROOMS if (ROOT / "tests" / room).is_dir()]
    if not folders:
        pytest.skip("no pure room has tests yet")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        "addopts=",
    ]
    command += ["--import-mode=importlib", "-m", "not property and not system", *folders]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "CI": "true"}

    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240
    )

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
