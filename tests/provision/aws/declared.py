"""Runs the Pulumi program of a site against mocks and keeps what it declares.

Comes in: a cluster document, facts, what else `SiteInputs` has. Goes out: `Declared`s by name. Called by: the unit
tests beside this file. No engine, no socket: the program runs in this thread and every answer is made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pulumi
import pulumi.runtime.resource
from pulumi.runtime.mocks import MockMonitor, MockResourceArgs, Mocks
from pulumi.runtime.proto import source_pb2

from orchestrator import catalog
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.stack_facts import StackFacts
from orchestrator.provision.aws import facts, program
from orchestrator.provision.aws.inputs import ImagePin, SiteInputs, all_words
from orchestrator.spec.load import load_cluster_text

UID = "k3s8d0a1b2c3"
ACCOUNT = "123456789012"
ZONES = ("us-east-1a", "us-east-1b")
COMPONENT = "gangline:"


@dataclass(frozen=True)
class Declared:
    """One resource as the engine would hear of it."""

    urn: str
    type: str
    name: str
    inputs: dict[str, Any]
    protect: bool
    retain: bool
    ignore: tuple[str, ...]
    trigger: str
    parent: str
    depends: tuple[str, ...]
    delete_first: bool


@dataclass
class Site:
    """All that one run declared."""

    found: list[Declared] = field(default_factory=list)

    def all(self, kind: str) -> list[Declared]:
        """Those whose type ends with that word, as in `LaunchTemplate`."""
        return [one for one in self.found if one.type.rpartition(":")[2] == kind]

    def one(self, kind: str, name: str) -> Declared:
        """The one of that type and name."""
        (found,) = [one for one in self.all(kind) if one.name == name]
        return found

    def names(self, kind: str) -> list[str]:
        """Sorted names of all of a type."""
        return sorted(one.name for one in self.all(kind))

    def custom(self) -> list[Declared]:
        """What would be in the account."""
        return [one for one in self.found if not one.type.startswith((COMPONENT, "pulumi:"))]

    @property
    def facts(self) -> StackFacts:
        """What would be in the parameter."""
        return facts.parse(self.one("Parameter", "facts").inputs["insecureValue"])

    def golden(self) -> dict[str, Any]:
        """Inputs and options by URN, in a form that reads well as JSON."""
        return {
            one.urn: {
                "inputs": one.inputs,
                **({"protect": True, "retain_on_delete": one.retain} if one.protect else {}),
                **({"ignore_changes": list(one.ignore)} if one.ignore else {}),
                **({"replacement_trigger": one.trigger} if one.trigger else {}),
                **({"delete_before_replace": True} if one.delete_first else {}),
            }
            for one in sorted(self.found, key=lambda one: one.urn)
        }


# What only AWS knows of a new resource, by the last word of its type.
_ANSWERS: dict[str, dict[str, Any]] = {
    "LaunchTemplate": {"latestVersion": 1, "defaultVersion": 1},
    "Instance": {"privateIp": "10.64.0.10"},
    "LustreFileSystem": {"mountName": "abcdefgh"},
}


class _Answers(Mocks):
    def call(self, args: Any) -> Any:
        raise AssertionError(f"the program looks something up: {args.token}")

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        kind = args.typ.rpartition(":")[2]
        arn = f"arn:aws:{kind.lower()}::{ACCOUNT}:{args.name}"
        return f"{kind}/{args.name}", {"arn": arn, **args.inputs, **_ANSWERS.get(kind, {})}


class _Monitor(MockMonitor):
    def __init__(self, site: Site) -> None:
        super().__init__(_Answers())
        self.site = site

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (gRPC's name)
        answer = super().RegisterResource(request)  # type: ignore[no-untyped-call]
        if request.type != "pulumi:pulumi:Stack":
            inputs = pulumi.runtime.rpc.deserialize_properties(request.object)
            self.site.found.append(
                Declared(
                    urn=answer.urn,
                    type=request.type,
                    name=request.name,
                    inputs=inputs,
                    protect=request.protect,
                    retain=request.retainOnDelete,
                    ignore=tuple(request.ignoreChanges),
                    trigger=request.replacement_trigger.string_value,
                    parent=request.parent,
                    depends=tuple(request.dependencies),
                    delete_first=request.deleteBeforeReplace,
                )
            )
        return answer


def cluster(text: str) -> ClusterSpec:
    """The model of a document that must be right."""
    loaded = load_cluster_text(text, "cluster.yaml")
    assert loaded.cluster is not None, loaded.errors
    return loaded.cluster


def inputs_of(text: str, site: str = "use1", zones: Iterable[str] = ZONES, **more: Any) -> SiteInputs:
    """Inputs as `lookups` would make them, with an image for every words."""
    spec = cluster(text)
    pins = tuple(ImagePin(words, pinned(words), "/dev/sda1") for words in all_words(spec, site))
    kept = spec.site(site)
    known = tuple(one.name for one in kept.vpc.subnets) or kept.zones or tuple(zones)
    return SiteInputs(
        spec=spec,
        site_name=site,
        uid=UID,
        account=ACCOUNT,
        catalog=catalog.load(),
        zones=tuple(sorted(known)),
        images=pins,
        **more,
    )


def pinned(words: str) -> str:
    """The image that words mean here."""
    return words if words.startswith("ami-") else f"ami-{abs(sum(map(ord, words))):017x}"


# Where in the program each resource was made, for the engine to show: a third of a run here, where nobody reads it.
_NO_TRACES = mock.patch.object(pulumi.runtime.resource, "_get_stack_trace", source_pb2.StackTrace)


def declare(inputs: SiteInputs) -> Site:
    """Run the program; its errors come out as they are."""
    site = Site()
    real, loops = asyncio.new_event_loop, list[asyncio.AbstractEventLoop]()

    def made() -> asyncio.AbstractEventLoop:
        loops.append(real())
        return loops[-1]

    asyncio.set_event_loop(made())  # Pulumi takes the thread's, which another test may have ended
    pulumi.runtime.set_mocks(_Answers(), project="gangline", stack="dev", monitor=_Monitor(site))

    try:
        with _NO_TRACES, mock.patch.object(asyncio, "new_event_loop", made):
            pulumi.runtime.test(lambda: program.declare(inputs))()  # type: ignore[no-untyped-call]
    finally:
        asyncio.set_event_loop(None)
        for loop in loops:  # its threads leave theirs open
            loop.close()
    return site
