"""Tables of the reference pages for which there is no model: metrics, endpoints, commands.

Strategy: collectors are asked for their metrics while there is nothing to count, so that a page names the metrics that
a scrape would name. `python docs/tables.py` writes the tables into the pages, and tests compare them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self, cast

import click
from prometheus_client.metrics_core import Metric


class Nothing:
    """Stand-in for any object that a collector looks at: it has every attribute, and all of them are empty, or 0."""

    def __getattr__(self, name: str) -> Self:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any) -> Self:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getitem__(self, name: Any) -> Self:
        return self

    def __len__(self) -> int:
        return 0

    def __int__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0

    def __sub__(self, other: Any) -> int:
        return 0

    def bytes_read(self) -> tuple[int, int]:
        """Return 0 for the bytes read from clients and from brokers."""
        return 0, 0


def metrics() -> str:
    """Return the table of the metrics in `/metrics`: name, type, labels and help text."""
    rows = ["| metric | type | labels | what |", "|---|---|---|---|"]
    for _, one in sorted({family.name: family for family in families()}.items()):
        name = f"{one.name}_total" if one.type == "counter" else one.name
        labels = ", ".join(f"`{label}`" for label in getattr(one, "_labelnames", ()))
        rows.append(f"| `{name}` | {one.type} | {labels} | {one.documentation} |")
    return "\n".join(rows) + "\n"


def families() -> Iterator[Metric]:
    """Yield all metrics of kproxy's own collectors, without samples."""
    from kproxy.admin.webhook.server import WebhookMetrics
    from kproxy.record.component_collectors import (
        AuditCollector,
        ConfigCollector,
        ProcessCollector,
        RuleCollector,
        WorkerCollector,
    )
    from kproxy.record.metrics.client_telemetry import TelemetryConfig
    from kproxy.record.metrics.totals import LabelTotals, MetricsConfig
    from kproxy.record.metrics.traffic import LogCollector, TrafficCollector
    from kproxy.record.metrics.worker_totals import LabelCollector, TelemetryCollector
    from kproxy.record.otlp.export import OtlpCollector, OtlpCounters
    from kproxy.rules.document.store import RuleStore
    from kproxy.runtime.upstreams.registry import Registries
    from kproxy.session.counters import Counters

    nothing = cast("Any", Nothing())
    by_label = MetricsConfig(by=["topic", "client_id", "principal", "group"])
    totals = LabelTotals(by_label, TelemetryConfig(to=["metrics"]))
    yield from TrafficCollector(Counters(), nothing, tuple, nothing, nothing).collect()
    yield from RuleCollector(RuleStore(), nothing, 0).collect()
    yield from AuditCollector(nothing).collect()
    yield from OtlpCollector(OtlpCounters()).collect()
    yield from Registries(cast("Any", None)).collect()
    yield from WorkerCollector(nothing, nothing).collect()
    yield from ProcessCollector({}).collect()
    yield from ConfigCollector(nothing).collect()
    yield from LogCollector(lambda: 0).collect()
    yield from LabelCollector(totals).collect()
    yield from TelemetryCollector(totals, lambda: 0.0).collect()
    yield from WebhookMetrics("").collect()


def endpoints() -> str:
    """Return the table of the admin address: method, path, description, and the tokens that each operation accepts."""
    from kproxy.admin.api import DESCRIPTION, OPEN_PATHS, OPERATIONS, PAGE, READY

    opened = dict(
        zip(OPEN_PATHS, ("Return 200 while the process runs.", "Return 200 if brokers respond."), strict=True)
    )
    opened |= {
        f"{READY}{{cluster}}": "Return 200 if brokers of one cluster respond.",
        PAGE: "Return the live view's page.",
    }
    plain = {"/metrics": "Return the metrics.", DESCRIPTION: "Return the OpenAPI description."}
    found = [("GET", path, text, "yes", "yes") for path, text in opened.items()]
    found += [("GET", path, text, "–", "yes") for path, text in plain.items()]
    found += [(one.method, one.path, one.summary, "–", "–" if one.writes else "yes") for one in OPERATIONS]
    rows = ["| method | path | description | no token | read token | full token |", "|---|---|---|---|---|---|"]
    rows += [f"| {method} | `{path}` | {text} | {none} | {read} | yes |" for method, path, text, none, read in found]
    return "\n".join(rows) + "\n"


def commands() -> str:
    """Return the table of the commands: name, description in one line."""
    from kproxy.cli import COMMANDS

    rows = ["| command | effect |", "|---|---|"]
    rows += [f"| `kproxy {name}` | {text} |" for name, (_, text) in COMMANDS.items()]
    return "\n".join(rows) + "\n"


def options() -> str:
    """Return a section for each command with its arguments and options."""
    from kproxy.cli import main

    return "\n".join(command_sections(main, click.Context(main, info_name="kproxy")))


def command_sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the sections of a command and its subcommands."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from command_sections(found, click.Context(found, info_name=name, parent=context))
        return
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = " ".join((command.help or "").partition("\n\n")[0].split())
    rows = [record for one in command.params if (record := one.get_help_record(context)) and record[1]]
    lines = ["| option | effect |", "|---|---|"]
    lines += [f"| `{pipe(name)}` | {cell(effect)} |" for name, effect in rows if "--help" not in name]
    table = "\n".join(lines) + "\n" if len(lines) > 2 else ""
    yield f"### {context.command_path}\n\n{cell(text)}\n\n```\n{usage}\n```\n\n{table}"


def pipe(text: str) -> str:
    """Return a text with pipes escaped for a table."""
    return text.replace("|", "\\|")


def cell(text: str) -> str:
    """Return a text of the command line for a page."""
    return pipe(" ".join(text.split())).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def explored_faults() -> str:
    """Return the table of the faults that explorations try: API, fault, class, place in Kafka's source."""
    from kproxy.testing.explore.plan import fault_table

    rows = ["| API | fault | class | place in Kafka's source |", "|---|---|---|---|"]
    for api, faults in fault_table().by_api.items():
        for number, fault in enumerate(faults):
            source = "no broker does it" if fault.source == "none" else fault.source
            rows.append(f"| {'' if number else api} | {fault.text} | {fault.kind_of} | {source} |")
    return "\n".join(rows) + "\n"


def known_clients() -> str:
    """Return the table of known behaviour of client libraries: client, versions, symptom, faults, reference."""
    from kproxy.testing.explore.report import known_behaviours

    rows = ["| client | versions | symptom | outcome | faults |", "|---|---|---|---|---|"]
    for one in known_behaviours():
        symptom = f"{one.symptom} ([{one.reference.partition('.com/')[2]}]({one.reference}))"
        rows.append(f"| {one.client} | {one.versions} | {symptom} | {one.outcome} | {'; '.join(one.faults)} |")
    return "\n".join(rows).replace("*", "\\*") + "\n"


def verify_checks() -> str:
    """Return the table of the checks: name, levels, definition, limits, detail."""
    from kproxy.tools.verify import checks

    rows = ["| check | level | what it finds | silent | needs |", "|---|---|---|---|---|"]
    for one in checks().values():
        needs = f"{one.detail}; events lack {one.events}" if one.events else one.detail
        level = one.level if one.fails == "proved" else f"{one.level}, fails on {one.fails}"
        rows.append(f"| `{one.name}` | {level} | {one.definition} | {one.silent} | {needs} |")
    return "\n".join(rows) + "\n"


def verify_models() -> str:
    """Return the table of the models of the checks: name, claim, assumptions, doubts by name."""
    from kproxy.tools.verify import checks

    rows = ["| check | claim | assumes | doubts |", "|---|---|---|---|"]
    for one in checks().values():
        doubts = ", ".join(f"`{doubt}`" for doubt in one.doubts)
        rows.append(f"| `{one.name}` | {one.claim} | {one.assumes} | {doubts} |")
    return "\n".join(rows) + "\n"


def verify_doubts() -> str:
    """Return the table of the doubts of checks: name and text."""
    from kproxy.tools.verify.finding import table

    rows = ["| doubt | other cause of a finding |", "|---|---|"]
    rows += [f"| `{name}` | {text} |" for name, text in table()["doubts"].items()]
    return "\n".join(rows) + "\n"
