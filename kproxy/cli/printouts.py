"""Commands that print static facts: JSON Schemas, the protocol's table, the kinds of rules, shell completion."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import click
from click.shell_completion import get_completion_class

from kproxy.base.terminal import console, say
from kproxy.protocol.table.layout import grammar
from kproxy.protocol.table.schema import Api, apis
from kproxy.rules.document.lint import lint_rules
from kproxy.rules.document.read import read_document, unknown_kind
from kproxy.rules.document.reference import FieldRow, rows, sentence
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.rules.select.match import ConnectionMatch
from kproxy.rules.trigger import When
from kproxy.rules.values.source import Source

from .decode import find_api, known_version

DIALECT = "https://json-schema.org/draft/2020-12/schema"

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_KPROXY_COMPLETE"
"""Environment variable that the script sets to ask kproxy for completions; click derives it from the name kproxy."""
HEADINGS = ("key", "name", "versions", "aliases")


@click.command("schema")
@click.argument("what", type=click.Choice(["rules", "config", "tests"]))
def schema_command(what: str) -> None:
    """Print the JSON Schema of rule documents, of config documents or of tests of rules.

    Editors with YAML support take it, for instance by a first line
    `# yaml-language-server: $schema=kproxy-rules.json`.
    """
    schema = {"rules": rules_schema, "config": config_schema, "tests": tests_schema}[what]()
    say(json.dumps(schema, indent=2))


def config_schema() -> dict[str, Any]:
    from kproxy.app.config.document import Config

    return {"$schema": DIALECT, **Config.model_json_schema()}


def tests_schema() -> dict[str, Any]:
    """Return the JSON Schema of a `*.test.yaml` file. Any field may be in a `body`: they depend on API and version."""
    from kproxy.tools.rehearse.cases.model import CaseFile

    return {"$schema": DIALECT, **CaseFile.model_json_schema()}


def rules_schema() -> dict[str, Any]:
    """Return the JSON Schema of a rule document: rules of all kinds, told apart by `kind`, and stages of them."""
    from kproxy.rules.document import reference as json_schema

    return json_schema.rules_schema()


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print a script for SHELL that completes kproxy's commands, options and file names with the tab key.

    \b
      bash:  echo 'eval "$(kproxy completion bash)"' >> ~/.bashrc        (bash 4.4 or newer)
      zsh:   echo 'eval "$(kproxy completion zsh)"' >> ~/.zshrc
      fish:  kproxy completion fish > ~/.config/fish/completions/kproxy.fish
    """
    from kproxy.cli import main

    found = get_completion_class(shell)
    assert found is not None, "click knows all of them"
    say(found(main, {}, "kproxy", VARIABLE).source())


@click.command("protocol")
@click.argument("api", required=False)
@click.argument("version", type=int, required=False)
def protocol_command(api: str | None, version: int | None) -> None:
    """List the APIs; or show one (by name or key), and the grammar of its request and response.

    Without VERSION the newest is shown. The notation is that of Kafka's protocol guide: COMPACT_ types and a TAG_BUFFER
    in flexible versions, arrays in brackets.
    """
    if api is None:
        print_api_table() if sys.stdout.isatty() else print_apis()
        return
    found = find_api(api)
    if version is None:
        say("\n".join(facts(found)) + "\n")
    for line in grammars(found, known_version(found, found.versions.last if version is None else version)):
        say(line)


def row(api: Api) -> tuple[str, str, str, str]:
    return str(api.key), api.name, str(api.versions), ", ".join(api.aliases)


def print_apis() -> None:
    """Print a line for each API, in columns of blanks, for pipes."""
    rows = [HEADINGS, *map(row, apis())]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEADINGS))]
    for line in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_api_table() -> None:
    """Print a line for each API, in a table for terminals."""
    from rich.table import Table

    made = Table(*HEADINGS, box=None, header_style="bold")
    for line in map(row, apis()):
        made.add_row(*line)
    console().print(made)


def facts(api: Api) -> Iterator[str]:
    """Yield what the table says about an API as a whole, a line for each fact."""
    yield f"{api.name} (key {api.key})"
    if api.aliases:
        yield f"  also called  {', '.join(api.aliases)}"
    yield f"  versions     {api.versions}"
    yield f"  flexible     {api.flexible or 'none'}"
    if api.unstable:
        yield f"  not final    {api.unstable}"
    yield f"  served by    {', '.join(api.listeners)}"
    releases = (f"{versions or 'removed'} from Kafka {release}" for release, versions in api.releases.items())
    yield f"  in brokers   {'; '.join(releases)}"


def grammars(api: Api, version: int) -> Iterator[str]:
    """Yield the grammars of request and response, with an empty line between."""
    yield grammar(api.key, version, "request")
    yield ""
    yield grammar(api.key, version, "response")


WIDTH = 100
"""Columns of text; wider is hard to read, and narrower terminals wrap it."""


@click.command("kinds")
@click.argument("kind", required=False)
def command(kind: str | None) -> None:
    """List the kinds of rules by what they are for, or show one: its fields, an example, what is warned of."""
    if kind is None:
        table() if sys.stdout.isatty() else plain()
    elif kind in KINDS:
        say("\n".join(describe(kind, KINDS[kind])))
    else:
        raise click.UsageError(f"{unknown_kind(kind)}:\n{textwrap.fill(', '.join(KINDS), WIDTH)}")


def plain() -> None:
    """Print a line for each kind, below the title of its group."""
    width = max(map(len, KINDS))
    for number, (title, kinds) in enumerate(KINDS.by_title().items()):
        say(f"{chr(10) if number else ''}{title}")
        for name in kinds:
            say(f"  {name:{width}}  {sentence(KINDS[name])}")


def table() -> None:
    """Print the kinds in colours and columns, for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    out = console(markup=True)
    for number, (title, kinds) in enumerate(KINDS.by_title().items()):
        rows_of_group = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        rows_of_group.add_column(width=max(map(len, KINDS)) + 2)
        for name in kinds:
            rows_of_group.add_row(f"  [cyan]{name}[/]", escape(sentence(KINDS[name])))
        out.print(f"{chr(10) if number else ''}[bold]{title}[/]", highlight=False)
        out.print(rows_of_group)


def describe(name: str, model: type[Rule]) -> Iterator[str]:
    first, *others = (model.__doc__ or "").split("\n\n")
    yield f"{name}: {_one_line(first)}"
    for paragraph in others:
        if paragraph.strip():
            yield ""
            yield from textwrap.wrap(_one_line(paragraph), WIDTH)
    yield ""
    directions = " and ".join(f"{direction}s" for direction in model.directions)
    if issubclass(model, LiveRule):
        yield "takes effect at the next frame"
    else:
        yield f"changes {directions}; needs {', '.join(model.needs)}; binds when a {model.scope} opens"
    yield ""
    yield "fields"
    yield from _fields(list(rows(model)))
    yield ""
    yield "match and not select on (all of them must hold; a list is any of)"
    yield from _fields(list(rows(FrameMatch if issubclass(model, LiveRule) else ConnectionMatch)))
    if issubclass(model, LiveRule):
        yield ""
        yield "when says which of those it acts on"
        yield from _fields(list(rows(When)))
    yield ""
    yield "example"
    yield textwrap.indent(model.example.rstrip(), "  ")
    if warnings := list(warned_of(model)):
        yield ""
        yield "a rule like this is loaded, and warned of"
        for text in warnings:
            yield textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def warned_of(model: type[Rule]) -> Iterator[str]:
    """Yield the warnings that `kproxy check` prints for the example."""
    document = read_document(Source("example", "rules:\n" + model.example))
    yield from (warning.text for warning in lint_rules(document.parsed_rules))


def _fields(entries: list[FieldRow]) -> Iterator[str]:
    width = max(len(row.key) for row in entries) + 4
    for row in entries:
        default = "required" if not row.default else f"default {row.default}"
        yield f"  {row.key:{width - 2}}{row.what.replace('`', '')} ({default})"
        yield textwrap.fill(row.text, WIDTH, initial_indent=" " * width, subsequent_indent=" " * width)


def _one_line(text: str) -> str:
    return " ".join(text.split())
