"""The reference page of the cluster file: each field with what it holds, its default, and what a change of it takes.

Comes in: the documents of `wire` and the classes of the model. Goes out: Markdown. Called by: reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from orchestrator.model.change import UpdateClass
from orchestrator.wire import schemas
from orchestrator.wire.cluster import ClusterDocument
from orchestrator.wire.leaf import Leaf, Strict
from orchestrator.wire.updates import Place, places, without_keys

INTRODUCTION = """`[]` stands for an item of a list, `.*` for an entry of a table. Names are identities: order means
nothing, except in lists that say so, and another name is another thing. `gangline plan` shows the class of each change;
some depend on more than the field, and the plan then says why.
"""
CLASSES = {
    UpdateClass.CONTROLLER: "the controller takes it over; no node hears of it",
    UpdateClass.IN_PLACE: "on the nodes, while work runs",
    UpdateClass.RECONFIGURE: "work leaves a node first, a few nodes at a time",
    UpdateClass.REPLACE: "the node leaves, and another or the same comes back as a new one",
    UpdateClass.DESTROYS: "data is lost: needs a consent by name",
    UpdateClass.REFUSED: "never done by a change of the file; the plan says what would let it pass",
}
NO_DEFAULT = "required"


def page(made: str) -> str:
    """The whole page; `made` is its second line."""
    classes = [f"| `{cls}` | {text} |" for cls, text in CLASSES.items()]
    return "\n".join(
        [
            "# The cluster file\n",
            made,
            INTRODUCTION,
            "## What a change takes\n",
            "| class | meaning |",
            "|---|---|",
            *classes,
            "",
            "## Fields\n",
            "| field | holds | default | a change is | meaning |",
            "|---|---|---|---|---|",
            *dict.fromkeys(_rows()),
            "",
        ]
    )


def _rows() -> Iterator[str]:
    """One for each place; a field that several kinds of sites share comes once."""
    schema = schemas.schema_of("cluster")
    owners = {ClusterDocument.__name__: schema, **schema["$defs"]}
    for one in places(ClusterDocument):
        key = without_keys(one.path).rpartition(".")[2]
        described = owners[one.owner.__name__]["properties"][key]
        cells = (
            f"`{one.path}`",
            _cell(_holds(described, schema["$defs"])),
            _cell(_default(one)),
            _cell(_update(described.get(schemas.UPDATE))),
            _cell(one.field.description or ""),
        )
        yield f"| {' | '.join(cells)} |"


def _holds(described: dict[str, Any], named: dict[str, Any]) -> str:
    """The type in words."""
    if "$ref" in described:
        described = named[described["$ref"].rpartition("/")[2]]
    if "const" in described:
        return f"`{described['const']}`"
    if "enum" in described:
        return ", ".join(f"`{word}`" for word in described["enum"])
    if "oneOf" in described and described.get("discriminator") is None:
        return "text or list of texts"
    kinds = {"array": "list", "object": "mapping", "integer": "whole number", "boolean": "true or false"}
    kind = str(described.get("type", "mapping"))
    return kinds.get(kind, "text" if kind == "string" else kind)


def _default(one: Place) -> str:
    """As the file would write it; nothing where absent means absent."""
    if one.field.is_required():
        return NO_DEFAULT
    value = one.field.default
    if value is None or value in ([], {}) or isinstance(value, Strict):
        return ""
    writer = next((part for part in one.field.metadata if isinstance(part, Leaf)), None)
    written = writer.write(value) if writer is not None and not isinstance(value, str) else value
    if isinstance(written, list):
        written = [str(item) for item in written]
    return f"`{written}`" if isinstance(written, str) else f"`{json.dumps(written)}`"


def _update(update: str | dict[str, str] | None) -> str:
    if isinstance(update, dict):
        return ", ".join(f"{what}: `{cls}`" for what, cls in update.items())
    return f"`{update}`" if update else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
