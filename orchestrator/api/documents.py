"""What FastAPI can't say of itself in the OpenAPI document: bodies that routes read themselves, errors, security.

Comes in: the application. Goes out: its OpenAPI 3.1 document. Called by: app (serves it), openapi (writes it).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from orchestrator.api.gate import OPEN_PATHS
from orchestrator.wire.job import JobDocument

_REF = "#/components/schemas/{model}"
_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Sent again with the same document within a day, it gives the same job.",
    "schema": {"type": "string", "maxLength": 200, "pattern": "^[!-~]*$"},
    "example": "0b6f1c7e-4c1d-4f0a-9d53-0f7d1f1a2b3c",
}
_EXAMPLE: dict[str, Any] = {
    "apiVersion": "gangline/v1",
    "kind": "Job",
    "metadata": {"name": "pretrain-7b"},
    "spec": {
        "nodes": 2,
        "per_node": {"gpus": 8},
        "launch": {"kind": "launcher"},
        "command": "torchrun train.py",
    },
}
_READ_QUERY: list[dict[str, Any]] = [
    {"name": "size", "in": "query", "required": True, "schema": {"type": "integer", "minimum": -1}},
    {"name": "ended", "in": "query", "required": True, "schema": {"type": "string", "enum": ["0", "1"]}},
    {"name": "read", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
]


def request_body(kind: str) -> dict[str, Any]:
    """The part of an operation that documents a body which the route reads itself: `job` (submitted),
    `question` (a job that is not), `message` or `bytes`."""
    if kind == "job":
        content = {
            "application/json": {"schema": {"$ref": _REF.format(model="JobSubmission")}, "example": _EXAMPLE}
        }
        return {"requestBody": {"required": True, "content": content}, "parameters": [_KEY]}
    if kind == "question":
        content = {
            "application/json": {"schema": {"$ref": _REF.format(model="JobDocument")}, "example": _EXAMPLE}
        }
        return {"requestBody": {"required": True, "content": content}}
    if kind == "bytes":
        binary = {"schema": {"type": "string", "format": "binary"}}
        body = {"required": True, "content": {"application/octet-stream": binary}}
        return {"requestBody": body, "parameters": _READ_QUERY}
    message = {"schema": {"type": "object", "description": "A message of the agent protocol."}}
    return {"requestBody": {"required": True, "content": {"application/json": message}}}


def openapi(app: FastAPI) -> dict[str, Any]:
    """The document of an application; made once for each."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version="v1",  # of the API; the program's own is an answer of /version
        openapi_version="3.1.0",
        description=app.description,
        routes=app.routes,
        license_info=app.license_info,
        tags=_TAGS,
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(_job_schemas())
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `gangline token create`."}
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _finish(path, operation)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return document


def _finish(path: str, operation: dict[str, Any]) -> None:
    """Errors are problem documents; every operation but the open ones takes a token."""
    responses = operation["responses"]
    is_open = path in OPEN_PATHS
    operation["security"] = [] if is_open else [{"bearer": []}]
    for status, response in responses.items():
        if status >= "400":
            schema = {"$ref": _REF.format(model="Problem")}
            response["content"] = {"application/problem+json": {"schema": schema}}
    wanted = {} if is_open else {"401": "Unauthorized", "403": "Forbidden"}
    if "requestBody" in operation:
        wanted |= {
            "400": "Bad Request",
            "408": "Request Timeout",
            "413": "Content Too Large",
            "415": "Unsupported Media Type",
        }
    wanted |= {"500": "Internal Server Error", "503": "Service Unavailable"}
    for status, text in wanted.items():
        content = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
        responses.setdefault(status, {"description": text, "content": content})
    operation["responses"] = dict(sorted(responses.items()))


@cache
def _job_schemas() -> dict[str, Any]:
    """The job document and its parts."""
    schema = JobDocument.model_json_schema(ref_template=_REF, by_alias=True)
    parts: dict[str, Any] = schema.pop("$defs", {})
    return {**parts, "JobDocument": schema, "JobSubmission": _submission(schema)}


def _submission(job: dict[str, Any]) -> dict[str, Any]:
    """The body of a submit: a job document, and a word about the submit itself."""
    force = {
        "type": "boolean",
        "default": False,
        "description": "Queue it even if no node or domain of the cluster could ever hold it.",
    }
    title = "What is submitted: a job document, and how."
    return {
        **job,
        "title": "JobSubmission",
        "description": title,
        "properties": {**job["properties"], "force": force},
    }


_TAGS = [
    {"name": "jobs", "description": "Submit, look at, act on jobs; read their output."},
    {"name": "capacity", "description": "Nodes, GPUs, queues."},
    {"name": "cluster", "description": "The cluster as a whole."},
    {"name": "tokens", "description": "Who may come in."},
    {"name": "agents", "description": "What nodes say; for Gangline's own agent."},
]
