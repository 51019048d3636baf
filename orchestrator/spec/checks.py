"""All checks of a cluster document, in stages.

Comes in: `Context`. Goes out: every fault that the shape alone does not show. Called by: `load`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from orchestrator.spec import (
    checks_aws,
    checks_controller,
    checks_fabric,
    checks_pools,
    checks_power,
    checks_queues,
    checks_sites,
    checks_storage,
    checks_sums,
)
from orchestrator.spec.context import Check, Context, rows, run
from orchestrator.spec.reading import Found, without
from orchestrator.spec.report import MOST_ERRORS
from orchestrator.wire.cluster import ClusterDocument
from orchestrator.wire.faults import Loc, problem
from orchestrator.wire.leaf import UNKNOWN


def duplicate_names(context: Context) -> Iterator[Found]:
    """Names are identities within their section."""
    document = context.document
    for section, what in (("storage", "storage"), ("sites", "site"), ("pools", "pool"), ("queues", "queue")):
        yield from run((_twice,), [((section, i), one) for i, one in rows(getattr(document, section))], what)
    yield from run((_twice,), [(("budgets", i), one) for i, one in rows(document.budgets)], "budget")


def duplicate_domains(context: Context) -> Iterator[Found]:
    """Power domains have one name space in the cluster, since budgets name them without their site."""
    found = [
        (("sites", index, "power", "domains", number), domain)
        for index, site in rows(context.document.sites)
        if hasattr(site, "power")
        for number, domain in rows(site.power.domains)
    ]
    yield from _twice(found, "power domain")


def duplicate_mounts(context: Context) -> Iterator[Found]:
    """No two file systems at one path of one site."""
    seen: list[tuple[str, set[str]]] = []
    for index, item in rows(context.document.storage):
        here = set(item.sites)
        for path, sites in seen:
            if item.path == path and (not here or not sites or here & sites):
                yield Found(("storage", index, "path"), problem("spec.duplicate-item", name=path))
                break
        seen.append((item.path, here))


def _twice(items: Iterable[tuple[Loc, object]], what: str) -> Iterator[Found]:
    seen: set[str] = set()
    for loc, item in items:
        name = getattr(item, "name", UNKNOWN)
        if name is UNKNOWN:
            continue
        if name in seen:
            yield Found((*loc, "name"), problem("spec.duplicate-name", name=name, what=what))
        seen.add(name)


STAGES: tuple[tuple[Check, ...], ...] = (
    # names, references and fields that belong together: each fault stands in one place
    (
        duplicate_names,
        duplicate_domains,
        duplicate_mounts,
        *checks_controller.NAMES,
        *checks_aws.NAMES,
        *checks_sites.NAMES,
        *checks_fabric.NAMES,
        *checks_storage.NAMES,
        *checks_pools.NAMES,
        *checks_queues.NAMES,
    ),
    # what follows a reference to its other end
    (
        *checks_controller.PLACES,
        *checks_sites.PLACES,
        *checks_fabric.PLACES,
        *checks_pools.PLACES,
        *checks_queues.PLACES,
    ),
    # what adds up over many places
    (*checks_sums.SUMS, *checks_power.SUMS),
)


# What may be meant as it is: judgements of sums, after which everything else still has a meaning. By the name that
# `--skip` takes, which is the code without its first word.
SKIPPABLE: dict[str, str] = {
    code.removeprefix("spec."): code
    for code in (
        "spec.guarantee-over-capacity",
        "spec.guarantee-over-parent",
        "spec.guarantee-over-power",
        "spec.minimum-over-budget",
        "spec.unreachable-ceiling",
    )
}


def check_cluster(context: Context, data: Any, skip: frozenset[str] = frozenset()) -> list[Found]:
    """Everything that contradicts or leads nowhere in one cluster document, of which `data` is the plain value. `skip`:
    codes of SKIPPABLE that are not told.

    What one stage finds is unknown to the next, so that no fault is told again by what follows from it. Nothing is
    looked for once there are more faults than are told.
    """
    found: list[Found] = []
    for stage in STAGES:
        told = (one for one in run(stage, context) if one.problem.code not in skip)
        new = list(islice(told, MOST_ERRORS + 1 - len(found)))
        found += new
        if len(found) > MOST_ERRORS:
            break
        document = without(ClusterDocument, data, [one.loc for one in new]) if new else context.document
        if document is None:
            break
        context = replace(context, document=document)
    return found
