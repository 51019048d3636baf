"""Writes what this version records for a few clusters: `python -m tests.planning.golden_states` before a release.

Comes in: clusters as a person writes them. Goes out: golden/VERSION.json, kept for ever: a later version must carry
each of these states on without draining anything (promise 11). test_golden reads them all.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from orchestrator import __version__
from orchestrator.model.codec import encode
from tests.planning.scene import GONE, RESOLVED, Edits, document, load, recorded_desired

FOLDER = Path(__file__).parent / "golden"
CLUSTERS: dict[str, Edits] = {
    "full": {},
    "users from elsewhere": {"identity": {"source": "sssd"}},
    "nothing but nodes": {"sites[hall].system": GONE, "identity": GONE, "controller": GONE},
    "a heavy package": {"sites[hall].system.packages": {"linux-image-amd64": "6.1.99-1"}},
}


def states() -> list[dict[str, Any]]:
    """Each cluster with the `Desired` of its pools."""
    found = []
    for name, edits in CLUSTERS.items():
        spec = load(document(edits))
        found.append({"name": name, "spec": encode(spec), "desired": encode(recorded_desired(spec))})
    return found


def main() -> int:
    """Write the file of this version."""
    path = FOLDER / f"{__version__.partition('.dev')[0]}.json"
    plain = {"resolved": encode(RESOLVED), "states": states()}
    path.write_text(json.dumps(plain, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
