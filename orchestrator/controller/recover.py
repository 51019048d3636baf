"""What nodes hold and the ledger has forgotten: listed as orphans, and taken back when a person says so.

Comes in: inventories that agents send when asked, the `Recover` command. Goes out: facts about orphans, recovered
attempts, and the ends that a restored ledger has missed. Called by: sync (inventories), intake (recover).

Nothing here ends anything that runs, and nothing starts on the word of a node: the gang's other nodes go on with what
they hold themselves, and a job that the ledger knows from nodes alone is held when it should start anew, until a person
releases it. Else one node could make others run what it likes, as whom it likes. An attempt that ended while the ledger
was elsewhere is recovered and ended in one go, so that its job ends as it did, and is not started again.
"""

from __future__ import annotations

from orchestrator.controller import reports
from orchestrator.controller.commands import Recover, RecoverResult
from orchestrator.controller.desk import Desk
from orchestrator.ledger import events
from orchestrator.ledger.capacity import takes
from orchestrator.ledger.records import Node, Orphan
from orchestrator.ledger.state import State
from orchestrator.model.attempt import Placement
from orchestrator.model.errors import Conflict
from orchestrator.model.ids import AttemptId
from orchestrator.model.protocol import AgentEvent, EventKind, Holding, Launch
from orchestrator.scheduler import Policy


def take_inventory(desk: Desk, node: Node, inventory: tuple[Holding, ...]) -> None:
    """A node's whole memory: known attempts are brought up to date, unknown ones are listed."""
    desk.told[node.name] = True
    desk.wants_inventory.pop(node.name, None)
    for holding in inventory:
        if reports.live_part(desk, holding.attempt, node.name) is not None:
            reports.catch_up(desk, node, holding)
        elif _forgotten(desk, holding) and reports.orphan_of(desk, holding.attempt, node.name) is None:
            body = events.AttemptOrphaned(node.name, holding)
            desk.writer.node(node.name, body, f"node:{node.name}")
            if holding.ended is None and (holding.started or holding.launch is None):
                reports.stranger(desk, node, holding.attempt)
        elif holding.ended is not None:
            reports.orphan_ended(desk, node, holding.ended)


def _forgotten(desk: Desk, holding: Holding) -> bool:
    """Whether the ledger should know of it and does not: it runs, or it ended after the backup was made."""
    if holding.ended is None:
        return True
    job = desk.state.jobs.get(holding.attempt.job)
    if job is not None:
        return holding.attempt.number > job.attempts
    return desk.state.recovering and holding.attempt.job >= desk.state.forgotten_from


def recover(desk: Desk, command: Recover) -> RecoverResult:
    """Take orphans back, whole gangs at a time, and let starts go on."""
    waits = desk.state.recovering  # otherwise nobody is waited for, and who has told is not kept
    silent = [
        node.name
        for node in desk.state.nodes.values()
        if waits and node.wanted and node.name not in desk.told
    ]
    missing = [name for name in silent if name not in command.without]
    if missing:
        raise Conflict(
            "recover.nodes-silent",
            f"{len(missing)} node(s) have not told what they hold: {', '.join(missing[:10])}",
            "wait for them, or name each with --without: what they run is then listed when they come back",
        )
    recovered: list[str] = []
    left: list[tuple[str, str]] = []
    for attempt, orphans in _by_attempt(desk).items():
        over = reports.is_over(desk, attempt)
        problem = _let_go(desk, attempt, orphans) if over else _take_back(desk, attempt, orphans, command.by)
        if problem:
            left.append((str(attempt), problem))
        elif not over:
            recovered.append(str(attempt))
    if waits:
        desk.writer.record(events.LedgerRecovered(tuple(silent)), "ledger", command.by)
    return RecoverResult(tuple(recovered), tuple(left), tuple(silent))


def _by_attempt(desk: Desk) -> dict[AttemptId, list[Orphan]]:
    found: dict[AttemptId, list[Orphan]] = {}
    for orphan in desk.state.orphans.values():
        found.setdefault(orphan.attempt, []).append(orphan)
    return found


def _take_back(desk: Desk, attempt: AttemptId, orphans: list[Orphan], by: str) -> str:
    """Recover one attempt on all nodes that hold it; why not, or empty."""
    launches = [orphan.holding.launch for orphan in orphans if orphan.holding.launch is not None]
    problem = _obstacle(desk, attempt, orphans, launches)
    if problem:
        return problem
    launch = launches[0]
    body = events.AttemptRecovered(
        attempt=attempt,
        spec=launch.job,
        owner=launch.owner,
        placements=_placements(desk.state, launch, orphans),
        submitted_us=launch.submitted_us,
        master_address=launch.master_address,
        master_port=launch.master_port,
        time_limit_s=Policy().time_limit_s(desk.state, launch.job),
        started_on=tuple(orphan.node for orphan in orphans if orphan.holding.started),
        started_us=min(
            (orphan.holding.started_us for orphan in orphans if orphan.holding.started_us), default=0
        ),
        held_on=tuple(orphan.node for orphan in orphans),
        array=_array_of(desk, attempt, launch),
        array_index=launch.array_index,
    )
    desk.writer.job(attempt.job, body, by)
    for orphan in orphans:
        desk.writer.touched_nodes[orphan.node] = True
        reports.welcome(desk, desk.state.nodes[orphan.node], attempt)
    for part in launch.parts:
        _end_if_over(desk, attempt, part.node, orphans)
    return ""


def _array_of(desk: Desk, attempt: AttemptId, launch: Launch) -> int:
    """The array that a forgotten job was a task of, where its node's word and what is known agree; else 0."""
    array, known = launch.job.array, desk.state.arrays.get(launch.array)
    if not launch.array or array is None or array.place_of(launch.array_index) != attempt.job - launch.array:
        return 0
    same = known is None or (known.spec, known.owner) == (launch.job, launch.owner)
    return launch.array if same else 0


def _obstacle(desk: Desk, attempt: AttemptId, orphans: list[Orphan], launches: list[Launch]) -> str:
    job = desk.state.jobs.get(attempt.job)
    bare = [each for each in orphans if each.holding.launch is None and each.holding.ended is None]
    if bare or not launches:
        return "its records on the node are lost: only processes are left; end them by hand"
    if job is not None and job.attempt is not None:
        return f"job {job.id} has attempt {job.attempt.id} now"
    problem = _contradiction(orphans, launches[0])
    if problem:
        return problem
    missing = [
        name
        for name in (*(orphan.node for orphan in orphans), *(part.node for part in launches[0].parts))
        if name not in desk.state.nodes
    ]
    if missing:
        return f"node {missing[0]} of its gang is not in the cluster"
    silent = _silent_half(desk, orphans, launches[0])
    if silent:
        return f"node {silent} of its gang has not told what it holds; recover again when it has"
    for orphan in orphans:
        node, whole = desk.state.nodes[orphan.node], not _shares(orphan)
        for slot in _held_slots(orphan):
            others = [node.holders[slot]] if slot in node.holders else []
            others += node.sharers.get(slot, []) if whole else []
            if others:
                return f"device {slot} of {orphan.node} is held by attempt {others[0]}"
    placements = _placements(desk.state, launches[0], orphans)
    try:
        for placement in placements:
            desk.state.capacity.check_hold(placement)
    except ValueError as error:  # shares and instances that others stand on by now
        return str(error)
    return _crowded(desk.state, placements)


def _crowded(state: State, placements: tuple[Placement, ...]) -> str:
    """A node that another attempt has for itself, which has come meanwhile; empty if there is none."""
    for placement in placements:
        name = placement.node
        if takes(placement) and state.capacity.is_alone(name):
            attempts = (job.attempt for job in state.jobs.values() if job.attempt is not None)
            holder = next(one.id for one in attempts if name in [part.placement.node for part in one.parts])
            return f"node {name} is attempt {holder}'s alone"
    return ""


def _contradiction(orphans: list[Orphan], first: Launch) -> str:
    """A node speaks for itself alone: what it holds is a part of the gang, and all that hold it tell of the same job.

    What a controller has made agrees in all of this, since it was one launch.
    """
    for orphan in orphans:
        if orphan.node not in [part.node for part in first.parts]:
            return f"{orphan.node} holds it and is no part of its gang"
        launch = orphan.holding.launch
        if launch is not None and (launch.job, launch.owner, launch.parts) != (
            first.job,
            first.owner,
            first.parts,
        ):
            return f"{orphans[0].node} and {orphan.node} tell different things of it"
    return ""


def _silent_half(desk: Desk, orphans: list[Orphan], launch: Launch) -> str:
    """A node of the gang that may run its part on devices that nobody has named, so that they would count as free;
    empty if there is none. Such nodes are asked."""
    listed = [orphan.node for orphan in orphans]
    silent = [part.node for part in launch.parts if part.node not in listed and part.node not in desk.told]
    for name in silent:
        desk.wants_inventory[name] = True
    if silent:
        desk.beats.forget()
    return silent[0] if silent else ""


def _let_go(desk: Desk, attempt: AttemptId, orphans: list[Orphan]) -> str:
    """There is nothing to take back: list it no more where it has ended; why it stays listed elsewhere, or empty."""
    stays = [orphan.node for orphan in orphans if orphan.holding.ended is None]
    for orphan in orphans:
        if orphan.node not in stays:
            desk.writer.node(orphan.node, events.AttemptOrphanGone(attempt, orphan.node))
    return f"the ledger has ended it, and it still runs on {', '.join(stays)}" if stays else ""


def _shares(orphan: Orphan) -> bool:
    """Whether what it takes of its devices leaves room for others."""
    return orphan.holding.launch is not None and bool(orphan.holding.launch.milli)


def _held_slots(orphan: Orphan) -> tuple[int, ...]:
    """Devices that it still takes: none once it has ended there."""
    launch = orphan.holding.launch
    return launch.slots if launch is not None and orphan.holding.ended is None else ()


def _placements(state: State, launch: Launch, orphans: list[Orphan]) -> tuple[Placement, ...]:
    """The gang's placements; nodes on which it is over, or that hold nothing of it, take no devices. A node that was to
    be nobody else's is, unless somebody has come meanwhile."""
    by_node = {orphan.node: orphan for orphan in orphans}
    placements: list[Placement] = []
    for part in launch.parts:
        orphan = by_node.get(part.node)
        mine = orphan.holding.launch if orphan is not None and orphan.holding.ended is None else None
        placement = Placement(
            node=part.node,
            slots=mine.slots if mine else (),
            tasks=part.tasks,
            cores=mine.cores if mine else 0,
            memory=mine.memory if mine else 0,
            milli=mine.milli if mine else (),
            device_bytes=mine.device_bytes if mine else (),
            instances=mine.instances if mine else (),
            group=part.group,
        )
        alone = mine is not None and launch.job.request.exclusive and state.capacity.is_empty(part.node)
        placements.append(state.capacity.all_of(placement) if alone else placement)
    return tuple(placements)


def _end_if_over(desk: Desk, attempt: AttemptId, node: str, orphans: list[Orphan]) -> None:
    """Bring the recovered part to its end if it has ended, or if a node that has told holds nothing of it."""
    orphan = next((orphan for orphan in orphans if orphan.node == node), None)
    if orphan is not None and orphan.holding.ended is not None:
        reports.take_ended(desk, node, orphan.holding.ended)
    elif orphan is None and node in desk.told:
        lost = AgentEvent(0, desk.clock.now_us(), EventKind.ENDED, attempt, cause="node_failed")
        reports.take_ended(desk, node, lost)
