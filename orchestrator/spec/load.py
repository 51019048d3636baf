"""The front of this room: files and documents in, models and errors out.

Comes in: a path, a text, or a JSON value. Goes out: `LoadedCluster`, `LoadedJob`, `ValidationResult`, or a `JobSpec`.
Called by: everyone who imports `orchestrator.spec`.

The order is always the same: text -> tree -> kind -> document -> checks -> model; each step sees what the one before
found sound, and all faults come out together, sorted by place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from orchestrator import catalog
from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.job import JobSpec
from orchestrator.spec import checks
from orchestrator.spec.build_cluster import cluster_spec
from orchestrator.spec.build_job import job_spec
from orchestrator.spec.checks_job import check_job_alone, check_job_in_cluster
from orchestrator.spec.context import Context, declared, without_unknown
from orchestrator.spec.kinds import kind_of
from orchestrator.spec.places import Page, sorted_errors, unplaced
from orchestrator.spec.prices import check_prices
from orchestrator.spec.reading import read_document, without
from orchestrator.spec.report import InvalidDocument, SpecError
from orchestrator.spec.shelf import Shelf
from orchestrator.spec.source import Unreadable, read_text
from orchestrator.spec.tree import read_tree, tree_of
from orchestrator.wire.cluster import API_VERSION, ClusterDocument
from orchestrator.wire.job import JobDocument
from orchestrator.wire.policy import KIND as POLICY
from orchestrator.wire.policy import PolicyDocument
from orchestrator.wire.prices import KIND as PRICES

CLUSTER, JOB = "Cluster", "Job"
ALL = (CLUSTER, JOB, PRICES, POLICY)


@dataclass(frozen=True, slots=True)
class LoadedCluster:
    """`cluster` is None exactly if there are errors."""

    cluster: ClusterSpec | None
    errors: tuple[SpecError, ...]


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """`job` is None exactly if there are errors."""

    job: JobSpec | None
    errors: tuple[SpecError, ...]


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What `gangline validate` found."""

    errors: tuple[SpecError, ...]

    @property
    def valid(self) -> bool:
        """Whether there was nothing to find."""
        return not self.errors

    def to_json(self) -> dict[str, Any]:
        """The envelope of `validate -o json`."""
        return {
            "apiVersion": API_VERSION,
            "kind": "ValidationResult",
            "valid": self.valid,
            "errors": [error.to_json() for error in self.errors],
        }


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of one page."""

    errors: list[SpecError]
    cluster: ClusterSpec | None = None
    job: JobSpec | None = None
    more: int = 0  # faults that were not looked at


NO_SKIP: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Given:
    """What is known besides a text: the cluster that a job is for, the file beside which names are meant (None: such
    files are not read), checks to leave out, the catalog (None: the one that ships)."""

    cluster: ClusterSpec | None = None
    base: str | None = None
    skip: frozenset[str] = NO_SKIP
    known: Catalog | None = None

    def catalog(self) -> Catalog:
        """The catalog to judge by."""
        return self.known if self.known is not None else catalog.load()


def load_cluster(path: str, skip: frozenset[str] = NO_SKIP, known: Catalog | None = None) -> LoadedCluster:
    """The cluster that a file describes, with what the files that it names say. `skip`: codes of checks that are left
    out (`checks.SKIPPABLE`); `known`: the catalog, absent: the one that ships. Raises nothing."""
    done = _from_file(path, (CLUSTER,), _Given(skip=skip, known=known))
    return LoadedCluster(done.cluster, sorted_errors(done.errors, path, done.more))


def load_cluster_text(text: str, file: str, base: str | None = None) -> LoadedCluster:
    """The same of a text. `file` names it in errors; inventories and prices are read beside `base`, or not at all
    without one."""
    done = _from_text(text, file, (CLUSTER,), _Given(base=base))
    return LoadedCluster(done.cluster, sorted_errors(done.errors, file, done.more))


def load_job(path: str, cluster: ClusterSpec | None = None) -> LoadedJob:
    """The job that a file describes; with `cluster`, its names must exist there. Raises nothing."""
    done = _from_file(path, (JOB,), _Given(cluster))
    return LoadedJob(done.job, sorted_errors(done.errors, path, done.more))


def load_job_text(text: str, file: str, cluster: ClusterSpec | None = None) -> LoadedJob:
    """The same of a text; `file` names it in errors."""
    done = _from_text(text, file, (JOB,), _Given(cluster))
    return LoadedJob(done.job, sorted_errors(done.errors, file, done.more))


def job_from_document(document: object, cluster: ClusterSpec | None = None) -> JobSpec:
    """The job that a JSON value describes, which stays as it is. Raises InvalidDocument, whose errors have no lines."""
    done = _from_page(Page("", "", tree_of(document)), (JOB,), _Given(cluster))
    if done.job is None:
        raise InvalidDocument(sorted_errors(done.errors, "", done.more))
    return done.job


def validate_file(
    path: str,
    cluster: ClusterSpec | None = None,
    skip: frozenset[str] = NO_SKIP,
    known: Catalog | None = None,
) -> ValidationResult:
    """What is wrong with a file of any kind. `skip` and `known` as in `load_cluster`. Raises nothing."""
    done = _from_file(path, ALL, _Given(cluster, skip=skip, known=known))
    return ValidationResult(sorted_errors(done.errors, path, done.more))


def validate_text(
    text: str,
    file: str,
    cluster: ClusterSpec | None = None,
    skip: frozenset[str] = NO_SKIP,
    known: Catalog | None = None,
) -> ValidationResult:
    """The same of a text, such as standard input; files that it names are read from the current folder."""
    done = _from_text(text, file, ALL, _Given(cluster, file, skip, known))
    return ValidationResult(sorted_errors(done.errors, file, done.more))


# --- from a file to a page -------------------------------------------------------------------------------------------


def _from_file(path: str, kinds: tuple[str, ...], given: _Given) -> _Outcome:
    try:
        text = read_text(path)
    except Unreadable as error:
        return _Outcome([unplaced(path, error.problem, error.line, error.column)])
    return _from_text(text, path, kinds, replace(given, base=path))


def _from_text(text: str, file: str, kinds: tuple[str, ...], given: _Given) -> _Outcome:
    return _from_page(Page(file, text, read_tree(text)), kinds, given)


def _from_page(page: Page, kinds: tuple[str, ...], given: _Given) -> _Outcome:
    errors = [page.of_text(fault) for fault in page.tree.faults]
    root = page.tree.root
    if root is None:
        return _Outcome(errors)
    kind, found = kind_of(root, kinds)
    if kind is None:
        return _Outcome(errors + [page.error(one) for one in found])
    if kind == CLUSTER:
        return _cluster(page, root.value, errors, given)
    if kind == PRICES:
        found, more = check_prices(root.value, given.catalog())
        return _Outcome(errors + [page.error(one) for one in found], more=more)
    if kind == POLICY:
        reading = read_document(PolicyDocument, root.value)
        return _Outcome(errors + [page.error(one) for one in reading.found], more=reading.more)
    return _job(page, root.value, errors, given)


# --- from a page to a model ------------------------------------------------------------------------------------------


def _job(page: Page, data: Any, errors: list[SpecError], given: _Given) -> _Outcome:
    reading = read_document(JobDocument, data)
    document = reading.document
    found = list(reading.found)
    if document is not None:
        found += check_job_alone(document)
    if given.cluster is not None and found:
        document = without(JobDocument, data, [one.loc for one in found])
    if given.cluster is not None and document is not None:
        found += check_job_in_cluster(document, given.cluster, given.catalog())
    errors += [page.error(one) for one in found]
    done = job_spec(document) if document is not None and not errors else None
    return _Outcome(errors, job=done, more=reading.more)


def _cluster(page: Page, data: Any, errors: list[SpecError], given: _Given) -> _Outcome:
    names = declared(data)
    reading = read_document(ClusterDocument, data)
    document = reading.document
    errors += [page.error(one) for one in reading.found]
    if document is None:
        return _Outcome(errors, more=reading.more)
    known = given.catalog()
    shelf = Shelf(page, given.base)
    hosts, unread = shelf.hosts_of(document)
    prices, unpriced = shelf.prices_of(document, known)
    errors += shelf.errors
    context = Context(document, without_unknown(names, data), known, hosts, unread, prices, unpriced)
    errors += [page.error(one) for one in checks.check_cluster(context, data, given.skip)]
    return _Outcome(
        errors, cluster=None if errors else cluster_spec(document, hosts, prices, context.catalog)
    )
