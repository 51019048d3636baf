"""What Pulumi would do to the lasting things of an aws site, as plans show it.

Comes in: what a preview said. Goes out: `StackSight`, one a site. Called by: provision.aws.stack (makes), planning
(judges and orders), cli (shows). A preview changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.base import Word


class StackOp(Word):
    """What happens to one resource."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"


GONE = (StackOp.DELETE, StackOp.REPLACE)  # what was there is no more
CONTROLLER = ("aws:ec2/instance:Instance", "controller")  # kind and name of the controller's own instance


@dataclass(frozen=True, slots=True)
class StackRow:
    """One resource. `kind` is its type (`aws:ec2/launchTemplate:LaunchTemplate`), `name` its name in the program,
    `paths` the properties that differ. `data`: it holds what nothing brings back. `node`: the fixed node that it is, or
    empty.
    """

    op: StackOp
    kind: str
    name: str
    paths: tuple[str, ...] = ()
    data: bool = False
    node: str = ""

    @property
    def consent(self) -> str:
        """What a person has to agree to by name before this is done; empty for all that can be made again."""
        if self.op not in GONE:
            return ""
        if self.data:
            return f"storage/{self.name}"
        return "controller/instance" if (self.kind, self.name) == CONTROLLER else ""


def short_kind(kind: str) -> str:
    """The last word of a resource's type: `aws:ec2/launchTemplate:LaunchTemplate` -> LaunchTemplate."""
    return kind.rpartition(":")[2] or kind


@dataclass(frozen=True, slots=True)
class StackSight:
    """One site. `rows` are what `up` would do, `drift` what somebody else did to what the stack has, `error` why it
    could not be looked at (then both are empty), `warnings` and `faults` what live checks found: a fault keeps an apply
    from beginning. `spec` is the `stack_digest` of the file that the stack was last brought to; empty: there is none.
    """

    site: str
    rows: tuple[StackRow, ...] = ()
    drift: tuple[StackRow, ...] = ()
    error: str = ""
    hint: str = ""
    warnings: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    spec: str = ""
