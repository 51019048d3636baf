"""Money and watts, before and after, and the limit that is nearest: figures worked out by hand.

Comes in: small clusters. Goes out: proof of each sum, of what is said not to be counted, and of power domains under
each rule of redundancy.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.catalog import Catalog, DatedPrice, GpuModel, InstanceType
from orchestrator.model.change import Span
from orchestrator.model.cluster import (
    Budget,
    ClusterSpec,
    Controller,
    ControllerInstance,
    GpuSpec,
    Market,
    Nat,
    Offering,
    Pool,
    PoolSize,
    PowerDomain,
    Price,
    Redundancy,
    Scope,
    Site,
    SiteKind,
    SitePower,
    Storage,
    StorageKind,
    Vpc,
    Window,
)
from orchestrator.model.prices import DAY_US, HOUR_US
from orchestrator.planning.figures import figures
from orchestrator.planning.power import loads
from orchestrator.planning.world import Running, Workload

NOW = 1_800_000_000_000_000
CATALOG = Catalog(
    {"G": GpuModel("G", 80 << 30, 500)},
    {
        "a.big": InstanceType(
            "a.big", 8, 64, "G", 8, prices=(DatedPrice(Market.ON_DEMAND, "r-1", 40_000_000, NOW, "list"),)
        )
    },
    "2026-01-01",
    "2026-01-01",
    (),
)
DOLLAR = 1_000_000
HOST = ControllerInstance("use1", "m7i.large")
NOTHING = Span(0, 0, 0)


def hall(nodes: int, *, gpu: GpuSpec | None = None, power: SitePower = SitePower()) -> ClusterSpec:  # noqa: B008
    """`nodes` nodes n1.. with four GPUs of 500 W each: 2 kW a node."""
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    site = Site("hall", SiteKind.METAL, power=power)
    return ClusterSpec("c", sites=(site,), pools=(Pool("p", "hall", names, gpu or GpuSpec("G", 4)),))


def cloud(*offerings: Offering, low: int = 1, high: int = 4) -> ClusterSpec:
    """A bought pool of `low` to `high` nodes."""
    site = Site("use1", SiteKind.AWS, region="r-1")
    return ClusterSpec(
        "c", sites=(site,), pools=(Pool("b", "use1", size=PoolSize(low, high), offerings=offerings),)
    )


PRICED = SitePower(price_microusd_per_kwh=200_000, pue_milli=1500)  # 0.20 dollars, 1.5


def test_power_and_its_price() -> None:
    """10 nodes at 2 kW: 20 kW; times 1.5 times 0.20 dollars: 6 dollars an hour; before, 4 nodes and 2.40 dollars."""
    made = figures(hall(4, power=PRICED), hall(10, power=PRICED), CATALOG, Workload(), NOW)

    assert made.watts_now == Span(0, 0, 8_000)
    assert made.watts_then == Span(0, 0, 20_000)
    assert made.cost_now == Span(0, 0, 2_400_000)
    assert made.cost_then == Span(0, 0, 6 * DOLLAR)


def test_expected_is_the_share_that_work_holds_now() -> None:
    """8 of 16 GPUs are held: half of 8 kW now; on ten nodes 8 of 40: a fifth of 20 kW."""
    work = Workload((Running(1, "a", "q", ("n1", "n2"), 8),))

    made = figures(hall(4), hall(10), CATALOG, work, NOW)

    assert (made.watts_now.expected, made.watts_then.expected) == (4_000, 4_000)


def test_idle_gpus_are_the_floor() -> None:
    """4 GPUs of 500 W that idle at 60: 240 W a node and 960 W in all; a quarter of the way to 8 kW is 1.76 kW more."""
    idle = replace(CATALOG, gpus={name: replace(gpu, idle_watts=60) for name, gpu in CATALOG.gpus.items()})
    work = Workload((Running(1, "a", "q", ("n1", "n2"), 4),))

    made = figures(None, hall(4, power=PRICED), idle, work, NOW)

    assert made.watts_then == Span(960, 960 + (8_000 - 960) // 4, 8_000)
    assert made.cost_then.floor == 288_000
    assert not [what for what in made.uncounted if "idle" in what]


def test_a_cap_below_what_a_gpu_idles_at_is_its_floor() -> None:
    idle = replace(CATALOG, gpus={name: replace(gpu, idle_watts=60) for name, gpu in CATALOG.gpus.items()})
    (model,) = list(CATALOG.gpus)[:1]

    made = figures(None, hall(1, gpu=GpuSpec(model, 2, max_watts=50)), idle, Workload(), NOW)

    assert made.watts_then == Span(100, 100, 100)


def test_nothing_stood_there_before() -> None:
    made = figures(None, hall(1), CATALOG, Workload(), NOW)

    assert (made.watts_now, made.cost_now) == (NOTHING, NOTHING)


def test_the_file_knows_watts_that_the_catalog_does_not() -> None:
    known = figures(None, hall(1, gpu=GpuSpec("X", 2, max_watts=300)), CATALOG, Workload(), NOW)
    unknown = figures(None, hall(1, gpu=GpuSpec("X", 2)), CATALOG, Workload(), NOW)

    assert known.watts_then.ceiling == 600
    assert unknown.watts_then.ceiling == 0
    assert "power of pool p: its GPU model is not in the catalog" in unknown.uncounted


def test_what_is_not_counted_is_said_once() -> None:
    made = figures(None, hall(3), CATALOG, Workload(), NOW)

    assert made.uncounted == (
        "power of hosts besides their GPUs: it is known once it is measured",
        "power of idle GPUs of pool p: the catalog does not have it",
        "power on site hall: it has no price_usd_per_kwh",
    )


def test_what_is_bought() -> None:
    """On demand 40 dollars, spot at most 25: from one node at 25 to four at 40; the first offering is expected."""
    made = figures(
        None,
        cloud(Offering(("a.big",), Market.ON_DEMAND), Offering(("a.big",), Market.SPOT, 25 * DOLLAR)),
        CATALOG,
        Workload(),
        NOW,
    )

    assert made.cost_then == Span(25 * DOLLAR, 40 * DOLLAR, 160 * DOLLAR)
    assert made.watts_then == NOTHING
    assert made.assumed == ()


def test_prices_that_nobody_knows() -> None:
    made = figures(
        None,
        cloud(Offering(("a.new",), Market.ON_DEMAND), Offering(("a.big",), Market.CAPACITY_BLOCK)),
        CATALOG,
        Workload(),
        NOW,
    )

    assert made.cost_then == NOTHING
    assert made.uncounted[:2] == (
        "pool b: the catalog has no price of a.new in r-1",
        "pool b: capacity blocks are paid beforehand",
    )


def priced(*prices: DatedPrice) -> Catalog:
    """A catalog of one type with these prices."""
    return replace(CATALOG, instances={"a.big": replace(CATALOG.instances["a.big"], prices=prices)})


def listed(dollars: int, *, days: int = 0, region: str = "r-1") -> DatedPrice:
    """A price on demand that is so many days old."""
    return DatedPrice(Market.ON_DEMAND, region, dollars * DOLLAR, NOW - days * DAY_US, "list")


def spot(dollars: int, zone: str, *, hours: int = 0) -> DatedPrice:
    """A spot price that is so many hours old."""
    return DatedPrice(Market.SPOT, "r-1", dollars * DOLLAR, NOW - hours * HOUR_US, "history", zone)


ON_DEMAND, SPOT = Offering(("a.big",), Market.ON_DEMAND), Offering(("a.big",), Market.SPOT)
REFRESH = "`gangline catalog refresh` asks for new ones"


@pytest.mark.parametrize(
    ("prices", "offering", "ceiling", "assumed"),
    [
        ((listed(40, days=90),), ON_DEMAND, 40, ()),
        (
            (listed(40, days=91),),
            ON_DEMAND,
            50,
            (f"the price of a.big in r-1 is 91 days old (2026-10-16): taken × 1.25; {REFRESH}",),
        ),
        (
            (listed(40, region="r-2"), listed(32, region="r-3")),
            ON_DEMAND,
            50,
            ("a.big has no price in r-1: that of r-2 is taken, × 1.25",),
        ),
        ((listed(40), spot(10, "r-1a"), spot(12, "r-1b", hours=6)), SPOT, 12, ()),
        (
            (listed(40), spot(12, "r-1b", hours=7)),
            SPOT,
            40,
            (f"the spot price of a.big in r-1 is 7 hours old: its price on demand is taken; {REFRESH}",),
        ),
        (
            (listed(40),),
            SPOT,
            40,
            (f"no spot price of a.big in r-1 is known: its price on demand is taken; {REFRESH}",),
        ),
    ],
    ids=["fresh", "old", "elsewhere", "spot", "old spot", "unknown spot"],
)
def test_a_price_is_taken_dearer_than_it_says_where_it_may_have_moved(
    prices: tuple[DatedPrice, ...], offering: Offering, ceiling: int, assumed: tuple[str, ...]
) -> None:
    made = figures(None, cloud(offering, high=1), priced(*prices), Workload(), NOW)

    assert made.cost_then.ceiling == ceiling * DOLLAR
    assert made.assumed == assumed


def test_both_reasons_count_and_both_are_said() -> None:
    """Of another region and old: 40 dollars twice a quarter more are 62.50."""
    made = figures(
        None, cloud(ON_DEMAND, high=1), priced(listed(40, days=200, region="r-2")), Workload(), NOW
    )

    assert made.cost_then.ceiling == 62_500_000
    assert len(made.assumed) == 2


def test_a_negotiated_price_does_not_age_and_comes_first() -> None:
    spec = cloud(ON_DEMAND, SPOT, high=1)
    own = Price("a.big", Market.ON_DEMAND, 21 * DOLLAR)
    spec = replace(spec, sites=(replace(spec.sites[0], negotiated=(own,)),))

    made = figures(None, spec, priced(listed(40, days=500), spot(12, "r-1a")), Workload(), NOW)

    assert made.cost_then == Span(12 * DOLLAR, 21 * DOLLAR, 21 * DOLLAR)
    assert made.assumed == ()


def test_a_reservation_costs_what_its_type_costs_on_demand() -> None:
    reserved = Offering(("a.big",), Market.CAPACITY_RESERVATION, reservation="cr-1")

    made = figures(None, cloud(reserved, high=2), CATALOG, Workload(), NOW)

    assert made.cost_then == Span(40 * DOLLAR, 40 * DOLLAR, 80 * DOLLAR)
    assert "site use1: capacity reservations while no node runs in them" in made.uncounted


def test_fixed_nodes_cost_the_same_whatever_work_there_is() -> None:
    site = Site("use1", SiteKind.AWS, region="r-1")
    pool = Pool("f", "use1", nodes=("f1", "f2", "f3"), offerings=(ON_DEMAND,))

    made = figures(None, ClusterSpec("c", sites=(site,), pools=(pool,)), CATALOG, Workload(), NOW)

    assert made.cost_then == Span(120 * DOLLAR, 120 * DOLLAR, 120 * DOLLAR)
    assert made.watts_then == NOTHING


def test_what_aws_bills_besides_instances_is_named() -> None:
    spec = cloud(ON_DEMAND)
    site = replace(spec.sites[0], vpc=Vpc(nat=Nat.PER_ZONE, endpoints=("s3", "ec2")))
    kept = replace(spec.sites[0], name="usw2", vpc=Vpc(id="vpc-1"))
    storage = (
        Storage("fast", StorageKind.FSX, "/fast", size=1 << 40, sites=("use1",)),
        Storage("kept", StorageKind.EFS, "/kept", source="fs-1"),
    )
    spec = replace(spec, sites=(site, kept), storage=storage, controller=Controller(instance=HOST))

    assert figures(None, spec, CATALOG, Workload(), NOW).uncounted == (
        "site use1: a NAT gateway in each zone, by the hour and by what passes through it",
        "site use1: endpoints ec2, by the hour and zone",
        "site use1: data that goes to other zones and to the internet",
        "site use1: the root disks of nodes (EBS)",
        "site use1: storage fast (FSx for Lustre)",
        "site usw2: data that goes to other zones and to the internet",
        "the controller's instance m7i.large, and its disk",
    )


# --- the nearest limit -----------------------------------------------------------------------------------------------


def powered(*domains: PowerDomain) -> SitePower:
    return SitePower(domains=domains)


def test_the_domain_with_the_least_left_binds() -> None:
    """4 nodes draw 8 kW: of 10 kW a fifth is left, of the rack's 5 kW for two nodes also; the derated one has less."""
    spec = hall(
        4,
        power=powered(
            PowerDomain("rack", parent="root", limit_watts=5_000, derate_milli=900, nodes=("n1", "n2")),
            PowerDomain("root", limit_watts=10_000),
        ),
    )

    made = figures(None, spec, CATALOG, Workload(), NOW)

    assert (made.binds, made.headroom, made.headroom_unit) == (
        "sites[hall].power.domains[rack]",
        500,
        "watts",
    )


def test_a_window_of_a_budget_binds_before_its_domain() -> None:
    spec = hall(4, power=powered(PowerDomain("root", limit_watts=10_000)))
    evening = Budget("evening", "root", (Window((0,), 0, 60, 9_000), Window((1,), 0, 60, 7_000)))

    made = figures(None, replace(spec, budgets=(evening,)), CATALOG, Workload(), NOW)

    assert (made.binds, made.headroom) == ("budgets[evening]", -1_000)


@pytest.mark.parametrize(
    ("budget", "field", "headroom"),
    [
        (Budget("b", microusd_per_hour=200 * DOLLAR), "usd_per_hour", 40 * DOLLAR),
        (Budget("b", scope=Scope(site="use1"), microusd_per_hour=100 * DOLLAR), "usd_per_hour", -60 * DOLLAR),
        (
            Budget("b", scope=Scope(pool="b"), microusd_per_month=744 * 170 * DOLLAR),
            "usd_per_month",
            10 * DOLLAR,
        ),
    ],
)
def test_a_budget_on_money_binds_by_its_field(budget: Budget, field: str, headroom: int) -> None:
    spec = replace(cloud(Offering(("a.big",), Market.ON_DEMAND)), budgets=(budget,))

    made = figures(None, spec, CATALOG, Workload(), NOW)

    assert (made.binds, made.headroom) == (f"budgets[b].{field}", headroom)
    assert made.headroom_unit == "microusd_per_hour"


@pytest.mark.parametrize("scope", [Scope(queue="q"), Scope(site="elsewhere")])
def test_a_budget_for_other_things_does_not(scope: Scope) -> None:
    spec = replace(
        cloud(Offering(("a.big",), Market.ON_DEMAND)),
        budgets=(Budget("b", scope=scope, microusd_per_hour=DOLLAR),),
    )

    assert figures(None, spec, CATALOG, Workload(), NOW).headroom in (0, DOLLAR)


# --- load on power domains -------------------------------------------------------------------------------------------


def load_of(*domains: PowerDomain) -> dict[str, int]:
    """With three nodes that draw 900 W each."""
    site = Site("hall", SiteKind.METAL, power=powered(*domains))
    return loads(site, {"n1": 900, "n2": 900, "n3": 900})


def test_nodes_that_no_domain_names_hang_on_the_only_root() -> None:
    root = PowerDomain("root", unmanaged_watts=100)
    rack = PowerDomain("rack", parent="root", nodes=("n1",), unmanaged_watts=50)

    assert load_of(root, rack) == {"root": 2_700 + 100 + 50, "rack": 950}


def test_with_two_roots_they_hang_on_none() -> None:
    assert load_of(PowerDomain("a", nodes=("n1",)), PowerDomain("b")) == {"a": 900, "b": 0}


@pytest.mark.parametrize(
    ("rule", "feeds", "each"),
    [
        (Redundancy.N, ("a", "b"), 1_350),
        (Redundancy.TWO_N, ("a", "b"), 2_700),
        (Redundancy.N_PLUS_1, ("a", "b", "c"), 1_350),
    ],
)
def test_feeds_share_a_load_by_their_rule(rule: Redundancy, feeds: tuple[str, ...], each: int) -> None:
    """What they hang on carries it once."""
    rack = PowerDomain("rack", nodes=("n1", "n2", "n3"), fed_by=feeds, redundancy=rule)
    upper = tuple(PowerDomain(name, parent="root") for name in feeds)

    assert load_of(PowerDomain("root"), *upper, rack) == {
        "root": 2_700,
        "rack": 2_700,
        **dict.fromkeys(feeds, each),
    }
