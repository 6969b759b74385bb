"""The command line: `kproxy COMMAND …`. Exit codes: 0 ok, 1 failed, 2 usage.

Commands are imported when they are called, not before: the help text and each single command then start in some
hundred milliseconds, whatever the others need.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from kproxy.errors import DocumentError, KproxyError

COMMANDS = {
    "run": ("kproxy.cli.run", "Start the proxy."),
    "check": ("kproxy.cli.check", "Check rule and config files, every mistake at once."),
    "explain": ("kproxy.cli.explain", "Say what rules make of an API or a frame, and why."),
    "test": ("kproxy.cli.run_tests", "Run the tests of rules, *.test.yaml."),
    "kinds": ("kproxy.cli.kinds", "List the kinds of rules, or show one with its fields."),
    "schema": ("kproxy.cli.schema", "Print the JSON Schema of rule or config files, for editors."),
    "rules": ("kproxy.cli.rules", "See and change the rules of a running proxy."),
    "connections": ("kproxy.cli.connections", "See, close and recycle the connections of a running proxy."),
    "tail": ("kproxy.cli.tail", "See what passes through a running proxy, or passed in captures and event files."),
    "show": ("kproxy.cli.show", "Print one exchange of a capture: all fields beside their bytes."),
    "stats": ("kproxy.cli.stats", "Count what is in captures and event files."),
    "capture": ("kproxy.cli.capture", "Record what passes through a running proxy in a file, or say what is in one."),
    "replay": ("kproxy.cli.replay", "Send recorded requests to a cluster again, or serve recorded answers to clients."),
    "redact": ("kproxy.cli.redact", "Write a capture without what users wrote."),
    "filter-help": ("kproxy.cli.filter_help", "Print the filter language of tail, show, stats and captures."),
    "protocol": ("kproxy.cli.protocol", "List the protocol's APIs, or print the grammar of one."),
    "decode": ("kproxy.cli.decode", "Print the fields of frames."),
    "demo": ("kproxy.cli.demo", "Show kproxy at work on a mock cluster; needs the extra `demo`."),
}
"""Name: (module with a click command called `command`, what it does in one line)."""


class LazyGroup(click.Group):
    """A group whose commands are in COMMANDS and imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(_unknown(args[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error that kproxy knows is a message and exit code 1, not a traceback."""
        try:
            return super().invoke(ctx)
        except DocumentError as error:
            click.echo(str(error), err=True)
        except KproxyError as error:
            click.echo(f"kproxy: {error}", err=True)
        return ctx.exit(1)


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, n=1)
    hint = f', did you mean "{close[0]}"?' if close else ","
    return f'unknown command "{name}"{hint} there are: {", ".join(COMMANDS)}'


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kproxy", prog_name="kproxy", message="%(prog)s %(version)s")
def main() -> None:
    """A transparent proxy for Kafka's wire protocol."""
