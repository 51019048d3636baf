"""Checks of what is bought from AWS: the controller's instance, fixed nodes, what EC2 refuses.

Comes in: `Context`. Goes out: faults. Called by: `checks`.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.spec.context import Context, given, reference, rows, run
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster_sites import AwsSite
from orchestrator.wire.faults import problem


def controller_instance(context: Context) -> Iterator[Found]:
    """A controller that is bought stands on a site of kind aws, and nowhere else besides."""
    instance = context.document.controller.instance
    if instance is None:
        return
    loc = ("controller", "instance")
    if given(context.document.controller, "host"):
        advice = "it runs on one of them"
        found = problem("spec.exclusive-fields", field="instance", other="host", advice=advice)
        yield Found(loc, found, "key")
    yield from run((_site_of_instance,), context, instance.site)


def _site_of_instance(context: Context, name: str) -> Iterator[Found]:
    loc = ("controller", "instance", "site")
    yield from reference(context, loc, "site", name)
    for _, site in rows(context.document.sites):
        if site.name == name and not isinstance(site, AwsSite):
            advice = "name a site of kind aws, or use controller.host"
            found = problem(
                "spec.not-for-kind", what="site", kind=site.kind, field="controller.instance", advice=advice
            )
            yield Found(loc, found)


NAMES = (controller_instance,)
