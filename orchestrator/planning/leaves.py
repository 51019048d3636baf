"""Every place of the file that a user can write, with what it takes to change it.

Comes in: the metadata of `model.cluster`. Goes out: `PATTERNS`. Called by: diff, rules (what a place is), tests.

Importing this module is the check: a field of the model without a class raises `Unclassed`, which names it.
"""

from __future__ import annotations

from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.written import MILDEST_FIRST, Effect, Pattern, patterns

PATTERNS: dict[str, Pattern] = {one.path: one for one in patterns(ClusterSpec)}


def heaviest_in(path: str) -> Effect:
    """What it takes when a part of the file comes or goes as a whole: what its heaviest leaf takes."""
    inside = (one for name, one in PATTERNS.items() if name.startswith(f"{path}.") and one.leaf)
    return max((one.added for one in inside), key=lambda effect: MILDEST_FIRST.index(effect.cls))
