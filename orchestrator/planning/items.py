"""Items as most roles want them: files and folders of root's, units that run.

Comes in: names and texts. Goes out: `Item`s with their values sorted by key. Called by: desired, desired_controller.
"""

from __future__ import annotations

from orchestrator.model.host import Item, ItemKind

ROOT = "root"


def file_item(path: str, content: str, restarts: tuple[str, ...] = (), mode: str = "0644") -> Item:
    """A file that belongs to Gangline as a whole."""
    values = (("content", content), ("group", ROOT), ("mode", mode), ("owner", ROOT))
    return Item(ItemKind.FILE, path, values, restarts=restarts)


def folder_item(path: str, mode: str, owner: str = ROOT) -> Item:
    """A file without `content` is a folder. The owner's group has its name."""
    return Item(ItemKind.FILE, path, (("group", owner), ("mode", mode), ("owner", owner)))


def unit_item(name: str) -> Item:
    """A unit that runs, now and after each boot."""
    return Item(ItemKind.UNIT, name, (("active", "yes"), ("enabled", "yes"), ("masked", "no")))
