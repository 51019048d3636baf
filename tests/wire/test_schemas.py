"""The schemas in schemas/: up to date, sound, and of one mind with the documents as far as JSON Schema reaches.

Comes in: the full documents, every mutant of them, and the examples. Goes out: proof that schema and document accept
and refuse the same, except for the kinds of faults in BEYOND.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestrator import bundled, spec
from orchestrator.spec.tree import read_tree
from orchestrator.wire import schemas
from tests.spec.mutants import Breeder, Mutant

ROOT = Path(__file__).parents[2]
FULL = ROOT / "tests" / "spec" / "full"

# What JSON Schema can't see, by code, besides keys given twice: ranges and networks inside a text, control characters,
# names of other places.
BEYOND = {
    "spec.bad-hostlist",
    "spec.bad-ports",
    "spec.bad-network",
    "spec.bad-text",  # of a text that no pattern bounds: control characters
    "spec.unknown-timezone",
    "spec.unknown-gpu-model",
    "spec.file-not-found",
    "spec.dangling-reference",
    "spec.node-unknown",
    "job.bad-array",  # ranges that end before they begin, too many of them
    "job.uneven-segments",
}


def value_of(text: str) -> Any:
    root = read_tree(text).root
    assert root is not None
    return root.value


@pytest.fixture(scope="module", params=["cluster", "job", "policy", "prices"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_files_are_those_that_the_documents_make(kind: str) -> None:
    path = ROOT / "schemas" / f"{kind}.schema.json"
    assert path.read_text() == schemas.text_of(kind), "run `make schemas`"
    assert bundled.find("schemas", f"{kind}.schema.json") == path


def test_the_schemas_are_sound_and_take_no_null(kind: str) -> None:
    schema = schemas.schema_of(kind)
    Draft202012Validator.check_schema(schema)
    assert '"null"' not in schemas.text_of(kind)
    for name, one in schema["$defs"].items():
        if one.get("type") == "object":
            assert one["additionalProperties"] is False, name
            fields = one.get("properties", {}).values()
            assert all("description" in field or "$ref" in field for field in fields), name


def test_the_schemas_are_written_into_any_folder(tmp_path: Path) -> None:
    assert schemas.main([str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{name}.schema.json" for name in ("cluster", "job", "policy", "prices")
    ]


EXAMPLES = [
    *(("cluster", path) for path in sorted((ROOT / "inventories").glob("*/cluster.yaml"))),
    *(("job", path) for path in sorted((ROOT / "inventories").glob("*/job*.yaml"))),
    ("cluster", FULL / "cluster.yaml"),
    ("cluster", FULL / "bought.yaml"),
    ("cluster", FULL / "divided.yaml"),
    ("job", FULL / "job.yaml"),
    ("job", FULL / "tasks.yaml"),
    ("job", FULL / "array.yaml"),
    ("job", FULL / "mig.yaml"),
    ("job", FULL / "groups.yaml"),
    ("prices", FULL / "prices.yml"),
    ("policy", FULL / "policy.yml"),
]


@pytest.mark.parametrize(("name", "path"), EXAMPLES)
def test_what_the_documents_accept_the_schemas_accept(name: str, path: Path) -> None:
    errors = list(Draft202012Validator(schemas.schema_of(name)).iter_errors(value_of(path.read_text())))
    assert errors == []


class Judge:
    """Judges the mutated section of a document, or the item of it, since the rest is sound: that is far quicker."""

    def __init__(self, name: str) -> None:
        self.schema = schemas.schema_of(name)
        self._validators: dict[tuple[str | int, ...], Draft202012Validator] = {}

    def accepts(self, mutant: Mutant) -> bool:
        part, value = self.schema, mutant.value
        section, inside = mutant.loc[0], mutant.loc[1:]
        if not inside or section not in part["properties"] or section not in value:
            return self._validator((), part).is_valid(value)
        part, value = part["properties"][section], value[section]
        if not isinstance(inside[0], int) or "items" not in part:
            return self._validator((section,), part).is_valid(value)
        return self._validator((section, "items"), part["items"]).is_valid(value[inside[0]])

    def _validator(self, place: tuple[str | int, ...], part: dict[str, Any]) -> Draft202012Validator:
        if place not in self._validators:
            self._validators[place] = Draft202012Validator(part | {"$defs": self.schema["$defs"]})
        return self._validators[place]


@pytest.mark.parametrize(
    "name",
    [
        "cluster.yaml",
        "bought.yaml",
        "job.yaml",
        "tasks.yaml",
        "array.yaml",
        "groups.yaml",
        "prices.yml",
        "policy.yml",
    ],
)
def test_what_the_documents_refuse_the_schemas_refuse(name: str) -> None:
    kinds = {"cluster": "cluster", "bought": "cluster", "prices": "prices", "policy": "policy"}
    kind = kinds.get(Path(name).stem, "job")
    model = schemas.DOCUMENTS[kind]
    judge = Judge(kind)
    bred = [
        one
        for one in Breeder(model, value_of((FULL / name).read_text())).all()
        if one.codes != {"spec.duplicate-key"}
    ]
    told = [
        (one.kind, spec.validate_text(one.text, str(FULL / name)).errors[0])
        for one in bred
        if judge.accepts(one)
    ]
    print(f"{name}: of {len(bred)} the schema alone would accept {len(told)}")  # noqa: T201
    assert [f"{kind}: {error.code} {error.message}" for kind, error in told if error.code not in BEYOND] == []
    assert len(told) < len(bred) / 10
