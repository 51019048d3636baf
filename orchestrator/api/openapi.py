"""Writes schemas/openapi.json: `python -m orchestrator.api.openapi`.

Comes in: the routes. Goes out: the file, or its text. Called by: `make schemas`, the test that compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from orchestrator.api.app import make_fastapi

FILE = Path(__file__).resolve().parents[2] / "schemas" / "openapi.json"


def text() -> str:
    """The document, as it is in the file."""
    return json.dumps(make_fastapi().openapi(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the file."""
    FILE.write_text(text(), encoding="utf-8")
    sys.stderr.write(f"wrote {FILE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
