"""The catalog that the command goes by: the one that ships, and the prices that this person has fetched since.

Comes in: the folder of prices. Goes out: `Catalog`. Called by: spec_cmd, changing, local_cmd, catalog_cmd.
"""

from __future__ import annotations

from orchestrator.cli import paths
from orchestrator.model.catalog import Catalog
from orchestrator.model.errors import InputError


def known_catalog() -> Catalog:
    """As it ships where nobody has a home folder. Raises InputError for a file of prices that can't be read."""
    from orchestrator import catalog

    try:
        folder = paths.prices_dir()
    except InputError:
        return catalog.load()
    return catalog.load(folder)
