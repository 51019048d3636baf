"""A cluster document to the model: base units, names sorted, what is absent written out.

Comes in: a `ClusterDocument` without faults and the hosts of inventories. Goes out: `ClusterSpec`. Called by: `load`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.model import cluster as m
from orchestrator.model.catalog import Catalog
from orchestrator.wire.cluster import (
    ClusterDocument,
    ControllerDocument,
    IdentityDocument,
    StorageDocument,
    UserDocument,
)
from orchestrator.wire.cluster_aws import ControllerInstanceDocument, VpcDocument
from orchestrator.wire.cluster_pools import (
    GpuDocument,
    OfferingDocument,
    PoolDocument,
    SizeDocument,
    UpdateDocument,
)
from orchestrator.wire.cluster_queues import (
    AccessDocument,
    BudgetDocument,
    GroupDocument,
    QueueDocument,
    ScopeDocument,
    ShareDocument,
    WindowDocument,
)
from orchestrator.wire.cluster_sites import (
    AwsSite,
    DomainDocument,
    FabricDocument,
    LocalSite,
    MetalSite,
    NetworkDocument,
    PowerDocument,
    SshDocument,
    SystemDocument,
)


def cluster_spec(
    document: ClusterDocument,
    hosts: Mapping[str, tuple[m.Host, ...]],
    prices: Mapping[str, tuple[m.Price, ...]],
    catalog: Catalog,
) -> m.ClusterSpec:
    """The model of a document; `hosts` and negotiated `prices` by site name. `catalog` says what bought nodes have."""
    return m.ClusterSpec(
        name=document.metadata.name,
        timezone=document.metadata.timezone,
        controller=_controller(document.controller),
        identity=_identity(document.identity),
        storage=_sorted(_storage(one) for one in document.storage),
        sites=_sorted(
            _site(one, hosts.get(one.name, ()), prices.get(one.name, ())) for one in document.sites
        ),
        pools=_sorted(_with_gpu(_pool(one, catalog), catalog) for one in document.pools),
        queues=_sorted(_queue(one) for one in document.queues) or (m.Queue("default"),),
        scheduler=m.SchedulerSpec(
            document.scheduler.fair_share,
            document.scheduler.half_life,
            document.scheduler.placement,
            document.scheduler.kept_jobs,
        ),
        budgets=_sorted(_budget(one) for one in document.budgets),
        access=_access(document.access),
    )


def _sorted(things: Any) -> tuple[Any, ...]:
    return tuple(sorted(things, key=lambda thing: thing.name))


def _controller(one: ControllerDocument) -> m.Controller:
    return m.Controller(
        address=(one.address or "").rstrip("/"),
        state=one.state or "",
        host=one.host or "",
        instance=_instance(one.instance) if one.instance is not None else None,
        backup=m.Backup(one.backup.every, one.backup.keep),
    )


def _instance(one: ControllerInstanceDocument) -> m.ControllerInstance:
    return m.ControllerInstance(one.site, one.type, one.volume or 0)


def _identity(one: IdentityDocument) -> m.Identity:
    return m.Identity(
        one.source,
        one.min_uid,
        one.on_mismatch,
        _sorted(_user(user) for user in one.users),
        _sorted(m.PosixGroup(group.name, group.gid) for group in one.groups),
    )


def _user(one: UserDocument) -> m.User:
    return m.User(one.name, one.uid, tuple(sorted(one.groups)))


def _storage(one: StorageDocument) -> m.Storage:
    return m.Storage(
        name=one.name,
        kind=one.kind,
        path=one.path,
        source=one.source or "",
        sites=tuple(sorted(one.sites)),
        size=one.size or 0,
        throughput=one.throughput or 0,
        per_job=one.per_job,
        purge=one.purge,
    )


# --- sites -----------------------------------------------------------------------------------------------------------


def _site(
    one: LocalSite | MetalSite | AwsSite, hosts: tuple[m.Host, ...], prices: tuple[m.Price, ...]
) -> m.Site:
    if isinstance(one, AwsSite):
        return _aws(one, prices)
    kind = m.SiteKind(one.kind)
    metal = one if isinstance(one, MetalSite) else None
    return m.Site(
        name=one.name,
        kind=kind,
        network=_network(one.network),
        fabric=_fabric(one.fabric),
        power=_power(one.power),
        inventory=(metal.inventory or "") if metal else "",
        ssh=_ssh(metal.ssh) if metal else m.Ssh(),
        system=_system(metal.system) if metal else m.System(),
        hosts=tuple(sorted(hosts, key=lambda host: host.name)),
    )


def _aws(one: AwsSite, prices: tuple[m.Price, ...]) -> m.Site:
    return m.Site(
        name=one.name,
        kind=m.SiteKind.AWS,
        network=_network(one.network),
        region=one.region,
        zones=tuple(sorted(one.zones)),
        vpc=_vpc(one.vpc),
        stack=m.Stack(one.stack.backend or "", one.stack.secrets or ""),
        image=one.image or "",
        kms_key=one.kms_key or "",
        permissions_boundary=one.permissions_boundary or "",
        tags=tuple(sorted(one.tags.items())),
        prices=one.prices or "",
        negotiated=prices,
    )


def _vpc(one: VpcDocument) -> m.Vpc:
    subnets = tuple(m.Subnet(zone, subnet) for zone, subnet in sorted(one.subnets.items()))
    return m.Vpc(one.cidr, one.id or "", subnets, one.nat, tuple(sorted(one.endpoints)))


def _network(one: NetworkDocument) -> m.Network:
    return m.Network(one.jobs or "", *one.ports)


def _fabric(one: FabricDocument) -> m.SiteFabric:
    units = _sorted(m.Unit(name, nodes) for name, nodes in one.units.items())
    named = ((level, name) for level in sorted(one.domains) for name in sorted(one.domains[level]))
    domains = tuple(m.FabricDomain(level, name, one.domains[level][name]) for level, name in named)
    return m.SiteFabric(tuple(one.levels), units, domains)


def _power(one: PowerDocument) -> m.SitePower:
    return m.SitePower(
        one.price_usd_per_kwh or 0, one.pue, _sorted(_domain(domain) for domain in one.domains)
    )


def _domain(one: DomainDocument) -> m.PowerDomain:
    return m.PowerDomain(
        name=one.name,
        parent=one.parent or "",
        limit_watts=one.limit_kw or 0,
        unmanaged_watts=one.unmanaged_kw,
        derate_milli=one.derate,
        nodes=one.nodes or (),
        fed_by=tuple(sorted(one.fed_by)),
        redundancy=one.redundancy,
    )


def _ssh(one: SshDocument) -> m.Ssh:
    return m.Ssh(one.user or "", one.key or "", one.jump or "", one.port)


def _system(one: SystemDocument) -> m.System:
    return m.System(
        packages=tuple(sorted(one.packages.items())),
        sysctls=tuple(sorted(one.sysctls.items())),
        time_servers=tuple(sorted(one.time_servers)),
    )


# --- pools -----------------------------------------------------------------------------------------------------------


def _pool(one: PoolDocument, catalog: Catalog) -> m.Pool:
    software = one.software
    return m.Pool(
        name=one.name,
        site=one.site,
        nodes=one.nodes or (),
        gpu=_gpu(one.gpu, catalog) if one.gpu is not None else None,
        cores=one.cores or 0,
        memory=one.memory or 0,
        keep_cores_per_gpu=one.keep_cores_per_gpu or 0,
        keep_memory_per_gpu=one.keep_memory_per_gpu or 0,
        labels=tuple(sorted(one.labels.items())),
        fabric=m.PoolFabric(one.fabric.kind, one.fabric.rails or 0, one.fabric.placement)
        if one.fabric is not None
        else m.PoolFabric(),
        software=m.Software(software.driver or "", software.cuda or "", software.nccl or ""),
        update=_update(one.update),
        size=_size(one.size) if one.size is not None else None,
        offerings=tuple(_offering(offering) for offering in one.offerings),
        image=one.image or "",
        root_volume=one.root_volume or 0,
        public_address=one.public_address,
        acceptance=one.acceptance,
    )


def _with_gpu(pool: m.Pool, catalog: Catalog) -> m.Pool:
    """A bought pool that says no GPUs has those of its types, if the catalog knows them all and they have as many."""
    types = [catalog.instances.get(name) for offering in pool.offerings for name in offering.types]
    known = [one for one in types if one is not None and one.gpus]
    if pool.gpu is not None or not types or len(known) != len(types) or len({one.gpus for one in known}) != 1:
        return pool
    first, *others = dict.fromkeys(one.gpu_model for one in known)
    return replace(pool, gpu=m.GpuSpec(first, known[0].gpus, others=tuple(others)))


def _gpu(one: GpuDocument, catalog: Catalog) -> m.GpuSpec:
    known = catalog.gpus.get(one.model) if one.mig else None
    return m.GpuSpec(
        model=one.model,
        count=one.count,
        emulate=one.emulate,
        memory=one.memory or 0,
        max_watts=one.max_watts or 0,
        mig=one.mig,
        layout=known.mig if known is not None else None,
    )


def _update(one: UpdateDocument) -> m.Update:
    return m.Update(one.max_unavailable, m.Drain(one.drain.deadline, one.drain.then), one.enough)


def _size(one: SizeDocument) -> m.PoolSize:
    return m.PoolSize(one.min, one.max, one.idle, one.boot_deadline)


def _offering(one: OfferingDocument) -> m.Offering:
    return m.Offering(one.type, one.market, one.max_usd_per_hour or 0, one.reservation or "")


# --- queues, budgets, access -----------------------------------------------------------------------------------------


def _queue(one: QueueDocument) -> m.Queue:
    limits = one.limits
    return m.Queue(
        name=one.name,
        parent=one.parent or "",
        guarantee=_shares(one.guarantee),
        borrow_limit=_shares(one.borrow_limit),
        lending_limit=_shares(one.lending_limit),
        weight=one.weight,
        reclaim=one.reclaim,
        limits=m.QueueLimits(
            default_time_limit_s=limits.default_time_limit or 0,
            max_time_limit_s=limits.max_time_limit or 0,
            max_running_jobs=limits.max_running_jobs or 0,
            max_waiting_jobs=limits.max_waiting_jobs or 0,
            max_jobs_per_user=limits.max_jobs_per_user or 0,
            max_gpus_per_user=limits.max_gpus_per_user or 0,
            max_gpus_per_job=limits.max_gpus_per_job or 0,
            max_gpu_hours_per_month=limits.max_gpu_hours_per_month or 0,
        ),
    )


def _shares(shares: list[ShareDocument]) -> tuple[m.Share, ...]:
    found = (m.Share(one.gpus, one.pool or "", one.gpu_model or "") for one in shares)
    return tuple(sorted(found, key=lambda share: (share.pool, share.gpu_model)))


def _budget(one: BudgetDocument) -> m.Budget:
    return m.Budget(
        name=one.name,
        domain=one.domain or "",
        windows=tuple(_window(window) for window in one.windows),
        scope=_scope(one.applies_to),
        microusd_per_hour=one.usd_per_hour or 0,
        microusd_per_month=one.usd_per_month or 0,
        at_limit=tuple(one.at_limit) if not one.windows else (),
    )


def _window(one: WindowDocument) -> m.Window:
    return m.Window(one.days, one.from_, one.to, one.limit_kw)


def _scope(one: ScopeDocument | None) -> m.Scope:
    return m.Scope(one.site or "", one.pool or "", one.queue or "") if one is not None else m.Scope()


def _access(one: AccessDocument) -> m.Access:
    groups = _sorted(_group(name, group) for name, group in one.groups.items())
    grants = [m.Grant(grant.role, grant.to, _scope(grant.on)) for grant in one.grants]
    return m.Access(groups, tuple(sorted(grants, key=_grant_order)))


def _grant_order(grant: m.Grant) -> tuple[str, ...]:
    return (grant.to, grant.role.value, grant.on.site, grant.on.pool, grant.on.queue)


def _group(name: str, one: GroupDocument) -> m.Group:
    return m.Group(name, one.oidc or "", one.posix or "", tuple(sorted(one.users)))
