"""What Pulumi's engine says while it works, as typed rows and one error.

Comes in: events of the Automation API. Goes out: `ResourceChange` rows, progress, and what failed in words. Called by:
stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from pulumi.automation import EngineEvent, OpType, StepEventMetadata

from orchestrator.model.base import Word
from orchestrator.model.errors import GanglineError, Refused, Unavailable
from orchestrator.model.stack_sight import CONTROLLER, StackOp, StackRow


class Op(Word):
    """What happens to a resource."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    FORGET = "forget"  # it leaves the stack and stays in the account


# The engine's steps of a replacement come as three; only the one that stands for the whole is a row.
_OPS = {
    OpType.CREATE: Op.CREATE,
    OpType.UPDATE: Op.UPDATE,
    OpType.REPLACE: Op.REPLACE,
    OpType.DELETE: Op.DELETE,
    OpType.DISCARD: Op.FORGET,
}
INSTANCE = CONTROLLER[0]  # all other instances are fixed nodes
DATA = ("aws:ebs/volume:Volume", "aws:efs/fileSystem:FileSystem", "aws:fsx/lustreFileSystem:LustreFileSystem")
OWN = ("pulumi:", "gangline:")  # stacks, providers, components: nothing of them is in the account


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """One resource that is or would be changed. `paths` are the properties that differ, `why` those that force a
    replacement; `protected`: the engine refuses to delete it."""

    op: Op
    type: str
    name: str
    urn: str
    paths: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    protected: bool = False

    def row(self) -> StackRow:
        """The same as a plan shows it. What leaves the record and stays in the account counts as deleted there."""
        node = self.name if self.type == INSTANCE and self.name != CONTROLLER[1] else ""
        op = StackOp.DELETE if self.op == Op.FORGET else StackOp(str(self.op))
        return StackRow(op, self.type, self.name, self.paths, data=self.type in DATA, node=node)

    def why_kept(self) -> str:
        """Why the end of a stack left it: what the record protects stays, and what that stands in."""
        if not self.protected:
            return "what else is kept stands in it"
        return "it holds data" if self.type in DATA else "somebody has protected it in the stack's record"


Progress = Callable[[ResourceChange, bool], None]


def quiet(change: ResourceChange, done: bool) -> None:
    """A `Progress` that tells nobody."""


@dataclass(slots=True)
class Listener:
    """Collects events of one run. `progress` hears of each resource when it begins and when it is done."""

    progress: Progress = quiet
    drift: bool = False
    changes: dict[str, ResourceChange] = field(default_factory=dict)
    errors: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, event: EngineEvent) -> None:
        if event.resource_pre_event is not None:
            self._step(event.resource_pre_event.metadata, done=False)
        elif event.res_outputs_event is not None:
            self._step(event.res_outputs_event.metadata, done=True)
        elif event.diagnostic_event is not None and event.diagnostic_event.severity == "error":
            self.errors.append((event.diagnostic_event.urn or "", plain(event.diagnostic_event.message)))

    def _step(self, step: StepEventMetadata, done: bool) -> None:
        change = self._drift(step) if self.drift else change_of(step)
        if change is None:
            return
        before = self.changes.get(change.urn)
        # A replacement that deletes first is said twice: the row that says why is kept.
        if before is None or (before.op != Op.REPLACE and (change.paths or not before.paths)):
            self.changes[change.urn] = change
        self.progress(self.changes[change.urn], done)

    def _drift(self, step: StepEventMetadata) -> ResourceChange | None:
        """A refresh says what it found when it has looked: another op than `refresh`, or differing properties."""
        if step.op in (OpType.UPDATE, OpType.DELETE) and not step.type.startswith(OWN):
            return _row(Op.UPDATE if step.op == OpType.UPDATE else Op.DELETE, step)
        if step.op != OpType.REFRESH or step.new is None or step.old is None:
            return None
        return _row(Op.UPDATE, step) if step.detailed_diff or step.diffs else None

    def rows(self) -> tuple[ResourceChange, ...]:
        """All changes, sorted by type and name."""
        return tuple(sorted(self.changes.values(), key=lambda one: (one.type, one.name, one.urn)))


def change_of(step: StepEventMetadata) -> ResourceChange | None:
    """The row of a step; None where nothing of the account changes."""
    op = _OPS.get(OpType(step.op))
    return None if op is None or step.type.startswith(OWN) else _row(op, step)


def _row(op: Op, step: StepEventMetadata) -> ResourceChange:
    state = step.new or step.old
    paths = sorted(step.detailed_diff or step.diffs or ())
    return ResourceChange(
        op=op,
        type=step.type,
        name=step.urn.rpartition("::")[2],
        urn=step.urn,
        paths=tuple(paths),
        why=tuple(sorted(step.keys or ())),
        protected=bool(state is not None and state.protect),
    )


def plain(text: str) -> str:
    """A message of the engine without its marks for colours."""
    return re.sub(r"<\{%[^%]*%\}>", "", text).strip()


# What the engine or AWS says, and what a person does about it; the first that fits counts.
_OTHER_PHRASE = (
    "give the one that the stack was made with by PULUMI_CONFIG_PASSPHRASE, or name a key: `stack.secrets`"
)
# The engine's own words, for what the record protects from being deleted, and from being replaced. AWS has others for
# what is in use, and says nothing of data.
HELD = r"pulumi state unprotect|currently marked for protection"
IN_USE = (
    r"DependencyViolation|DeleteConflict|\.InUse|InUse\b|IN_USE|has dependencies|(currently|still) in use"
)
_HINTS: tuple[tuple[str, str], ...] = (
    (r"incorrect passphrase|passphrase must be set", _OTHER_PHRASE),
    (
        r"failed to load checkpoint",
        "the stack's record is damaged: make room on its disk, and put back a whole copy, as the one beside it, .bak",
    ),
    (
        r"failed to save snapshot",
        "the stack's record could not be written: make room on its disk, then run it again",
    ),
    (
        r"resource plugin|find plugin|load plugin",
        "`pulumi plugin install resource aws VERSION` fetches it: the very version that is named, no newer one",
    ),
    (
        IN_USE,
        "AWS says that something still uses it: end that, or wait until it has ended, then run it again",
    ),
    (r"[Cc]apacity", "AWS has none of it now: try again later, or name another type or zone"),
    (r"LimitExceeded|VcpuLimit|quota", "ask AWS for a higher quota, or want less"),
    (
        r"UnauthorizedOperation|AccessDenied|not authorized",
        "the credentials lack a right: ask for the one that is named",
    ),
    (r"ExpiredToken|o valid credential|NoCredentials|InvalidClientTokenId", "log in to AWS again"),
)


def failed(listener: Listener, words: str, what: str) -> GanglineError:
    """The error of a run that failed: the first resource that failed, why, and what to do; never a traceback. Refused
    where the record protects that resource: it holds data and nobody has released it, or a person protected it.

    `words` is the engine's whole output, for where it named no resource; `what` the verb.
    """
    named = [
        (urn, text)
        for urn, text in listener.errors
        if urn and not urn.endswith("::pulumi:providers:aws::aws")
    ]
    urn, text = (named or listener.errors or [("", _last_words(words))])[0]
    name = urn.rpartition("::")[2]
    place = f"{_kind(urn)} {name}: " if urn else ""
    if re.search(HELD, text):
        return _held(urn, name)
    reason = _reason(text)
    more = len({one for one, _ in named}) - 1
    also = f" (and {more} more)" if more > 0 else ""
    return Unavailable(
        "aws.stack-failed",
        f"{what} failed at {place}{reason}{also}" if place else f"{what} failed: {reason}",
        hint_for(text),
    )


def _held(urn: str, name: str) -> Refused:
    if _type(urn) in DATA:
        why = f"{_kind(urn)} {name} holds data and would be deleted, with all that is in it"
        hint = f"release it by name (storage/{name}), or put it into the file as it was"
        return Refused("aws.holds-data", why, hint, name)
    why = f"{_kind(urn)} {name} would be deleted, and somebody has protected it in the stack's record"
    return Refused("aws.protected", why, "`pulumi state unprotect` takes that off", name)


def hint_for(text: str) -> str:
    """What a person does about that message."""
    for pattern, hint in _HINTS:
        if re.search(pattern, text):
            return hint
    return "run it again: what was made is recorded, and what is missing is made"


def _type(urn: str) -> str:
    """The type that a URN names, without those of its parents."""
    return urn.split("::")[2].rpartition("$")[2] if urn.count("::") >= 3 else ""


def _kind(urn: str) -> str:
    """The last word of a type, as in `LustreFileSystem`."""
    return re.split(r"[:/]", _type(urn))[-1]


def _reason(text: str) -> str:
    """The sentence of a message that says why: engine and provider wrap it in lines of their own."""
    lines = [line.strip(" *\t") for line in text.splitlines()]
    kept = [
        line for line in lines if line and not line.startswith(("Traceback", "File ", "error: update failed"))
    ]
    return kept[-1] if kept else "the engine gave no reason"


def _last_words(text: str) -> str:
    found = re.findall(r"(?m)^\s*(?:error: |stderr: error: )(.+)$", plain(text))
    return found[-1] if found else plain(text).splitlines()[-1] if plain(text) else ""
