"""`kproxy kinds`: what rules can do, from the models themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

from kproxy.rules.explain import unknown
from kproxy.rules.frame_match import FrameMatch
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base import Rule
from kproxy.rules.kinds.live import LiveRule
from kproxy.rules.match import ConnectionMatch
from kproxy.rules.reference import Row, rows, sentence

WIDTH = 100
"""Columns of text; wider is hard to read, and narrower terminals wrap it."""


@click.command("kinds")
@click.argument("kind", required=False)
def command(kind: str | None) -> None:
    """List the kinds of rules, or show one with its fields and an example."""
    if kind is None:
        width = max(map(len, KINDS))
        for name, model in KINDS.items():
            click.echo(f"{name:{width}}  {sentence(model)}")
    elif kind in KINDS:
        click.echo("\n".join(describe(kind, KINDS[kind])))
    else:
        raise click.UsageError(unknown("kind", kind, KINDS))


def describe(name: str, model: type[Rule]) -> Iterator[str]:
    """The page of one kind."""
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
    yield ""
    yield "example"
    yield textwrap.indent(model.example.rstrip(), "  ")


def _fields(entries: list[Row]) -> Iterator[str]:
    width = max(len(row.key) for row in entries) + 4
    for row in entries:
        default = "required" if not row.default else f"default {row.default}"
        yield f"  {row.key:{width - 2}}{row.what.replace('`', '')} ({default})"
        yield textwrap.fill(row.text, WIDTH, initial_indent=" " * width, subsequent_indent=" " * width)


def _one_line(text: str) -> str:
    return " ".join(text.split())
