"""One event of each type and version, every field of its body given: what the golden files keep.

Comes in: nothing. Goes out: `SAMPLES`, by (type, version). Called by: test_golden, and `python -m
tests.ledger.samples`, which writes the golden files that are not there yet; it never changes one. When a type gets a
new version, its old sample stays here as what the old golden file is read as.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestrator.ledger import events
from orchestrator.ledger.events import TYPE_OF, Event, StoredEvent, to_stored
from orchestrator.model.apply import HostResult, Outcome
from orchestrator.model.attempt import EndCause, JobState, Placement, RankResult
from orchestrator.model.capacity import ErrorClass, Instance, Intent, OfferingKey, Shape
from orchestrator.model.change import PlanStep, StepKind
from orchestrator.model.cluster import (
    Acceptance,
    Access,
    AtLimit,
    Budget,
    ClusterSpec,
    Controller,
    Drain,
    DrainThen,
    Emulate,
    FabricKind,
    GpuSpec,
    Grant,
    Group,
    Host,
    Identity,
    IdentitySource,
    Market,
    Network,
    Offering,
    Pool,
    PoolFabric,
    PoolSize,
    PowerDomain,
    Queue,
    QueueLimits,
    Reclaim,
    Redundancy,
    Role,
    Scope,
    Share,
    Site,
    SiteFabric,
    SiteKind,
    SitePower,
    Software,
    Ssh,
    Storage,
    StorageKind,
    Unit,
    Update,
    Window,
)
from orchestrator.model.host import HostFacts
from orchestrator.model.ids import AttemptId
from orchestrator.model.job import (
    Checkpoint,
    Elastic,
    GpuPower,
    JobSpec,
    LaunchKind,
    OnLost,
    Owner,
    PerNode,
    Request,
    Retries,
    Stop,
    Topology,
    Workload,
)
from orchestrator.model.node import Contact, Device, Mark, MarkKind, NodeFacts
from orchestrator.model.protocol import AgentEvent, EndOrder, EventKind, GangPart, Holding, Launch

STEP = PlanStep(
    "h100.1.configure", StepKind.CONFIGURE, "sysctls differ", "h100", ("h100-01", "h100-02"), ("base",), 1
)
HOST_FACTS = HostFacts(
    machine_id="9f",
    boot_id="3a1c",
    hostname="h100-01",
    os="debian",
    release="12",
    kernel="6.1.0-40-amd64",
    python="3.11.2",
    arch="x86_64",
    gpus=("0000:1b:00.0 10de:2330",),
    clock_skew_ms=-3,
    reboot_needed=True,
)
GOLDEN = Path(__file__).parent / "golden"
ATTEMPT = AttemptId(1234, 2)
OWNER = Owner("alice", 1001, 1002, (1003, 1004))
PLACEMENTS = (
    Placement("h100-01", (0, 1, 7), 3, 24, 1 << 38),
    Placement("h100-02", (4,), 1, 8, 1 << 36),
)
RESULT = RankResult(5, 3, 11, 1_800_000_000_000_001)
ORDER = EndOrder("cancelled", "SIGUSR1", "launcher", 600)
MARK = Mark(
    MarkKind.DRAINING, "process 4711 can't be ended", "node:h100-01", 1_800_000_000_000_000, 1234, ATTEMPT
)
FACTS = NodeFacts(
    boot_id="3a1c",
    cores=96,
    memory=1 << 40,
    devices=(Device(0, "H100-SXM5-80GB", 80 << 30, "GPU-1", "0000:1b:00.0", emulated=True),),
    machine_id="9f",
    hostname="h100-01",
    agent_version="0.1.0",
    run_as="root",
    can_switch_user=True,
    supervisor="systemd",
)
JOB = JobSpec(
    name="pretrain",
    request=Request(
        nodes=8,
        tasks=0,
        tasks_per_node=8,
        per_node=PerNode(8, 96, 1 << 39, ("H100-SXM5-80GB",)),
        per_task=PerNode(1, 2, 3, ("L40S-48GB",)),
    ),
    command=("torchrun", "träin.py"),
    queue="research",
    workload=Workload.TRAINING,
    launch=LaunchKind.LAUNCHER,
    priority=-5,
    env=(("A", "1"), ("B", "")),
    workdir="/home/alice/run7",
    output="logs/%j-%t.out",
    time_limit_s=259_200,
    stop=Stop("SIGUSR1", "launcher", 600),
    retries=Retries(3, 2),
    on_lost=OnLost.SELF_FENCE,
    hold=True,
    topology=Topology("spine", "unit"),
    elastic=Elastic(4, "restart"),
    checkpoint=Checkpoint("job", 1800, Stop("SIGUSR2", "all", 60), "/home/alice/latest"),
    gpu_power=GpuPower(500, 700),
    needs=("home",),
    compat="slurm",
    labels=(("team", "nlp"),),
)
SMALL = JobSpec("small", Request(tasks=5, per_task=PerNode(1)), ("true",))
LAUNCH = Launch(
    job=JOB,
    owner=OWNER,
    parts=(GangPart("h100-01", "10.20.0.1", 0, 3), GangPart("h100-02", "10.20.0.2", 3, 1)),
    index=1,
    slots=(4,),
    cores=8,
    memory=1 << 36,
    master_address="10.20.0.1",
    master_port=20123,
    cluster="atlas",
    submitted_us=1_800_000_000_000_000,
)
ENDED = AgentEvent(
    n=41,
    t_us=1_800_000_000_000_002,
    kind=EventKind.ENDED,
    attempt=ATTEMPT,
    started=True,
    pids=(4711,),
    results=(RESULT,),
    error="the epilog failed",
    code="epilog",
    cause="node_failed",
    tail="out of memory\n",
)
METAL = Site(
    name="hall-a",
    kind=SiteKind.METAL,
    network=Network("10.20.0.0/16", 20100, 20999),
    fabric=SiteFabric(("unit", "spine"), (Unit("su-1", ("h100-01", "h100-02")),)),
    power=SitePower(
        180_000,
        1300,
        (
            PowerDomain("hall-a", limit_watts=160_000, unmanaged_watts=9000),
            PowerDomain("a", parent="hall-a", limit_watts=200_000, derate_milli=800),
            PowerDomain("rack-1", nodes=("h100-01",), fed_by=("a", "b"), redundancy=Redundancy.TWO_N),
        ),
    ),
    inventory="hosts.yml",
    ssh=Ssh("ubuntu", "file:/etc/gangline/ssh/atlas", "bastion.example.org", 2222),
    hosts=(Host("h100-01", "10.0.0.1", "10.1.0.1", "admin", "env:BMC", "00:00:5e:00:53:01", "r1", ("gpu",)),),
)
CLOUD = Site("use1", SiteKind.AWS, region="us-east-1", zones=("us-east-1a",))
CLUSTER = ClusterSpec(
    name="atlas",
    timezone="Europe/Berlin",
    controller=Controller("https://atlas.example.org:7443", "/var/lib/gangline"),
    identity=Identity(IdentitySource.SSSD, 2000),
    storage=(Storage("home", StorageKind.NFS, "/home", "nas1:/home", ("hall-a",), per_job=True, purge=True),),
    sites=(METAL, CLOUD),
    pools=(
        Pool(
            name="h100",
            site="hall-a",
            nodes=("h100-01", "h100-02"),
            gpu=GpuSpec("H100-SXM5-80GB", 8, Emulate.NEVER, 80 << 30, 700),
            cores=96,
            memory=1 << 40,
            labels=(("row", "3"),),
            fabric=PoolFabric(FabricKind.INFINIBAND, 8),
            software=Software("580.126.20", "13.0", "2.28.9"),
            update=Update(2, Drain(7200, DrainThen.CHECKPOINT)),
            acceptance=Acceptance.SKIP,
        ),
        Pool(
            name="burst",
            site="use1",
            size=PoolSize(1, 16, 900, 1200),
            offerings=(Offering(("p5.48xlarge",), Market.SPOT, 30_000_000, "cr-1"),),
        ),
    ),
    queues=(
        Queue(
            name="research",
            parent="all",
            guarantee=(Share(48, pool="h100"),),
            borrow_limit=(Share(64, gpu_model="H100-SXM5-80GB"),),
            weight=2,
            reclaim=Reclaim.BORROWED,
            limits=QueueLimits(14_400, 86_400, 100, 1000, 10, 64, 32),
        ),
        Queue("all"),
    ),
    budgets=(
        Budget("evening", "hall-a", (Window((0, 4), 1020, 1200, 120_000),)),
        Budget(
            "cloud",
            scope=Scope(site="use1"),
            microusd_per_hour=1,
            microusd_per_month=2,
            at_limit=(AtLimit.CHECKPOINT,),
        ),
    ),
    access=Access(
        (Group("infra", "infra@example.org", "infra", ("root",)),),
        (
            Grant(Role.OPERATOR, "infra", Scope(queue="research")),
            Grant(Role.READ, "infra", Scope(pool="burst")),
        ),
    ),
)

INTENT = Intent(
    "intent-90",
    "use1",
    OfferingKey("burst", "p5.48xlarge", "spot", "us-east-1a", "cr-0123"),
    ("burst-1",),
    30_000_000,
    Shape(8, 192, 2048 << 30),
    1234,
    "research",
    31_000_000,
    1_800_001_560_000_000,
    1_800_086_400_000_000,
    "ab" * 32,
)

BODIES: tuple[Any, ...] = (
    events.ControllerStarted("0.1.0", "controller-1"),
    events.LedgerRestored(5000, 1_799_000_000_000_000),
    events.LedgerRecovered(("h100-02",)),
    events.TokenCreated("tok-1", "ab" * 32, "node", "h100-01", 1_900_000_000_000_000),
    events.TokenRevoked("tok-1"),
    events.ClusterApplied(CLUSTER, "cd" * 32),
    events.NodeJoined("h100-01", FACTS, "outbox-1"),
    events.NodeContact("h100-01", Contact.UNREACHABLE),
    events.NodeMarked("h100-01", MARK),
    events.NodeUnmarked("h100-01", MarkKind.PREPARE_FAILED, 1234, "the job was at fault"),
    events.JobSubmitted(1234, JOB, OWNER, "key-1", "ef" * 32),
    events.JobHeld(1234, "could not be prepared", "prepare-failed"),
    events.JobReleased(1234),
    events.JobCancelRequested(1234, "a better idea"),
    events.JobRequeued(1234, "h100-01 was rebooted"),
    events.JobEnded(1234, JobState.FAILED, 139, "rank 5 on h100-01 failed first, by signal 11"),
    events.AttemptAllocated(ATTEMPT, PLACEMENTS, "10.20.0.1", 20123, 3600),
    events.AttemptPrepared(ATTEMPT, "h100-01", 38),
    events.AttemptPrepareFailed(ATTEMPT, "h100-02", "no-such-dir", "no such directory: /home/alice/run7", 39),
    events.AttemptCommitted(ATTEMPT),
    events.AttemptStarted(ATTEMPT, "h100-01", (4711, 4712, 4713), 40),
    events.AttemptRankFailed(ATTEMPT, "h100-01", RESULT, "Segmentation fault\n", 41),
    events.AttemptEnding(ATTEMPT, EndCause.TIME_LIMIT, ORDER, "its time limit of 3600 s was reached"),
    events.AttemptStuck(ATTEMPT, "h100-01", "process 4711 is frozen", 42),
    events.AttemptPartEnded(ATTEMPT, "h100-01", True, (RESULT,), "fenced", "no contact", "bye\n", 43, True),
    events.AttemptEnded(ATTEMPT, EndCause.RANK_FAILED, 139, "rank 5 failed first", "job_failure"),
    events.AttemptOrphaned("h100-02", Holding(ATTEMPT, LAUNCH, True, True, 1_800_000_000_000_003, ENDED)),
    events.AttemptOrphanGone(ATTEMPT, "h100-02"),
    events.AttemptRecovered(
        ATTEMPT,
        SMALL,
        OWNER,
        PLACEMENTS,
        1_800_000_000_000_000,
        "10.20.0.1",
        20123,
        60,
        ("h100-01",),
        1_800_000_000_000_004,
    ),
    events.ApplyStarted("apply-70", "alice@ctl", "cd" * 32, (STEP,), 1_800_000_000_000_000, "0123abc"),
    events.ApplyLeased("apply-70", 1_800_000_060_000_000),
    events.ApplyStepStarted("apply-70", STEP.id),
    events.ApplyStepEnded("apply-70", STEP.id, True, (HostResult("h100-01", False, "no space left", 3),)),
    events.ApplyEnded("apply-70", Outcome.PARTIAL, "h100-01: no space left"),
    events.NodeConfigured("h100-01", "ab" * 32, HOST_FACTS),
    events.ClusterNamed("k3j9x0q2m5a7"),
    events.CapacityIntended(INTENT),
    events.CapacityLaunched(
        "intent-90", (Instance("i-0abc", "burst-1", "10.64.3.7", 1_800_000_000_000_000),)
    ),
    events.CapacityRefused(
        "intent-90", ErrorClass.QUOTA, "VcpuLimitExceeded: 0 of 192", 1_800_003_600_000_000
    ),
    events.CapacityProved("intent-90", "i-0abc"),
    events.CapacityReleasing("intent-90", ("i-0abc",), "idle for 600 s", True, 1_800_000_060_000_000),
    events.CapacityGone("intent-90", "i-0abc", 1_800_001_000_000_000, 1000, "the cloud says so"),
    events.CapacityReset("burst", "the image is mended"),
    events.ArrayThrottled(1234, 8),
    events.JobPrioritized(1234, -7),
    events.MonthBegan(1_798_758_000_000_000, 1_801_436_400_000_000),
)

SAMPLES: dict[tuple[str, int], Event] = {
    TYPE_OF[type(body)]: Event(
        41 + number, 1_800_000_000_000_000 + number, 1_800_000_000, 41, "job/1234", "user:alice", body
    )
    for number, body in enumerate(BODIES)
}


def golden_file(name: str, v: int) -> Path:
    """Where the stored form of that type and version is kept."""
    return GOLDEN / f"{name}-v{v}.json"


def read(path: Path) -> StoredEvent:
    """The stored event of a golden file."""
    return StoredEvent(**json.loads(path.read_text()))


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for (name, v), event in SAMPLES.items():
        if not golden_file(name, v).exists():
            text = json.dumps(to_stored(event)._asdict(), indent=1, ensure_ascii=False)
            golden_file(name, v).write_text(text + "\n")
