"""Options that several verbs share, each defined once.

Comes in: nothing. Goes out: decorators. Called by: the `*_cmd` modules. What they read goes into the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from orchestrator.cli.session import Session

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
        help="Agree to the loss of data that the plan names; once for each.",
    )(function)


def yes(function: F) -> F:
    """`--yes`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)
