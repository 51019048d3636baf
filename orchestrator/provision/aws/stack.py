"""One aws site's stack through Pulumi's Automation API: preview, up, drift, destroy.

Comes in: a spec's site, its `SiteInputs`, the state folder. Goes out: rows of what changes, the facts, errors in words.
Called by: the command, which holds Gangline's own lease around whatever changes something.

The program runs in this process (program.declare), the engine in its own. Where a run was killed, the next one finds
what was being made, by its marks in the account, before it goes on.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulumi import automation
from pulumi.automation.errors import CommandError, ConcurrentUpdateError

from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import decode
from orchestrator.model.errors import Conflict, GanglineError, Refused
from orchestrator.model.stack_facts import StackFacts
from orchestrator.model.stack_sight import StackOp, StackRow, StackSight
from orchestrator.provision.aws import program
from orchestrator.provision.aws.changes import INSTANCE, Listener, Op, Progress, ResourceChange, failed, quiet
from orchestrator.provision.aws.engine import Engine
from orchestrator.provision.aws.inputs import SiteInputs
from orchestrator.provision.aws.marks import UID
from orchestrator.provision.aws.nodes import templates_of
from orchestrator.provision.files import private_folder

if TYPE_CHECKING:
    from orchestrator.provision.aws.adopt import Find

PROJECT = "gangline"  # the name in stacks/aws/Pulumi.yaml: both ways have one record
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def found_nothing(kind: str, name: str, given: Mapping[str, Any]) -> str:
    """A `Find` that knows of nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class Done:
    """What a run did, and the facts after it (None: there is no stack any more, or it was never whole)."""

    changes: tuple[ResourceChange, ...]
    facts: StackFacts | None
    adopted: tuple[str, ...] = ()


class SiteStack:
    """The stack of one site. `folder` is the cluster's state folder on this machine, `leased`: the caller holds
    Gangline's lease, so that a lock which is still there was left by a killed run. `uid` is the cluster's (empty: it
    has none yet): a record with other marks, as two clusters of one name in one bucket would share, is left alone."""

    def __init__(
        self, spec: ClusterSpec, site: str, folder: Path, engine: Engine, leased: bool = False, uid: str = ""
    ) -> None:
        self._uid = uid
        self._site, self._engine, self._leased = spec.site(site), engine, leased
        self.name = f"{spec.name}-{site}"
        self._folder = folder / "stacks"
        self._work = self._folder / self.name
        self._version = 3  # of the record's form; what was read last says it
        private_folder(self._work)

    # --- verbs -------------------------------------------------------------------------------------------------

    def sight(self, inputs: SiteInputs) -> StackSight:
        """What a plan has to know of the site: what `up` would do, and what somebody did to what the stack has.

        Errors are in the sight, in words, and are not raised; but for Refused: what holds data would be deleted.
        """
        brought = inputs.facts.spec if inputs.facts is not None else ""
        try:
            rows = tuple(one.row() for one in self.preview(inputs))
            drift = tuple(one.row() for one in self.drift()) if inputs.facts is not None else ()
        except Refused as error:
            if error.path not in inputs.released:
                raise
            # The engine goes by the record until `up` releases it, and looks no further than this.
            return StackSight(inputs.site_name, tuple(self._as_deleted(error.path)), spec=brought)
        except GanglineError as error:
            return StackSight(inputs.site_name, error=error.message, hint=error.hint, spec=brought)
        return StackSight(
            inputs.site_name, tuple(one for one in rows if not _follows(one)), drift, spec=brought
        )

    def _as_deleted(self, name: str) -> Iterator[StackRow]:
        for one in self._resources():
            if _name(one["urn"]) == name and one.get("custom"):
                yield StackRow(StackOp.DELETE, one["type"], name, data=True)

    def preview(self, inputs: SiteInputs) -> tuple[ResourceChange, ...]:
        """What `up` would do; changes nothing. Raises GanglineError."""
        listener = Listener()
        with self._running(listener, "the preview", inputs) as stack:
            stack.preview(on_event=listener, color="never", suppress_progress=True)
        return listener.rows()

    def up(self, inputs: SiteInputs, progress: Progress = quiet, find: Find = found_nothing) -> Done:
        """Make the site what the inputs say. `find` gives the id of what a killed run left unrecorded.

        Raises GanglineError for what failed; what was made before that is recorded, and the next run goes on.
        """
        adopted = self.reconcile(find)
        self._release(inputs.released)
        listener = Listener(progress)
        held = self._urns_held(inputs)
        with self._running(listener, "the change", inputs) as stack:
            stack.up(
                on_event=listener, color="never", suppress_progress=True, suppress_outputs=True, exclude=held
            )
            facts = facts_in(stack.outputs())
        return Done(listener.rows(), facts, adopted)

    def drift(self) -> tuple[ResourceChange, ...]:
        """What differs between the record and the account; changes neither."""
        listener = Listener(drift=True)
        with self._running(listener, "looking for drift") as stack:
            stack.preview_refresh(on_event=listener, color="never", suppress_progress=True)
        return listener.rows()

    def refresh(self, progress: Progress = quiet) -> tuple[ResourceChange, ...]:
        """Take into the record what is in the account; the account stays as it is."""
        listener = Listener(progress, drift=True)
        with self._running(listener, "the refresh") as stack:
            stack.refresh(on_event=listener, color="never", suppress_progress=True, show_secrets=False)
        return listener.rows()

    def preview_destroy(self, released: frozenset[str] = frozenset()) -> tuple[ResourceChange, ...]:
        """What `destroy` would do, by the record alone. What holds data and was not released is left out, and what it
        stands in."""
        listener = Listener()
        with self._running(listener, "the preview") as stack:
            stack.preview_destroy(on_event=listener, color="never", exclude_protected=self._held(released))
        return listener.rows()

    def destroy(
        self,
        progress: Progress = quiet,
        released: frozenset[str] = frozenset(),
        find: Find = found_nothing,
    ) -> Done:
        """End all that the record has, in the order of its dependencies; no file is read for it. What a killed run was
        making is taken into the record first, by `find` as in `up`, so that it ends too.

        What holds data stays, with what it stands in, unless it was released; `Done.facts` is None once nothing is
        left.
        """
        adopted = self.reconcile(find)
        self._release(released)
        listener = Listener(progress)
        with self._running(listener, "destroying") as stack:
            held = self._held(released)
            stack.destroy(on_event=listener, color="never", suppress_progress=True, exclude_protected=held)
            left = self.left()
            facts = facts_in(stack.outputs()) if left else None
            if not left:
                stack.workspace.remove_stack(self.name)
        return Done(listener.rows(), facts, adopted)

    def left(self) -> tuple[ResourceChange, ...]:
        """What the record has, as rows of what would be deleted: resources in the account, no components."""
        rows = [
            ResourceChange(
                Op.DELETE,
                one["type"],
                _name(one["urn"]),
                one["urn"],
                protected=bool(one.get("protect")),
            )
            for one in self._resources()
            if one.get("custom") and not one["type"].startswith("pulumi:")
        ]
        return tuple(sorted(rows, key=lambda one: (one.type, one.name)))

    def ids(self) -> frozenset[str]:
        """The ids of all that the record has."""
        return frozenset(str(one["id"]) for one in self._resources() if one.get("id"))

    # --- after a killed run ------------------------------------------------------------------------------------

    def reconcile(self, find: Find) -> tuple[str, ...]:
        """Settle what a killed run had begun: take what `find` knows into the record, and forget the rest.

        The names of what was taken. What was being deleted, changed or replaced needs nothing: the record has it.
        """
        whole = self._deployment()
        begun = [
            one["resource"] for one in whole.get("pending_operations") or [] if one["type"] == "creating"
        ]
        if not begun:
            return ()
        known = {one["urn"] for one in whole["resources"]}
        taken = {(one["type"], one.get("id")) for one in whole["resources"]}
        found = {}
        for one in begun:
            given = dict(one.get("inputs") or {})
            number = find(one["type"], _name(one["urn"]), given) if one["urn"] not in known else ""
            if number and (one["type"], number) not in taken:  # else two names would have one thing
                found[one["urn"]] = {**one, "id": number, "outputs": given}
        whole["resources"] = [*whole["resources"], *found.values()]
        whole["pending_operations"] = []
        self._write(whole, "settling a killed run")
        if found:
            with self._running(Listener(), "settling a killed run") as stack:
                stack.refresh(target=sorted(found), color="never", suppress_progress=True)
        return tuple(sorted(_name(urn) for urn in found))

    def _release(self, released: frozenset[str]) -> None:
        """Take the protection off what people let go: the engine goes by the record, not by the program, for what the
        program does not declare any more."""
        whole = self._deployment()
        held = [one for one in whole.get("resources") or [] if _name(one["urn"]) in released]
        held = [one for one in held if one.get("protect") or one.get("retainOnDelete")]
        if not held:
            return
        for one in held:
            one["protect"] = one["retainOnDelete"] = False
        self._write(whole, "releasing")

    def _urns_held(self, inputs: SiteInputs) -> list[str] | None:
        """The held nodes in the record, with what they stand on that the file has no more."""
        if not inputs.held:
            return None
        known = {one["urn"]: one for one in self._resources()}
        nodes = [urn for urn, one in known.items() if one["type"] == INSTANCE and _name(urn) in inputs.held]
        wanted = {one.name for pool in inputs.pools for one in templates_of(pool, inputs)}
        below = {urn for node in nodes for urn in known[node].get("dependencies") or []}
        old = [urn for urn in below if known[urn]["type"] == TEMPLATE and _name(urn) not in wanted]
        return sorted([*nodes, *old]) or None

    def _held(self, released: frozenset[str]) -> bool:
        """Whether the record has protected things that are not released."""
        return any(one.get("protect") and _name(one["urn"]) not in released for one in self._resources())

    # --- the record --------------------------------------------------------------------------------------------

    def _resources(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._deployment().get("resources") or []
        return found

    def _deployment(self) -> dict[str, Any]:
        with self._running(Listener(), "reading the record") as stack:
            exported = stack.export_stack()
        self._version = exported.version or self._version
        return dict(exported.deployment or {})

    def _write(self, whole: dict[str, Any], what: str) -> None:
        with self._running(Listener(), what) as stack:
            stack.import_stack(automation.Deployment(version=self._version, deployment=whole))

    # --- running -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _running(
        self, listener: Listener, what: str, inputs: SiteInputs | None = None
    ) -> Iterator[automation.Stack]:
        """The stack, selected or made; errors of the engine come out in words."""
        faults: list[GanglineError] = []
        try:
            with _no_tracebacks():
                yield self._select(inputs, faults)
        except ConcurrentUpdateError as error:
            raise self._locked(what) from error
        except CommandError as error:
            raise (faults or [failed(listener, str(error), what)])[0] from error

    def _locked(self, what: str) -> GanglineError:
        hint = "wait for the other run; if it was killed, run again: Gangline's own lease tells the two apart"
        return Conflict(
            "aws.stack-locked", f"{what} can't begin: another run has the stack {self.name}", hint
        )

    def _select(self, inputs: SiteInputs | None, faults: list[GanglineError]) -> automation.Stack:
        options = automation.LocalWorkspaceOptions(
            work_dir=str(self._work),
            env_vars=self._engine.environment(self._folder, self._site.stack),
            secrets_provider=self._site.stack.secrets or "passphrase",
            project_settings=automation.ProjectSettings(name=PROJECT, runtime="python"),
            pulumi_command=self._engine.command(),
        )
        stack = automation.create_or_select_stack(
            self.name, project_name=PROJECT, program=_program(inputs, faults), opts=options
        )
        if self._uid:
            _check_marks(self.name, self._uid, stack.export_stack().deployment or {})
            self._uid = ""  # once will do
        if self._leased:
            self._unlock(stack)
        return stack

    def _unlock(self, stack: automation.Stack) -> None:
        """Take away the lock of a killed run. The engine's word for it is cancel; without a lock it does nothing."""
        with contextlib.suppress(CommandError):
            stack.cancel()


@contextlib.contextmanager
def _no_tracebacks() -> Iterator[None]:
    """A program that the engine gave up makes gRPC log a traceback of this process; the engine says why it did."""
    logger = logging.getLogger("grpc._server")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _program(inputs: SiteInputs | None, faults: list[GanglineError]) -> Callable[[], None]:
    """The program as the API calls it. It would tell a person of an error by a traceback: the error is kept instead."""

    def run() -> None:
        if inputs is None:
            return
        try:
            program.declare(inputs)
        except GanglineError as error:
            faults.append(error)
            raise

    return run


def _check_marks(name: str, uid: str, whole: Mapping[str, Any]) -> None:
    """Conflict if something in a record is marked with another cluster's uid."""
    for one in whole.get("resources") or []:
        mark = ((one.get("inputs") or {}).get("tags") or {}).get(UID, uid)
        if mark != uid:
            raise Conflict(
                "aws.other-stack",
                f"the stack {name} is another cluster's: what it has is marked with {mark}, and what this one has "
                f"with {uid}",
                "use another `stack.backend` or another name; if it was this cluster's and its controller was set up "
                "anew, restore that one's ledger: `gangline server restore`",
            )


def _name(urn: str) -> str:
    """The name of a resource in the program."""
    return urn.rpartition("::")[2]


def _follows(row: StackRow) -> bool:
    """Whether a row is only the facts' parameter: it follows from every other and tells nobody anything."""
    return (row.kind, row.name) == ("aws:ssm/parameter:Parameter", "facts") and row.op == StackOp.UPDATE


def facts_in(outputs: automation.OutputMap) -> StackFacts | None:
    """The facts among a stack's outputs."""
    found = outputs.get("facts")
    return decode(StackFacts, found.value) if found is not None else None
