"""Digests of models: equal for equal meaning, whatever the file looked like.

Comes in: a dataclass of the model, or a tuple of them. Goes out: the SHA-256 (hex) of its canonical JSON. Called by:
plan (what a plan was made from), and whoever keeps a `Desired` under its digest.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from orchestrator.model.codec import encode


def digest_of(value: Any) -> str:
    """Hex SHA-256 of the plain form with sorted keys; fields at their default don't count."""
    return digest_of_plain(encode(value))


def digest_of_plain(value: Any) -> str:
    """The same of a value that is JSON already; words count as their texts."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
