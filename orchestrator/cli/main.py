"""The entry of `gangline`: finds the verb, runs it, and turns whatever happens into an exit code.

Comes in: `sys.argv`. Goes out: the process's exit code. Called by: the console script, `python -m orchestrator.cli`,
tests. No traceback leaves here unless GANGLINE_DEBUG=1 asks for one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import click

from orchestrator.cli.commands import ELSEWHERE, SECTIONS
from orchestrator.cli.session import Session
from orchestrator.cli.verbs import SETTINGS, Example, Verbs

COMPLETION = "_GANGLINE_COMPLETE"  # set by the completion script while a shell completes

EXIT_CODES: tuple[tuple[int, str], ...] = (
    (0, "done, or nothing to do"),
    (1, "failed"),
    (2, "the input is invalid (spec, job, arguments)"),
    (3, "changes or drift are present"),
    (4, "partly done; running it again converges"),
    (5, "refused by a budget, a quota, a policy or access control"),
    (6, "timed out"),
    (125, "`run` and `submit --wait`: Gangline failed, not the job"),
    (126, "`run` and `submit --wait`: refused"),
    (130, "interrupted"),
)


class Root(Verbs):
    """The top of the command: its help lists the verbs by purpose, without loading one."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        wide = max(len(name) for members in SECTIONS.values() for name in members)
        for title, members in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{wide}}", lazy.help) for name, lazy in members.items()])


@click.group(
    "gangline",
    cls=Root,
    lazy={name: lazy for members in SECTIONS.values() for name, lazy in members.items()},
    context_settings=SETTINGS,
    elsewhere=ELSEWHERE,
    examples=[
        Example("gangline demo", "everything on this machine, in half a minute"),
        Example(
            "gangline run -n 16 --gpus-per-task 1 -- python train.py", "sixteen processes that start together"
        ),
        Example("gangline explain 42", "why job 42 waits"),
    ],
)
@click.version_option(package_name="gangline", message="gangline %(version)s")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Colours in the output; auto obeys NO_COLOR and FORCE_COLOR.",
)
@click.pass_obj
def root(session: Session, color: str) -> None:
    """GPU clusters as code, with their own queue and gang scheduler."""
    session.color = color


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    session = Session()
    arguments = sys.argv[1:] if argv is None else argv
    _stand_ins()
    try:
        code = run(arguments, session)
        sys.stdout.flush()
        return code
    except BaseException as error:  # noqa: BLE001 - the last place: it becomes a sentence and an exit code
        if argv is None:
            _next_interrupt_ends()
        from orchestrator.cli import errors

        return errors.report(error, session)


def _stand_ins() -> None:
    """A caller may have closed any of the three (`>&-`): the null device stands in, so that nothing else that is opened
    gets its number, and what is written goes nowhere."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _next_interrupt_ends() -> None:
    """Somebody may press Ctrl-C again while we say goodbye: that ends us at once, without another traceback."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(arguments: list[str], session: Session) -> int:
    """Run the verb; its return value is the exit code where it is a number."""
    asked = os.environ.get(COMPLETION)
    if asked:
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, "gangline", COMPLETION, asked)
    with root.make_context("gangline", list(arguments), obj=session) as context:
        done: Any = root.invoke(context)
    return done if isinstance(done, int) else 0
