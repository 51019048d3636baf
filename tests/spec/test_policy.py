"""Policy files: what they may say over the cluster's own settings, and where each fault stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import spec
from orchestrator.model.cluster import FairShare, Preset, SchedulerSpec
from orchestrator.model.job import Workload
from orchestrator.spec.policy import LoadedPolicy, PolicyFile, load_policy

HEAD = "apiVersion: gangline/v1\nkind: Policy\n"
WANTED = SchedulerSpec(FairShare.DECAY, 3600, Preset.FILLING, 4)
FULL = Path(__file__).parent / "full" / "policy.yml"


def load(tmp_path: Path, text: str) -> LoadedPolicy:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return load_policy(str(path), WANTED)


def test_what_a_file_does_not_say_is_as_the_clusters_file_has_it(tmp_path: Path) -> None:
    assert load(tmp_path, HEAD) == LoadedPolicy(PolicyFile(WANTED), ())


def test_a_file_says_everything() -> None:
    limits = {
        Workload.SERVING: 0,
        Workload.TRAINING: 2 * 86_400,
        Workload.BATCH: 3600,
        Workload.INTERACTIVE: 1800,
    }
    wanted = SchedulerSpec(FairShare.DECAY, 2 * 86_400, Preset.FILLING, 16)
    assert load_policy(str(FULL), SchedulerSpec()) == LoadedPolicy(
        PolicyFile(wanted, models_ranked=True, compiled=False, default_time_limit_s=limits), ()
    )
    assert set(limits) == set(Workload), "each class of work can have one"


def test_a_setting_that_is_nothing_is_said_all_the_same(tmp_path: Path) -> None:
    policy = load(tmp_path, HEAD + "kept_jobs: 0\ncompiled: false\n").policy
    assert policy is not None
    assert (policy.scheduler.kept_jobs, policy.compiled) == (0, False)


@pytest.mark.parametrize(
    ("text", "place", "code", "hint"),
    [
        ("fair_shair: off", (3, 1), "spec.unknown-field", "did you mean 'fair_share'?"),
        ("wait: 16", (3, 1), "spec.unknown-field", "known: apiVersion"),
        ("compiled: 1", (3, 11), "spec.wrong-type", ""),
        ("kept_jobs: -1", (3, 12), "spec.out-of-range", ""),
        ("half_life: 60", (3, 12), "spec.wrong-type", ""),
        ("placement: filing", (3, 12), "spec.bad-choice", "did you mean 'filling'?"),
        ("default_time_limit: {batsch: 4h}", (3, 22), "spec.unknown-field", "did you mean 'batch'?"),
        ("default_time_limit: [4h]", (3, 21), "spec.wrong-type", ""),
    ],
)
def test_every_fault_has_its_place(
    tmp_path: Path, text: str, place: tuple[int, int], code: str, hint: str
) -> None:
    loaded = load(tmp_path, HEAD + text)

    assert loaded.policy is None
    (error,) = loaded.errors
    assert ((error.line, error.column), error.code) == (place, code)
    assert hint in error.hint
    assert spec.validate_file(str(tmp_path / "policy.yaml")).errors == loaded.errors


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("kind: Cluster\napiVersion: gangline/v1\n", ["spec.wrong-kind"]),
        ("kind: Policy\napiVersion: gangline/v9\n", ["spec.wrong-version"]),
        ("a: [", ["spec.yaml-syntax"]),
        ("", ["spec.empty"]),
        ("- a", ["spec.wrong-type"]),
        (
            HEAD + "a: 1\nkept_jobs: x\nb: 2\n",
            ["spec.unknown-field", "spec.wrong-type", "spec.unknown-field"],
        ),
    ],
)
def test_another_document_is_none(tmp_path: Path, text: str, codes: list[str]) -> None:
    assert [error.code for error in load(tmp_path, text).errors] == codes


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    found = load_policy(str(tmp_path / "x"), WANTED)
    assert [error.code for error in found.errors] == ["spec.file-not-found"]


def test_validate_knows_it() -> None:
    assert spec.validate_file(str(FULL)).valid
