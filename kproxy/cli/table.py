"""Rows of values: a table on a terminal, tab-separated lines without a head in pipes, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from kproxy.terminal import console, in_line, say

as_json = click.option("--json", "as_json", is_flag=True, help="Print the API's answer as JSON.")
"""The option; the command gets `as_json`."""


def print_rows(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """One line a row."""
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
    """Indented, with all letters as they are."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def text(value: Any) -> str:
    """One cell: nothing is -, yes and no, lists by commas; no tab or line end is left in it."""
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
