"""The import-linter contract type `rooms`: which room of orchestrator/ may import which other room.

In come the arrows that pyproject.toml lists (`controller -> store, ledger, model`), the exceptions, and import-linter's
graph of every import, lazy ones included; out goes one line for each import that no arrow allows. `lint-imports` loads
it for `make arch`, and tests/test_layers.py runs it on small packages. import-linter's own layer contracts refuse rooms
that do not exist yet and cannot say "these two and nothing else", so the table is kept here, exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from importlinter import Contract, ContractCheck, fields, output


@dataclass(frozen=True, slots=True)
class Breach:
    """One import that no arrow allows: both module names, the first line it stands on, and what is wrong."""

    importer: str
    imported: str
    line: int
    reason: str


def parse_arrows(lines: list[str]) -> dict[str, frozenset[str]]:
    """Read `room -> room, room` lines, lowest room first.

    Raises ValueError where a line names a room that no line above it declares: that is what makes the arrows downward.
    """
    table: dict[str, frozenset[str]] = {}
    for line in lines:
        room, arrow, rest = (part.strip() for part in line.partition("->"))
        below = frozenset(name.strip() for name in rest.split(",") if name.strip())
        if not arrow or not room or room in table:
            raise ValueError(f"'{line}' is not one 'room -> rooms below it' line for a new room")
        if undeclared := sorted(below - table.keys()):
            raise ValueError(f"'{line}' points up, or at an unknown room: {', '.join(undeclared)}")
        table[room] = below
    return table


def parse_exceptions(lines: list[str]) -> dict[str, frozenset[str]]:
    """Read `module -> room, room` lines: rooms that this one module (with its submodules) may reach besides."""
    parts = [line.partition("->") for line in lines]
    return {name.strip(): frozenset(room.strip() for room in rest.split(",")) for name, _, rest in parts}


def room_of(module: str) -> str:
    """Name the room of a dotted module name; the root package itself has the room ''."""
    return [*module.split("."), ""][1]


def breach_reason(
    importer: str, imported: str, arrows: dict[str, frozenset[str]], exceptions: dict[str, frozenset[str]]
) -> str | None:
    """Say why importer may not import imported, or None where it may. Everyone may import the root (the version)."""
    source, target = room_of(importer), room_of(imported)
    if target in ("", source):
        return None
    if source not in arrows:
        return (
            f"room '{source}' has no arrow in pyproject.toml"
            if source
            else "the root package imports no room"
        )
    allowed = arrows[source]
    for module, rooms in exceptions.items():
        if importer == module or importer.startswith(module + "."):
            allowed = allowed | rooms
    if target in allowed:
        return None
    return f"'{source}' may import only: {', '.join(sorted(allowed)) or 'nothing'}"


class RoomsContract(Contract):
    """Options: `arrows` and `exceptions`, lists of lines as the two parsers above read them."""

    arrows = fields.ListField(subfield=fields.StringField())
    exceptions = fields.ListField(subfield=fields.StringField(), required=False, default=list[str]())

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        """Compare each import of the graph with the arrows; a room without an arrow breaks the contract too."""
        arrows = parse_arrows(list(self.arrows))  # type: ignore[call-overload]
        exceptions = parse_exceptions(list(self.exceptions))  # type: ignore[call-overload]
        breaches: list[Breach] = []
        for importer in sorted(graph.modules):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if reason := breach_reason(importer, imported, arrows, exceptions):
                    details = graph.get_import_details(importer=importer, imported=imported)
                    line = min((detail["line_number"] for detail in details), default=1)
                    breaches.append(Breach(importer, imported, line, reason))
        rooms = {room_of(module) for module in graph.modules} - {""}
        breaches.extend(
            Breach(room, "?", 1, f"room '{room}' has no arrow in pyproject.toml")
            for room in sorted(rooms - arrows.keys())
        )
        return ContractCheck(kept=not breaches, metadata={"breaches": breaches})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the breaches, one a line."""
        for breach in check.metadata["breaches"]:
            output.print_error(
                f"- {breach.importer}:{breach.line} imports {breach.imported}: {breach.reason}", bold=False
            )
        output.new_line()
