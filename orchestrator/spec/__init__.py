"""YAML text to checked models: every error at once, each with its place.

Comes in: a file, a text, or a JSON value that a client sent. Goes out: `ClusterSpec` or `JobSpec`, and `SpecError`s
that name file, line, column, path, code, message and hint. Called by: controller, provision, cli (`validate`, `up`,
`submit`), api (job documents). Needs no credentials and no network; the only files read are the one named and, for
metal sites, the inventory that it names.
"""

from orchestrator.spec.checks import SKIPPABLE
from orchestrator.spec.decoded import text_faults
from orchestrator.spec.load import (
    LoadedCluster,
    LoadedJob,
    ValidationResult,
    job_from_document,
    load_cluster,
    load_cluster_text,
    load_job,
    load_job_text,
    validate_file,
    validate_text,
)
from orchestrator.spec.report import InvalidDocument, SpecError, render
from orchestrator.wire.faults import FAULTS

__all__ = [
    "FAULTS",
    "SKIPPABLE",
    "InvalidDocument",
    "LoadedCluster",
    "LoadedJob",
    "SpecError",
    "ValidationResult",
    "job_from_document",
    "load_cluster",
    "load_cluster_text",
    "load_job",
    "load_job_text",
    "render",
    "text_faults",
    "validate_file",
    "validate_text",
]
