"""Options that several verbs share, each defined once.

Comes in: nothing. Goes out: decorators. Called by: the `*_cmd` modules. What they read goes into the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from orchestrator.cli.session import Session
from orchestrator.model.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback that puts the option's value into the session and gives nothing to the function."""

    def callback(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
        session = ctx.find_object(Session)
        if session is not None and value is not None:
            setattr(session, name, value)

    return callback


def output(*formats: str) -> Callable[[F], F]:
    """`-o FORMAT` with these formats, the first one being the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        expose_value=False,
        is_eager=True,
        callback=_keep("output"),
        help="Format of what is printed.",
    )


def listing(function: F) -> F:
    """The formats of lists, and `--no-headers`."""
    from orchestrator.cli.output import FORMATS

    headers = click.option(
        "--no-headers",
        "headers",
        flag_value=False,
        default=None,
        expose_value=False,
        callback=_keep("headers"),
        help="Leave the header line of tables out.",
    )
    return output(*FORMATS)(headers(function))


def controller(function: F) -> F:
    """Which controller is asked: `--server` or `--context`."""
    server = click.option(
        "--server",
        envvar="GANGLINE_SERVER",
        metavar="URL",
        expose_value=False,
        callback=_keep("server"),
        help="Address of the controller, instead of the current context; the token is in GANGLINE_TOKEN.",
    )
    context = click.option(
        "--context",
        envvar="GANGLINE_CONTEXT",
        metavar="NAME",
        expose_value=False,
        callback=_keep("context"),
        help="Name of a cluster that this machine knows.",
    )
    return server(context(function))


def consent(function: F) -> F:
    """`--consent NAME`, for what a plan would lose."""
    return click.option(
        "--consent",
        "consents",
        multiple=True,
        metavar="NAME",
        help="Agree to the loss of data that the plan names; several: repeated, or with commas.",
    )(function)


def defer(function: F) -> F:
    """`--defer`, for what only this version of Gangline wants."""
    return click.option(
        "--defer",
        is_flag=True,
        help="Leave for later what this version of Gangline wants on nodes and the file does not.",
    )(function)


def yes(function: F) -> F:
    """`--yes`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)


def listed(values: Iterable[str]) -> tuple[str, ...]:
    """What an option that may be repeated names: `--x a --x b`, `--x a,b` and both together, each once."""
    pieces = (piece.strip() for value in values for piece in value.split(","))
    return tuple(dict.fromkeys(piece for piece in pieces if piece))


def skip(function: F) -> F:
    """`--skip CHECK`: checks of sums that a cluster file need not pass, and looks at an AWS account."""
    return click.option(
        "--skip",
        multiple=True,
        metavar="CHECK",
        expose_value=False,
        callback=_skipped,
        help="Leave checks of sums out, as in guarantee-over-power, or looks at an AWS account, as in quota; several: "
        "repeated, or with commas.",
    )(function)


def _skipped(ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> None:
    session = ctx.find_object(Session)
    if session is None or not values:
        return
    from orchestrator.model.findings import LIVE_CHECKS
    from orchestrator.spec import SKIPPABLE
    from orchestrator.wire.faults import plain, suggestion

    known = SKIPPABLE | LIVE_CHECKS
    found: set[str] = set()
    for name in listed(values):
        code = known.get(name.removeprefix("spec."))
        if code is None:
            hint = suggestion(name.removeprefix("spec."), list(known), "check")
            raise InputError(
                "cli.unknown-check", f"no check '{plain(name, 60)}' can be skipped", hint, "--skip"
            )
        found.add(code)
    session.skip = frozenset(found)
