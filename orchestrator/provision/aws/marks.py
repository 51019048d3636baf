"""What everything of one aws site is known by: its tags, and the names that AWS wants of some kinds of things.

Comes in: names of the spec and the cluster's uid. Goes out: tags and names, the same for the same words. Called by: all
components of the program, fleet, live_asks.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

UID, CLUSTER, SITE = "gangline:uid", "gangline:cluster", "gangline:site"
POOL, NODE = "gangline:pool", "gangline:node"
INTENT, NODES = (
    "gangline:intent",
    "gangline:nodes",
)  # of what the controller launches: one fleet, several nodes
MOST_NAME = 63  # characters of a Name, before a thing's own: a tag's value has 256


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of a site: `uid` was minted once for the cluster, `own` are the tags that the file adds."""

    uid: str
    cluster: str
    site: str
    own: tuple[tuple[str, str], ...] = ()

    def tags(self, name: str, pool: str = "", node: str = "") -> dict[str, str]:
        """The tags of one thing; `name` is its Pulumi name, shown in AWS's console. A Name that the file gives stands
        there for the cluster's, so that two things never have the same one: what a killed run was making is told by
        it."""
        where, own = {POOL: pool, NODE: node}, dict(self.own)
        return {
            **own,
            "Name": f"{own.get('Name', self.cluster)[:MOST_NAME]}-{name}",
            UID: self.uid,
            CLUSTER: self.cluster,
            SITE: self.site,
            **{key: value for key, value in where.items() if value},
        }

    def name(self, *parts: str, most: int = 128) -> str:
        """A name of at most `most` characters that no other cluster or site has, of letters, digits, `.` and `-`.

        The default is EC2's bound for names of launch templates; IAM's for roles is 64. A longer name is cut and gets a
        sum of the whole.
        """
        whole = "-".join(("gangline", self.uid, self.site, *parts))
        plain = re.sub(r"[^A-Za-z0-9.-]", "-", whole)
        if plain == whole and len(whole) <= most:
            return whole
        return f"{plain[: most - 9]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"
