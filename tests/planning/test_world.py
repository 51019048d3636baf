"""What a plan is made from: what an unfinished apply owes, and what counts for whether the world still matches."""

from __future__ import annotations

from dataclasses import replace

from orchestrator import catalog
from orchestrator.model.change import ChangeSet, PlanStep, StepKind
from orchestrator.model.cluster import ClusterSpec
from orchestrator.model.codec import decode, encode
from orchestrator.model.host import ItemKind, Step
from orchestrator.planning.plan import plan
from orchestrator.planning.roster import pools_by_node
from orchestrator.planning.world import Left, Observed, Recorded, Workload, left_by, owed_by, with_left
from tests.planning.scene import (
    NOW,
    RESOLVED,
    base,
    document,
    drifted,
    facts,
    load,
    node,
    recorded_desired,
    sight,
)


def step(kind: StepKind, *nodes: str) -> PlanStep:
    return PlanStep(f"p.1.{kind}", kind, "", "p", nodes)


def test_an_apply_owes_nodes_that_it_took_or_meant_to_take() -> None:
    done = [(step(StepKind.CORDON, "n1", "n2"), True), (step(StepKind.UNCORDON, "n1", "n2"), True)]
    begun = [(step(StepKind.CORDON, "n3"), True), (step(StepKind.UNCORDON, "n3"), False)]
    never = [(step(StepKind.CORDON, "n4"), False)]
    gone = [(step(StepKind.CORDON, "n5"), True), (step(StepKind.RETIRE, "n5"), True)]

    assert owed_by([*done, *begun, *never, *gone]) == ("n3", "n4")
    assert owed_by([(step(StepKind.CONFIGURE, "n1"), False)]) == ()


def retire(name: str, done: bool, failed: bool) -> tuple[PlanStep, bool, bool]:
    return step(StepKind.RETIRE, name), done, failed


def test_a_host_is_left_until_it_was_seen_to_stop_or_has_failed_too_often() -> None:
    went = [retire("n1", done=True, failed=False)]
    killed = [retire("n2", done=False, failed=False)]
    later = [retire("n3", done=False, failed=True), retire("n3", done=True, failed=False)]
    back = [retire("n4", done=False, failed=True), (step(StepKind.ENROL, "n4"), True, False)]
    silent = [retire("n5", done=False, failed=True)] * 2

    assert left_by([*went, *killed, *later, *back, *silent]) == ("n2", "n5")
    assert left_by(silent + silent[:1]) == ()
    assert left_by([retire("n2", done=False, failed=False)] * 9) == ("n2",)


def test_a_host_that_was_left_stands_where_it_stood() -> None:
    pool, site = base().pool("old"), base().site("hall")
    one = Left("head-1", replace(pool, nodes=("head-1",)), site)
    known = with_left(base(), [one])
    assert known.pool("old").nodes == (*pool.nodes, "head-1")
    assert known.site("hall") == site, "the address was there already"

    without = replace(base(), sites=base().sites[:1], pools=())
    alone = with_left(without, [one, Left("a100-2", pool, site)])
    assert alone.pool("old").nodes == ("head-1", "a100-2")
    assert [host.name for host in alone.site("hall").hosts] == ["head-1", "a100-2"]
    assert with_left(base(), []) == base()


def made_from(observed: Observed, recorded: Recorded | None = None) -> ChangeSet:
    known = recorded or Recorded(base(), recorded_desired(base()))
    return plan(base(), known, observed, catalog.load(), Workload(), NOW, RESOLVED)


def test_a_later_look_that_sees_the_same_matches() -> None:
    first = Observed((sight("h100-01"), sight("h100-02")))
    other_boot = replace(facts("h100-01"), boot_id="another", clock_skew_ms=12, kernel="6.1")
    later = Observed((sight("h100-02"), replace(sight("h100-01"), seen_us=NOW + 1, facts=other_boot)))

    assert made_from(first).observed == made_from(later).observed


def test_what_changes_the_plan_does_not_match() -> None:
    first = made_from(Observed((sight("h100-01"),))).observed
    others = (
        Observed((sight("h100-01", reboot_needed=True),)),
        Observed((replace(sight("h100-01"), facts=facts("another")),)),
        Observed((replace(sight("h100-01"), reached=Step.AUTH, facts=None),)),
        Observed((sight("h100-01"), sight("h100-02"))),
        Observed((sight("h100-01"),), looked=False),
        Observed((sight("h100-01", drifted(ItemKind.SYSCTL, "vm.swappiness", "value", "10", "60")),)),
        Observed((sight("h100-01", drifted(ItemKind.SYSCTL, "vm.swappiness", "value", "10", "61")),)),
        Observed((replace(sight("h100-01"), checked=False),)),
    )

    assert len({first, *(made_from(other).observed for other in others)}) == 1 + len(others)


def test_another_record_does_not_match() -> None:
    known = Recorded(base(), recorded_desired(base()))
    others = (
        replace(known, spec=replace(base(), timezone="UTC")),
        replace(known, desired=known.desired[:1]),
        replace(known, owed=("h100-01",)),
        replace(known, left=(Left("x", base().pool("old"), base().site("hall")),)),
        Recorded(),
    )
    made = [made_from(Observed(looked=False), one).recorded for one in (known, *others)]

    assert len(set(made)) == len(made)


def test_words_of_a_plan_say_where_and_why() -> None:
    """A reader who sees only this knows what happens to whom."""
    wanted = replace(base(), name="other")
    made = plan(
        wanted,
        Recorded(base(), recorded_desired(base())),
        Observed(looked=False),
        catalog.load(),
        Workload(),
        NOW,
        RESOLVED,
    )

    (blocker,) = made.blockers
    assert blocker == (
        "metadata.name: the name is what the cluster's state and everything that it made are found by; "
        "give the old name back, or bring a new cluster up beside this one"
    )


def test_hosts_that_nobody_looked_at_are_as_recorded_and_in_nobodys_way() -> None:
    """With `--limit` one host is looked at; the others are not held for lost, or no node could be taken at all."""
    wanted = load(document({"pools[h100].software.driver": "580.200.1"}))
    known = Recorded(base(), recorded_desired(base()))
    observed = Observed((sight("h100-01"),))

    made = plan(wanted, known, observed, catalog.load(), Workload(), NOW, RESOLVED)

    assert (made.unseen, made.blockers) == ((), ())
    cordoned = [step.nodes for step in made.steps if step.kind is StepKind.CORDON]
    assert cordoned[0] == ("h100-01", "h100-02")


def test_references_to_secrets_are_recorded_so_that_they_compare_and_can_be_followed() -> None:
    """The record is the file as it was, keys by reference included: what is only hidden from people is not missing."""
    recorded = decode(ClusterSpec, encode(base()))
    keys = {site.name: site.ssh.key for site in recorded.sites if site.ssh.key}
    world = Recorded(recorded, recorded_desired(base()), tuple(node(name) for name in pools_by_node(base())))
    seen = Observed(tuple(sight(name) for name in pools_by_node(base())))

    made = plan(base(), world, seen, catalog.load(), Workload(), NOW, RESOLVED)

    assert keys == {"hall": "file:/etc/gangline/ssh/full"}
    assert made.empty()
