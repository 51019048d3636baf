"""Scenes for plans: the full document of tests/spec, changed in a line or two, and what a plan says in a few lines.

Comes in: edits of the document by path, what was seen, what runs. Goes out: `ChangeSet`s and their text. Called by: the
tests of this folder.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator import catalog, spec
from orchestrator.model.change import Change, ChangeSet, PlanStep, Source
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.host import (
    Desired,
    Drift,
    HostFacts,
    Item,
    ItemKind,
    PoolDesired,
    RoleState,
    Sight,
    Step,
)
from orchestrator.model.units import fold
from orchestrator.planning.desired import Resolved
from orchestrator.planning.plan import plan
from orchestrator.planning.render import recorded_as
from orchestrator.planning.roster import pools_by_node
from orchestrator.planning.world import (
    NO_CHOICE,
    Choices,
    Left,
    NodeNow,
    Observed,
    Recorded,
    Running,
    Waiting,
    Workload,
)
from orchestrator.spec.tree import read_tree

FULL = Path(__file__).parents[1] / "spec" / "full" / "cluster.yaml"
RESOLVED = Resolved("aa" * 32, "https://10.0.0.9:7443", "/etc/gangline/ca.pem", "0.2.0")
NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000
GONE: Any = object()  # as the value of an edit: the place is taken out

_STEP = re.compile(r'\["([^"]*)"\]|\[([^\]]*)\]|([^.\[]+)')

Edits = dict[str, Any]


@cache
def _document() -> Any:
    root = read_tree(FULL.read_text()).root
    assert root is not None
    return root.value


def document(edits: Edits | None = None) -> Any:
    """The full document with these places changed: `pools[h100].gpu.count`, `sites[hall].system.sysctls["a.b"]`."""
    data = copy.deepcopy(_document())
    for path, value in (edits or {}).items():
        _set(data, path, value)
    return data


def _set(data: Any, path: str, value: Any) -> None:
    steps = [next(part for part in found if part) for found in _STEP.findall(path)]
    for step in steps[:-1]:
        data = _inside(data, step)
    key = _index(data, steps[-1]) if isinstance(data, list) else steps[-1]
    if value is GONE:
        del data[key]
    elif isinstance(data, list) and key == len(data):
        data.append(value)
    else:
        data[key] = value


def _inside(data: Any, step: str) -> Any:
    if isinstance(data, list):
        return data[_index(data, step)]
    return data.setdefault(step, {})


def _index(items: list[Any], step: str) -> int:
    """A place of a list by its name or number; one that is not there is the next."""
    for index, item in enumerate(items):
        if isinstance(item, dict) and step in (item.get("name"), item.get("pool"), item.get("gpu_model")):
            return index
    return int(step) if step.isdigit() else len(items)


def load(data: Any) -> ClusterSpec:
    """The model of a document, which must be without fault."""
    return _load(json.dumps(data))


@cache
def _load(text: str) -> ClusterSpec:
    loaded = spec.load_cluster_text(text, str(FULL), base=str(FULL))
    assert loaded.cluster is not None, spec.render(loaded.errors)
    return loaded.cluster


@cache
def base() -> ClusterSpec:
    """The full document as it is."""
    return load(document())


# --- what was seen ---------------------------------------------------------------------------------------------------


def facts(name: str, **rest: Any) -> HostFacts:
    """A host as it always was."""
    return HostFacts(f"machine-{name}", f"boot-{name}", name, gpus=("0000:1b:00.0 10de:2330",) * 2, **rest)


def sight(name: str, *drift: Drift, **rest: Any) -> Sight:
    """A host that was looked at from end to end."""
    return Sight(name, Step.DONE, facts=facts(name, **rest), checked=True, drift=drift, seen_us=NOW)


def lost(name: str, step: Step = Step.TCP, error: str = "no answer") -> Sight:
    """A host that could not be reached."""
    return Sight(name, step, error, "check its power")


def node(name: str, **rest: Any) -> NodeNow:
    """A node that has come in."""
    return NodeNow(name, host=facts(name), **rest)


def drifted(kind: ItemKind, name: str, value: str, wanted: str, found: str, role: str = "base") -> Drift:
    """One value that is not as wanted."""
    return Drift(role, kind, name, value, wanted, found)


# --- a whole scene ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """`old` and `new` are edits of the full document; `old` None: nothing was ever recorded.

    Hosts are all seen and as recorded, except for `sights`; nodes are all in and ready, except for `nodes` (None of a
    name: it never came in).
    """

    name: str
    new: Edits = field(default_factory=dict)
    old: Edits | None = field(default_factory=dict)
    sights: tuple[Sight, ...] = ()
    nodes: Mapping[str, NodeNow | None] = field(default_factory=dict)
    owed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()  # names that stood in pool `old`
    running: tuple[Running, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    choices: Choices = NO_CHOICE
    resolved: Resolved = RESOLVED
    recorded_items: tuple[
        Item, ...
    ] = ()  # instead of items of the same name in what was recorded of pool h100
    want: str = ""

    def plan(self) -> ChangeSet:
        """What is planned."""
        wanted = load(document(self.new)) if self.new else base()
        recorded = self.recorded()
        return plan(
            wanted,
            recorded,
            self.observed(wanted),
            catalog.load(),
            Workload(self.running, self.waiting),
            NOW,
            self.resolved,
            self.choices,
        )

    def recorded(self) -> Recorded:
        """What the ledger says."""
        if self.old is None:
            return Recorded(nodes=tuple(one for one in self.nodes.values() if one is not None))
        before = load(document(self.old)) if self.old else base()
        desired = tuple(self._edited(one) for one in recorded_desired(before))
        names = {name: node(name) for name in pools_by_node(before)} | dict(self.nodes)
        here = tuple(one for one in names.values() if one is not None)
        left = tuple(Left(name, before.pool("old"), before.site("hall")) for name in self.left)
        return Recorded(before, desired, here, self.owed, left)

    def observed(self, wanted: ClusterSpec) -> Observed:
        """What was seen of the hosts of the wanted file."""
        seen = {name: sight(name) for name in pools_by_node(wanted)} | {one.host: one for one in self.sights}
        return Observed(tuple(seen.values()))

    def _edited(self, one: PoolDesired) -> PoolDesired:
        if one.pool != "h100" or not self.recorded_items:
            return one
        other = {item.name: item for item in self.recorded_items}
        roles = tuple(
            RoleState(role.role, tuple(other.pop(item.name, item) for item in role.items))
            for role in one.desired.roles
        )
        first = RoleState(roles[0].role, (*roles[0].items, *other.values()))
        return recorded_as(one.pool, Desired((first, *roles[1:])))


@cache
def recorded_desired(spec_: ClusterSpec) -> tuple[PoolDesired, ...]:
    """What an apply of this version would have recorded."""
    made = plan(spec_, Recorded(), Observed(looked=False), catalog.load(), Workload(), NOW, RESOLVED)
    return made.desired


# --- what a plan says ------------------------------------------------------------------------------------------------


def told(made: ChangeSet) -> str:
    """A plan in a few lines: changes, steps by batch, jobs, what blocks, what was not seen."""
    lines = [_change(change) for change in made.changes]
    lines += _steps(made.steps)
    lines += [
        f"job {one.job} {one.fate}" + (f" on {fold(list(one.nodes))}" if one.nodes else "")
        for one in made.work
    ]
    lines += [f"blocked: {blocker.partition(': ')[0]}" for blocker in made.blockers]
    lines += [f"unseen: {one}" for one in made.unseen]
    return "\n".join(lines)


WIDTH = 100
LONGEST = 20  # characters of a value; the whole texts of values are tested with the values


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _change(one: Change) -> str:
    """On two lines where one would be too long for a table."""
    what = f"{one.path}: {_cut(one.old) or '-'} -> {_cut(one.new) or '-'}"
    how = f"[{one.cls}]"
    how += f" ({one.source})" if one.source is not Source.SPEC else ""
    how += f" on {fold(sorted(one.nodes))}" if one.nodes else ""
    how += " deferred" if one.deferred else ""
    how += f" consent {one.consent}" if one.consent else ""
    return f"{what} {how}" if len(what) + len(how) <= WIDTH else f"{what}\n{how}"


def _steps(steps: Iterable[PlanStep]) -> list[str]:
    """One line a batch: what its nodes go through."""
    batches: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for step in steps:
        name = step.id.rpartition(".")[0] or step.id
        kind = str(step.kind) + (f"({','.join(step.roles)})" if step.roles else "")
        batches.setdefault((name, step.nodes), []).append(kind)
    return [
        f"{name}: {' '.join(kinds)}" + (f" {fold(list(nodes))}" if nodes else "")
        for (name, nodes), kinds in batches.items()
    ]


def dedent(text: str) -> str:
    """The lines of a wanted text without their indent."""
    return "\n".join(line.strip() for line in text.strip().splitlines())
