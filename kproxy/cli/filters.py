"""Filters on command lines, and `kproxy help filters`: the filter language."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click

from kproxy.base.errors import FilterError
from kproxy.base.terminal import say
from kproxy.record.filters import Filter
from kproxy.rules.filter.exchange_fields import FIELDS
from kproxy.rules.filter.fields import Field

FILE_ENDINGS = (".pcapng", ".pcap", ".ndjson", ".gz", ".cap")


def make_filter(text: str) -> Filter:
    """Return the parsed filter. For an invalid one, prints the error and raises Exit with code 2."""
    try:
        return Filter(text)
    except FilterError as error:
        say(f"kproxy: {error}", err=True)
        raise click.exceptions.Exit(2) from None


def files_and_filter(words: Sequence[str]) -> tuple[list[str], Filter]:
    """Return the leading files (- is standard input), and the filter of all words after them.

    Raises UsageError for a missing file, recognized by the ending of the word: it would be an odd filter.
    """
    files: list[str] = []
    for number, word in enumerate(words):
        if not is_file(word):
            return files, make_filter(" ".join(words[number:]))
        files.append(word)
    return files, Filter()


def is_file(word: str) -> bool:
    """Return True for the name of a file or directory. Raises UsageError for a missing path that looks like a file."""
    if word == "-":
        return True
    try:
        there = Path(word).exists()
    except OSError:  # a filter may be longer than file names can be
        there = False
    if not there and word.endswith(FILE_ENDINGS) and " " not in word:
        raise click.UsageError(f"file not found: {word}")
    return there


OPERATORS = (
    ("field", "it is there, and is not 0, empty or false"),
    ("==  !=", "equal; none is equal"),
    ("~  !~", "a regular expression (RE2) is found in it; in none (behind ~ stands a blank)"),
    ("<  <=  >  >=", "less, more; durations and sizes have units: 200ms 10s 5m, 100 64KiB 1MB"),
    ("in (a, b)", "equal to any of these"),
    ("not A   !A", "A does not hold"),
    ("A and B   A & B   A B", "both hold; this binds more than or"),
    ("A or B   A | B", "at least one holds"),
    ("\"…\"  '…'", 'values with blanks, quotes or signs in them; a backslash is itself, but before " and \\'),
)
NOTES = """\
Of several values (topics, partitions, errors) any may fit; with != and !~ none may. Short forms need no operator: ~t
looks for an expression, ~p and ~acks compare. Fields of JSON in records have paths: value.customer.country,
value.items[*].qty, key.id; header.trace-id is one header. Conditions on records that are joined by `and` hold if one
record matches all of them. Filters on records need complete frames: live, and in captures with payload. Events contain
no records.
"""
WIDTH = 100
"""Columns of text; wider is hard to read."""


@click.command("filters")
def command() -> None:
    """Print the fields and operators of the filter language that `tail`, `show`, `stats` and captures share."""
    print_help()


def print_help() -> None:
    say("\n".join(lines(sys.stdout.isatty())))


def lines(people: bool) -> Iterator[str]:
    """Yield the lines of the whole help. `people`: with styles."""
    yield from _head("operators", people)
    width = max(len(sign) for sign, _ in OPERATORS) + 2
    for sign, meaning in OPERATORS:
        yield from _entry(sign, meaning, width)
    name_width = max(len(_names(one)) for one in FIELDS) + 2
    for group, fields in groupby(FIELDS, key=lambda one: one.group):
        yield ""
        yield from _head(group, people)
        for one in fields:
            yield from _entry(_names(one), f"{one.meaning}; {one.example}", name_width)
    yield ""
    yield NOTES.rstrip()


def _names(field: Field) -> str:
    return f"{'~' + field.short if field.short else '':10}{field.name}"


def _head(title: str, people: bool) -> Iterator[str]:
    yield click.style(title, bold=True) if people else title


def _entry(name: str, text: str, width: int) -> Iterator[str]:
    first, *more = textwrap.wrap(text, WIDTH - width - 2)
    yield f"  {name:{width}}{first}"
    for line in more:
        yield f"  {'':{width}}{line}"


def markdown() -> str:
    """Return the fields of the filter language as a Markdown table for the documentation."""
    found = ["| short | field | meaning | example |", "|---|---|---|---|"]
    for one in FIELDS:
        short = f"`~{one.short}`" if one.short else ""
        example = one.example.replace("|", "\\|")
        found.append(f"| {short} | `{one.name}` | {one.meaning} | `{example}` |")
    return "\n".join(found) + "\n"
