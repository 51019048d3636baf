"""What the Pulumi program needs to know of an account and can't compute: images, zones, whose account it is.

Comes in: a spec, a site, the facts of an earlier run, a session of boto3. Goes out: `SiteInputs`. Called by: the
command and stacks/aws, before the program runs, and live_asks (zones); nothing here changes anything.

What the facts know is not asked again: the same words keep the image that they had, the region keeps its zones.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.model.catalog import Catalog
from orchestrator.model.cluster import ClusterSpec, Site
from orchestrator.model.errors import GanglineError, InputError, Unavailable
from orchestrator.model.stack_facts import StackFacts
from orchestrator.provision.aws import boot
from orchestrator.provision.aws import facts as facts_of
from orchestrator.provision.aws.inputs import ImagePin, SiteInputs, all_words

PARAMETER = "ssm:"
GIT_S = 10


def run_inputs(
    spec: ClusterSpec,
    site_name: str,
    uid: str,
    catalog: Catalog,
    *,
    authority: str = "",
    commit: str = "",
    released: frozenset[str] = frozenset(),
) -> SiteInputs:
    """All of a run's inputs, for the command and `pulumi up` alike. `authority`: the SHA-256 (hex) of the authority
    that nodes trust, empty: the system's; `released`: storages that may be deleted. Raises what `look_up` raises."""
    found = look_up(spec, site_name, uid, catalog)
    return replace(found, commit=commit, boot=boot.of_cluster(spec, authority), released=released)


def look_up(
    spec: ClusterSpec,
    site_name: str,
    uid: str,
    catalog: Catalog,
    session: Any = None,
    anew: frozenset[str] = frozenset(),
) -> SiteInputs:
    """The inputs of a site's program, without what `run_inputs` adds: boot, commit, what is released.

    `session` is boto3's for the site's region (None: made of the environment); words in `anew` are looked up again.
    Raises InputError for words that mean nothing there, Unavailable where AWS does not answer.
    """
    site = spec.site(site_name)
    session = session or boto3.session.Session(region_name=site.region)
    try:
        return _look_up(spec, site, uid, catalog, session, anew)
    except ClientError as error:
        raise _refused(error, site) from error
    except BotoCoreError as error:
        hint = "check the credentials (AWS_PROFILE, or AWS_ACCESS_KEY_ID) and the way to AWS"
        raise Unavailable("aws.unreachable", f"AWS can't be asked: {error}", hint, _path(site)) from error


def _look_up(
    spec: ClusterSpec, site: Site, uid: str, catalog: Catalog, session: Any, anew: frozenset[str]
) -> SiteInputs:
    region, ssm, ec2 = site.region, session.client("ssm"), session.client("ec2")
    known = facts_of.read(ssm, spec.name, uid, site.name)
    return SiteInputs(
        spec=spec,
        site_name=site.name,
        uid=uid,
        account=session.client("sts").get_caller_identity()["Account"],
        catalog=catalog,
        zones=zones_of(site, known, ec2),
        images=tuple(_pins(all_words(spec, site.name), known, anew, ssm, ec2, site)),
        facts=known,
        partition=session.get_partition_for_region(region),
    )


def zones_of(site: Site, known: StackFacts | None, ec2: Any) -> tuple[str, ...]:
    """The zones of the file; without any, those of the facts, else all plain ones of the region."""
    if site.vpc.id:
        return tuple(sorted(one.name for one in site.vpc.subnets))
    if site.zones:
        return tuple(sorted(site.zones))
    if known is not None and known.subnets:
        return tuple(sorted(one.zone for one in known.subnets))
    filters = [{"Name": "zone-type", "Values": ["availability-zone"]}]
    answer = ec2.describe_availability_zones(Filters=filters)
    return tuple(sorted(zone["ZoneName"] for zone in answer["AvailabilityZones"]))


def _pins(
    words: Iterable[str],
    known: StackFacts | None,
    anew: frozenset[str],
    ssm: Any,
    ec2: Any,
    site: Site,
) -> Iterable[ImagePin]:
    for one in words:
        image = known.image(one) if known is not None and one not in anew else ""
        image = image or _image(one, ssm, site)
        root = (known.root(image) if known is not None else "") or _root(image, ec2, site)
        yield ImagePin(one, image, root)


def _image(words: str, ssm: Any, site: Site) -> str:
    if not words.startswith(PARAMETER):
        return words
    name = words.removeprefix(PARAMETER)
    try:
        return str(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        hint = f"`aws ssm get-parameter --region {site.region} --name {name}` shows what there is"
        raise InputError(
            "aws.no-image", f"there is no parameter '{name}' that names an image", hint, _path(site, "image")
        ) from None


def _root(image: str, ec2: Any, site: Site) -> str:
    hint = "it is gone, or it is not shared with this account: name another image"
    try:
        found = ec2.describe_images(ImageIds=[image])["Images"]
    except ClientError as error:
        if not error.response["Error"]["Code"].startswith("InvalidAMIID"):
            raise
        found = []
    if not found:
        raise InputError(
            "aws.no-image", f"there is no image '{image}' in {site.region}", hint, _path(site, "image")
        )
    return str(found[0].get("RootDeviceName") or "/dev/sda1")


def _refused(error: ClientError, site: Site) -> GanglineError:
    code, words = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
    hint = "check the credentials (AWS_PROFILE, or AWS_ACCESS_KEY_ID), and what they may do"
    return Unavailable(
        "aws.refused", f"AWS refused {error.operation_name}: {words or code}", hint, _path(site)
    )


def _path(site: Site, *parts: str) -> str:
    return ".".join((f"sites[{site.name}]", *parts))


def commit_of(folder: Path) -> str:
    """The commit of the user's repository that the folder is in, or empty where there is none, or no git."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
