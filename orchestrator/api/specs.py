"""Documents of jobs that were read before: many a script submits one and the same hundreds of times.

Comes in: a document with the digest and size of its text. Goes out: the job that it describes; jobs of equal documents
share one. Called by: submit. What a document describes depends on nothing else.
"""

from __future__ import annotations

from orchestrator.model.job import JobSpec
from orchestrator.spec import job_from_document

MOST_KEPT = 256  # documents
MOST_BYTES = 16 * 1024  # of one that is kept: four megabytes in all


class Specs:
    """The last few that were asked for."""

    def __init__(self) -> None:
        self._known: dict[str, JobSpec] = {}  # by digest, the one that was asked for last at the end

    def read(self, document: object, digest: str, size: int) -> JobSpec:
        """The job. InvalidDocument, as `job_from_document` raises it."""
        found = self._known.pop(digest, None)
        if found is None:
            found = job_from_document(document)
        if size <= MOST_BYTES:
            self._known[digest] = found
        if len(self._known) > MOST_KEPT:
            del self._known[next(iter(self._known))]
        return found
