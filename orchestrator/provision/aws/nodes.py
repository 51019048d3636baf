"""Launch templates of an aws site's pools, and the nodes that it keeps by name.

Comes in: `NodesArgs`. Goes out: templates and fixed nodes, as resources and as what the facts say of them. Called by:
program.

A running fixed node is replaced for what it means (type, image, zone, disk, key, fabric, reservation), never because a
template has a new version or user-data a new word: the digest of the meaning is the trigger of its replacement, and as
long as the facts know the node by the same digest its template and user-data are left out of the comparison. They can't
be left out always: Pulumi then hands the old ones to the instance that replaces it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pulumi
from pulumi_aws import ec2

from orchestrator.model.cluster import DEFAULT_ROOT_VOLUME, Market, Offering, Pool
from orchestrator.model.stack_facts import FixedFact, TemplateFact
from orchestrator.planning.digest import digest_of_plain
from orchestrator.provision.aws import security
from orchestrator.provision.aws.fabric import PLAIN, Interface, interfaces, wants_efa, wants_placement
from orchestrator.provision.aws.inputs import RESERVED, SiteInputs, words_of
from orchestrator.provision.aws.marks import Marks

GIB = 2**30
VOLUME_TYPE = "gp3"


@dataclass(frozen=True, slots=True)
class NodesArgs:
    """`subnets` and `public` by zone, `groups` (placement) by pool and zone. Nodes start `after` those,
    and end before them."""

    marks: Marks
    inputs: SiteInputs
    subnets: Mapping[str, pulumi.Input[str]]
    public: Mapping[str, pulumi.Input[str]]
    security_group: pulumi.Input[str]
    profile: pulumi.Input[str]
    groups: Mapping[tuple[str, str], pulumi.Output[str]]
    after: tuple[pulumi.Resource, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """One launch template: a pool's nodes of one type, bought by one offering; `zone` of fixed nodes only. `beside`:
    the type is bought on demand as well, by a template of its own."""

    pool: Pool
    offering: Offering
    type: str
    zone: str = ""
    beside: bool = False

    @property
    def spot(self) -> bool:
        """Whether a spot request is made with each launch."""
        return self.offering.market == Market.SPOT

    @property
    def name(self) -> str:
        """The Pulumi name, made of the file's words."""
        market = str(self.offering.market) if self.beside else ""
        words = ("template", self.pool.name, self.type, self.offering.reservation, market)
        return "-".join(word for word in words if word)


class Nodes(pulumi.ComponentResource):
    """All templates of the site, and all fixed nodes."""

    def __init__(self, name: str, args: NodesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangline:aws:Nodes", name, None, opts)
        self._args = args
        self._child = pulumi.ResourceOptions(parent=self)
        self.templates: list[pulumi.Output[TemplateFact]] = []
        self.fixed: list[pulumi.Output[FixedFact]] = []
        for pool in args.inputs.pools:
            for wanted in templates_of(pool, args.inputs):
                self._declare(wanted)
        self.register_outputs({"templates": len(self.templates), "fixed": len(self.fixed)})

    def _declare(self, wanted: Wanted) -> None:
        template = self._template(wanted)
        self.templates.append(self._template_fact(wanted, template))
        for node in wanted.pool.nodes:
            self.fixed.append(self._node(wanted, node, template))

    # --- templates ---------------------------------------------------------------------------------------------

    def _template(self, wanted: Wanted) -> ec2.LaunchTemplate:
        args, pool = self._args, wanted.pool
        pin = args.inputs.image(words_of(args.inputs.site, pool))
        text = args.inputs.boot(pool, "")
        return ec2.LaunchTemplate(
            wanted.name,
            name=args.marks.name(wanted.name.removeprefix("template-")),
            image_id=pin.image,
            instance_type=wanted.type,
            iam_instance_profile=ec2.LaunchTemplateIamInstanceProfileArgs(name=args.profile),
            network_interfaces=self._interfaces(wanted),
            block_device_mappings=[self._disk(pool, pin.root)],
            metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=security.HOPS
            ),
            placement=self._placement(wanted),
            capacity_reservation_specification=_reservation(wanted.offering),
            instance_market_options=_market(wanted.offering),
            # An elastic node that goes down is done for; one with a name may be started again.
            instance_initiated_shutdown_behavior="stop" if pool.nodes else "terminate",
            tag_specifications=self._tags(wanted),
            user_data=_base64(text) if text else None,
            update_default_version=True,
            tags=args.marks.tags(wanted.name, pool=pool.name),
            opts=self._child,
        )

    def _interfaces(self, wanted: Wanted) -> list[ec2.LaunchTemplateNetworkInterfaceArgs]:
        kind = self._args.inputs.type_of(wanted.pool, wanted.type)
        found = interfaces(kind, wants_efa(wanted.pool))
        return [self._interface(wanted, one, alone=len(found) == 1) for one in found]

    def _interface(
        self, wanted: Wanted, one: Interface, alone: bool
    ) -> ec2.LaunchTemplateNetworkInterfaceArgs:
        """A fleet says the subnet itself; a single instance can't beside interfaces, so its template has it. A public
        address is asked for where there is one interface: EC2 gives none to several."""
        public = wanted.pool.public_address
        subnets = self._args.public if public else self._args.subnets
        return ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=one.card,
            device_index=one.device,
            interface_type=None if one.kind == PLAIN else one.kind,
            security_groups=[self._args.security_group],
            subnet_id=subnets[wanted.zone] if wanted.zone else None,
            associate_public_ip_address=("true" if public else "false") if alone else None,
            delete_on_termination="true",
        )

    def _disk(self, pool: Pool, device: str) -> ec2.LaunchTemplateBlockDeviceMappingArgs:
        return ec2.LaunchTemplateBlockDeviceMappingArgs(
            device_name=device,
            ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                volume_size=root_gib(pool),
                volume_type=VOLUME_TYPE,
                encrypted="true",
                kms_key_id=self._args.inputs.site.kms_key or None,
                delete_on_termination="true",
            ),
        )

    def _group(self, wanted: Wanted) -> pulumi.Output[str] | None:
        """The placement group that stands in the template: of the one zone where its nodes can be."""
        zones = (wanted.zone,) if wanted.zone else self._args.inputs.zones
        if len(zones) != 1 or not wants_placement(wanted.pool, wanted.offering):
            return None
        return self._args.groups[wanted.pool.name, zones[0]]

    def _placement(self, wanted: Wanted) -> ec2.LaunchTemplatePlacementArgs | None:
        group = self._group(wanted)
        return None if group is None else ec2.LaunchTemplatePlacementArgs(group_name=group)

    def _tags(self, wanted: Wanted) -> list[ec2.LaunchTemplateTagSpecificationArgs]:
        """All that a launch makes is marked as it is made. EC2 refuses marks of a spot request where none is made."""
        tags = self._args.marks.tags(wanted.pool.name, pool=wanted.pool.name)
        kinds = [
            "instance",
            "volume",
            "network-interface",
            *(["spot-instances-request"] if wanted.spot else []),
        ]
        return [ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags) for kind in kinds]

    def _template_fact(self, wanted: Wanted, template: ec2.LaunchTemplate) -> pulumi.Output[TemplateFact]:
        pin = self._args.inputs.image(words_of(self._args.inputs.site, wanted.pool))
        group: pulumi.Input[str] = self._group(wanted) or ""
        meaning = self._meaning(wanted)
        return pulumi.Output.all(template.id, template.latest_version, group).apply(
            lambda found: TemplateFact(
                pool=wanted.pool.name,
                type=wanted.type,
                id=found[0],
                version=int(found[1]),
                image=pin.image,
                placement=found[2],
                reservation=wanted.offering.reservation,
                meaning=meaning,
                spot=wanted.spot,
                grouped=wants_placement(wanted.pool, wanted.offering),
                public=wanted.pool.public_address,
            )
        )

    # --- fixed nodes -------------------------------------------------------------------------------------------

    def _node(self, wanted: Wanted, node: str, template: ec2.LaunchTemplate) -> pulumi.Output[FixedFact]:
        inputs, pool = self._args.inputs, wanted.pool
        meaning, before = self._meaning(wanted), _meaning_before(inputs, node)
        text = inputs.boot(pool, node)
        # A held node still is what it was: its next run has to see that it is to be replaced.
        told = before if node in inputs.held and before else meaning
        instance = ec2.Instance(
            node,
            launch_template=ec2.InstanceLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            user_data=text if text and text != inputs.boot(pool, "") else None,
            tags=self._args.marks.tags(node, pool=pool.name, node=node),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(self._args.after),
                # What a node is started in may be all there is: a reservation, a quota, a block.
                delete_before_replace=True,
                replacement_trigger=meaning,
                ignore_changes=["launchTemplate", "userData"] if before == meaning else None,
            ),
        )
        return pulumi.Output.all(instance.id, instance.private_ip).apply(
            lambda found: FixedFact(node, pool.name, found[0], found[1] or "", told)
        )

    def _meaning(self, wanted: Wanted) -> str:
        """The digest of all that a node is replaced for. A value at its default is not in it, so that a newer
        Gangline with more to say gives old nodes the digest that they have."""
        inputs, pool = self._args.inputs, wanted.pool
        kept = {one.name: one.id for one in inputs.site.vpc.subnets}
        meant: dict[str, object] = {
            "type": wanted.type,
            "image": inputs.image(words_of(inputs.site, pool)).image,
            "zone": wanted.zone,
            "subnet": kept.get(wanted.zone, ""),
            "disk": root_gib(pool),
            "kms": inputs.site.kms_key,
            "efa": wants_efa(pool),
            "public": pool.public_address,
            "placement": wants_placement(pool, wanted.offering),
            "market": "" if wanted.offering.market == Market.ON_DEMAND else str(wanted.offering.market),
            "reservation": wanted.offering.reservation,
        }
        return digest_of_plain({key: value for key, value in meant.items() if value})[:16]


def templates_of(pool: Pool, inputs: SiteInputs) -> tuple[Wanted, ...]:
    """The templates that a pool needs: one for its fixed nodes, else one for each type, reservation, and spot."""
    if pool.nodes:
        offering = pool.offerings[0]
        return (Wanted(pool, offering, offering.types[0], inputs.home(f"pool/{pool.name}")),)
    found: dict[tuple[str, str, bool], Wanted] = {}
    for offering in pool.offerings:
        for name in offering.types:
            wanted = Wanted(pool, offering, name)
            found.setdefault((name, offering.reservation, wanted.spot), wanted)
    return tuple(replace(found[key], beside=key[2] and (*key[:2], False) in found) for key in sorted(found))


def root_gib(pool: Pool) -> int:
    """The size of a node's root disk in GiB, as EBS counts."""
    return -(-(pool.root_volume or DEFAULT_ROOT_VOLUME) // GIB)


def _meaning_before(inputs: SiteInputs, node: str) -> str:
    fact = inputs.facts.fixed_node(node) if inputs.facts is not None else None
    return fact.meaning if fact is not None else ""


def _reservation(offering: Offering) -> ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    if offering.market not in RESERVED:
        return None
    target = ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=offering.reservation
    )
    return ec2.LaunchTemplateCapacityReservationSpecificationArgs(capacity_reservation_target=target)


def _market(offering: Offering) -> ec2.LaunchTemplateInstanceMarketOptionsArgs | None:
    """Only a capacity block has a market of its own in the template: spot is said by the fleet."""
    if offering.market != Market.CAPACITY_BLOCK:
        return None
    return ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
