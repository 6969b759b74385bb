"""`kproxy rules kinds`: list the kinds of rules, or show one with its fields."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

import click

from kproxy.base.terminal import console, say
from kproxy.rules.document.lint import lint_rules
from kproxy.rules.document.read import read_document, unknown_kind
from kproxy.rules.document.reference import FieldRow, rows, sentence
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.rules.select.match import ConnectionMatch
from kproxy.rules.trigger import When
from kproxy.rules.values.source import Source

WIDTH = 100
"""Columns of text; wider is hard to read, and narrower terminals wrap it."""


@click.command("kinds")
@click.argument("kind", required=False)
def command(kind: str | None) -> None:
    """List the kinds of rules by group, or show one with fields, example and warnings."""
    if kind is None:
        table() if sys.stdout.isatty() else plain()
    elif kind in KINDS:
        say("\n".join(describe(kind, KINDS[kind])))
    else:
        raise click.UsageError(f"{unknown_kind(kind)}:\n{textwrap.fill(', '.join(KINDS), WIDTH)}")


def plain() -> None:
    """Print a line for each kind, below the title of its group."""
    width = max(map(len, KINDS))
    for number, (title, kinds) in enumerate(KINDS.by_group().items()):
        say(f"{chr(10) if number else ''}{title}")
        for name in kinds:
            say(f"  {name:{width}}  {sentence(KINDS[name])}")


def table() -> None:
    """Print the kinds in colours and columns, for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    out = console(markup=True)
    for number, (title, kinds) in enumerate(KINDS.by_group().items()):
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
