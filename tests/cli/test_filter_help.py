"""`kproxy help filters`: the filter language, as the parser has it."""

from __future__ import annotations

from click.testing import CliRunner

from kproxy.cli import main
from kproxy.cli.filters import markdown
from kproxy.rules.filter.exchange_fields import FIELDS


def test_all_fields_are_in_it() -> None:
    """With their short forms and an example."""
    shown = CliRunner().invoke(main, ["help", "filters"]).stdout
    lines = {line[12:].split()[0]: line for line in shown.splitlines() if line[12:].strip()}

    for field in FIELDS:
        assert lines[field.name].startswith(f"  {'~' + field.short if field.short else ''}")
    assert "~lat latency time from request in to response out; ~lat > 200ms" in " ".join(shown.split())


def test_tail_prints_the_same() -> None:
    """Where one looks for it."""
    runner = CliRunner()

    assert runner.invoke(main, ["tail", "--help-filter"]).stdout == runner.invoke(main, ["help", "filters"]).stdout


def test_no_line_is_too_long() -> None:
    """For a terminal of usual width and a bit."""
    shown = CliRunner().invoke(main, ["help", "filters"]).stdout

    assert max(map(len, shown.splitlines())) <= 120


def test_the_table_of_the_page() -> None:
    """A row for each field."""
    rows = markdown().splitlines()

    assert len(rows) == len(FIELDS) + 2
    assert rows[2].startswith("| `~k` | `api` | the API")
