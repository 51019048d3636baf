"""The documents that people and clients write: pydantic models, strict, one source of schemas, API types and docs.

Comes in: JSON-like values. Goes out: documents whose leaves are in base units, or errors with codes. Called by: spec
(cluster and job files), client and api (HTTP bodies), `python -m orchestrator.wire.schemas` (schemas/).
"""
