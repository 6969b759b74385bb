"""`kproxy audit show`: rows of a gold table, read with Arrow, without Spark and without Java.

Strategy. Gold tables are small: each is some Parquet files that are read whole, chosen from, sorted as the report sorts
them, and cut. What a table is called and has comes from the declarations that Spark's schemas are made of.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kproxy.base.distribution import how_to_install
from kproxy.base.errors import InternalError, plural
from kproxy.base.terminal import as_json, console, in_line, output_option, print_json, print_rows, say
from kproxy.lake.answers import GoldAnswer
from kproxy.lake.gold_tables import ANSWERS, answer_named
from kproxy.record.events.column import Column

if TYPE_CHECKING:
    import pyarrow as pa

NAMED = ("topic", "group", "principal", "client_id", "cluster")
"""Columns that have an option of their own."""
LARGEST = {"int": 2**31 - 1, "long": 2**63 - 1}
WIDEST = 100_000
"""Characters of a line."""
PATIENCE = 2.0
"""Seconds for which a table that is being replaced may not be there."""


class GoldTable(click.Choice[str]):
    """Name of a gold table; the message for another one names `kproxy audit list`."""

    def __init__(self) -> None:
        super().__init__([answer.name for answer in ANSWERS])

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "`kproxy audit list` prints the tables."


@click.command("show")
@click.argument("table", type=GoldTable(), metavar="TABLE")
@click.option(
    "--lake", default="lake", show_default=True, envvar="KPROXY_LAKE", metavar="PATH",
    help="Folder or URI of the lake; also from KPROXY_LAKE.",
)  # fmt: skip
@click.option("--topic", multiple=True, metavar="NAME", help="Rows of this topic only.")
@click.option("--group", multiple=True, metavar="NAME", help="Rows of this group only.")
@click.option("--principal", multiple=True, metavar="NAME", help="Rows of this principal only.")
@click.option("--client-id", multiple=True, metavar="NAME", help="Rows of this client id only.")
@click.option("--cluster", multiple=True, metavar="NAME", help="Rows of this cluster only.")
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Rows with this value in a column only.")
@click.option("--rows", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="Rows at most.")
@output_option("text", "json", "csv", text="Output format; json is one object a line.")
def show_command(table: str, lake: str, where: tuple[str, ...], rows: int, output: str, **named: Any) -> None:
    """Print rows of a gold TABLE, without Spark; `kproxy audit list` prints the tables.

    In names and values * stands for any characters. Given more than once, an option means any of the values; different
    options have to hold together.
    """
    answer = answer_named(table)
    wanted = conditions(answer, where, named)
    found = read(answer, lake)
    for column, texts in wanted.items():
        found = found.filter(holds(found, column, texts))
    count = found.num_rows
    found = in_order(found, answer)[:rows]
    if output == "json":
        for row in found.to_pylist():
            say(json.dumps({name: plain(value) for name, value in row.items()}, ensure_ascii=False))
    elif output == "csv":
        say(as_csv(answer, found.to_pylist()), nl=False)
    else:
        print_table(answer, found.to_pylist())
    if count > rows:
        say(f"{plural(count - rows, 'more row')}: --rows N prints more", err=True)


@click.command("list")
@as_json
def list_command(as_json: bool) -> None:
    """List the gold tables: name and question of each. `kproxy audit show TABLE` prints the rows of one."""
    if as_json:
        print_json([{"table": answer.name, "question": answer.question, "columns": [one.name for one in answer.columns]}
                    for answer in ANSWERS])  # fmt: skip
    else:
        print_rows(("table", "question"), [(answer.name, in_line(answer.question)) for answer in ANSWERS])


def conditions(answer: GoldAnswer, where: Iterable[str], named: dict[str, tuple[str, ...]]) -> dict[Column, list[str]]:
    """Return the values that are wanted, by column. Raises UsageError for columns that the table lacks, or cannot be
    asked for."""
    pairs = [(name, value, f"--{name.replace('_', '-')}") for name in NAMED for value in named[name]]
    for one in where:
        name, equals, value = one.partition("=")
        if not equals:
            raise click.UsageError(f"--where {one}: COLUMN=VALUE is expected")
        pairs.append((name, value, f"--where {one}"))
    columns = {column.name: column for column in answer.columns}
    wanted: dict[Column, list[str]] = {}
    for name, value, said in pairs:
        column = columns.get(name) or columns.get(f"broker_{name}")  # some tables have brokers' names only
        if column is None:
            raise click.UsageError(f"{said}: {answer.name} has no column {name!r}, it has {', '.join(columns)}")
        check(column, value, said)
        wanted.setdefault(column, []).append(value)
    return wanted


def check(column: Column, value: str, said: str) -> None:
    """Raise UsageError for a value that the column can never have."""
    if column.type in ("int", "long"):
        if not re.fullmatch(r"-?[0-9]{1,19}", value) or abs(int(value)) > LARGEST[column.type]:
            raise click.UsageError(f"{said}: {column.name} is a whole number up to {LARGEST[column.type]}")
    elif column.type == "boolean":
        if value not in ("true", "false"):
            raise click.UsageError(f"{said}: {column.name} is true or false")
    elif column.type != "string":
        raise click.UsageError(f"{said}: rows cannot be chosen by {column.name}, which is a {column.type}")


def read(answer: GoldAnswer, lake: str) -> pa.Table:
    """Read all rows of a table. Raises InternalError if there is none."""
    try:
        import pyarrow.dataset as ds
        from pyarrow import fs
    except ModuleNotFoundError as error:
        raise InternalError(f"pyarrow is not installed: {how_to_install('pipeline')}") from error
    until = time.monotonic() + PATIENCE
    while True:
        try:
            system, path = (fs.LocalFileSystem(), lake) if "://" not in lake else fs.FileSystem.from_uri(lake)
            place = f"{path}/gold/{answer.name}"
            there = system.get_file_info(f"{path}/gold").type == fs.FileType.Directory
            if system.get_file_info(place).type == fs.FileType.Directory:
                rows = ds.dataset(place, format="parquet", filesystem=system)
                check_columns(answer, lake, rows.schema.names, files=bool(rows.files))
                return rows.to_table(columns=[column.name for column in answer.columns])
        except FileNotFoundError:  # it is being replaced
            there = True
        except (OSError, ValueError, KeyError) as error:
            raise InternalError(f"{lake}: {answer.name} cannot be read: {in_line(error)}") from error
        if not there:
            raise InternalError(f"{lake}: no gold tables; build them with `kproxy audit run`")
        if time.monotonic() > until:
            raise InternalError(f"{lake}: no table {answer.name}; build it with `kproxy audit run`")
        time.sleep(0.1)


def check_columns(answer: GoldAnswer, lake: str, there: Iterable[str], *, files: bool) -> None:
    """Raise InternalError for a table without the columns that it has: one of no files, or of another kproxy."""
    if not files:
        raise InternalError(
            f"{lake}: {answer.name} has no files; build it again with `kproxy audit run --rebuild gold`"
        )
    if missing := {column.name for column in answer.columns}.difference(there):
        what = f"lacks {', '.join(sorted(missing))}: another version of kproxy has made it"
        raise InternalError(f"{lake}: {answer.name} {what}; build it again with `kproxy audit run --rebuild gold`")


def holds(rows: pa.Table, column: Column, texts: list[str]) -> Any:
    """Return a mask of the rows that have one of these values in a column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = rows[column.name].combine_chunks()
    parents = None
    if column.array:
        parents, values = pc.list_parent_indices(values), pc.list_flatten(values)
    if column.type == "string":
        pattern = "|".join(f"(?:{'.*'.join(re.escape(part) for part in text.split('*'))})" for text in texts)
        found = pc.match_substring_regex(values, f"(?s)^(?:{pattern})$")
    else:
        found = pc.is_in(values, pa.array([number_of(text) for text in texts]).cast(values.type))
    found = pc.fill_null(found, False)
    if parents is None:
        return found
    kept = set(pc.filter(parents, found).to_pylist())
    return pa.array([number in kept for number in range(rows.num_rows)], pa.bool_())


def number_of(text: str) -> int | bool:
    return text == "true" if text in ("true", "false") else int(text)


def in_order(rows: pa.Table, answer: GoldAnswer) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = []
    for column, how in answer.sort_keys():
        if how == "rank":
            ranks = pc.fill_null(pc.index_in(rows[column], pa.array(answer.worst_first, pa.string())), -1)
            rows = rows.append_column(f"rank of {column}", ranks)
            keys.append((f"rank of {column}", "ascending"))
        else:
            keys.append((column, how))
    return rows.sort_by(keys).select([column.name for column in answer.columns])


def plain(value: object) -> object:
    """Return a value as JSON has it: times in UTC by ISO 8601."""
    return text_of(value) if isinstance(value, datetime) else value


def text_of(value: object) -> str:
    """Return a value as text; empty: there is none."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    if isinstance(value, list):
        return "; ".join(map(text_of, value))
    return str(value)


def csv_text_of(value: object) -> str:
    """Return a value as CSV has it: a number with all of its digits, as JSON has it: programs go on from there."""
    return repr(value) if isinstance(value, float) else text_of(value)


def as_csv(answer: GoldAnswer, rows: Iterable[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(column.name for column in answer.columns)
    writer.writerows([csv_text_of(row[column.name]) for column in answer.columns] for row in rows)
    return text.getvalue()


def print_table(answer: GoldAnswer, rows: list[dict[str, Any]]) -> None:
    """Print rows in columns, without those that are empty in all of them."""
    from rich.box import SIMPLE
    from rich.table import Table

    if not rows:
        say(f"no rows of {answer.name}")
        return
    shown = [column for column in answer.columns if any(row[column.name] not in (None, []) for row in rows)]
    table = Table(box=SIMPLE, pad_edge=False)
    for column in shown:
        table.add_column(column.name, justify="left" if column.type in ("string", "timestamp") else "right")
    for line in cells(shown, rows):
        table.add_row(*line)
    made = console()
    made.width = WIDEST  # a terminal breaks long lines; nothing is left out
    made.print(table)


def cells(columns: list[Column], rows: Iterable[dict[str, Any]]) -> Iterator[list[str]]:
    for row in rows:
        yield [in_line(text_of(row[column.name])) for column in columns]
