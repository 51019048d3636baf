"""Dated facts about hardware and prices, each with its source, and the one loader of them.

Comes in: the JSON files beside this module. Goes out: `Catalog` of the model. Called by: spec (checks), controller and
simulate (which hand it to the pure rooms as an argument).
"""

from orchestrator.catalog.load import load

__all__ = ["load"]
