"""Every place of the file has one class, and a change of each is told as what it is.

Comes in: the documents, the model, and the full document with one leaf at a time at another value. Goes out: proof that
places in file and model are the same, and that each change is told once, at its place, in the units of the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from orchestrator.model.change import ChangeKind, UpdateClass
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.written import Leaf, Unclassed, leaf, patterns, slots_of
from orchestrator.planning.compare import compare
from orchestrator.planning.diff import diff
from orchestrator.planning.leaves import PATTERNS, heaviest_in
from orchestrator.planning.render import render
from orchestrator.wire import schemas
from orchestrator.wire.cluster import ClusterDocument
from orchestrator.wire.updates import FIXED, by_field, places, without_keys
from tests.planning.scene import GONE, RESOLVED, Edits, base, document, load, recorded_desired

CONTROLLER, IN_PLACE = UpdateClass.CONTROLLER, UpdateClass.IN_PLACE
RECONFIGURE, REPLACE = UpdateClass.RECONFIGURE, UpdateClass.REPLACE
REFUSED, DESTROYS = UpdateClass.REFUSED, UpdateClass.DESTROYS


# --- file and model --------------------------------------------------------------------------------------------------


def test_each_leaf_of_the_file_is_one_of_the_model() -> None:
    in_file = {one.path for one in places(ClusterDocument) if one.leaf} - set(FIXED)
    in_model = [one.path for one in patterns(ClusterSpec) if one.leaf and not one.elsewhere]

    assert sorted(in_model) == sorted(in_file)
    assert len(in_model) == len(set(in_model))


def test_a_field_without_a_class_is_refused() -> None:
    @dataclass(frozen=True)
    class Odd:
        good: int = field(default=0, metadata=leaf(CONTROLLER))
        bad: int = 0

    with pytest.raises(Unclassed, match=r"Odd\.bad has no update class"):
        slots_of(Odd)


def test_no_field_of_the_model_is_left_out() -> None:
    """`slots_of` of each class names all its fields, except for those that are written together with another, and for
    what the catalog says of a model that is in MIG mode: a newer catalog is no change of the file."""
    seen: list[str] = []
    waiting: list[type] = [ClusterSpec]
    while waiting:
        cls = waiting.pop()
        named = {slot.name for slot in slots_of(cls)}
        named |= {slot.written.also for slot in slots_of(cls) if isinstance(slot.written, Leaf)}
        seen += [f"{cls.__name__}.{one.name}" for one in fields(cls) if one.name not in named]
        waiting += [slot.inner for slot in slots_of(cls) if slot.inner is not None]

    assert seen == ["GpuSpec.layout"]


def test_the_schema_shows_the_class_of_each_leaf() -> None:
    schema = schemas.schema_of("cluster")
    owners = {"ClusterDocument": schema, **schema["$defs"]}
    for one in places(ClusterDocument):
        key = without_keys(one.path).rpartition(".")[2]
        shown = owners[one.owner.__name__]["properties"][key].get(schemas.UPDATE)
        assert shown == by_field().get((one.owner.__name__, key))
        if one.leaf and one.path not in FIXED:
            pattern = PATTERNS[one.path]
            assert shown in (
                str(pattern.cls),
                {"added": str(pattern.added.cls), "removed": str(pattern.removed.cls)},
            )


def test_each_reason_says_something_and_each_refusal_what_would_help() -> None:
    for one in PATTERNS.values():
        for effect in (one.added, one.removed):
            assert effect.cls is CONTROLLER or effect.why, one.path
            assert (effect.cls is REFUSED) == bool(effect.unblock), one.path
            assert effect.cls is not DESTROYS, f"{one.path}: only a rule can name the consent"


# --- one leaf at a time ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """A place of the full document at another value, and what must be told: path, texts, class."""

    path: str
    value: Any
    old: str
    new: str
    cls: UpdateClass
    with_: Edits = field(
        default_factory=dict
    )  # what the file needs besides to stay without fault, in both states
    told: str = ""  # the path in the plan where it is not that of the document


BOUGHT: Edits = {
    "controller.host": GONE,
    "controller.instance.site": "use1",
    "controller.instance.type": "m7i.large",
    "controller.instance.volume": "50GiB",
}
HALL, USE1, USW2, H100, OLD = "sites[hall]", "sites[use1]", "sites[usw2]", "pools[h100]", "pools[old]"
BURST, QUEUE, DOMAINS = "pools[burst]", "queues[research]", "sites[hall].power.domains"
RICH: Edits = {"budgets[cloud]": GONE, "budgets[elastic]": GONE}
NO_QUEUES: Edits = {"queues": [{"name": "all"}], "budgets[people]": GONE, "access.grants[1]": GONE}

TURNS = (
    Turn("metadata.name", "other", "full", "other", REFUSED),
    Turn("metadata.timezone", "UTC", "Europe/Berlin", "UTC", CONTROLLER),
    Turn("controller.address", "https://b:1", "https://full.example.org:7443", "https://b:1", IN_PLACE),
    Turn("controller.state", "/srv", "/var/lib/gangline", "/srv", REFUSED),
    Turn("controller.host", "h100-01", "head-1", "h100-01", REFUSED),
    Turn("controller.instance.site", "usw2", "use1", "usw2", REFUSED, BOUGHT),
    Turn("controller.instance.type", "m7i.xlarge", "m7i.large", "m7i.xlarge", IN_PLACE, BOUGHT),
    Turn("controller.instance.volume", "80GiB", "50GiB", "80GiB", IN_PLACE, BOUGHT),
    Turn("controller.backup.every", "90m", "12h", "1h30m", CONTROLLER),
    Turn("controller.backup.keep", 3, "14", "3", CONTROLLER),
    Turn("scheduler.fair_share", "off", "decay", "off", CONTROLLER),
    Turn("scheduler.half_life", "36h", "3d", "1d12h", CONTROLLER),
    Turn("scheduler.placement", "standard", "filling", "standard", CONTROLLER),
    Turn("scheduler.kept_jobs", 0, "4", "0", CONTROLLER),
    Turn(
        "identity.source",
        "sssd",
        "pushed",
        "sssd",
        RECONFIGURE,
        {"identity.users": GONE, "identity.groups": GONE},
    ),
    Turn("identity.min_uid", 1000, "2000", "1000", IN_PLACE),
    Turn("identity.users[alice].uid", 2500, "2001", "2500", REFUSED),
    Turn("identity.users[alice].groups", ["docker"], "[docker, research]", "[docker]", IN_PLACE),
    Turn("identity.groups[research].gid", 3002, "3001", "3002", REFUSED),
    Turn("storage[home].kind", "lustre", "nfs", "lustre", RECONFIGURE),
    Turn("storage[home].source", "nas2:/h", "nas1:/home", "nas2:/h", RECONFIGURE),
    Turn("storage[home].path", "/h", "/home", "/h", RECONFIGURE),
    Turn("storage[home].sites", ["hall"], "[hall, use1]", "[hall]", RECONFIGURE),
    Turn("storage[fast].size", "7200GiB", "4800GiB", "7200GiB", IN_PLACE),
    Turn("storage[fast].throughput", 500, "250", "500", IN_PLACE),
    Turn("storage[scratch].per_job", False, "true", "false", CONTROLLER, {"storage[scratch].purge": False}),
    Turn("storage[scratch].purge", False, "true", "false", CONTROLLER),
    Turn("sites[desk].kind", "metal", "local", "metal", REFUSED),
    Turn(f"{HALL}.network.jobs", "10.99.0.0/16", "10.20.0.0/16", "10.99.0.0/16", CONTROLLER),
    Turn(f"{HALL}.network.ports", "21000-21500", "21000-21999", "21000-21500", CONTROLLER),
    Turn(
        f"{HALL}.fabric.levels", ["unit", "spine", "hall"], "[unit, spine]", "[unit, spine, hall]", CONTROLLER
    ),
    Turn(f"{HALL}.fabric.units.su-1", "h100-[01-04]", "h100-[01-08]", "h100-[01-04]", CONTROLLER),
    Turn(f"{HALL}.fabric.domains.spine.sp-1", "h100-[01-04]", "su-1", "h100-[01-04]", CONTROLLER),
    Turn(f"{HALL}.power.price_usd_per_kwh", 0.25, "0.18", "0.25", CONTROLLER),
    Turn(f"{HALL}.power.pue", 1.25, "1.3", "1.25", CONTROLLER),
    Turn(f"{DOMAINS}[a].parent", GONE, "root", "", CONTROLLER),
    Turn(f"{DOMAINS}[root].limit_kw", 150.5, "160", "150.5", CONTROLLER),
    Turn(f"{DOMAINS}[root].unmanaged_kw", 0, "9", "0", CONTROLLER),
    Turn(f"{DOMAINS}[a].derate", 0.85, "0.8", "0.85", CONTROLLER),
    Turn(f"{DOMAINS}[rack-1].nodes", "h100-[02-04]", "h100-[01-04]", "h100-[02-04]", CONTROLLER),
    Turn(
        f"{DOMAINS}[rack-1].fed_by",
        ["b"],
        "[a, b]",
        "[b]",
        CONTROLLER,
        {f"{DOMAINS}[rack-1].redundancy": "N"},
    ),
    Turn(f"{DOMAINS}[rack-1].redundancy", "N", "2N", "N", CONTROLLER),
    Turn(f"{HALL}.inventory", "./hosts.yml", "hosts.yml", "./hosts.yml", CONTROLLER),
    Turn(f"{HALL}.ssh.user", "root", "ubuntu", "root", CONTROLLER),
    Turn(f"{HALL}.ssh.key", "env:KEY", "file:/etc/gangline/ssh/full", "env:KEY", CONTROLLER),
    Turn(f"{HALL}.ssh.jump", GONE, "bastion.example.org", "", CONTROLLER),
    Turn(f"{HALL}.ssh.port", GONE, "2222", "22", CONTROLLER),
    Turn(f"{HALL}.system.packages.htop", "3.2.2-2", "''", "3.2.2-2", IN_PLACE),
    Turn(f'{HALL}.system.sysctls["vm.swappiness"]', "1", "10", "1", IN_PLACE),
    Turn(f"{HALL}.system.time_servers", GONE, "[ntp1.example.org, ntp2.example.org]", "", IN_PLACE),
    Turn(
        f"{USE1}.region",
        "us-east-2",
        "us-east-1",
        "us-east-2",
        REFUSED,
        {f"{USE1}.zones": GONE, f"{USE1}.kms_key": GONE},
    ),
    Turn(f"{USE1}.zones", ["us-east-1b"], "[us-east-1a, us-east-1b]", "[us-east-1b]", REPLACE),
    Turn(
        f"{USE1}.vpc.cidr",
        "10.40.0.0/16",
        "10.30.0.0/16",
        "10.40.0.0/16",
        REFUSED,
        {f"{USE1}.network.jobs": GONE},
    ),
    Turn(f"{USW2}.vpc.id", "vpc-00000000", "vpc-0123456789abcdef0", "vpc-00000000", REFUSED),
    Turn(
        f"{USW2}.vpc.subnets.us-west-2a",
        "subnet-00000000",
        "subnet-0123456789abcdef0",
        "subnet-00000000",
        REPLACE,
    ),
    Turn(f"{USE1}.vpc.nat", "none", "per_zone", "none", IN_PLACE),
    Turn(f"{USE1}.vpc.endpoints", ["s3"], "[ec2, s3]", "[s3]", IN_PLACE),
    Turn(f"{USE1}.stack.backend", GONE, "s3://full-pulumi/full", "", REFUSED),
    Turn(f"{USE1}.stack.secrets", GONE, "awskms://alias/full", "", CONTROLLER),
    Turn(f"{USE1}.image", "ami-00000000", "ami-0123456789abcdef0", "ami-00000000", REPLACE),
    Turn(f"{USE1}.kms_key", GONE, "arn:aws:kms:us-east-1:123456789012:key/full", "", REPLACE),
    Turn(f"{USE1}.permissions_boundary", GONE, "arn:aws:iam::123456789012:policy/bound", "", IN_PLACE),
    Turn(f"{USE1}.tags.team", "hpc", "infra", "hpc", IN_PLACE),
    Turn(f"{USE1}.prices", "./prices.yml", "prices.yml", "./prices.yml", CONTROLLER),
    Turn(f"{OLD}.site", "desk", "hall", "desk", REPLACE, {f"{HALL}.fabric.units.su-2": GONE}),
    Turn(
        f"{H100}.nodes",
        "h100-[01-07]",
        "h100-08",
        "",
        RECONFIGURE,
        {**NO_QUEUES, f"{HALL}.fabric.units.su-1": "h100-[01-04]"},
        f"{H100}.nodes[h100-08]",
    ),
    Turn(f"{H100}.gpu.model", "H200-SXM5-141GB", "H100-SXM5-80GB", "H200-SXM5-141GB", RECONFIGURE),
    Turn(f"{H100}.gpu.count", 9, "8", "9", RECONFIGURE),
    Turn("pools[desk].gpu.emulate", "never", "always", "never", RECONFIGURE),
    Turn(
        "pools[desk].gpu.mig",
        True,
        "false",
        "true",
        RECONFIGURE,
        {"pools[desk].gpu.model": "A30-PCIE-24GB", "queues[research].borrow_limit": GONE},
    ),
    Turn(f"{OLD}.gpu.memory", "40GB", "80GiB", "40GB", IN_PLACE),
    Turn(f"{OLD}.gpu.max_watts", 400, "500", "400", CONTROLLER),
    Turn(f"{H100}.cores", 256, "192", "256", IN_PLACE),
    Turn(f"{H100}.keep_cores_per_gpu", 6, "8", "6", CONTROLLER),
    Turn(f"{H100}.keep_memory_per_gpu", "32GiB", "64GiB", "32GiB", CONTROLLER),
    Turn(f"{H100}.memory", "4TiB", "2TiB", "4TiB", IN_PLACE),
    Turn(f"{H100}.labels.row", "4", "3", "4", CONTROLLER),
    Turn(f"{H100}.fabric.kind", "roce", "infiniband", "roce", RECONFIGURE),
    Turn(f"{H100}.fabric.rails", GONE, "8", "", RECONFIGURE),
    Turn(f"{H100}.software.driver", "580.1.1", "580.126.20", "580.1.1", RECONFIGURE),
    Turn(f"{H100}.software.cuda", "12.9", "13.0", "12.9", RECONFIGURE),
    Turn(f"{H100}.software.nccl", "2.27.7", "2.28.9", "2.27.7", RECONFIGURE),
    Turn(f"{H100}.update.max_unavailable", 3, "2", "3", CONTROLLER),
    Turn(f"{H100}.update.drain.deadline", "90s", "1d", "1m30s", CONTROLLER),
    Turn(f"{H100}.update.drain.then", "cancel", "checkpoint", "cancel", CONTROLLER),
    Turn(f"{H100}.update.enough", 0.875, "0.75", "0.875", CONTROLLER),
    Turn("pools[fixed].fabric.placement", "none", "cluster", "none", REPLACE),
    Turn(f"{BURST}.image", "ami-00000000", "ssm:/atlas/image", "ami-00000000", REPLACE),
    Turn(f"{BURST}.root_volume", "600GiB", "500GiB", "600GiB", REPLACE),
    Turn(f"{BURST}.public_address", True, "false", "true", REPLACE, {f"{BURST}.fabric.kind": "ethernet"}),
    Turn(f"{BURST}.size.min", 0, "1", "0", CONTROLLER),
    Turn(f"{BURST}.size.max", 8, "16", "8", CONTROLLER),
    Turn(f"{BURST}.size.idle", "5m", "10m", "5m", CONTROLLER),
    Turn(f"{BURST}.size.boot_deadline", "30m", "25m", "30m", CONTROLLER),
    Turn(f"{BURST}.offerings[1].type", "p5en.48xlarge", "[p5.48xlarge]", "[p5en.48xlarge]", REPLACE),
    Turn(f"{BURST}.offerings[1].market", "on_demand", "spot", "on_demand", REPLACE, RICH),
    Turn(f"{BURST}.offerings[1].max_usd_per_hour", 12.5, "30", "12.5", CONTROLLER),
    Turn(
        f"{BURST}.offerings[0].reservation",
        "cr-00000000000000000",
        "cr-0123456789abcdef0",
        "cr-00000000000000000",
        CONTROLLER,
    ),
    Turn(f"{H100}.acceptance", "skip", "required", "skip", CONTROLLER),
    Turn(
        f"{QUEUE}.parent",
        GONE,
        "all",
        "",
        CONTROLLER,
        {f"{QUEUE}.guarantee": GONE, f"{QUEUE}.lending_limit": GONE},
    ),
    Turn(f"{QUEUE}.guarantee[h100].gpus", 28, "32", "28", CONTROLLER),
    Turn(f"{QUEUE}.lending_limit[h100].gpus", 0, "24", "0", CONTROLLER),
    Turn(f"{QUEUE}.borrow_limit[h100].gpus", 0, "16", "0", CONTROLLER),
    Turn(f"{QUEUE}.weight", 1, "2", "1", CONTROLLER),
    Turn(f"{QUEUE}.reclaim", "never", "borrowed", "never", CONTROLLER),
    Turn(f"{QUEUE}.limits.default_time_limit", "5h", "4h", "5h", CONTROLLER),
    Turn(f"{QUEUE}.limits.max_time_limit", GONE, "7d", "", CONTROLLER),
    Turn(f"{QUEUE}.limits.max_running_jobs", 99, "100", "99", CONTROLLER),
    Turn(f"{QUEUE}.limits.max_waiting_jobs", 99, "5000", "99", CONTROLLER),
    Turn(f"{QUEUE}.limits.max_jobs_per_user", 9, "20", "9", CONTROLLER),
    Turn(f"{QUEUE}.limits.max_gpus_per_user", 9, "48", "9", CONTROLLER),
    Turn(f"{QUEUE}.limits.max_gpus_per_job", 9, "32", "9", CONTROLLER),
    Turn(f"{QUEUE}.limits.max_gpu_hours_per_month", GONE, "20000", "", CONTROLLER),
    Turn(
        "budgets[evening].domain", "a", "root", "a", CONTROLLER, {"budgets[evening].windows[0].limit_kw": 90}
    ),
    Turn(
        "budgets[evening].windows[0].limit_kw",
        119.999,
        "120",
        "119.999",
        CONTROLLER,
        told="budgets[evening].windows[mon,tue,wed,thu,fri 17:00-20:00].limit_kw",
    ),
    Turn("budgets[cloud].usd_per_hour", 500, "400", "500", CONTROLLER),
    Turn("budgets[cloud].usd_per_month", GONE, "90000", "", CONTROLLER),
    Turn("budgets[cloud].at_limit", ["cancel"], "[stop_buying, checkpoint]", "[cancel]", CONTROLLER),
    Turn("access.groups.infra.oidc", "x@example.org", "infra@example.org", "x@example.org", CONTROLLER),
    Turn("access.groups.research.posix", GONE, "research", "", CONTROLLER),
    Turn("access.groups.research.users", ["bob"], "[alice, bob]", "[bob]", CONTROLLER),
)


@dataclass(frozen=True)
class Renaming:
    """What a row is told apart by, at another value: one row goes and another comes."""

    path: str
    value: Any
    gone: str
    come: str
    with_: Edits = field(default_factory=dict)


RENAMINGS = (
    Renaming("identity.users[bob].name", "carol", "identity.users[bob]", "identity.users[carol]"),
    Renaming("identity.groups[research].name", "lab", "identity.groups[research]", "identity.groups[lab]"),
    Renaming("storage[home].name", "users", "storage[home]", "storage[users]"),
    Renaming(
        "sites[attic].name",
        "loft",
        "sites[attic]",
        "sites[loft]",
        {"sites[attic]": {"name": "attic", "kind": "local"}},
    ),
    Renaming(f"{DOMAINS}[rack-1].name", "rack-9", f"{DOMAINS}[rack-1]", f"{DOMAINS}[rack-9]"),
    Renaming("pools[desk].name", "table", "pools[desk]", "pools[table]"),
    Renaming("queues[production].name", "serving", "queues[production]", "queues[serving]"),
    Renaming(
        f"{QUEUE}.guarantee[h100].pool",
        "burst",
        f"{QUEUE}.guarantee[h100]",
        f"{QUEUE}.guarantee[burst]",
        {
            "queues[research].parent": GONE,
            f"{QUEUE}.borrow_limit": GONE,
            f"{QUEUE}.lending_limit": GONE,
            "queues[all].guarantee": GONE,
        },
    ),
    Renaming(
        f"{QUEUE}.guarantee[A100-SXM4-CUSTOM].gpu_model",
        "L4-PCIE-24GB",
        f"{QUEUE}.guarantee[A100-SXM4-CUSTOM]",
        f"{QUEUE}.guarantee[L4-PCIE-24GB]",
        {f"{QUEUE}.guarantee[A100-SXM4-CUSTOM].gpus": 1},
    ),
    Renaming(
        f"{QUEUE}.borrow_limit[h100].pool", "old", f"{QUEUE}.borrow_limit[h100]", f"{QUEUE}.borrow_limit[old]"
    ),
    Renaming(
        f"{QUEUE}.borrow_limit[L4-PCIE-24GB].gpu_model",
        "A100-SXM4-CUSTOM",
        f"{QUEUE}.borrow_limit[L4-PCIE-24GB]",
        f"{QUEUE}.borrow_limit[A100-SXM4-CUSTOM]",
    ),
    Renaming(
        f"{QUEUE}.lending_limit[h100].pool",
        "burst",
        f"{QUEUE}.lending_limit[h100]",
        f"{QUEUE}.lending_limit[burst]",
        {f"{QUEUE}.guarantee[burst]": {"pool": "burst", "gpus": 24}, "queues[all].guarantee": GONE},
    ),
    Renaming(
        f"{QUEUE}.lending_limit[A100-SXM4-CUSTOM].gpu_model",
        "L4-PCIE-24GB",
        f"{QUEUE}.lending_limit[A100-SXM4-CUSTOM]",
        f"{QUEUE}.lending_limit[L4-PCIE-24GB]",
        {
            f"{QUEUE}.guarantee[L4-PCIE-24GB]": {"gpu_model": "L4-PCIE-24GB", "gpus": 1},
            f"{QUEUE}.lending_limit[A100-SXM4-CUSTOM]": {"gpu_model": "A100-SXM4-CUSTOM", "gpus": 1},
        },
    ),
    Renaming("budgets[people].name", "humans", "budgets[people]", "budgets[humans]"),
    Renaming(
        "budgets[evening].windows[0].days",
        "sat",
        "budgets[evening].windows[mon,tue,wed,thu,fri 17:00-20:00]",
        "budgets[evening].windows[sat 17:00-20:00]",
    ),
    Renaming(
        "budgets[evening].windows[0].from",
        "16:00",
        "budgets[evening].windows[mon,tue,wed,thu,fri 17:00-20:00]",
        "budgets[evening].windows[mon,tue,wed,thu,fri 16:00-20:00]",
    ),
    Renaming(
        "budgets[evening].windows[0].to",
        "24:00",
        "budgets[evening].windows[mon,tue,wed,thu,fri 17:00-20:00]",
        "budgets[evening].windows[mon,tue,wed,thu,fri 17:00-24:00]",
    ),
    Renaming("budgets[cloud].applies_to.site", "hall", "", ""),
    Renaming("budgets[elastic].applies_to.pool", "h100", "", ""),
    Renaming("budgets[people].applies_to.queue", "production", "", ""),
    Renaming("access.grants[0].role", "admin", "access.grants[operator infra]", "access.grants[admin infra]"),
    Renaming(
        "access.grants[0].to", "research", "access.grants[operator infra]", "access.grants[operator research]"
    ),
    Renaming(
        "access.grants[3].on.site",
        "use1",
        "access.grants[admin infra on site hall]",
        "access.grants[admin infra on site use1]",
    ),
    Renaming(
        "access.grants[2].on.pool",
        "old",
        "access.grants[read research on pool h100]",
        "access.grants[read research on pool old]",
    ),
    Renaming(
        "access.grants[1].on.queue",
        "all",
        "access.grants[submit research on queue research]",
        "access.grants[submit research on queue all]",
    ),
)


def states(path: str, value: Any, with_: Edits) -> tuple[ClusterSpec, ClusterSpec]:
    """The full document without and with one place changed."""
    return load(document(with_)) if with_ else base(), load(document({**with_, path: value}))


@pytest.mark.parametrize("turn", TURNS, ids=[turn.path for turn in TURNS])
def test_a_change_of_one_leaf_is_told_once_at_its_place(turn: Turn) -> None:
    before, after = states(turn.path, turn.value, turn.with_)

    (change,) = diff(before, after)
    (back,) = diff(after, before)

    assert (change.path, change.old, change.new) == (turn.told or turn.path, turn.old, turn.new)
    assert change.cls is turn.cls
    assert (back.path, back.old, back.new) == (change.path, turn.new, turn.old)
    assert bool(change.nodes) <= (change.cls not in (CONTROLLER, REFUSED))


@pytest.mark.parametrize("one", RENAMINGS, ids=[one.path for one in RENAMINGS])
def test_another_name_is_another_thing(one: Renaming) -> None:
    before, after = states(one.path, one.value, one.with_)

    found = {(change.path, change.kind) for change in diff(before, after)}

    if one.gone:
        assert found == {(one.gone, ChangeKind.REMOVED), (one.come, ChangeKind.ADDED)}
    else:
        assert found == {(one.path, ChangeKind.CHANGED)}


def test_every_leaf_has_its_turn() -> None:
    """Also that what is told is at the place that has the class: the pattern of the case is that of the leaf."""
    turned = {case.pattern for turn in TURNS for case in compare(*states(turn.path, turn.value, turn.with_))}
    turned |= {_pattern(one.path) for one in RENAMINGS}
    only_value = {"identity.on_mismatch"}  # there is but one word

    leaves = {one.path for one in PATTERNS.values() if one.leaf and not one.elsewhere}
    assert sorted(leaves - turned - only_value) == []


def _pattern(path: str) -> str:
    """`queues[a].guarantee[b].pool` -> `queues[].guarantee[].pool`."""
    return re.sub(r"\[[^\]]*\]", "[]", path)


@pytest.mark.parametrize("turn", TURNS, ids=[turn.path for turn in TURNS])
def test_the_roles_of_a_change_are_those_whose_items_change(turn: Turn) -> None:
    """No role finds something to do that the change does not name."""
    before, after = states(turn.path, turn.value, turn.with_)
    recorded = {one.pool: one for one in recorded_desired(before)}
    touched: set[str] = set()
    for pool in after.pools:
        if pool.name in recorded and pool.site == "hall":
            done = render(pool, recorded[pool.name], before, after, RESOLVED, drained=False, defer=False)
            touched |= set(done.roles)
            assert done.changes == ()

    if turn.cls is not REFUSED:
        assert touched <= {role for change in diff(before, after) for role in change.roles}


def test_a_part_that_comes_or_goes_takes_what_its_heaviest_leaf_takes() -> None:
    assert heaviest_in("pools[].gpu").cls is RECONFIGURE
    assert heaviest_in("pools[].size").cls is CONTROLLER


def test_two_windows_of_one_time_are_told_apart() -> None:
    edits = {
        "budgets[evening].windows[1]": {"days": "mon-fri", "from": "17:00", "to": "20:00", "limit_kw": 110}
    }

    (change,) = diff(base(), load(document(edits)))

    assert change.path == "budgets[evening].windows[mon,tue,wed,thu,fri 17:00-20:00 #2]"
