"""All that the Pulumi program of one aws site depends on, and what follows from it without asking anybody.

Comes in: a spec, the catalog, the facts that an earlier run left, what `lookups` found. Goes out: `SiteInputs`. Called
by: lookups (builds it), program and its components (read it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.model.catalog import Catalog, InstanceType
from orchestrator.model.cluster import ClusterSpec, Market, Pool, Site
from orchestrator.model.errors import InputError
from orchestrator.model.ids import UID_FORM, is_uid
from orchestrator.model.stack_facts import StackFacts
from orchestrator.planning.stacks import aws_sites

# The public parameters of AWS and of Debian that name their newest image. Neither was asked for in an account.
NODE_IMAGE = "ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
CONTROLLER_IMAGE = "ssm:/aws/service/debian/release/12/latest/amd64"
RESERVED = (Market.CAPACITY_RESERVATION, Market.CAPACITY_BLOCK)

Boot = Callable[[Pool, str], str]


def no_boot(pool: Pool, node: str) -> str:
    """User-data of nodes whose image starts the agent by itself."""
    return ""


@dataclass(frozen=True, slots=True)
class ImagePin:
    """What words of the file mean: an AMI id, and the device name of its root disk."""

    words: str
    image: str
    root: str


@dataclass(frozen=True, slots=True)
class SiteInputs:
    """The arguments of `program.declare`.

    `zones` are those of the file, or of the region where it names none; `images` has a pin for every words that
    `words_of` gives. `boot(pool, node)` makes user-data; for a template it gets the empty name. `released` names
    storages that may be deleted; `held` fixed nodes that stay as they are, since their turn comes later.
    """

    spec: ClusterSpec
    site_name: str
    uid: str
    account: str
    catalog: Catalog
    zones: tuple[str, ...]
    images: tuple[ImagePin, ...]
    facts: StackFacts | None = None
    partition: str = "aws"
    commit: str = ""
    boot: Boot = no_boot
    controller_boot: str = ""
    released: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()

    @property
    def site(self) -> Site:
        """The site that is declared."""
        return self.spec.site(self.site_name)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools that stand on it."""
        return tuple(pool for pool in self.spec.pools if pool.site == self.site_name)

    def image(self, words: str) -> ImagePin:
        """The pin of an image's words; InputError if nobody looked it up."""
        for pin in self.images:
            if pin.words == words:
                return pin
        raise InputError(
            "aws.image-unknown", f"image '{words}' was not looked up", "run the plan again", words
        )

    def home(self, what: str) -> str:
        """The zone in which `what` stands: where it stood before, else the first one."""
        before = self.facts.home(what) if self.facts is not None else ""
        return before if before in self.zones else min(self.zones)

    def type_of(self, pool: Pool, name: str) -> InstanceType:
        """What the catalog says of a type; InputError if it does not know it, since its network cards must be known."""
        found = self.catalog.instances.get(name)
        if found is None and pool.fabric.kind != "efa":
            return InstanceType(name, 0, 0, "", 0)
        if found is None:
            hint = "a pool with EFA needs a type whose network cards the catalog knows"
            raise InputError(
                "aws.unknown-type",
                f"instance type '{name}' is not in the catalog",
                hint,
                f"pools[{pool.name}]",
            )
        return found

    def controller_here(self) -> bool:
        """Whether the controller's instance stands on this site."""
        instance = self.spec.controller.instance
        return instance is not None and instance.site == self.site_name


def words_of(site: Site, pool: Pool | None) -> str:
    """The words for the image of a pool's nodes, or of the controller (no pool)."""
    if pool is None:
        return site.image or CONTROLLER_IMAGE
    return pool.image or site.image or NODE_IMAGE


def all_words(spec: ClusterSpec, site_name: str) -> tuple[str, ...]:
    """Every words for an image that the site needs, sorted."""
    site = spec.site(site_name)
    words = {words_of(site, pool) for pool in spec.pools if pool.site == site_name}
    instance = spec.controller.instance
    if instance is not None and instance.site == site_name:
        words.add(words_of(site, None))
    return tuple(sorted(words))


def chosen_site(spec: ClusterSpec, name: str) -> str:
    """The site of that name, or the only one of kind aws. InputError if there is none, or several to choose from."""
    known = aws_sites(spec)
    if name in known or (not name and len(known) == 1):
        return name or known[0]
    words = f"there is no site '{name}' of kind aws" if name else f"{len(known)} sites are of kind aws"
    hint = f"name one of {', '.join(known)}" if known else "the file needs a site of kind aws"
    raise InputError("aws.which-site", words, hint, "sites")


def checked_uid(uid: str) -> str:
    """The uid, if it is one. InputError else: resources without it could never be found again."""
    if is_uid(uid):
        return uid
    words = f"'{uid}' is no uid of a cluster" if uid else "the cluster has no uid here"
    hint = f"{UID_FORM}, minted once: `pulumi config set gangline:uid UID`"
    raise InputError("aws.no-uid", words, hint)
