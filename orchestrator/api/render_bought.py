"""What is bought, as the API shows it.

Comes in: the views of bought pools and nodes. Goes out: models of `wire.api_cluster`. Called by: render_cluster.
"""

from __future__ import annotations

from typing import Literal

from orchestrator.autoscale import Policy
from orchestrator.controller.view_capacity import BoughtView, PoolView
from orchestrator.model.capacity import NEVER_US, Circuit
from orchestrator.wire import api_cluster as wire
from orchestrator.wire.api import time_of

DOLLAR = 1_000_000  # micro-dollars


def node(view: BoughtView) -> wire.Bought:
    """Why a node exists, and how far it is."""
    state: Literal["booting", "ready", "releasing"] = "ready" if view.proved_us else "booting"
    return wire.Bought(
        instance=view.instance,
        intent=view.intent,
        type=view.offering.type,
        market=view.offering.market,
        zone=view.offering.zone,
        state="releasing" if view.releasing_us else state,
        why=view.why,
        job=view.job or None,
        launched_at=time_of(view.launched_us),
        usd_per_hour=view.microusd_per_hour / DOLLAR,
    )


def pool(view: PoolView, now_us: int) -> wire.BoughtPool:
    """A pool, what was tried for it, and what keeps it."""
    return wire.BoughtPool(
        pool=view.name,
        site=view.site,
        least=view.least,
        most=view.most,
        asked=view.asked,
        booting=view.booting,
        ready=view.ready,
        releasing=view.releasing,
        usd_per_hour=view.microusd_per_hour / DOLLAR,
        billed_s=view.billed_s,
        billed_usd=view.billed_microusd / DOLLAR,
        blocked=_blocked(view, now_us),
        offerings=[_offering(one, now_us) for one in view.offerings],
        stuck=[f"{name}: {why}" for name, why in view.stuck],
    )


def _blocked(view: PoolView, now_us: int) -> str:
    if view.boot_failures >= Policy().most_boot_failures:
        return f"{view.boot_failures} nodes in a row did not become ready in time"
    if view.halt is not None and now_us < view.halt.retry_us:
        return view.halt.words
    return view.blocked


def _offering(one: Circuit, now_us: int) -> wire.OfferingState:
    resting = now_us < one.retry_us
    state: Literal["open", "resting", "out"] = "resting" if resting else "open"
    return wire.OfferingState(
        type=one.key.type,
        market=one.key.market,
        zone=one.key.zone,
        reservation=one.key.reservation,
        state="out" if one.retry_us >= NEVER_US else state,
        at_once=one.at_once,
        failures=one.failures,
        fault=str(one.fault) if one.fault is not None else "",
        words=one.words,
        retry_at=time_of(one.retry_us) if resting and one.retry_us < NEVER_US else None,
    )
