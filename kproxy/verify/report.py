"""Verdict as text: what was read, what was checked, each finding with its exchanges, and what is clean.

Names are chosen by clients, and any text of a verdict may have some in it: it is made safe for terminals here.
"""

from __future__ import annotations

import textwrap
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from typing import Any

from kproxy.distribution import own_version
from kproxy.terminal import StyledLine, in_line

from .facts import Witness
from .finding import LEVELS, Evidence, Finding, FindingLevel, Verdict, number_of, singular

WIDTH = 120
MARGIN = " " * 9
"""In front of what is said of a finding: as wide as its level."""
MOST_SHOWN = 5
"""Findings of a check that are shown unless something else is asked for."""
STYLES: Mapping[FindingLevel, str] = {"proved": "bold red", "suspect": "bold yellow", "note": "bold"}
TOLD_BY_BROKERS = frozenset((
    "Fetch", "ListOffsets", "Metadata", "OffsetFetch", "SyncGroup", "ApiVersions", "ShareFetch",
    "DescribeTopicPartitions",
))  # fmt: skip
"""APIs whose answers are what matters: the arrow shows to the client."""
TOLD_OF_CHECKS = ("acknowledged writes", "read afterwards", "not read", "commits", "groups")
"""Counts that are told together with others."""


def report_text(verdict: Verdict, title: str, most: int = MOST_SHOWN) -> str:
    """Return the report of a verdict as one text. `title`: what was read; `most`: findings shown of a check."""
    return "\n".join(line.text for line in report_lines(verdict, title, most))


def report_lines(verdict: Verdict, title: str, most: int = MOST_SHOWN) -> Iterator[StyledLine]:
    whole = "not all of it could be read:" if verdict.incomplete else "all read whole"
    exchanges, connections = number_of(verdict.exchanges, "exchange"), number_of(verdict.connections, "connection")
    yield StyledLine(f"{in_line(title)}: {exchanges} of {connections}, {whole}", "bold")
    for sentence in verdict.incomplete:
        yield from wrapped(f"missing   {sentence}", " " * 10, "yellow")
    yield StyledLine(f"checked   {checked(verdict.counts)}")
    shown: Counter[str] = Counter()
    for finding in verdict.findings:
        shown[finding.check] += 1
        if shown[finding.check] <= most:
            yield StyledLine("")
            yield from finding_lines(finding)
    for check, found in shown.items():
        if found > most:
            yield StyledLine("")
            yield StyledLine(f"{MARGIN}and {found - most} more of {in_line(check)}")
    if verdict.findings:
        yield StyledLine("")
    yield from wrapped(conclusion(verdict), "    ", "bold")
    if verdict.not_checked:
        reasons = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason(verdict.not_checked).items())
        yield from wrapped(f"not checked: {reasons}", "    ", "yellow")
    if verdict.exit_code is not None:
        yield from wrapped(f"exit code {verdict.exit_code}: {verdict.reason}", "    ")


def checked(counts: Mapping[str, int]) -> str:
    writes, read = counts.get("acknowledged writes", 0), counts.get("read afterwards", 0)
    some = "all of them" if read == writes else f"{read:,} of them"
    parts = [f"{number_of(writes, 'acknowledged write')}{f', {some} read afterwards' if writes else ''}"]
    groups = counts.get("groups", 0)
    of_groups = f" of {number_of(groups, 'group')}" if groups else ""
    parts.append(f"{number_of(counts.get('commits', 0), 'commit')}{of_groups}")
    for what, count in counts.items():
        if what not in TOLD_OF_CHECKS:
            parts.append(f"{count:,} {singular(what) if count == 1 else what}")
    return " · ".join(map(in_line, parts))


def conclusion(verdict: Verdict) -> str:
    levels = Counter(finding.level for finding in verdict.findings)
    found = ", ".join(f"{levels[level]} {level}" for level in LEVELS if levels[level])
    said = f"{number_of(len(verdict.findings), 'finding')} ({found})" if found else "nothing found"
    return f"{said}; clean: {', '.join(verdict.clean) or 'none'}"


def by_reason(not_checked: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for check, why in not_checked.items():
        found.setdefault(why, []).append(check)
    return found


def finding_lines(finding: Finding) -> Iterator[StyledLine]:
    times = f" · {finding.times:,} times" if finding.times > 1 else ""
    head = in_line(f"{finding.check} · {finding.about}{times}")
    yield StyledLine(f"{finding.level.upper():9}{head}", STYLES[finding.level])
    yield from wrapped(finding.says, MARGIN, first=MARGIN)
    yield from (StyledLine(row) for row in evidence_rows(finding.evidence))
    for detail in finding.details:
        yield from wrapped(detail, f"{MARGIN}  ", first=f"{MARGIN}  ")
    yield from wrapped(finding.else_, MARGIN, first=MARGIN)


def evidence_rows(evidence: Sequence[Evidence]) -> list[str]:
    days = {day_of(one.witness) for one in evidence}
    rows = [evidence_cells(one, with_day=len(days) > 1) for one in evidence]
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    return [
        f"{MARGIN}{number:>{max(2, widths[0])}}  {time}  {who:{widths[2]}}  {api:{widths[3]}}  {said}".rstrip()
        for number, time, who, api, said in rows
    ]


def evidence_cells(one: Evidence, *, with_day: bool) -> tuple[str, str, str, str, str]:
    """Return number, time, who talked with whom, which API, and what is seen there, of one exchange."""
    witness = one.witness
    note = "[no answer]" if witness.ended is None else "[kproxy's answer]" if witness.made_by_kproxy else ""
    said = " ".join(text for text in ("" if note in one.says else note, in_line(one.says)) if text)
    if witness.rules:
        names = ", ".join(f'"{in_line(name)}"' for name in witness.rules)
        said = f"{said}    rule{'s' if len(witness.rules) > 1 else ''} {names}".lstrip()
    return (
        str(witness.number or "-"), time_of(witness.began, with_day=with_day), in_line(parties(witness)),
        in_line(f"{witness.api} {witness.version}"), said,
    )  # fmt: skip


def parties(witness: Witness) -> str:
    """Return who talked with whom: `writer → node 1`; the arrow shows where what matters went."""
    client = witness.client or "a client without a name"
    broker = "bootstrap" if witness.node is None else f"node {witness.node}"
    return f"{client} {'←' if witness.api in TOLD_BY_BROKERS else '→'} {broker}"


def time_of(seconds: float, *, with_day: bool) -> str:
    """Return seconds since 1970 as a time of the day in UTC, to the millisecond."""
    try:
        made = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # damaged recordings have any
        return f"{seconds:.3f}"
    return made.isoformat(" ", "milliseconds")[:23] if with_day else made.time().isoformat("milliseconds")


def day_of(witness: Witness) -> int:
    """Return the day on which an exchange began, counted from 1970."""
    return int(witness.began // 86_400)


def wrapped(text: str, indent: str, style: str = "", first: str = "") -> Iterator[StyledLine]:
    if text:
        lines = textwrap.wrap(
            in_line(text), WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        yield from (StyledLine(line, style) for line in lines)


STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 0; }
.level { border-radius: .3rem; color: #fff; font-size: .8rem; padding: .1rem .5rem; text-transform: uppercase; }
.proved { background: #b3261e; } .suspect { background: #8a5a00; } .note { background: #555; }
.missing { border-left: .3rem solid #8a5a00; padding-left: .7rem; }
table { border-collapse: collapse; margin: .5rem 0; }
td, th { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top; }
td { font-family: ui-monospace, monospace; font-size: .85rem; overflow-wrap: anywhere; }
footer { margin-top: 3rem; opacity: .7; }
"""
HEADS = ("exchange", "time (UTC)", "who", "API", "what is seen")


def report_html(verdict: Verdict, title: str) -> str:
    """Return the page of a verdict. `title`: what was read."""
    return "\n".join(page_lines(verdict, title)) + "\n"


def page_lines(verdict: Verdict, title: str) -> Iterator[str]:
    digest = b64encode(sha256(STYLE.encode()).digest()).decode()
    read = f"{number_of(verdict.exchanges, 'exchange')} of {number_of(verdict.connections, 'connection')}"
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield (
        '<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;; '
        f'style-src &#39;sha256-{digest}&#39;; base-uri &#39;none&#39;; form-action &#39;none&#39;">'
    )
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{html_text(title)}: {html_text(conclusion(verdict).partition(';')[0])}</title>"
    yield f"<style>{STYLE}</style></head><body>"
    yield f"<h1>{html_text(title)}</h1>"
    whole = "" if verdict.incomplete else ", all read whole"
    yield f"<p>{html_text(read)}{whole}. Checked: {html_text(checked(verdict.counts))}.</p>"
    if verdict.incomplete:
        yield '<ul class="missing">' + "".join(f"<li>{html_text(one)}</li>" for one in verdict.incomplete) + "</ul>"
    yield f"<p><strong>{html_text(conclusion(verdict))}</strong></p>"
    if verdict.exit_code is not None:
        yield f"<p>Exit code {verdict.exit_code}: {html_text(verdict.reason)}</p>"
    for finding in verdict.findings:
        yield from finding_html(finding)
    if verdict.not_checked:
        yield "<h2>Not checked</h2><table>"
        for why, names in by_reason(verdict.not_checked).items():
            yield f"<tr><th>{html_text(', '.join(names))}</th><td>{html_text(why)}</td></tr>"
        yield "</table>"
    yield f"<footer>kproxy {html_text(own_version())}</footer></body></html>"


def finding_html(finding: Finding) -> Iterator[str]:
    times = f" · {finding.times:,} times" if finding.times > 1 else ""
    yield (
        f'<section><h2><span class="level {html_text(finding.level)}">{html_text(finding.level)}</span> '
        f"{html_text(finding.check)} · {html_text(finding.about)}{times}</h2>"
    )
    yield f"<p>{html_text(finding.says)}</p>"
    several = len({day_of(one.witness) for one in finding.evidence}) > 1
    yield "<table><tr>" + "".join(f"<th>{head}</th>" for head in HEADS) + "</tr>"
    for one in finding.evidence:
        yield (
            "<tr>" + "".join(f"<td>{html_text(cell)}</td>" for cell in evidence_cells(one, with_day=several)) + "</tr>"
        )
    yield "</table>"
    if finding.details:
        yield "<ul>" + "".join(f"<li>{html_text(one)}</li>" for one in finding.details) + "</ul>"
    yield f"<p>{html_text(finding.else_)}</p></section>"


def html_text(value: object) -> str:
    """Return any text as HTML, without markup, and with unseen characters shown."""
    return escape(in_line(value))


SCHEMA = "kproxy.verify/1"


def report_json(verdict: Verdict, files: Sequence[str]) -> dict[str, Any]:
    """Return a verdict as values that JSON has. `files`: what was read."""
    return {
        "schema": SCHEMA,
        "files": list(files),
        "exchanges": verdict.exchanges,
        "connections": verdict.connections,
        "views": list(verdict.views),
        "incomplete": list(verdict.incomplete),
        "checked": dict(verdict.counts),
        "findings": [finding_json(finding) for finding in verdict.findings],
        "clean": list(verdict.clean),
        "not_checked": dict(verdict.not_checked),
        "exit_code": verdict.exit_code,
        "reason": verdict.reason,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "level": finding.level,
        "about": finding.about,
        "says": finding.says,
        "view": finding.view,
        "else": finding.else_,
        "rules": list(finding.rules),
        "times": finding.times,
        "details": list(finding.details),
        "evidence": [{**witness_json(one.witness), "says": one.says} for one in finding.evidence],
    }


def witness_json(witness: Witness) -> dict[str, Any]:
    address, connection, _ = witness.connection
    return {
        "number": witness.number,
        "began": timestamp(witness.began),
        "ended": None if witness.ended is None else timestamp(witness.ended),
        "connection": connection,
        "correlation_id": witness.correlation_id,
        "client_address": address,
        "client": witness.client,
        "node": witness.node,
        "api": witness.api,
        "version": witness.version,
        "rules": list(witness.rules),
        "answered_by": "kproxy" if witness.made_by_kproxy else "broker" if witness.ended is not None else None,
        "software": witness.software,
    }


def timestamp(seconds: float) -> str | None:
    """Return seconds since 1970 as ISO 8601 in UTC; None for a number that is no time."""
    try:
        made = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return made.isoformat(timespec="microseconds").replace("+00:00", "Z")
