"""The OpenAPI document: committed as it is served, whole, and kept by what the server does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.api import openapi
from orchestrator.api.app import make_fastapi
from orchestrator.model.cluster import Role
from orchestrator.wire.api_cluster import CreateToken
from tests.api.served import Served

METHODS = ("get", "put", "post", "delete")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return make_fastapi().openapi()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Every operation with its path and method."""
    paths = document["paths"].items()
    return [(path, method, found[method]) for path, found in paths for method in METHODS if method in found]


def test_committed_file_is_what_the_code_says() -> None:
    """`python -m orchestrator.api.openapi` writes it again."""
    assert openapi.FILE.read_text(encoding="utf-8") == openapi.text()


def test_server_serves_it_to_everyone(empty: Served, document: dict[str, Any]) -> None:
    answer = empty.get("/openapi.json", anonymous=True)

    assert answer.json() == json.loads(json.dumps(document))
    assert document["openapi"].startswith("3.1")


def test_every_operation_says_what_it_does(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        assert operation["summary"], (path, method)
        assert operation["description"], (path, method)
        assert operation["tags"], (path, method)
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)


def test_every_error_is_a_problem_document(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        errors = {status: found for status, found in operation["responses"].items() if status >= "400"}
        assert errors.keys() >= {"422", "500", "503"}, (path, method)
        for found in errors.values():
            assert list(found["content"]) == ["application/problem+json"], (path, method)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    names: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                names.add(value["$ref"].removeprefix("#/components/schemas/"))
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(document)

    assert names <= document["components"]["schemas"].keys()


def test_few_routes_are_open(document: dict[str, Any]) -> None:
    """Health, the authority, the agent's archive, and the join of an instance, which proves itself otherwise."""
    assert {path for path, _, operation in operations(document) if not operation["security"]} == {
        "/api/v1/healthz",
        "/api/v1/ca",
        "/api/v1/agent",
        "/api/v1/agent/join-aws",
    }


def test_roles_of_new_tokens_are_the_models_and_join() -> None:
    known = CreateToken.model_json_schema()["properties"]["role"]["enum"]

    assert known == [*(str(role) for role in Role), "join"]
