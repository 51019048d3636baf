"""The front of this room: files and documents in, models and errors out.

Comes in: a path, a text, or a JSON value. Goes out: `LoadedCluster`, `LoadedJob`, `ValidationResult`, or a `JobSpec`.
Called by: everyone who imports `orchestrator.spec`.

The order is always the same: text -> tree -> kind -> document -> checks -> model; each step sees what the one before
found sound, and all faults come out together, sorted by place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator import catalog
from orchestrator.model.cluster import ClusterSpec, Host
from orchestrator.model.job import JobSpec
from orchestrator.spec import checks
from orchestrator.spec.build_cluster import cluster_spec
from orchestrator.spec.build_job import job_spec
from orchestrator.spec.checks_job import check_job_alone, check_job_in_cluster
from orchestrator.spec.context import Context, declared, without_unknown
from orchestrator.spec.inventory import Claim, Inventory, Owner, read_inventory, taken
from orchestrator.spec.kinds import kind_of
from orchestrator.spec.places import Page, sorted_errors, unplaced
from orchestrator.spec.reading import Found, read_document, without
from orchestrator.spec.report import InvalidDocument, SpecError
from orchestrator.spec.source import Unreadable, beside, read_text, shown_path
from orchestrator.spec.tree import Misread, read_tree, tree_of
from orchestrator.spec.ways import contradicting
from orchestrator.wire.cluster import API_VERSION, ClusterDocument
from orchestrator.wire.cluster_sites import MetalSite
from orchestrator.wire.job import JobDocument
from orchestrator.wire.leaf import UNKNOWN

CLUSTER, JOB = "Cluster", "Job"


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


def load_cluster(path: str, skip: frozenset[str] = NO_SKIP) -> LoadedCluster:
    """The cluster that a file describes, with the hosts of its inventories. `skip`: codes of checks that are left out
    (`checks.SKIPPABLE`). Raises nothing."""
    done = _from_file(path, (CLUSTER,), None, skip)
    return LoadedCluster(done.cluster, sorted_errors(done.errors, path, done.more))


def load_cluster_text(text: str, file: str, base: str | None = None) -> LoadedCluster:
    """The same of a text. `file` names it in errors; inventories are read beside `base`, or not at all without one."""
    done = _from_text(text, file, (CLUSTER,), None, base)
    return LoadedCluster(done.cluster, sorted_errors(done.errors, file, done.more))


def load_job(path: str, cluster: ClusterSpec | None = None) -> LoadedJob:
    """The job that a file describes; with `cluster`, its names must exist there. Raises nothing."""
    done = _from_file(path, (JOB,), cluster)
    return LoadedJob(done.job, sorted_errors(done.errors, path, done.more))


def load_job_text(text: str, file: str, cluster: ClusterSpec | None = None) -> LoadedJob:
    """The same of a text; `file` names it in errors."""
    done = _from_text(text, file, (JOB,), cluster, None)
    return LoadedJob(done.job, sorted_errors(done.errors, file, done.more))


def job_from_document(document: object, cluster: ClusterSpec | None = None) -> JobSpec:
    """The job that a JSON value describes, which stays as it is. Raises InvalidDocument, whose errors have no lines."""
    done = _from_page(Page("", "", tree_of(document)), (JOB,), cluster, None)
    if done.job is None:
        raise InvalidDocument(sorted_errors(done.errors, "", done.more))
    return done.job


def validate_file(
    path: str, cluster: ClusterSpec | None = None, skip: frozenset[str] = NO_SKIP
) -> ValidationResult:
    """What is wrong with a file of either kind. `skip` as in `load_cluster`. Raises nothing."""
    done = _from_file(path, (CLUSTER, JOB), cluster, skip)
    return ValidationResult(sorted_errors(done.errors, path, done.more))


def validate_text(
    text: str, file: str, cluster: ClusterSpec | None = None, skip: frozenset[str] = NO_SKIP
) -> ValidationResult:
    """The same of a text, such as standard input; inventories that it names are read from the current folder."""
    done = _from_text(text, file, (CLUSTER, JOB), cluster, file, skip)
    return ValidationResult(sorted_errors(done.errors, file, done.more))


# --- from a file to a page -------------------------------------------------------------------------------------------


def _from_file(
    path: str, kinds: tuple[str, ...], cluster: ClusterSpec | None, skip: frozenset[str] = NO_SKIP
) -> _Outcome:
    try:
        text = read_text(path)
    except Unreadable as error:
        return _Outcome([unplaced(path, error.problem, error.line, error.column)])
    return _from_text(text, path, kinds, cluster, path, skip)


def _from_text(
    text: str,
    file: str,
    kinds: tuple[str, ...],
    cluster: ClusterSpec | None,
    base: str | None,
    skip: frozenset[str] = NO_SKIP,
) -> _Outcome:
    return _from_page(Page(file, text, read_tree(text)), kinds, cluster, base, skip)


def _from_page(
    page: Page,
    kinds: tuple[str, ...],
    cluster: ClusterSpec | None,
    base: str | None,
    skip: frozenset[str] = NO_SKIP,
) -> _Outcome:
    errors = [page.of_text(fault) for fault in page.tree.faults]
    root = page.tree.root
    if root is None:
        return _Outcome(errors)
    kind, found = kind_of(root, kinds)
    if kind is None:
        return _Outcome(errors + [page.error(one) for one in found])
    if kind == CLUSTER:
        return _cluster(page, root.value, errors, base, skip)
    return _job(page, root.value, errors, cluster)


# --- from a page to a model ------------------------------------------------------------------------------------------


def _job(page: Page, data: Any, errors: list[SpecError], cluster: ClusterSpec | None) -> _Outcome:
    reading = read_document(JobDocument, data)
    document = reading.document
    found = list(reading.found)
    if document is not None:
        found += check_job_alone(document)
    if cluster is not None and found:
        document = without(JobDocument, data, [one.loc for one in found])
    if cluster is not None and document is not None:
        found += check_job_in_cluster(document, cluster, catalog.load())
    errors += [page.error(one) for one in found]
    done = job_spec(document) if document is not None and not errors else None
    return _Outcome(errors, job=done, more=reading.more)


def _cluster(
    page: Page, data: Any, errors: list[SpecError], base: str | None, skip: frozenset[str]
) -> _Outcome:
    names = declared(data)
    reading = read_document(ClusterDocument, data)
    document = reading.document
    errors += [page.error(one) for one in reading.found]
    if document is None:
        return _Outcome(errors, more=reading.more)
    shelf = _Shelf(page, base)
    hosts, unread = shelf.hosts_of(document)
    errors += shelf.errors
    context = Context(document, without_unknown(names, data), catalog.load(), hosts, unread)
    errors += [page.error(one) for one in checks.check_cluster(context, data, skip)]
    return _Outcome(errors, cluster=None if errors else cluster_spec(document, hosts))


class _Shelf:
    """The inventories that a cluster names, each read once."""

    def __init__(self, page: Page, base: str | None) -> None:
        self.errors: list[SpecError] = []
        self._page = page
        self._base = base
        self._read: dict[str, Inventory | None] = {}
        self._pages: dict[str, Page] = {}

    def hosts_of(self, document: ClusterDocument) -> tuple[dict[str, tuple[Host, ...]], frozenset[str]]:
        """The hosts by site, and the sites whose hosts are not known."""
        hosts: dict[str, tuple[Host, ...]] = {}
        unread: set[str] = set()
        if document.sites is UNKNOWN:
            return {}, frozenset()
        for index, site in enumerate(document.sites):
            if not isinstance(site, MetalSite) or site.name is UNKNOWN or site.inventory is None:
                continue
            inventory = self._inventory(site.inventory, index) if site.inventory is not UNKNOWN else None
            if inventory is None or inventory.faults:
                unread.add(site.name)
            else:
                hosts[site.name] = inventory.hosts
                self._told(beside(self._base or "", site.inventory), contradicting(inventory.ways, site.ssh))
        self._shared()
        return hosts, frozenset(unread)

    def _told(self, path: str, faults: Iterable[Misread]) -> None:
        self.errors += [self._pages[path].of_text(fault) for fault in faults]

    def _shared(self) -> None:
        """What is one host's own in one inventory is no other host's in another one."""
        first: dict[Claim, tuple[str, Owner]] = {}
        for path, inventory in self._read.items():
            for claim, owner in inventory.claims.items() if inventory is not None else ():
                file, other = first.setdefault(claim, (path, owner))
                if other.host != owner.host:
                    found = taken(claim, other, f"{shown_path(file)}, line {other.place.line}")
                    self._told(path, [Misread(found, owner.place, owner.loc)])

    def _inventory(self, name: str, index: int) -> Inventory | None:
        if self._base is None:
            return None
        path = beside(self._base, name)
        if path not in self._read:
            self._read[path] = self._open(path, index)
        return self._read[path]

    def _open(self, path: str, index: int) -> Inventory | None:
        try:
            text = read_text(path, "the folder of the file that names it")
        except Unreadable as error:
            if error.line:
                self.errors.append(unplaced(path, error.problem, error.line, error.column))
            else:
                self.errors.append(self._page.error(Found(("sites", index, "inventory"), error.problem)))
            return None
        inventory = read_inventory(text)
        self._pages[path] = Page(path, text, inventory.tree)
        self._told(path, inventory.faults)
        return inventory
