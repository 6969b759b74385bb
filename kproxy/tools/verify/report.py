"""Reports of a verdict: text for terminals, an HTML page, and JSON.

Names are chosen by clients and may be in any text of a verdict. Each report escapes them for its medium.
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

from kproxy.base.distribution import own_version
from kproxy.base.errors import plural
from kproxy.base.terminal import StyledLine, in_line, stable_ids

from .facts import Witness
from .finding import LEVELS, Evidence, Finding, FindingLevel, Verdict

SCHEMA = "kproxy.verify/1"  # only grows
WIDTH = 120
MARGIN = " " * 9  # the width of a level
MOST_SHOWN = 5  # findings of one check
STYLES: Mapping[FindingLevel, str] = {"proved": "bold red", "suspect": "bold yellow", "note": "bold"}
# The responses of these APIs are the evidence, so the arrow points to the client.
TOLD_BY_BROKERS = frozenset((
    "Fetch", "ListOffsets", "Metadata", "OffsetFetch", "SyncGroup", "ApiVersions", "ShareFetch",
    "DescribeTopicPartitions",
))  # fmt: skip
COMBINED_COUNTS = ("acknowledged writes", "read afterwards", "not read", "commits", "groups")
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


def report_text(verdict: Verdict, title: str, most: int = MOST_SHOWN) -> str:
    return "\n".join(line.text for line in report_lines(verdict, title, most))


def report_lines(verdict: Verdict, title: str, most: int = MOST_SHOWN) -> Iterator[StyledLine]:
    """Yield the lines of the text report. `title`: the input's name; `most`: printed findings of each check."""
    whole = "not all of it could be read:" if verdict.incomplete else "all read whole"
    yield StyledLine(f"{in_line(title)}: {size_text(verdict)}, {whole}", "bold")
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


def size_text(verdict: Verdict) -> str:
    return f"{plural(verdict.exchanges, 'exchange')} of {plural(verdict.connections, 'connection')}"


def checked(counts: Mapping[str, int]) -> str:
    writes, read = counts.get("acknowledged writes", 0), counts.get("read afterwards", 0)
    some = "all of them" if read == writes else f"{read:,} of them"
    parts = [f"{plural(writes, 'acknowledged write')}{f', {some} read afterwards' if writes else ''}"]
    groups = counts.get("groups", 0)
    of_groups = f" of {plural(groups, 'group')}" if groups else ""
    parts.append(f"{plural(counts.get('commits', 0), 'commit')}{of_groups}")
    for name, count in counts.items():
        if name not in COMBINED_COUNTS:
            parts.append(f"{count:,} {name.removesuffix('s') if count == 1 else name}")
    return " · ".join(map(in_line, parts))


def conclusion(verdict: Verdict) -> str:
    levels = Counter(finding.level for finding in verdict.findings)
    found = ", ".join(f"{levels[level]} {level}" for level in LEVELS if levels[level])
    result = f"{plural(len(verdict.findings), 'finding')} ({found})" if found else "nothing found"
    hidden, names = plural(verdict.not_shown.total(), "finding"), ", ".join(sorted(verdict.not_shown))
    below = f"; {hidden} below --level: {names}" if names else ""
    return f"{result}; clean: {', '.join(verdict.clean) or 'none'}{below}"


def by_reason(not_checked: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for check, why in not_checked.items():
        found.setdefault(why, []).append(check)
    return found


def head_of(finding: Finding) -> str:
    times = f" · {finding.times:,} times" if finding.times > 1 else ""
    return f"{finding.check} · {finding.about}{times}"


def finding_lines(finding: Finding) -> Iterator[StyledLine]:
    yield StyledLine(f"{finding.level.upper():9}{in_line(head_of(finding))}", STYLES[finding.level])
    yield from wrapped(finding.says, MARGIN, first=MARGIN)
    rows = evidence_cells(finding.evidence)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, time, who, api, text in rows:
        row = f"{MARGIN}{number:>{max(2, widths[0])}}  {time}  {who:{widths[2]}}  {api:{widths[3]}}  {text}"
        yield StyledLine(row.rstrip())
    for detail in finding.details:
        yield from wrapped(detail, f"{MARGIN}  ", first=f"{MARGIN}  ")
    yield from wrapped(finding.else_, MARGIN, first=MARGIN)


def evidence_cells(evidence: Sequence[Evidence]) -> list[tuple[str, str, str, str, str]]:
    """Return number, time, parties, API and observation of each exchange. Times have a date if the days differ."""
    several_days = len({one.witness.began // 86_400 for one in evidence}) > 1
    cells = []
    for one in evidence:
        witness = one.witness
        note = "[no answer]" if witness.ended is None else "[kproxy's answer]" if witness.made_by_kproxy else ""
        text = " ".join(part for part in ("" if note in one.says else note, in_line(one.says)) if part)
        if witness.rules:
            names = ", ".join(f'"{in_line(name)}"' for name in witness.rules)
            text = f"{text}    rule{'s' if len(witness.rules) > 1 else ''} {names}".lstrip()
        client = witness.client or "a client without a name"
        broker = "bootstrap" if witness.node is None else f"node {witness.node}"
        arrow = "←" if witness.api in TOLD_BY_BROKERS else "→"
        cells.append((
            str(witness.number or "-"), time_of(witness.began, with_day=several_days),
            in_line(f"{client} {arrow} {broker}"), in_line(f"{witness.api} {witness.version}"), text,
        ))  # fmt: skip
    return cells


def utc(seconds: float) -> datetime | None:
    """Return the time of seconds since 1970; None if datetime cannot represent it, as in damaged recordings."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def time_of(seconds: float, *, with_day: bool) -> str:
    made = utc(seconds)
    if made is None:
        return f"{seconds:.3f}"
    return made.isoformat(" ", "milliseconds")[:23] if with_day else made.time().isoformat("milliseconds")


def wrapped(text: str, indent: str, style: str = "", first: str = "") -> Iterator[StyledLine]:
    if text:
        lines = textwrap.wrap(
            in_line(text), WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        yield from (StyledLine(line, style) for line in lines)


def report_html(verdict: Verdict, title: str) -> str:
    """Return one page without scripts and external resources. Its policy allows nothing but its own style."""
    return "\n".join(page_lines(verdict, title)) + "\n"


def page_lines(verdict: Verdict, title: str) -> Iterator[str]:
    digest = b64encode(sha256(STYLE.encode()).digest()).decode()
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
    yield f"<p>{html_text(size_text(verdict))}{whole}. Checked: {html_text(checked(verdict.counts))}.</p>"
    if verdict.incomplete:
        yield '<ul class="missing">' + tagged("li", verdict.incomplete) + "</ul>"
    yield f"<p><strong>{html_text(conclusion(verdict))}</strong></p>"
    if verdict.exit_code is not None:
        yield f"<p>Exit code {verdict.exit_code}: {html_text(verdict.reason)}</p>"
    for finding in verdict.findings:
        level = f'<span class="level {finding.level}">{finding.level}</span>'
        yield f"<section><h2>{level} {html_text(head_of(finding))}</h2>"
        yield f"<p>{html_text(finding.says)}</p>"
        yield f"<table><tr>{tagged('th', HEADS)}</tr>"
        yield from (f"<tr>{tagged('td', row)}</tr>" for row in evidence_cells(finding.evidence))
        yield "</table>"
        if finding.details:
            yield f"<ul>{tagged('li', finding.details)}</ul>"
        yield f"<p>{html_text(finding.else_)}</p></section>"
    if verdict.not_checked:
        yield "<h2>Not checked</h2><table>"
        for why, names in by_reason(verdict.not_checked).items():
            yield f"<tr><th>{html_text(', '.join(names))}</th><td>{html_text(why)}</td></tr>"
        yield "</table>"
    yield f"<footer>kproxy {html_text(own_version())}</footer></body></html>"


def tagged(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{html_text(text)}</{tag}>" for text in texts)


def html_text(value: object) -> str:
    """Escape markup and show invisible characters."""
    return escape(in_line(value))


def report_json(verdict: Verdict, files: Sequence[str]) -> dict[str, Any]:
    ids = stable_ids((finding.check, finding.about) for finding in verdict.findings)
    return {
        "schema": SCHEMA,
        "files": list(files),
        "exchanges": verdict.exchanges,
        "connections": verdict.connections,
        "views": list(verdict.views),
        "incomplete": list(verdict.incomplete),
        "checked": dict(verdict.counts),
        "findings": [{"id": known, **finding_json(one)} for known, one in zip(ids, verdict.findings, strict=True)],
        "clean": list(verdict.clean),
        "not_checked": dict(verdict.not_checked),
        "not_shown": dict(verdict.not_shown),
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
        "responder": "kproxy" if witness.made_by_kproxy else "broker" if witness.ended is not None else None,
        "software": witness.software,
    }


def timestamp(seconds: float) -> str | None:
    made = utc(seconds)
    return None if made is None else made.isoformat(timespec="microseconds").replace("+00:00", "Z")
