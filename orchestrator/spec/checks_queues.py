"""Checks of queues, budgets and access: references, circles, and fields that exclude each other.

Comes in: `Context`. Goes out: faults. Called by: `checks`. What guarantees and budgets add up to is in `checks_sums`.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.spec.checks_sites import Link, circles
from orchestrator.spec.context import Context, given, reference, rows, run, twice
from orchestrator.spec.gpus import models_of_cluster
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster_queues import (
    BudgetDocument,
    GrantDocument,
    GroupDocument,
    QueueDocument,
    ScopeDocument,
    ShareDocument,
    WindowDocument,
)
from orchestrator.wire.faults import Loc, problem, suggestion

MONEY = ("usd_per_hour", "usd_per_month")
SCOPES = ("site", "pool", "queue")
SHARES = ("guarantee", "borrow_limit", "lending_limit")
WAYS = ("oidc", "posix", "users")


def queues(context: Context) -> Iterator[Found]:
    """Each queue by itself."""
    for index, queue in rows(context.document.queues):
        loc: Loc = ("queues", index)
        yield from run((_parent,), context, queue, loc)
        yield from run((_time_limits,), queue, loc)
        for field in SHARES:
            yield from run((_shares,), context, getattr(queue, field), (*loc, field))
        yield from run((_lending,), context, queue, loc)


def _parent(context: Context, queue: QueueDocument, loc: Loc) -> Iterator[Found]:
    yield from reference(context, (*loc, "parent"), "queue", queue.parent)


def queue_circles(context: Context) -> Iterator[Found]:
    """No queue lies under itself."""
    links = [
        Link(("queues", index, "parent"), queue.name, [queue.parent] if queue.parent is not None else [])
        for index, queue in rows(context.document.queues)
    ]
    yield from circles(links)


def _time_limits(queue: QueueDocument, loc: Loc) -> Iterator[Found]:
    low, high = queue.limits.default_time_limit, queue.limits.max_time_limit
    if low is not None and high is not None and low > high:
        names = {"low_name": "default_time_limit", "high_name": "max_time_limit"}
        found = problem("spec.min-over-max", low=f"({low} s)", high=f"({high} s)", **names)
        yield Found((*loc, "limits", "default_time_limit"), found)


def _shares(context: Context, shares: list[ShareDocument], loc: Loc) -> Iterator[Found]:
    seen: set[tuple[str | None, str | None]] = set()
    for index, share in rows(shares):
        yield from run((_share,), context, share, seen, (*loc, index))


def _share(
    context: Context, share: ShareDocument, seen: set[tuple[str | None, str | None]], loc: Loc
) -> Iterator[Found]:
    """A share counts in one pool or in one model, once, and that exists."""
    if share.pool is not None and share.gpu_model is not None:
        advice = "count in one of the two"
        found = problem("spec.exclusive-fields", field="gpu_model", other="pool", advice=advice)
        yield Found((*loc, "gpu_model"), found, "key")
        return
    if share.pool is None and share.gpu_model is None:
        advice = "say in what the GPUs are counted"
        yield Found(
            (*loc, "pool"), problem("spec.needs-one-of", fields="pool, gpu_model", advice=advice), "parent"
        )
        return
    key = (share.pool, share.gpu_model)
    field = "pool" if share.pool is not None else "gpu_model"
    if key in seen:
        yield Found((*loc, field), problem("spec.duplicate-item", name=share.pool or share.gpu_model))
    seen.add(key)
    yield from reference(context, (*loc, "pool"), "pool", share.pool)


def _lending(context: Context, queue: QueueDocument, loc: Loc) -> Iterator[Found]:
    """What others may use is part of what is guaranteed, counted in the same."""
    owned = {(share.pool, share.gpu_model): share.gpus for share in queue.guarantee}
    pools = {None, *(pool.name for pool in context.document.pools)}
    if any(share.pool not in pools for share in (*queue.guarantee, *queue.lending_limit)):
        return  # told by `_share`
    for index, share in rows(queue.lending_limit):
        what, key = share.pool or share.gpu_model, (share.pool, share.gpu_model)
        here: Loc = (*loc, "lending_limit", index)
        if (share.pool is None) == (share.gpu_model is None):
            continue  # told by `_share`
        if key not in owned:
            advice = f"guarantee GPUs of {what} first: a lending limit is how many of those others may use"
            found = problem("spec.needs-field", field="lending_limit", other="guarantee", advice=advice)
            yield Found(here, found)
        elif share.gpus > owned[key]:
            names = {"low_name": "lending_limit", "high_name": "guarantee"}
            found = problem("spec.min-over-max", low=share.gpus, high=owned[key], **names)
            yield Found((*here, "gpus"), found)


def models(context: Context) -> Iterator[Found]:
    """GPU models that shares are counted in are those of some pool."""
    known = models_of_cluster(context)
    if known is None:
        return
    for index, queue in rows(context.document.queues):
        for field in SHARES:
            yield from run((_models,), getattr(queue, field), known, ("queues", index, field))


def _models(shares: list[ShareDocument], known: set[str], loc: Loc) -> Iterator[Found]:
    for index, share in rows(shares):
        yield from run((_model,), share.gpu_model, known, (*loc, index, "gpu_model"))


def _model(name: str | None, known: set[str], loc: Loc) -> Iterator[Found]:
    if name is not None and name not in known:
        what = "GPU model in any pool"
        advice = suggestion(name, sorted(known), "GPU model")
        yield Found(loc, problem("spec.dangling-reference", what=what, name=name, advice=advice))


# --- budgets ---------------------------------------------------------------------------------------------------------


def budgets(context: Context) -> Iterator[Found]:
    """Each budget by itself."""
    for index, budget in rows(context.document.budgets):
        loc: Loc = ("budgets", index)
        yield from run((_kind_of_budget,), budget, loc)
        yield from run((_domain, _scope_of_budget), context, budget, loc)
        yield from run((_windows,), budget, loc)
        yield from run((_at_limit,), budget, loc)


def _at_limit(budget: BudgetDocument, loc: Loc) -> Iterator[Found]:
    yield from twice((*loc, "at_limit"), budget.at_limit)


def _kind_of_budget(budget: BudgetDocument, loc: Loc) -> Iterator[Found]:
    """A budget is about power or about money, and limits something."""
    power, money = given(budget, "domain", "windows"), given(budget, *MONEY)
    if power and money:
        advice = "make two budgets of it"
        found = problem("spec.exclusive-fields", field=money[0], other=power[0], advice=advice)
        yield Found((*loc, money[0]), found, "key")
    elif power and "applies_to" in budget.model_fields_set:
        advice = "a power budget names its domain"
        found = problem("spec.exclusive-fields", field="applies_to", other=power[0], advice=advice)
        yield Found((*loc, "applies_to"), found, "key")
    elif len(power) == 1:
        other = "windows" if power == ["domain"] else "domain"
        advice = "a power budget has both"
        yield Found(
            (*loc, power[0]), problem("spec.needs-field", field=power[0], other=other, advice=advice), "key"
        )
    elif not power and not money:
        fields = "domain with windows, usd_per_hour, usd_per_month"
        yield Found(loc, problem("spec.needs-one-of", fields=fields, advice="say what it limits"))


def _domain(context: Context, budget: BudgetDocument, loc: Loc) -> Iterator[Found]:
    yield from reference(context, (*loc, "domain"), "domain", budget.domain, "power domain")


def _scope_of_budget(context: Context, budget: BudgetDocument, loc: Loc) -> Iterator[Found]:
    if budget.applies_to is not None:
        yield from _scope(context, budget.applies_to, (*loc, "applies_to"))


def _scope(context: Context, scope: ScopeDocument, loc: Loc) -> Iterator[Found]:
    """Exactly one of site, pool and queue, and that exists."""
    named = given(scope, *SCOPES)
    if not named:
        yield Found(loc, problem("spec.needs-one-of", fields=", ".join(SCOPES), advice="name one"), "key")
    for extra in named[1:]:
        found = problem("spec.exclusive-fields", field=extra, other=named[0], advice="name one of them")
        yield Found((*loc, extra), found, "key")
    for field in named[:1]:
        yield from reference(context, (*loc, field), field, getattr(scope, field))


def _windows(budget: BudgetDocument, loc: Loc) -> Iterator[Found]:
    for index, window in rows(budget.windows):
        yield from run((_window,), window, (*loc, "windows", index))


def _window(window: WindowDocument, loc: Loc) -> Iterator[Found]:
    if window.from_ == window.to:
        yield Found((*loc, "to"), problem("spec.zero-window"))


# --- access ----------------------------------------------------------------------------------------------------------


def groups(context: Context) -> Iterator[Found]:
    """A group says who is in it."""
    for name, group in context.document.access.groups.items():
        yield from run((_group,), group, ("access", "groups", name))


def _group(group: GroupDocument, loc: Loc) -> Iterator[Found]:
    if not given(group, *WAYS):
        yield Found(
            loc, problem("spec.needs-one-of", fields=", ".join(WAYS), advice="say who is in it"), "key"
        )


def grants(context: Context) -> Iterator[Found]:
    """A grant goes to a group that exists, on something that exists."""
    for index, grant in rows(context.document.access.grants):
        yield from run((_grant_to, _grant_on), context, grant, ("access", "grants", index))


def _grant_to(context: Context, grant: GrantDocument, loc: Loc) -> Iterator[Found]:
    yield from reference(context, (*loc, "to"), "group", grant.to)


def _grant_on(context: Context, grant: GrantDocument, loc: Loc) -> Iterator[Found]:
    if grant.on is not None:
        yield from _scope(context, grant.on, (*loc, "on"))


NAMES = (queues, queue_circles, budgets, groups, grants)
PLACES = (models,)
