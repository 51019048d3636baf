"""The digest of a wanted cluster: equal for equal meaning, whatever the file looked like.

Comes in: a ClusterSpec. Goes out: the SHA-256 (hex) of its canonical JSON. Called by: intake, and whoever compares what
is applied with what a file says.
"""

from __future__ import annotations

import hashlib
import json

from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import encode


def digest_of(spec: ClusterSpec) -> str:
    """Hex SHA-256 of the spec's plain form with sorted keys."""
    text = json.dumps(encode(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
