"""Verdict as text: what was read, what was checked, each finding with its exchanges, and what is clean.

Names are chosen by clients, and any text of a verdict may have some in it: it is made safe for terminals here.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from kproxy.terminal import StyledLine, in_line

from .facts import Witness
from .finding import LEVELS, Evidence, Finding, FindingLevel, Verdict
from .numbers import number_of, singular

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
