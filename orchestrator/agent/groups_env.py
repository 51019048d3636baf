"""PURE: what processes of a gang of groups know of their own group, besides what they know of the whole gang.

Comes in: a launch. Goes out: variables, none for a job without groups. Called by: plan.

Ranks are numbered through the groups in their order, so the ranks of a group follow each other.
"""

from __future__ import annotations

from orchestrator.model.job import LaunchKind
from orchestrator.model.protocol import GangPart, Launch


def of_node(launch: Launch) -> dict[str, str]:
    """What all ranks of this node share: the group's name, its ranks and nodes, and how many ranks each group has."""
    groups = launch.job.request.groups
    if not groups:
        return {}
    mine = _group(launch, launch.parts[launch.index].group)
    sizes = [sum(part.tasks for part in _group(launch, number)) for number in range(len(groups))]
    return {
        "GANGLINE_GROUP": groups[launch.parts[launch.index].group].name,
        "GANGLINE_GROUP_SIZE": str(sum(part.tasks for part in mine)),
        "GANGLINE_GROUP_NODES": ",".join(part.node for part in mine),
        "GANGLINE_GROUP_NNODES": str(len(mine)),
        "GANGLINE_GROUP_NODE_RANK": str(launch.index - launch.parts.index(mine[0])),
        "GANGLINE_GROUP_ADDR": mine[0].address,
        "GANGLINE_GROUPS": ",".join(f"{one.name}={size}" for one, size in zip(groups, sizes, strict=True)),
    }


def of_rank(launch: Launch, local: int) -> dict[str, str]:
    """What one process has of its own: its rank in the group, which for a launcher is that of its node."""
    if not launch.job.request.groups:
        return {}
    part = launch.parts[launch.index]
    first = _group(launch, part.group)[0]
    if launch.job.launch is not LaunchKind.RANKS:
        return {"GANGLINE_GROUP_RANK": str(launch.index - launch.parts.index(first))}
    return {"GANGLINE_GROUP_RANK": str(part.first_rank + local - first.first_rank)}


def _group(launch: Launch, number: int) -> list[GangPart]:
    return [part for part in launch.parts if part.group == number]
