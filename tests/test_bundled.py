"""Bundled files are found in a checkout and in an installed package, and a typed name can't lead anywhere else.

tests/test_repository.py checks the same from a built wheel in an empty environment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import bundled
from orchestrator.model.errors import NotFound


def _tree(root: Path) -> Path:
    (root / "inventories" / "laptop").mkdir(parents=True)
    (root / "inventories" / "laptop" / "cluster.yaml").write_text("kind: Cluster\n")
    (root / "orchestrator").mkdir(exist_ok=True)
    return root / "orchestrator"


def test_checkout_files_lie_beside_the_package(tmp_path: Path) -> None:
    package = _tree(tmp_path)

    found = bundled.find("inventories", "laptop", "cluster.yaml", package=package)

    assert found == tmp_path / "inventories" / "laptop" / "cluster.yaml"


def test_installed_files_lie_inside_the_package_and_win(tmp_path: Path) -> None:
    package = _tree(tmp_path)  # a folder of that name beside an installed package is somebody else's
    _tree(package / "_bundled")

    found = bundled.find("inventories", "laptop", "cluster.yaml", package=package)

    assert found == package / "_bundled" / "inventories" / "laptop" / "cluster.yaml"


def test_folder_is_found_whole(tmp_path: Path) -> None:
    package = _tree(tmp_path)

    assert [entry.name for entry in bundled.find("inventories", package=package).iterdir()] == ["laptop"]


@pytest.mark.parametrize("name", ["labtop", "..", ".", "", "laptop/cluster.yaml", "/etc", "../inventories"])
def test_name_that_is_not_there_lists_what_is(tmp_path: Path, name: str) -> None:
    package = _tree(tmp_path)

    with pytest.raises(NotFound) as caught:
        bundled.find("inventories", name, package=package)

    assert caught.value.code == "bundled.not-found"
    assert f"'{name}'" in caught.value.message
    assert caught.value.hint == "there is: laptop"


def test_broken_installation_says_so(tmp_path: Path) -> None:
    package = tmp_path / "orchestrator"
    package.mkdir()

    with pytest.raises(NotFound) as caught:
        bundled.find("roles", package=package)

    assert "install Gangline again" in caught.value.hint
