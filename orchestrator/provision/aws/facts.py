"""The parameter in which a stack's facts lie: its name, its text, and reading it back.

Comes in: `StackFacts`, or a client of AWS's parameter store. Goes out: a text, or the facts. Called by: program
(writes, through Pulumi), stack, controller and cli (read).
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from orchestrator.model.codec import CodecError, decode, encode
from orchestrator.model.errors import GanglineError, InputError
from orchestrator.model.stack_facts import StackFacts

PLAIN_BYTES = 4096  # the most that a parameter of the free tier holds
MOST_BYTES = 8192  # the most of any; tier Intelligent-Tiering takes the dearer one by itself
PACKED = "zlib:"


def parameter_name(cluster: str, uid: str, site: str) -> str:
    """Where the facts of a site lie."""
    return f"/gangline/{cluster}-{uid}/{site}"


def render(facts: StackFacts) -> str:
    """The parameter's text: JSON, packed where the plain one is too long.

    Raises InputError beyond what any parameter holds: some 400 fixed nodes on one site.
    """
    plain = json.dumps(encode(facts), sort_keys=True, separators=(",", ":"))
    if len(plain.encode()) <= PLAIN_BYTES:
        return plain
    packed = PACKED + base64.b64encode(zlib.compress(plain.encode(), 9)).decode()
    if len(packed) > MOST_BYTES:
        raise InputError(
            "aws.too-many-facts",
            f"what is known of the site takes {len(packed)} bytes, and a parameter holds {MOST_BYTES}",
            "divide the fixed nodes among two sites, or buy them as elastic ones",
            f"sites[{facts.site}]",
        )
    return packed


def parse(text: str) -> StackFacts:
    """The facts in a parameter's text. Raises GanglineError if it is none of Gangline's."""
    try:
        if text.startswith(PACKED):
            text = zlib.decompress(base64.b64decode(text.removeprefix(PACKED), validate=True)).decode()
        return decode(StackFacts, json.loads(text))
    except (ValueError, zlib.error, CodecError) as error:
        hint = "run `gangline apply` or `pulumi up`: it writes the parameter again"
        raise GanglineError("aws.bad-facts", f"the stack's facts can't be read: {error}", hint) from error


def read(client: Any, cluster: str, uid: str, site: str) -> StackFacts | None:
    """The facts of a site, or None if its stack was never made. `client` is boto3's for `ssm` in the site's region.

    Errors of the call other than "no such parameter" are botocore's own, and the caller's to class.
    """
    try:
        answer = client.get_parameter(Name=parameter_name(cluster, uid, site))
    except client.exceptions.ParameterNotFound:
        return None
    return parse(str(answer["Parameter"]["Value"]))
