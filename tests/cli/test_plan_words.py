"""Plans as people read them."""

from __future__ import annotations

from orchestrator.cli import plan_words
from orchestrator.model.change import (
    Change,
    ChangeKind,
    ChangeSet,
    Figures,
    PlanStep,
    Source,
    Span,
    StepKind,
    UpdateClass,
    WorkEffect,
    WorkFate,
)

NOTHING = ChangeSet("atlas", "w", "r", "o")


def change(path: str, old: str, new: str, cls: UpdateClass = UpdateClass.IN_PLACE, **rest: object) -> Change:
    kind = ChangeKind.CHANGED if old and new else ChangeKind.ADDED if new else ChangeKind.REMOVED
    return Change(path, kind, cls, old=old, new=new, **{"source": Source.SPEC, **rest})  # type: ignore[arg-type]


def plan(*changes: Change, **rest: object) -> ChangeSet:
    return ChangeSet("atlas", "w", "r", "o", changes=changes, **rest)  # type: ignore[arg-type]


def test_nothing_is_one_line() -> None:
    assert plan_words.words(NOTHING) == "cluster atlas: nothing to change"
    assert plan_words.markdown(NOTHING) == "### cluster atlas: nothing to change\n"


def test_the_controllers_own_host_has_a_block_and_a_step_of_its_own() -> None:
    own = change(
        "host[c1].archive[/opt/gangline/controller.pyz].sha256",
        "ab",
        "cd",
        UpdateClass.CONTROLLER,
        source=Source.DRIFT,
        nodes=("c1",),
        why="the controller restarts; jobs run on",
    )
    steps = (
        PlanStep("controller.host", StepKind.CONTROLLER, "it differs", "", ("c1",), ("controller",)),
        PlanStep("record", StepKind.RECORD, "the controller takes the file over"),
    )
    text = plan_words.words(
        plan(own, change("queues[q].weight", "1", "2", UpdateClass.CONTROLLER), steps=steps)
    )
    assert text.split("\n\n")[1:] == [
        (
            "controller host\n"
            "  ~ archive[/opt/gangline/controller.pyz].sha256: ab -> cd  [the controller alone, drift]  on c1\n"
            "      the controller restarts; jobs run on"
        ),
        "the whole cluster\n  ~ queues[q].weight: 1 -> 2  [the controller alone]",
        "steps:\n  controller host: configure (controller)\n  controller: record",
    ]


def test_a_plan_is_read_from_top_to_bottom() -> None:
    nodes = ("h1", "h2", "h3")
    found = plan(
        change("queues[research].weight", "1", "2", UpdateClass.CONTROLLER),
        change(
            "pools[h100].software.driver",
            "570.1",
            "580.2",
            UpdateClass.RECONFIGURE,
            pool="h100",
            nodes=nodes,
            why="a loaded driver can't be replaced under work",
        ),
        work=(
            WorkEffect(7, "alice", WorkFate.DRAINED, ("h1", "h2"), why="ends in 20m at the latest"),
            WorkEffect(9, "bob", WorkFate.BLOCKS, ("h3",)),
        ),
        figures=Figures(
            Span(1_000_000, 2_000_000, 3_000_000),
            Span(1_000_000, 2_000_000, 3_000_000),
            Span(3000, 9000, 33_000),
            Span(4000, 12_000, 44_000),
            "power domain rack-1",
            -2000,
            "watts",
            ("switches",),
            ("prices of last year",),
        ),
        steps=(
            PlanStep("record", StepKind.RECORD, "the file"),
            PlanStep("h100.1.cordon", StepKind.CORDON, "driver", "h100", ("h1", "h2"), (), 1),
            PlanStep(
                "h100.1.configure", StepKind.CONFIGURE, "driver", "h100", ("h1", "h2"), ("base", "gpu"), 1
            ),
            PlanStep("h100.2.cordon", StepKind.CORDON, "driver", "h100", ("h3",), (), 2),
        ),
    )
    assert (
        plan_words.words(found)
        == """\
cluster atlas: 2 changes (1 the controller alone, 1 drain and reconfigure)

the whole cluster
  ~ queues[research].weight: 1 -> 2  [the controller alone]

pool h100
  ~ pools[h100].software.driver: 570.1 -> 580.2  [drain and reconfigure]  on h[1-3]
      a loaded driver can't be replaced under work

running work:
  job 7 of alice on h[1-2]: drained: it ends by itself before the deadline (ends in 20m at the latest)
  job 9 of bob on h3: not stopped: the change waits for it

at least, expected, at most:
  power: 3.0, 9.0, 33.0 -> 4.0, 12.0, 44.0 kW
  cost: 1.0, 2.0, 3.0 $/h, unchanged
  tightest: power domain rack-1, exceeded by 2.0 kW at the ceiling
  assumed: prices of last year
  not counted: switches

steps:
  controller: record
  pool h100 batch 1: cordon, configure (base+gpu): h[1-2]
  pool h100 batch 2: cordon: h3"""
    )


def test_hosts_that_drift_alike_share_a_line() -> None:
    drifted = [
        change(
            f"host[h{number}].package[chrony].held",
            "no",
            "yes",
            source=Source.DRIFT,
            pool="p",
            nodes=(f"h{number}",),
        )
        for number in (1, 2, 4)
    ]
    other = change("host[h3].package[chrony].held", "no", "yes", source=Source.SPEC, pool="p", nodes=("h3",))
    lines = plan_words.words(plan(*drifted, other)).splitlines()
    assert lines[3:] == [
        "  ~ package[chrony].held: no -> yes  [in place, drift]  on h[1-2,4]",
        "  ~ package[chrony].held: no -> yes  [in place]  on h3",
    ]


def test_refusals_say_what_would_let_them_pass() -> None:
    found = plan(
        change(
            "metadata.name",
            "atlas",
            "titan",
            UpdateClass.REFUSED,
            why="a cluster's name is its identity",
            unblock="make a new cluster",
        ),
        change("storage[scratch].purge", "false", "true", UpdateClass.DESTROYS, consent="storage/scratch"),
        blockers=("metadata.name can't change",),
        unseen=("h9: no route to host",),
    )
    text = plan_words.words(found)
    assert "      to let it pass: make a new cluster" in text
    assert "      it needs --consent storage/scratch" in text
    assert "apply would refuse this:\n  ! metadata.name can't change" in text
    assert "could not be looked at:\n  ? h9: no route to host" in text


def test_texts_of_files_are_not_poured_out() -> None:
    found = plan(change("host[h1].file[/etc/x].content", "a\nb\nc", "a\nb", pool="p", nodes=("h1",)))
    assert "(3 lines) -> (2 lines)" in plan_words.words(found)


def test_what_can_wait_is_no_change_of_now() -> None:
    found = plan(change("host[h1].unit[x].active", "no", "yes", source=Source.GANGLINE, deferred=True))
    assert plan_words.words(found).startswith("cluster atlas: nothing to change now; 1 change can wait")
    assert "this version of Gangline, can wait" in plan_words.words(found)


def test_names_of_others_drive_no_terminal() -> None:
    found = plan(change("queues[\x1b[31m].weight", "1", "\x1b]0;x\x07", UpdateClass.CONTROLLER))
    assert "\x1b" not in plan_words.words(found)


def test_markdown_colours_what_changes() -> None:
    text = plan_words.markdown(plan(change("queues[a].weight", "1", "2", UpdateClass.CONTROLLER)))
    assert text.startswith("### cluster atlas: 1 change")
    assert "\n! queues[a].weight: 1 -> 2" in text


def test_a_plan_for_some_hosts_says_so() -> None:
    said = plan_words.words(ChangeSet("lab", "w", "r", "o", only=("h1", "h2")))
    assert "only on h[1-2], as --limit says: all other hosts stay as they are" in said
    assert "--limit" not in plan_words.words(ChangeSet("lab", "w", "r", "o"))


def test_of_a_long_value_the_beginning_is_shown_and_of_many_lines_their_number() -> None:
    pool = change("pools[burst]", "", "{site: use1, offerings: [" + 50 * "x" + "]}")
    text = change("file[/etc/motd].content", "", "a\nb")
    shown = plan_words.words(plan(pool, text))
    assert "  + pools[burst]: {site: use1, offerings: [" + 34 * "x" + "…  [in place]" in shown
    assert "  + file[/etc/motd].content: (2 lines)  [in place]" in shown
