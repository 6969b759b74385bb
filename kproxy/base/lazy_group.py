"""A click group whose commands are in a table and imported when they are called, not before.

The help text and each single command then start in some hundred milliseconds, whatever the others need.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from .errors import DocumentError, KproxyError
from .terminal import cleaned, say

Commands = Mapping[str, tuple[str, str]]
"""Commands by name: each is (`module:command`, description in one line)."""


class LazyGroup(click.Group):
    """Command group whose members are named in `table`. KproxyErrors become a message and exit code 1, no traceback."""

    def __init__(self, *arguments: Any, table: Commands, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.table:
            ctx.fail(self._unknown(args[0]))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return what the tab key offers: options, and commands, of which none is imported."""
        commands = [CompletionItem(name, help=text) for name, (_, text) in self.table.items()]
        matching = [one for one in commands if one.value.startswith(incomplete)]
        return matching + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run the command line with output in which control characters are escaped."""
        with cleaned():
            return super().main(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn a KproxyError into a message and exit code 1."""
        try:
            return super().invoke(ctx)
        except DocumentError as error:
            say(str(error), err=True)
        except KproxyError as error:
            say(f"kproxy: {error}", err=True)
        return ctx.exit(1)

    def _unknown(self, name: str) -> str:
        close = get_close_matches(name, self.table, n=1)
        hint = f', did you mean "{close[0]}"?' if close else ","
        return f'unknown command "{name}"{hint} there are: {", ".join(self.table)}'
