"""Finds the files that ship with Gangline beside its code: example inventories, schemas, Ansible roles, stacks.

In comes a kind and the names below it; out goes a path that exists. Installed from a wheel they lie in this package
under `_bundled/`, in a checkout at its top level; nobody else needs to know. Called by the command (`init`), the spec
(schemas) and provisioning (roles, stacks, constraints); never by a pure room, since it looks at files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from orchestrator.model.errors import NotFound

Kind = Literal["inventories", "schemas", "roles", "stacks", "constraints"]

_PACKAGE = Path(__file__).resolve().parent


def find(kind: Kind, *names: str, package: Path = _PACKAGE) -> Path:
    """Return the path of a bundled file or folder: `find("inventories", "laptop", "cluster.yaml")`.

    Each name is one path component, so a name that a person typed can't lead out of the folder. `package` is where the
    installed code lies; tests give another. Raises NotFound, which lists what there is instead.
    """
    installed = package / "_bundled"
    path = (installed if installed.is_dir() else package.parent) / kind
    for name in names:
        if name not in _entries(path):
            raise _not_found(kind, name, path)
        path = path / name
    if not path.exists():
        raise _not_found(kind, kind, path.parent)
    return path


def _entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def _not_found(kind: Kind, name: str, folder: Path) -> NotFound:
    there = (
        ", ".join(entry for entry in _entries(folder) if not entry.startswith(".")) if name != kind else ""
    )
    hint = (
        f"there is: {there}" if there else "this installation lacks its bundled files: install Gangline again"
    )
    return NotFound("bundled.not-found", f"no bundled {kind} file or folder '{name}'", hint)
