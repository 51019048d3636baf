"""The Pulumi program of one aws site: a function of its inputs, for `pulumi up` and the Automation API alike.

Comes in: `SiteInputs`. Goes out: resources that are declared, the facts in a parameter and as outputs of the stack.
Called by: stack (`gangline apply`), stacks/aws (`pulumi up`). Nothing is looked up here: no clock, no environment.

Names of resources are made of names in the file, so that order means nothing and removing one thing touches it alone.
"""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws
from pulumi_aws import ssm

from orchestrator.model.cluster import StorageKind
from orchestrator.model.codec import encode
from orchestrator.model.errors import InputError
from orchestrator.model.stack_facts import FixedFact, PlacementFact, StackFacts, SubnetFact
from orchestrator.planning.stack_digest import stack_digest
from orchestrator.provision.aws import facts
from orchestrator.provision.aws.controller_host import ControllerArgs, ControllerHost
from orchestrator.provision.aws.fabric import Fabric, FabricArgs, pool_placement
from orchestrator.provision.aws.inputs import SiteInputs
from orchestrator.provision.aws.marks import Marks
from orchestrator.provision.aws.network import Network, NetworkArgs
from orchestrator.provision.aws.nodes import Nodes, NodesArgs
from orchestrator.provision.aws.security import Security, SecurityArgs
from orchestrator.provision.aws.storage import StorageArgs, Storages, storages_of


def declare(inputs: SiteInputs) -> None:
    """Declare all of the site. Raises InputError, with the place in the file, for what AWS can't be asked for."""
    _check(inputs)
    made = AwsSite(inputs)
    pulumi.export("facts", made.facts.apply(encode))


class AwsSite(pulumi.ComponentResource):
    """Everything of one site, in the order in which it is needed."""

    def __init__(self, inputs: SiteInputs) -> None:
        marks = Marks(inputs.uid, inputs.spec.name, inputs.site_name, inputs.site.tags)
        provider = _provider(inputs)
        super().__init__(
            "gangline:aws:Site",
            f"{inputs.spec.name}-{inputs.site_name}",
            None,
            pulumi.ResourceOptions(providers={"aws": provider}),
        )
        child = pulumi.ResourceOptions(parent=self)
        self._inputs, self._marks = inputs, marks
        self.network = Network("network", _network(inputs, marks), child)
        self.security = Security(
            "security",
            SecurityArgs(marks, self.network.vpc_id, inputs.partition, inputs.site.permissions_boundary),
            child,
        )
        self.fabric = Fabric("fabric", FabricArgs(marks, _grouped(inputs)), child)
        self.storages = Storages(
            "storage", StorageArgs(marks, inputs, self.network.private, self.security.group), child
        )
        self.nodes = Nodes("nodes", self._nodes(), child)
        self.controller = self._controller(child)
        self.facts = self._facts()
        _parameter(inputs, marks, self.facts, child)
        self.register_outputs({"facts": facts.parameter_name(inputs.spec.name, inputs.uid, inputs.site_name)})

    def _nodes(self) -> NodesArgs:
        return NodesArgs(
            self._marks,
            self._inputs,
            self.network.private,
            self.network.public,
            self.security.group,
            self.security.profile,
            self.fabric.groups,
            (self.network, self.security),
        )

    def _controller(self, child: pulumi.ResourceOptions) -> ControllerHost | None:
        instance = self._inputs.spec.controller.instance
        if instance is None or not self._inputs.controller_here():
            return None
        args = ControllerArgs(
            self._marks,
            self._inputs,
            instance,
            self.network.vpc_id,
            self.network.cidr,
            self.network.private,
            self.security.group,
            self.security.role_arn,
            (self.network,),
        )
        return ControllerHost("controller", args, child)

    def _facts(self) -> pulumi.Output[StackFacts]:
        """The facts, once everything that they name is known."""
        found: dict[str, Any] = {
            "vpc": self.network.vpc_id,
            "private": self.network.private,
            "public": self.network.public,
            "group": self.security.group,
            "profile": self.security.profile,
            "templates": self.nodes.templates,
            "fixed": self.nodes.fixed,
            "storages": self.storages.facts,
            "placements": {f"{pool} {zone}": group for (pool, zone), group in self.fabric.groups.items()},
            "controller": self.controller.instance_id if self.controller is not None else "",
        }
        waited = [pulumi.Output.all(*found[key]) for key in ("templates", "fixed", "storages")]
        plain = {key: value for key, value in found.items() if key not in ("templates", "fixed", "storages")}
        return pulumi.Output.all(*waited, pulumi.Output.from_input(plain)).apply(
            lambda got: _assembled(self._inputs, got[0], got[1], got[2], got[3])
        )


def _assembled(
    inputs: SiteInputs, templates: list[Any], fixed: list[Any], storages: list[Any], plain: dict[str, Any]
) -> StackFacts:
    before = inputs.facts
    digest, commit = _brought_to(inputs)
    images = {pin.words: pin.image for pin in inputs.images}
    roots = {pin.image: pin.root for pin in inputs.images}
    placements = [
        PlacementFact(pool, zone, group)
        for key, group in sorted(plain["placements"].items())
        for pool, zone in [key.split(" ", 1)]
    ]
    return StackFacts(
        cluster=inputs.spec.name,
        uid=inputs.uid,
        site=inputs.site_name,
        region=inputs.site.region,
        account=inputs.account,
        spec=digest,
        commit=commit,
        images=_known(before.images if before is not None else (), images),
        vpc=plain["vpc"],
        subnets=_subnets(plain["private"]),
        security_group=plain["group"],
        profile=plain["profile"],
        templates=tuple(sorted(templates, key=lambda one: (one.pool, one.type, one.reservation, one.spot))),
        fixed=tuple(sorted([*fixed, *_leaving(inputs)], key=lambda one: (one.pool, one.node))),
        storages=tuple(sorted(storages, key=lambda one: str(one.name))),
        controller=plain["controller"],
        roots=_known(before.roots if before is not None else (), roots),
        homes=_homes(inputs),
        placements=tuple(placements),
        public_subnets=_subnets(plain["public"]),
    )


def _known(before: tuple[tuple[str, str], ...], now: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """What earlier files looked up stays, beside what this one does."""
    return tuple(sorted({**dict(before), **now}.items()))


def _brought_to(inputs: SiteInputs) -> tuple[str, str]:
    """The digest of the file that the stack is brought to, and the commit which that file came with.

    A commit that changed no word's meaning leaves no trace, so that a comment alone changes nothing. As long as nodes
    are held the stack is not there yet.
    """
    before, digest = inputs.facts, stack_digest(inputs.spec, inputs.site_name)
    if before is not None and (before.spec == digest or inputs.held):
        return before.spec, before.commit
    return ("" if inputs.held else digest), inputs.commit


def _leaving(inputs: SiteInputs) -> list[FixedFact]:
    """Held nodes that the file does not have any more: they run until their turn comes."""
    named = {node for pool in inputs.pools for node in pool.nodes}
    before = inputs.facts.fixed if inputs.facts is not None else ()
    return [one for one in before if one.node in inputs.held - named]


def _subnets(by_zone: dict[str, str]) -> tuple[SubnetFact, ...]:
    return tuple(SubnetFact(zone, found) for zone, found in sorted(by_zone.items()))


def _homes(inputs: SiteInputs) -> tuple[tuple[str, str], ...]:
    """In which zone that stands which has to be in one."""
    what = ["nat"] if not inputs.site.vpc.id else []
    what += ["controller"] if inputs.controller_here() else []
    what += [f"pool/{pool.name}" for pool in inputs.pools if pool.nodes]
    lustre = [one for one in storages_of(inputs) if one.kind == StorageKind.FSX and not one.source]
    what += [f"storage/{one.name}" for one in lustre]
    return tuple((one, inputs.home(one)) for one in sorted(what))


def _grouped(inputs: SiteInputs) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The pools that want placement groups, with the zones where their nodes may stand."""
    return tuple(
        (pool.name, (inputs.home(f"pool/{pool.name}"),) if pool.nodes else inputs.zones)
        for pool in inputs.pools
        if pool_placement(pool)
    )


def _network(inputs: SiteInputs, marks: Marks) -> NetworkArgs:
    return NetworkArgs(
        marks,
        inputs.site.region,
        inputs.partition,
        inputs.zones,
        inputs.site.vpc,
        inputs.home("nat"),
        any(pool.public_address for pool in inputs.pools),
    )


def _provider(inputs: SiteInputs) -> pulumi_aws.Provider:
    """The region is the file's and the account the one that was looked at, whatever the environment says."""
    return pulumi_aws.Provider("aws", region=inputs.site.region, allowed_account_ids=[inputs.account])


def _parameter(
    inputs: SiteInputs, marks: Marks, found: pulumi.Output[StackFacts], child: pulumi.ResourceOptions
) -> None:
    ssm.Parameter(
        "facts",
        name=facts.parameter_name(inputs.spec.name, inputs.uid, inputs.site_name),
        type="String",
        tier="Intelligent-Tiering",
        description="What Gangline made on this site; written by its stack, read by its controller",
        insecure_value=found.apply(facts.render),  # `value` would be kept as a secret, which it is not
        tags=marks.tags("facts"),
        opts=child,
    )


def _check(inputs: SiteInputs) -> None:
    """Refuse what would only fail in the middle: names that meet, a public address that EC2 does not give."""
    if not inputs.zones:
        hint = "name zones, or subnets of the VPC that you keep"
        raise InputError("aws.no-zone", "the site has no zone", hint, f"sites[{inputs.site_name}].zones")
    _names_meet([node for pool in inputs.pools for node in pool.nodes], {"controller"})
    for pool in inputs.pools:
        kinds = {name for offering in pool.offerings for name in offering.types}
        cards = {name: inputs.type_of(pool, name).cards for name in sorted(kinds)}
        several = [name for name, count in cards.items() if count > 1 and pool.fabric.kind == "efa"]
        if pool.public_address and several:
            raise InputError(
                "aws.no-public-address",
                f"EC2 gives no public address to {several[0]}, which has several network interfaces here",
                "leave public_address away: nodes reach what is outside through NAT",
                f"pools[{pool.name}].public_address",
            )


def _names_meet(nodes: list[str], taken: set[str]) -> None:
    for node in nodes:
        if node in taken:
            hint = "give the node another name"
            raise InputError(
                "aws.name-taken",
                f"'{node}' is the name of something else on the site",
                hint,
                f"nodes[{node}]",
            )
