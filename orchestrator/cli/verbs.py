"""The shape of every verb: help with examples, near misses named, sub-commands loaded when they are called.

Comes in: functions and their options. Goes out: click commands and groups. Called by: every `*_cmd` module; main.
Nothing heavier than click may be imported here: `--help` has 150 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Example(NamedTuple):
    """One line that can be typed, and what it does."""

    line: str
    does: str


class Lazy(NamedTuple):
    """A sub-command that is imported when it is called: module, name of the command there, one line of help."""

    module: str
    attribute: str
    help: str


def write_examples(formatter: click.HelpFormatter, examples: Sequence[Example]) -> None:
    """The section of examples, each with its purpose as a comment above it."""
    if not examples:
        return
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':{formatter.current_indent}}# {example.does}\n")
            formatter.write(f"{'':{formatter.current_indent}}$ {example.line}\n")


class Verb(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[Example] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


class Verbs(click.Group):
    """A group of verbs; members may be given as `Lazy`. A word that is nearly a member is answered with it, one
    that other tools have with what is said here (`elsewhere`)."""

    def __init__(
        self,
        *args: Any,
        lazy: dict[str, Lazy] | None = None,
        examples: Sequence[Example] = (),
        elsewhere: dict[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.elsewhere = elsewhere or {}
        self.lazy = lazy or {}
        self.examples = tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *(name for name in self.lazy if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in self.lazy:
            found = self.lazy[cmd_name]
            self.commands[cmd_name] = getattr(import_module(found.module), found.attribute)
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(f"there is no command '{name}'{self._near(ctx, name)}")
        return super().resolve_command(ctx, args)

    def _near(self, ctx: click.Context, name: str) -> str:
        if name in self.elsewhere:
            return f"; here it is {self.elsewhere[name]}"
        near = get_close_matches(name, self.list_commands(ctx), n=3, cutoff=0.6)
        return f"; did you mean {' or '.join(near)}?" if near else ""

    def help_of(self, name: str) -> str:
        """The one line for a member, without loading it where that can be helped."""
        if name in self.lazy:
            return self.lazy[name].help
        return self.commands[name].get_short_help_str(limit=100)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.help_of(name)) for name in self.list_commands(ctx)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


def verb(
    name: str, *, examples: Sequence[Example] = (), group: click.Group | None = None, **attributes: Any
) -> Callable[[Callable[..., Any]], Verb]:
    """Make a `Verb` of a function, and a member of `group` if there is one; the docstring is the help."""
    attributes.setdefault("context_settings", SETTINGS)

    def make(function: Callable[..., Any]) -> Verb:
        made = click.command(name, cls=Verb, examples=examples, **attributes)(function)
        if group is not None:
            group.add_command(made)
        return made

    return make
