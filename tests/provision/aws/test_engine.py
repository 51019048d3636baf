"""Where Pulumi's record of a stack lies, and what must not lie beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.model.cluster import Stack
from orchestrator.provision.aws.engine import backend_of, without_notes


@pytest.mark.parametrize(
    ("backend", "address"),
    [
        ("file:///srv/record", "file:///srv/record?metadata=skip"),
        ("file:///srv/record?no_tmp_dir=false", "file:///srv/record?no_tmp_dir=false&metadata=skip"),
        ("file:///srv/record?metadata=", "file:///srv/record?metadata=skip"),
        ("file:///srv/of%20atlas", "file:///srv/of%20atlas?metadata=skip"),
        ("file://~/record", "file://~/record?metadata=skip"),
        ("s3://records/atlas?region=us-east-1", "s3://records/atlas?region=us-east-1"),
    ],
)
def test_only_files_are_kept_without_notes(backend: str, address: str) -> None:
    assert without_notes(backend) == address


def test_record_is_in_the_state_folder_unless_the_file_names_another(tmp_path: Path) -> None:
    assert backend_of(tmp_path, Stack()) == f"file://{tmp_path}/record?metadata=skip"
    assert (tmp_path / "record").stat().st_mode & 0o777 == 0o700
    assert backend_of(tmp_path, Stack(backend="s3://records")) == "s3://records"


def test_notes_of_older_runs_go_and_nothing_else_does(tmp_path: Path) -> None:
    kept = tmp_path / "of atlas" / ".pulumi"
    notes = ("meta.yaml.attrs", "stacks/gangline/atlas-use1.json.attrs", "locks/organization/l/a.json.attrs")
    files = ("meta.yaml", "stacks/gangline/atlas-use1.json", "locks/organization/l/a.json")
    for name in (*notes, *files):
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).touch()

    without_notes(f"file://{tmp_path}/of%20atlas")

    assert sorted(str(one.relative_to(kept)) for one in kept.rglob("*") if one.is_file()) == sorted(files)
