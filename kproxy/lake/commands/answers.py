"""`kproxy audit report` and `kproxy rules simulate`."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kproxy.base.errors import plural
from kproxy.base.terminal import console, in_line, output_option, say
from kproxy.lake.answers import SHOWN

from .lake import job, page_option

if TYPE_CHECKING:
    from kproxy.lake.spark import Run
    from kproxy.lake.whatif.job import WhatIf

DAY = click.DateTime(["%Y-%m-%d"])

RULES = ("rule", "kind", "matched", "fired", "applied", "requests", "changed", "answered", "closed", "lost",
         "delay_ms_max", "clients", "topics", "approximate")  # fmt: skip
AFFECTED = ("rule", "client_id", "client_address", "api", "topic", "requests")
SAMPLES = ("rule", "time", "client_id", "api", "version", "topics", "capture", "connection", "number")


def check_period(first: datetime | None, last: datetime | None, **_: Any) -> None:
    """Check the days of `report`. Raises UsageError."""
    if first and last and first > last:
        raise click.UsageError(f"--from: expected a day until {last.date()}, got {first.date()}")


@click.command("report")
@page_option("-o", "--output", text="Write an HTML page.")
@click.option("--from", "first", type=DAY, metavar="DATE", help="First day, UTC.")
@click.option("--to", "last", type=DAY, metavar="DATE", help="Last day, UTC.")
@click.option("--rows", type=click.IntRange(1, 10_000), default=SHOWN, show_default=True, help="Rows of each table.")
@partial(job, check=check_period)
def report_command(run: Run, output: Path | None, first: datetime | None, last: datetime | None, rows: int) -> None:
    """Tell what gold knows: headlines here, everything on one HTML page with -o.

    The page is one file of some 5 MB that loads nothing: it may be sent, kept and printed.
    """
    from kproxy.lake.report.page import write_report
    from kproxy.lake.report.report_builder import Period

    period = Period(first and first.date(), last and last.date())
    write_report(run.lake, period, output, rows)


@click.command("simulate")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE…")
@click.option(
    "--rules", "rule_paths", multiple=True, required=True, type=click.Path(exists=True, path_type=Path), metavar="PATH",
    help="Rule file, or a folder of them; may be given often.",
)  # fmt: skip
@click.option(
    "--ports", default="9092", show_default=True, help="Ports of brokers in captures of tcpdump, with commas."
)
@click.option("--tasks", type=click.IntRange(1), help="Parts to divide the connections into; by default one a core.")
@click.option("--most", type=click.IntRange(1), default=20, show_default=True, help="Rows of `affected` to print.")
@click.option("--save", metavar="NAME", help="Also write the whole result to the lake, below simulations/NAME.")
@output_option("table", "json")
@partial(job, in_python=True)
def simulate_command(
    run: Run, captures: tuple[str, ...], rule_paths: tuple[Path, ...], ports: str, tasks: int | None, most: int,
    save: str | None, output: str,
) -> None:  # fmt: skip
    """Count what rules would do to the traffic in CAPTUREs: requests, clients and topics.

    Captures must hold whole frames (`kproxy capture … --payload full`, or tcpdump without a snap length). A rule that
    counts over all connections is marked approximate: each task has only some of them. Nothing is sent anywhere.
    """
    from kproxy.lake.whatif.job import whatif
    from kproxy.rules.document.read import rule_files

    texts = [(str(path), path.read_text(encoding="utf-8", errors="surrogateescape")) for path in rule_files(rule_paths)]
    result = whatif(run.spark, list(captures), texts, ports=ports, tasks=tasks)
    run.tell(f"simulate: {plural(result.exchanges, 'exchange')}")
    for why, count in sorted(result.unfit.items()):
        run.tell(f"simulate: {plural(count, 'exchange')} skipped, {why}")
    if save:
        for name in ("rules", "affected", "samples"):
            getattr(result, name).write.mode("overwrite").parquet(f"{run.lake.path}/simulations/{save}/{name}")
    if output == "json":
        say(json.dumps(simulation_document(result, most), indent=2, ensure_ascii=False, default=str))
    else:
        show_simulation(result, most)


def simulation_document(result: WhatIf, most: int) -> dict[str, Any]:
    return {
        "exchanges": result.exchanges,
        "unfit": result.unfit,
        "rules": [row.asDict() for row in result.rules.collect()],
        "affected": [row.asDict() for row in result.affected.limit(most).collect()],
        "samples": [row.asDict() for row in result.samples.collect()],
    }


def show_simulation(result: WhatIf, most: int) -> None:
    """Print three tables; tab-separated lines in pipes."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    answers = simulation_document(result, most)
    for title, columns, rows in (
        ("Effect of each rule", RULES, answers["rules"]),
        ("Affected clients and topics", AFFECTED, answers["affected"]),
        ("Samples", SAMPLES, answers["samples"]),
    ):
        if not out.is_terminal:
            for row in rows:
                say("\t".join(cell(row[name]) for name in columns))
            continue
        table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
        for name in columns:
            table.add_column(name)
        for row in rows:
            table.add_row(*(Text(in_line(cell(row[name]))) for name in columns))
        out.print(table)
        out.print()


def cell(value: Any) -> str:
    """Return a value as text without tabs and line ends; - for null and for an empty list."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(cell, value)) or "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "".join(char if char.isprintable() else " " for char in str(value))
