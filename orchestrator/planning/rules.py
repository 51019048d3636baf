"""What a change takes where that depends on more than the field: one table, the first row that fits counts.

Comes in: a `Case` and the two specs. Goes out: a `Verdict`. Called by: diff. Where no rule fits, the class in the
metadata of the model holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.model.change import ChangeKind, UpdateClass
from orchestrator.model.cluster import ClusterSpec, Emulate, Pool, SiteKind, Storage
from orchestrator.model.written import Effect
from orchestrator.planning.compare import Case
from orchestrator.planning.desired import HEAVY_PACKAGES
from orchestrator.planning.leaves import PATTERNS, heaviest_in


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a change takes; `consent` is the name to give for the data that is lost."""

    effect: Effect
    consent: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A case with the clusters around it."""

    case: Case
    before: ClusterSpec
    after: ClusterSpec

    def row(self) -> Any:
        """The outermost row around the value, as it is to be; as it was if it goes."""
        pair = self.case.rows[0]
        return pair.old if pair.new is None else pair.new

    def site_kind(self) -> SiteKind:
        """The kind of the site of the pool around the value."""
        pool: Pool = self.row()
        spec = self.before if self.case.rows[0].new is None else self.after
        return spec.site_of(pool).kind


@dataclass(frozen=True, slots=True)
class Rule:
    """`where`: patterns; one that ends in a dot stands for all that lies inside. `when`: the condition."""

    where: tuple[str, ...]
    when: Callable[[Judged], bool]
    effect: Effect
    consent: Callable[[Judged], str] = lambda judged: ""

    def fits(self, judged: Judged) -> bool:
        """Whether it speaks about the case."""
        pattern = judged.case.pattern
        here = any(pattern == one or (one[-1] == "." and pattern.startswith(one)) for one in self.where)
        return here and self.when(judged)


def judge(judged: Judged) -> Verdict:
    """What the change takes."""
    for rule in RULES:
        if rule.fits(judged):
            return Verdict(rule.effect, rule.consent(judged))
    return Verdict(_plain(judged.case))


def _plain(case: Case) -> Effect:
    pattern = PATTERNS.get(case.pattern)
    if pattern is None:
        return heaviest_in(case.pattern)  # a part that comes or goes as a whole
    return pattern.removed if case.kind is ChangeKind.REMOVED else pattern.added


# --- conditions ------------------------------------------------------------------------------------------------------


def _goes(judged: Judged) -> bool:
    return judged.case.kind is ChangeKind.REMOVED


def _had_folders(judged: Judged) -> bool:
    storage: Storage | None = judged.case.rows[0].old
    return storage is not None and storage.per_job and judged.case.kind is not ChangeKind.ADDED


def _was_made(judged: Judged) -> bool:
    """By Gangline, and it is not any more what it was."""
    old: Storage | None = judged.case.rows[0].old
    new: Storage | None = judged.case.rows[0].new
    if old is None or not old.made:
        return False
    return new is None or (new.kind, new.source) != (old.kind, old.source)


def _purges(judged: Judged) -> bool:
    storage: Storage | None = judged.case.rows[0].old
    return storage is not None and judged.case.new is True


def _only_more(judged: Judged) -> bool:
    """All that was named is still named; an empty list names all there is."""
    old, new = judged.case.old, judged.case.new
    return not new or (bool(old) and all(one in new for one in old))


def _less(judged: Judged) -> bool:
    """A smaller number, or one where nobody had said any: running work may hold more."""
    old, new = judged.case.old, judged.case.new
    return bool(new != 0 and (old == 0 or new < old))


def _heavy(judged: Judged) -> bool:
    name = judged.case.path.rpartition(".packages")[2].strip('.["]')
    return not _goes(judged) and name.startswith(HEAVY_PACKAGES)


def _bought(judged: Judged) -> bool:
    return judged.site_kind() is SiteKind.AWS


def _same_on_metal(judged: Judged) -> bool:
    """`auto` and `never` mean real GPUs there."""
    both = {judged.case.old, judged.case.new}
    return judged.site_kind() is SiteKind.METAL and both == {Emulate.AUTO, Emulate.NEVER}


def _still_offered(judged: Judged) -> bool:
    """Every type of the offering can still be bought on the same market by another one."""
    gone = judged.case.rows[-1].old
    pool: Pool = judged.row()
    left = {(one, other.market) for other in pool.offerings for one in other.types}
    return _goes(judged) and all((one, gone.market) in left for one in gone.types)


def _reordered(judged: Judged) -> bool:
    return judged.case.pattern == "pools[].offerings" and len(judged.case.rows) == 1


def _storage_consent(judged: Judged) -> str:
    return f"storage/{judged.case.rows[0].old.name}"


REFUSED = UpdateClass.REFUSED
CONTROLLER, IN_PLACE = UpdateClass.CONTROLLER, UpdateClass.IN_PLACE
RECONFIGURE, REPLACE = UpdateClass.RECONFIGURE, UpdateClass.REPLACE
DESTROYS = UpdateClass.DESTROYS

RULES: tuple[Rule, ...] = (
    # --- data: before all else, since nothing brings it back
    Rule(
        ("storage[].purge",),
        _purges,
        Effect(DESTROYS, "what jobs leave in their folders, and keep there today, is deleted when they end"),
        _storage_consent,
    ),
    Rule(
        ("storage[].path", "storage[].kind", "storage[].source", "storage"),
        _had_folders,
        Effect(DESTROYS, "the folders of jobs are given up where they are: no job finds them again"),
        _storage_consent,
    ),
    Rule(
        ("storage", "storage[].kind", "storage[].source"),
        _was_made,
        Effect(DESTROYS, "the file system that was made for it is deleted, with all that is in it"),
        _storage_consent,
    ),
    Rule(
        ("storage[].size",),
        _less,
        Effect(
            REFUSED, "a file system never shrinks", "give the old size back, or add a smaller one beside it"
        ),
    ),
    Rule(
        ("storage[].sites",),
        _only_more,
        Effect(IN_PLACE, "it is mounted where it was not; no work uses it there yet"),
    ),
    # --- what is bought is what its type says
    Rule(
        ("pools",),
        lambda judged: judged.case.kind is ChangeKind.ADDED and _bought(judged) and bool(judged.row().nodes),
        Effect(CONTROLLER, "its nodes are bought at once, by Pulumi, and join by themselves"),
    ),
    Rule(
        ("pools",),
        lambda judged: judged.case.kind is ChangeKind.ADDED and _bought(judged),
        Effect(CONTROLLER, "its nodes are bought when work needs them"),
    ),
    Rule(
        ("pools",),
        lambda judged: _goes(judged) and _bought(judged),
        Effect(RECONFIGURE, "work leaves its nodes, then their instances are ended"),
    ),
    Rule(
        ("pools[].nodes",),
        lambda judged: _goes(judged) and _bought(judged),
        Effect(RECONFIGURE, "its work leaves, then its instance is ended"),
    ),
    Rule(("pools[].nodes",), _bought, Effect(CONTROLLER, "it is bought, and joins by itself")),
    Rule(
        ("pools[].gpu", "pools[].gpu.", "pools[].cores", "pools[].memory"),
        _bought,
        Effect(CONTROLLER, "the instance type says what a bought node has"),
    ),
    Rule(
        ("pools[].software.",),
        _goes,
        Effect(CONTROLLER, "what is installed stays; its version is no longer looked after"),
    ),
    Rule(
        ("pools[].fabric.", "pools[].software."),
        _bought,
        Effect(REPLACE, "a bought node starts with it, and is replaced to get another"),
    ),
    Rule(("sites[].zones",), _only_more, Effect(CONTROLLER, "it counts for what is bought from now on")),
    Rule(
        ("pools[].offerings[].type",),
        _only_more,
        Effect(CONTROLLER, "it counts for what is bought from now on"),
    ),
    Rule(("pools[].offerings",), _still_offered, Effect(CONTROLLER, "another offering allows its nodes")),
    Rule(("pools[].offerings",), _reordered, Effect(CONTROLLER, "it counts for what is bought from now on")),
    # --- what a node has
    Rule(
        ("pools[].gpu.emulate",),
        _same_on_metal,
        Effect(CONTROLLER, "both mean the GPUs that the host has"),
    ),
    Rule(
        ("pools[].cores", "pools[].memory"),
        _less,
        Effect(RECONFIGURE, "running work may hold more than that"),
    ),
    Rule(
        ("sites[].system.packages.*",),
        _heavy,
        Effect(RECONFIGURE, "kernels and drivers are exchanged only where nothing runs"),
    ),
    Rule(
        ("sites[].system.packages.*",),
        _goes,
        Effect(IN_PLACE, "it stays installed and is no longer held or looked after"),
    ),
    Rule(
        ("sites[].system.sysctls.*",), _goes, Effect(IN_PLACE, "the value stays until the host boots again")
    ),
)
