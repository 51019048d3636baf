"""Which kind of document a tree is, so that it is judged by the right rules and by no others.

Comes in: the root of a tree and the kinds that will do. Goes out: the kind, or the faults that hide it. Called by:
`load`.
"""

from __future__ import annotations

from typing import Any

from orchestrator.spec.reading import Found
from orchestrator.spec.tree import Node
from orchestrator.wire.cluster import API_VERSION
from orchestrator.wire.faults import described, did_you_mean, nearest, problem, shown
from orchestrator.wire.leaf import UNKNOWN


def kind_of(root: Node, kinds: tuple[str, ...]) -> tuple[str | None, list[Found]]:
    """The kind; or None and why.

    Another version or kind may have quite other fields: only that is told then, not what follows from it.
    """
    data = root.value
    if not isinstance(data, dict):
        expected = f"a mapping with apiVersion and kind: {' or '.join(kinds)}"
        return None, [Found((), problem("spec.wrong-type", expected=expected, got=described(data)))]
    found = _version_faults(data)
    if "kind" not in data and len(kinds) == 1:
        return (None, found) if found else (kinds[0], [])
    if data.get("kind") is UNKNOWN:
        return None, found
    found += _kind_faults(data, kinds)
    return (None, found) if found else (str(data["kind"]), [])


def _version_faults(data: dict[str, Any]) -> list[Found]:
    """Only a version that is a text and another one; the document's own reader tells the rest."""
    version = data.get("apiVersion")
    if not isinstance(version, str) or version == API_VERSION:
        return []
    found = problem("spec.wrong-version", expected=shown(API_VERSION), got=shown(version))
    return [Found(("apiVersion",), found)]


def _kind_faults(data: dict[str, Any], kinds: tuple[str, ...]) -> list[Found]:
    expected = " or ".join(kinds)
    if "kind" not in data and (misspelt := nearest("kind", list(data))):
        return [Found((misspelt,), problem("spec.unknown-field", advice="did you mean 'kind'?"), "key")]
    if "kind" not in data:
        advice = f"write kind: {expected}"
        return [Found(("kind",), problem("spec.missing-field", field="kind", advice=advice), "parent")]
    kind = data["kind"]
    if not isinstance(kind, str):
        return [
            Found(("kind",), problem("spec.wrong-type", expected=f"a text: {expected}", got=described(kind)))
        ]
    if kind in kinds:
        return []
    values = {"expected": expected, "got": shown(kind), "advice": did_you_mean(kind, list(kinds))}
    return [Found(("kind",), problem("spec.wrong-kind", **values))]
