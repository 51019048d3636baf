"""Short ways to load a text in a test and to see what was said about it.

Comes in: YAML text. Goes out: lines such as `7:11 pools[h100].gpu.count spec.wrong-type`. Called by: the tests of
spec.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from orchestrator import spec
from orchestrator.model.cluster import ClusterSpec

HEAD = "apiVersion: gangline/v1\nkind: Cluster\nmetadata: {name: c}\n"
JOB_HEAD = "apiVersion: gangline/v1\nkind: Job\nmetadata: {name: j}\nspec:\n"
SITE = "sites: [{name: here, kind: local}]\n"
POOL = "pools: [{name: p, site: here, nodes: 'n[1-4]', gpu: {model: H100-SXM5-80GB, count: 8}}]\n"


def lines(errors: tuple[spec.SpecError, ...]) -> list[str]:
    """One line for each error: place, path, code."""
    return [f"{one.line}:{one.column} {one.path} {one.code}" for one in errors]


def coded(errors: tuple[spec.SpecError, ...]) -> list[str]:
    """One line for each error: path and code, in the order of places."""
    return [f"{one.path} {one.code}" for one in errors]


def cluster_errors(text: str) -> tuple[spec.SpecError, ...]:
    """Errors of a whole cluster text."""
    return spec.load_cluster_text(dedent(text), "cluster.yaml").errors


def said(body: str) -> list[str]:
    """Errors of a cluster whose head (three lines) is put in front of `body`."""
    return coded(cluster_errors(HEAD + dedent(body)))


def job_said(body: str, cluster: ClusterSpec | None = None) -> list[str]:
    """Errors of a job whose head is put in front of the fields in `body`."""
    indented = "".join(f"  {line}\n" for line in dedent(body).strip().splitlines())
    return coded(spec.load_job_text(JOB_HEAD + indented, "job.yaml", cluster).errors)


def cluster_of(body: str) -> ClusterSpec:
    """The model of a sound cluster text, or a failure that shows its errors."""
    loaded = spec.load_cluster_text(HEAD + dedent(body), "cluster.yaml")
    assert loaded.cluster is not None, spec.render(loaded.errors)
    return loaded.cluster


def write(folder: Path, **files: str) -> str:
    """Write `cluster.yaml` and others (`hosts_yml` for hosts.yml) and return the path of the first."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(dedent(text), encoding="utf-8")
    return str(folder / next(iter(files)).replace("_", "."))
