"""The JSON Schemas of the documents, for editors and CI linters: `python -m orchestrator.wire.schemas [FOLDER]`.

Comes in: the document classes. Goes out: `schemas/*.schema.json`. Called by: `make schemas`; a test compares the files.

A schema accepts and refuses what the documents do, except for what JSON Schema can't say: keys given twice, references,
sums and other relations between fields, texts that a pattern does not settle (time zones, node patterns, port order,
networks with host bits), and the line between 8 and 8.0, which JSON does not draw.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from orchestrator.wire.cluster import ClusterDocument
from orchestrator.wire.job import JobDocument
from orchestrator.wire.leaf import Strict
from orchestrator.wire.policy import PolicyDocument
from orchestrator.wire.prices import PricesDocument
from orchestrator.wire.updates import by_field

DIALECT = "https://json-schema.org/draft/2020-12/schema"
UPDATE = "x-gangline-update"
DOCUMENTS: dict[str, type[Strict]] = {
    "cluster": ClusterDocument,
    "job": JobDocument,
    "prices": PricesDocument,
    "policy": PolicyDocument,
}


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, except that no value may be null: what may be absent is left out."""

    schema_dialect = DIALECT

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """The schema of what stands there if something does."""
        return self.generate_inner(schema["schema"])

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """A table takes no keys but those that its pattern allows."""
        made = super().dict_schema(schema)
        return {**made, "additionalProperties": False} if "patternProperties" in made else made

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Fields have names and descriptions; a title made from the name says nothing more."""
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Without the default: in base units it would mean nothing to a reader, and null is none."""
        return self.generate_inner(schema["schema"])


def schema_of(name: str) -> dict[str, Any]:
    """The schema of `cluster`, `job`, `prices` or `policy`."""
    model = DOCUMENTS[name]
    schema = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_Generator)
    if model is ClusterDocument:
        _add_updates(schema)
    return {"$schema": DIALECT, **schema}


def _add_updates(schema: dict[str, Any]) -> None:
    """What a change of each field takes, for editors that show it and for people who read the schema."""
    owners = {ClusterDocument.__name__: schema, **schema["$defs"]}
    for (owner, field), update in by_field().items():
        owners[owner]["properties"][field][UPDATE] = update


def text_of(name: str) -> str:
    """The schema as its file has it."""
    return json.dumps(schema_of(name), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write all schemas into a folder: the checkout's `schemas/`, or the one named."""
    folder = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[2] / "schemas"
    for name in DOCUMENTS:
        (folder / f"{name}.schema.json").write_text(text_of(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
