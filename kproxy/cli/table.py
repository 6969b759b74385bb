"""Rows of values: a table on a terminal, tab-separated lines without a head in pipes, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from kproxy.terminal import console, in_line, say

as_json = click.option("--json", "as_json", is_flag=True, help="Print the API's answer as JSON.")
"""Decorator that adds the option --json; the command gets the argument `as_json`."""


def print_rows(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a line for each row: a table with heads on a terminal, cells separated by tabs in pipes."""
    if not sys.stdout.isatty():
        for row in rows:
            say("\t".join(text(value) for value in row))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(head)
    for row in rows:
        table.add_row(*(Text(text(value)) for value in row))
    console().print(table)


def print_json(value: Any) -> None:
    """Print a value as indented JSON in which letters beyond ASCII are not escaped."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def text(value: Any) -> str:
    """Return a cell's text, without tabs or line ends: `-` for None, yes or no, lists separated by commas."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(text, value)) or "-"
        case dict():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return in_line(value) or "-"
