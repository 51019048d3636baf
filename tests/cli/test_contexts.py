"""Where the controller is: the order of places to look, files for the owner alone, clear ends of the search."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli import contexts, paths
from orchestrator.cli.contexts import Context, Contexts, chosen, forget, remember
from orchestrator.model.errors import InputError, NotFound, Unavailable

LAB = Context("lab", "unix:///lab/api.sock", state="/lab")
FAR = Context("far", "https://far.example:7443", token="gln_1", ca="/ca.pem")


def leave_endpoint(cluster: str, **plain: object) -> Path:
    state = paths.state_dir(cluster)
    state.mkdir(parents=True)
    (state / "endpoint.json").write_text(json.dumps(plain))
    return state


def test_nothing_known_says_how_to_begin() -> None:
    with pytest.raises(Unavailable) as caught:
        chosen()

    assert "gangline up" in caught.value.hint


def test_the_only_local_cluster_is_found_by_its_endpoint() -> None:
    state = leave_endpoint("lab", url="http://127.0.0.1:1", socket="/x/api.sock")

    assert chosen() == Context("lab", "unix:///x/api.sock", state=str(state))


def test_two_local_clusters_are_a_question() -> None:
    leave_endpoint("lab", socket="/x")
    leave_endpoint("hall", socket="/y")

    with pytest.raises(InputError, match="hall, lab"):
        chosen()


def test_the_current_context_goes_before_endpoints() -> None:
    leave_endpoint("other", socket="/x")
    remember(LAB)
    remember(FAR)

    assert chosen() == FAR


def test_the_environment_goes_before_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(FAR)
    monkeypatch.setenv("GANGLINE_TOKEN", "gln_2")
    assert chosen().token == "gln_2"
    assert chosen().server == FAR.server


def test_contexts_are_the_owners_alone() -> None:
    remember(FAR)
    path = paths.contexts_file()

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert Contexts.load().named("far") == FAR


def test_an_unknown_name_lists_those_known() -> None:
    remember(LAB)

    with pytest.raises(NotFound) as caught:
        Contexts.load().named("moon")

    assert "lab" in caught.value.hint


def test_forgetting_the_current_one_leaves_the_only_other() -> None:
    remember(LAB)
    remember(FAR)
    forget("far")
    forget("never-known")

    assert Contexts.load().current == "lab"


@pytest.mark.parametrize("text", ["", "[]", '{"contexts": [{"nome": 1}]}', '{"contexts": 3}'])
def test_a_damaged_file_is_an_error_that_names_it(text: str) -> None:
    paths.write_private(paths.contexts_file(), text)

    with pytest.raises(InputError) as caught:
        chosen()

    assert caught.value.path == str(paths.contexts_file())


def test_a_damaged_endpoint_is_none() -> None:
    state = leave_endpoint("lab")
    (state / "endpoint.json").write_text("{")

    assert contexts.endpoint(state) is None


def test_places_follow_xdg_without_gangline_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GANGLINE_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative, hence ignored")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert paths.state_dir("lab") == tmp_path / "s" / "gangline" / "lab"
    assert paths.config_dir() == tmp_path / ".config" / "gangline"


def test_gangline_home_moves_everything(gangline_home: Path) -> None:
    assert paths.state_dir("lab").is_relative_to(gangline_home)
    assert paths.contexts_file().is_relative_to(gangline_home)
    assert str(gangline_home) == os.environ["GANGLINE_HOME"]


@pytest.mark.parametrize("where", [paths.state_root, paths.config_dir, paths.cache_dir])
def test_who_has_no_home_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, where: Callable[[], Path]
) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    for name in ("GANGLINE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="has no home folder here"):
        where()
