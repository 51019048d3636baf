"""Each leaf of the full cluster and job documents is broken in every way there is: exactly one error each time.

Comes in: the documents in tests/spec/full, which use every field (a test holds that). Goes out: proof that one fault
gives one error, at its line, column and path, with the right code, and never a traceback or an error that only
follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from orchestrator import spec
from orchestrator.model.cluster import ClusterSpec
from orchestrator.spec import shape
from orchestrator.spec.tree import read_tree
from orchestrator.wire.cluster import ClusterDocument
from orchestrator.wire.job import JobDocument
from orchestrator.wire.leaf import Strict
from orchestrator.wire.policy import PolicyDocument
from orchestrator.wire.prices import PricesDocument
from tests.effort import some
from tests.spec import mutants
from tests.spec.mutants import Breeder, Mutant

FULL = Path(__file__).parent / "full"
FILES: dict[str, type[Strict]] = {
    "cluster.yaml": ClusterDocument,
    "bought.yaml": ClusterDocument,
    "divided.yaml": ClusterDocument,
    "job.yaml": JobDocument,
    "tasks.yaml": JobDocument,
    "array.yaml": JobDocument,
    "mig.yaml": JobDocument,
    "groups.yaml": JobDocument,
    "prices.yml": PricesDocument,
    "policy.yml": PolicyDocument,
}

mutants.FAULT_CODES.update(spec.FAULTS)


def plain(name: str) -> Any:
    root = read_tree((FULL / name).read_text()).root
    assert root is not None
    return root.value


def breeder(name: str) -> Breeder:
    return Breeder(FILES[name], plain(name))


def cluster() -> ClusterSpec:
    loaded = spec.load_cluster(str(FULL / "cluster.yaml"))
    assert loaded.cluster is not None, spec.render(loaded.errors)
    return loaded.cluster


def judge(mutant: Mutant, name: str, wanted: ClusterSpec | None) -> str:
    """What is wrong with the errors of a mutant; nothing if all is well."""
    if FILES[name] is ClusterDocument:
        errors = spec.load_cluster_text(mutant.text, str(FULL / name), base=str(FULL / name)).errors
    elif FILES[name] in (PricesDocument, PolicyDocument):
        errors = spec.validate_text(mutant.text, str(FULL / name)).errors
    else:
        errors = spec.load_job_text(mutant.text, str(FULL / name), wanted).errors
    told = f"{mutant.kind}: {len(errors)} errors\n{spec.render(errors)}\n"
    if len(errors) != 1:
        return told
    one = errors[0]
    found = (one.line, one.column, one.path)
    if found != (mutant.line, mutant.column, mutant.path):
        return f"{told}found {found}, wanted {(mutant.line, mutant.column, mutant.path)}"
    if one.code not in mutant.codes or not one.message or "\x1b" in told or "\u202e" in told:
        return f"{told}code {one.code}, wanted one of {sorted(mutant.codes)[:5]}"
    return ""


@cache
def all_mutants(name: str) -> tuple[Mutant, ...]:
    return tuple(breeder(name).all())


PARTS = [
    *(("cluster.yaml", part, 8) for part in range(8)),
    *(
        (name, 0, 1)
        for name in (
            "bought.yaml",
            "divided.yaml",
            "job.yaml",
            "tasks.yaml",
            "array.yaml",
            "mig.yaml",
            "groups.yaml",
            "prices.yml",
            "policy.yml",
        )
    ),
]


@pytest.mark.parametrize(("name", "part", "parts"), PARTS)
def test_one_fault_gives_one_error_at_its_place(name: str, part: int, parts: int) -> None:
    wanted = cluster() if FILES[name] is JobDocument else None
    bred = some(all_mutants(name)[part::parts])
    wrong = [problem for mutant in bred if (problem := judge(mutant, name, wanted))]
    print(f"{name}, part {part + 1} of {parts}: {len(bred)} mutants, {len(wrong)} judged wrongly")  # noqa: T201
    assert not wrong, "\n".join(wrong[:10])


def test_there_are_many_mutants() -> None:
    counts = {name: len(all_mutants(name)) for name in FILES}
    counts["dangling"] = sum(len(list(dangling(breeder(name)))) for name in FILES)
    print(f"mutants: {counts}, {sum(counts.values())} in all")  # noqa: T201
    assert sum(counts.values()) >= 1000


HIDDEN_BY = ("access", "apiVersion", "kind", "metadata")


def leaves_others(mutant: Mutant) -> bool:
    """Whether it is of a kind, and in a place, that must not keep other faults from being told."""
    return mutant.fault.startswith(("null", "unknown", "missing", "bad text")) and not mutant.path.startswith(
        HIDDEN_BY
    )


@pytest.mark.parametrize("part", range(3))
def test_no_fault_hides_another_one_far_away(part: int) -> None:
    """A second fault, a reference, is in every mutant: what is checked after the shape is still checked."""
    data = plain("cluster.yaml")
    data["access"]["grants"][3]["to"] = "nobody"
    path = str(FULL / "cluster.yaml")
    lost = []
    for mutant in some([one for one in Breeder(ClusterDocument, data).all() if leaves_others(one)][part::3]):
        errors = spec.load_cluster_text(mutant.text, path, base=path).errors
        dangling_paths = [one.path for one in errors if one.code == "spec.dangling-reference"]
        if dangling_paths != ["access.grants[3].to"] or len(errors) != 2:
            lost.append(f"{mutant.kind}\n{spec.render(errors)}")
    assert not lost, "\n".join(lost[:10])


REFERENCES = {
    "site",
    "sites",
    "pool",
    "parent",
    "fed_by",
    "domain",
    "queue",
    "to",
    "gpu_model",
    "needs",
    "host",
    "required",
    "preferred",
}


def dangling(bred: Breeder) -> Iterator[Mutant]:
    """A name that nothing has, in each place that refers to something."""
    for loc, node in mutants.nodes(bred.tree):
        holder = loc[-2] if isinstance(loc[-1], int) else loc[-1]
        if holder in REFERENCES and isinstance(node, str) and (holder != "to" or loc[0] == "access"):
            yield bred.with_value("dangling", loc, "no-such-thing", "spec.dangling-reference")
        elif (
            loc[-1] == "nodes" and loc[:1] == ("pools",) and not {"desk-1", "p5-[1-2]", "g6-1"} & {str(node)}
        ):
            yield bred.with_value("dangling", loc, ["no-such-node"], "spec.node-unknown")
        elif "fabric" in loc and loc[-3:-2] == ("domains",):
            yield bred.with_value("dangling", loc, "no-such-unit", "spec.dangling-reference")
        elif (loc[-1] == "nodes" and loc[:1] == ("sites",)) or (loc[-2:-1] == ("units",)):
            yield bred.with_value("dangling", loc, "no-such-node", "spec.node-unknown")
        elif loc[-1] in ("inventory", "prices") and isinstance(node, str):
            yield bred.with_value("dangling", loc, "no-such-file.yml", "spec.file-not-found")
        elif loc[-1] == "model" and loc[1] != 1:  # the second pool says itself what its model is
            yield bred.with_value("dangling", loc, "H100-SXM5-81GB", "spec.unknown-gpu-model")
        elif loc[-1] == "timezone":
            yield bred.with_value("dangling", loc, "Europe/Brelin", "spec.unknown-timezone")


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("prices.yml", "policy.yml")])
def test_every_dangling_reference_is_one_error(name: str) -> None:
    wanted = cluster() if FILES[name] is JobDocument else None
    bred = list(dangling(breeder(name)))
    wrong = [problem for mutant in bred if (problem := judge(mutant, name, wanted))]
    print(f"{name}: {len(bred)} dangling references, {len(wrong)} judged wrongly")  # noqa: T201
    assert bred
    assert not wrong, "\n".join(wrong[:10])


def test_the_full_documents_use_every_field() -> None:
    """Otherwise a field could be added without being broken here."""
    used: set[tuple[type, str]] = set()
    for name, model in FILES.items():
        _collect(model, plain(name), used)
    unused = sorted(
        f"{one.__name__}.{field}"
        for one in {owner for owner, _ in used}
        for field in shape.fields_of(one)
        if (one, field) not in used
    )
    assert unused == []


def _collect(hint: Any, data: Any, used: set[tuple[type, str]]) -> None:
    members = shape.members(hint)
    if members and isinstance(data, dict):
        owner = next((one for one in members if set(data) <= set(shape.fields_of(one))), members[0])
        for key, value in data.items():
            used.add((owner, key))
            _collect(shape.fields_of(owner)[key], value, used)
    elif isinstance(data, (list, dict)):
        for value in data.values() if isinstance(data, dict) else data:
            _collect(shape.inside(hint, 0), value, used)
