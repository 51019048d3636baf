"""Checks of file systems that Gangline makes on AWS: sizes and throughputs that FSx and EFS have, and where they are.

Comes in: `Context`. Goes out: faults. Called by: `checks`.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model.cluster import MADE_STORAGE, StorageKind
from orchestrator.model.units import size_text
from orchestrator.spec.context import Context, given, rows, run, sure
from orchestrator.spec.reading import Found
from orchestrator.wire.cluster import StorageDocument
from orchestrator.wire.cluster_sites import AwsSite
from orchestrator.wire.faults import Loc, problem, shown

GIB = 2**30
# FSx API reference, CreateFileSystem, Lustre of deployment type PERSISTENT_2 on SSD: 1200 GiB, 2400 GiB and multiples
# of 2400; PerUnitStorageThroughput 125, 250, 500 or 1000 MB/s per TiB.
FSX_FIRST, FSX_STEP = 1200, 2400
FSX_THROUGHPUT = (125, 250, 500, 1000)
# EFS quotas: provisioned throughput of at most 3414 MiB/s for one file system, in the regions that have most.
EFS_MOST = 3414


def made(context: Context) -> Iterator[Found]:
    """Each file system that Gangline makes."""
    for index, item in rows(context.document.storage):
        yield from run((_storage_made,), item, ("storage", index))
        yield from run((_made,), context, item, ("storage", index))


def _storage_made(item: StorageDocument, loc: Loc) -> Iterator[Found]:
    """What is said of a file system that Gangline makes goes with no other."""
    made = item.kind in MADE_STORAGE and item.source is None
    advice = "people keep it" if item.source is not None else "only fsx and efs are made by Gangline"
    for name in given(item, "size", "throughput") if not made else ():
        found = problem("spec.not-for-kind", what="storage", kind=item.kind, field=name, advice=advice)
        yield Found((*loc, name), found, "key")
    if made and item.kind == StorageKind.FSX and item.size is None:
        advice = "say how much it holds, as in 4800GiB, or the id of one that is there in `source`"
        yield Found((*loc, "size"), problem("spec.missing-field", field="size", advice=advice), "parent")


def _made(context: Context, item: StorageDocument, loc: Loc) -> Iterator[Found]:
    if item.kind not in MADE_STORAGE or item.source is not None:
        return
    fsx = item.kind == StorageKind.FSX
    yield from run((_fsx_size, _fsx_throughput) if fsx else (_efs_size, _efs_throughput), item, loc)
    yield from run((_on_aws,), context, item, loc)


def _fsx_size(item: StorageDocument, loc: Loc) -> Iterator[Found]:
    if item.size is None:
        return
    sure(item.size)
    gib = -(-item.size // GIB)
    if item.size % GIB == 0 and (gib == FSX_FIRST or gib % FSX_STEP == 0):
        return
    above = FSX_FIRST if gib <= FSX_FIRST else -(-gib // FSX_STEP) * FSX_STEP
    advice = f"1200GiB, 2400GiB or a multiple of 2400GiB: the next one is {above}GiB"
    found = problem("spec.no-such-size", got=size_text(item.size), what="FSx for Lustre", advice=advice)
    yield Found((*loc, "size"), found)


def _fsx_throughput(item: StorageDocument, loc: Loc) -> Iterator[Found]:
    if item.throughput is not None and item.throughput not in FSX_THROUGHPUT:
        advice = f"{', '.join(map(str, FSX_THROUGHPUT))} MB/s for each TiB"
        got = shown(item.throughput)
        found = problem("spec.no-such-size", got=got, what="FSx for Lustre", advice=advice)
        yield Found((*loc, "throughput"), found)


def _efs_size(item: StorageDocument, loc: Loc) -> Iterator[Found]:
    if item.size is not None:
        advice = "an EFS grows with what is in it"
        found = problem("spec.not-for-kind", what="storage", kind=item.kind, field="size", advice=advice)
        yield Found((*loc, "size"), found, "key")


def _efs_throughput(item: StorageDocument, loc: Loc) -> Iterator[Found]:
    if item.throughput is not None and item.throughput > EFS_MOST:
        found = problem(
            "spec.no-such-size", got=shown(item.throughput), what="EFS", advice=f"at most {EFS_MOST} MB/s"
        )
        yield Found((*loc, "throughput"), found)


def _on_aws(context: Context, item: StorageDocument, loc: Loc) -> Iterator[Found]:
    """It is made on sites of kind aws, and on no other."""
    kinds = {site.name: site for _, site in rows(context.document.sites)}
    if not context.names["site"].complete:
        return
    for index, name in rows(item.sites):
        site = kinds.get(name)
        if site is not None and not isinstance(site, AwsSite):
            advice = "name sites of kind aws"
            found = problem(
                "spec.not-for-kind",
                what="site",
                kind=site.kind,
                field=f"storage of kind {item.kind}",
                advice=advice,
            )
            yield Found((*loc, "sites", index), found)
    if not len(item.sites) and not all(isinstance(site, AwsSite) for site in kinds.values()):
        advice = "name the sites of kind aws that have it"
        yield Found((*loc, "sites"), problem("spec.missing-field", field="sites", advice=advice), "parent")


NAMES = (made,)
