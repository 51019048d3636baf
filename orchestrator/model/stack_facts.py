"""What a stack resolved and keeps for others: the plain facts of one aws site.

Comes in: what the Pulumi program knows at its end. Goes out: `StackFacts`, kept as JSON (`model.codec`) in a parameter
of the account. Called by: provision.aws (writes and reads them), controller (launches by them), planning and cli.

A fact stays what it was: an image that was looked up once is in `images` under the words of the file, so that the same
file means the same image until somebody changes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.model.capacity import OfferingKey
from orchestrator.model.cluster_words import Market


@dataclass(frozen=True, slots=True)
class SubnetFact:
    """A private subnet for nodes."""

    zone: str
    id: str


@dataclass(frozen=True, slots=True)
class TemplateFact:
    """The launch template of one instance type of a pool. `grouped`: whether what starts from it stands in the pool's
    placement group (None: an older stack does not say, and what is reserved does not); `placement`: that group where it
    is in the template, or empty (a site with several zones has one a zone: `StackFacts.placement`); `public`: it stands
    in a public subnet; `reservation`: the capacity reservation or block that it starts in, or empty; `spot`: it is for
    the spot market alone; `meaning`: the digest of all that a node is replaced for (empty: an older stack's)."""

    pool: str
    type: str
    id: str
    version: int
    image: str
    placement: str = ""
    reservation: str = ""
    spot: bool = False
    grouped: bool | None = None
    public: bool = False
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class FixedFact:
    """A node that Pulumi keeps. `address`: its private one; `meaning`: the digest of all that a node is replaced for,
    as it was when the instance started."""

    node: str
    pool: str
    instance: str
    address: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class PlacementFact:
    """The placement group of a pool in one zone: a cluster group never spans zones. `group` is its name."""

    pool: str
    zone: str
    group: str


@dataclass(frozen=True, slots=True)
class StorageFact:
    """A file system that the stack made or was told of: its id, and what a node mounts (`source` of mount(8))."""

    name: str
    id: str
    source: str
    options: str = ""


@dataclass(frozen=True, slots=True)
class StackFacts:
    """All of one site. `spec` is the `stack_digest` of the file, `commit` the user's, or empty; `images` pairs the
    file's words with an AMI id, `roots` an AMI id with the device name of its root disk; `account` has 12 digits.

    `homes` pairs what stands in one zone (`nat`, `controller`, `pool/NAME`, `storage/NAME`) with that zone, so that
    another zone in the file moves nothing. `subnets` are private; `public_subnets` are for pools with public addresses.
    """

    cluster: str
    uid: str
    site: str
    region: str
    account: str
    spec: str
    commit: str = ""
    images: tuple[tuple[str, str], ...] = ()
    vpc: str = ""
    subnets: tuple[SubnetFact, ...] = ()
    security_group: str = ""
    profile: str = ""
    templates: tuple[TemplateFact, ...] = ()
    fixed: tuple[FixedFact, ...] = ()
    storages: tuple[StorageFact, ...] = ()
    controller: str = ""
    roots: tuple[tuple[str, str], ...] = ()
    homes: tuple[tuple[str, str], ...] = ()
    placements: tuple[PlacementFact, ...] = ()
    public_subnets: tuple[SubnetFact, ...] = ()

    def template(
        self, pool: str, instance_type: str, reservation: str = "", spot: bool = False
    ) -> TemplateFact | None:
        """The launch template for nodes of that pool, type, reservation (empty: none) and market."""
        wanted = (pool, instance_type, reservation)
        found = [one for one in self.templates if (one.pool, one.type, one.reservation) == wanted]
        # Stacks of older versions have one template for both markets.
        return next((one for is_spot in (spot, False) for one in found if one.spot == is_spot), None)

    def meaning(self, offering: OfferingKey) -> str | None:
        """What a node of that offering means now: two nodes that mean the same are alike. Empty where an older stack
        does not say; None if nothing of the kind can be launched any more."""
        spot = offering.market == Market.SPOT
        template = self.template(offering.pool, offering.type, offering.reservation, spot)
        subnet = self.subnet(template, offering.zone) if template is not None else ""
        if template is None or not subnet:
            return None
        return f"{template.meaning} {subnet}" if template.meaning else ""

    def image(self, words: str) -> str:
        """What the file's words for an image meant when they were first looked up; empty if they never were."""
        return dict(self.images).get(words, "")

    def root(self, image: str) -> str:
        """The device name of that image's root disk; empty if it was never looked up."""
        return dict(self.roots).get(image, "")

    def subnet(self, template: TemplateFact, zone: str) -> str:
        """Where nodes of that template stand in a zone; empty if there is none there."""
        subnets = self.public_subnets if template.public else self.subnets
        return next((one.id for one in subnets if one.zone == zone), "")

    def home(self, what: str) -> str:
        """The zone in which `what` stands (`nat`, `controller`, `pool/NAME`, `storage/NAME`); empty if nowhere."""
        return dict(self.homes).get(what, "")

    def placement(self, pool: str, zone: str) -> str:
        """The placement group of a pool's nodes in that zone; empty if it has none."""
        return next((one.group for one in self.placements if (one.pool, one.zone) == (pool, zone)), "")

    def fixed_node(self, node: str) -> FixedFact | None:
        """What is known of a node that Pulumi keeps."""
        return next((one for one in self.fixed if one.node == node), None)
