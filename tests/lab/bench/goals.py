"""What kproxy is to reach, and whether it did in this run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.lab.bench.audit_phase import CASES as AUDIT_CASES
from tests.lab.bench.audit_phase import PLAIN, REQUESTS, SUMMARY
from tests.lab.bench.frames_phase import CONNECT, FIFTY, MANY, METADATA_CASE, METADATA_LARGE, ONE, SIXTEEN, TWO_HUNDRED
from tests.lab.bench.kafka_phase import CONSUME, LIBRDKAFKA_CONSUME, LIBRDKAFKA_PRODUCE, PRODUCE
from tests.lab.bench.latency_phase import case_name as latency
from tests.lab.bench.rows import Rows
from tests.lab.bench.rules_phase import CASE as RULES_CASE
from tests.lab.bench.rules_phase import (
    DECODED,
    FILTERED,
    FIRES,
    NONE,
    QUOTA,
    RECORDS_CASE,
    REWRITTEN,
    SEARCHED,
    SELECTED,
    SPANS,
    WAITS,
)
from tests.lab.bench.start_phase import CONNECTIONS, MEMORY, START, STORM
from tests.lab.bench.view_phase import CASES as VIEW_CASES
from tests.lab.bench.view_phase import CLOSED, LEAST, OPEN, looking, reading
from tests.lab.bench.view_phase import PLAIN as NOBODY
from tests.lab.bench.workers_phase import EVALUATED, ONE_WORKER, TWO_WORKERS

Verdict = tuple[str, bool]
"""What was measured, as text, and whether it is enough."""


@dataclass(frozen=True)
class Goal:
    """`needs` is a case and the targets that must have been measured; `judge` is asked only then."""

    case: str
    reach: str
    needs: tuple[str, ...]
    judge: Callable[[Rows], Verdict]


def cpu_goal(name: str, case: str, most: float, key: str = "us", unit: str = "µs", target: str = "kproxy") -> Goal:
    """At most so many times HAProxy's CPU."""

    def judge(rows: Rows) -> Verdict:
        ratio = rows.ratio(case, target, "haproxy", key)
        ours, theirs = rows.median(case, target, key), rows.median(case, "haproxy", key)
        digits = 2 if unit == "s" else 1
        return f"{ratio:.2f} × ({ours:.{digits}f} and {theirs:.{digits}f} {unit})", ratio <= most

    return Goal(f"{name}: proxy CPU", f"≤ {most:g} × HAProxy", (case, target, "haproxy"), judge)


def speed_goal(name: str, case: str, least: float) -> Goal:
    """At least so many times HAProxy's MB/s."""

    def judge(rows: Rows) -> Verdict:
        ratio = rows.ratio(case, "kproxy", "haproxy", "mbs")
        ours, theirs = (rows.ratio(case, target, "direct", "mbs") for target in ("kproxy", "haproxy"))
        return f"{ratio:.2f} × ({ours:.2f} and {theirs:.2f} of direct)", ratio >= least

    return Goal(f"{name}: MB/s", f"≥ {least:g} × HAProxy", (case, "kproxy", "haproxy", "direct"), judge)


def rewrite_goal(name: str, case: str) -> Goal:
    """Rename and advertise on, against off."""

    def judge(rows: Rows) -> Verdict:
        speed, cpu = (rows.ratio(case, "rename", "off", key) for key in ("mbs", "cpu_gb"))
        return f"{speed:.2f} × (CPU per GB {cpu:.2f} ×)", speed >= 0.95

    return Goal(f"rename and advertise on, {name}: MB/s", "≥ 0.95 × off", (case, "rename", "off"), judge)


def limit_goal(name: str, case: str, target: str, key: str, most: float, unit: str, scale: float = 1) -> Goal:
    """At most so much, whatever HAProxy does."""

    def judge(rows: Rows) -> Verdict:
        found = rows.median(case, target, key) * scale
        other = f" (HAProxy {rows.median(case, 'haproxy', key) * scale:.2f})" if rows.has(case, "haproxy") else ""
        return f"{found:.2f} {unit}{other}", found <= most

    return Goal(name, f"≤ {most:g} {unit}", (case, target), judge)


def audit_goal(case: str) -> Goal:
    """With an audit as one starts it, against without."""

    def judge(rows: Rows) -> Verdict:
        rate, cpu = (rows.ratio(case, SUMMARY, PLAIN, key) for key in ("rate", "us"))
        return f"{rate:.2f} × (CPU {cpu:.2f} ×)", rate >= 0.9

    name = case.removeprefix("audit: ")
    return Goal(f"audit by summary, {name}: exchanges/s", "≥ 0.9 × without", (case, SUMMARY, PLAIN), judge)


def audit_requests_goal(case: str) -> Goal:
    """An event of every request, against no audit."""

    def judge(rows: Rows) -> Verdict:
        more, rate = rows.more(case, REQUESTS, PLAIN, "us"), rows.ratio(case, REQUESTS, PLAIN, "rate")
        return f"{more:.1f} µs (exchanges/s {rate:.2f} ×)", more <= 10

    name = case.removeprefix("audit: ")
    return Goal(f"audit of every request, {name}: CPU more", "≤ 10 µs", (case, REQUESTS, PLAIN), judge)


def view_goal(case: str, target: str, least: float) -> Goal:
    """While a page is open, or after it was closed, against nobody who looks."""

    def judge(rows: Rows) -> Verdict:
        rate, more = rows.ratio(case, target, NOBODY, "rate"), looking(rows, case, target)
        page = f", the page {reading(rows, case):.0f}" if target == OPEN else ""
        return f"{rate:.2f} × (CPU of a second: kproxy {more:.0f} ms more{page})", rate >= least

    name, words = case.removeprefix("view: "), "a page is open" if target == OPEN else "a page was closed"
    return Goal(f"{words}, {name}: exchanges/s", f"≥ {least:g} × without", (case, target, NOBODY), judge)


def rule_goal(rules: str, most: float) -> Goal:
    """At most so many microseconds more than an exchange in the session without a rule."""

    def judge(rows: Rows) -> Verdict:
        more, each = rows.more(RULES_CASE, rules, NONE, "us"), rows.median(RULES_CASE, rules, "us")
        return f"{more:.1f} µs (of {each:.1f})", more <= most

    return Goal(f"rule: {rules}: CPU more", f"≤ {most:g} µs", (RULES_CASE, rules, NONE), judge)


def record_goal(name: str, work: str, by: str, most: float) -> Goal:
    """Limit of the CPU time of a record in µs. The text also has the ratio to decoded records."""

    def judge(rows: Rows) -> Verdict:
        each, ratio = rows.median(RECORDS_CASE, work, "us"), rows.ratio(RECORDS_CASE, work, by, "us")
        return f"{each:.2f} µs ({ratio:.2f} × decoded records)", each <= most

    return Goal(f"records: {name}: CPU a record", f"≤ {most:g} µs", (RECORDS_CASE, work, by), judge)


def peer_goal(name: str, case: str, target: str, by: str, key: str, least: float) -> Goal:
    """At least so many times what another target has of that, in the same rounds."""

    def judge(rows: Rows) -> Verdict:
        ratio, cpu = rows.ratio(case, target, by, key), rows.ratio(case, target, by, "us")
        return f"{ratio:.2f} × (CPU {cpu:.2f} ×)", ratio >= least

    return Goal(name, f"≥ {least:g} × {by}", (case, target, by), judge)


def tls_goal(name: str, least: float) -> Goal:
    """At least so many times HAProxy's exchanges per second, with TLS on both sides."""

    def judge(rows: Rows) -> Verdict:
        rate, cpu = (rows.ratio(name, "kproxy", "haproxy", key) for key in ("rate", "us"))
        return f"{rate:.2f} × (CPU {cpu:.2f} ×)", rate >= least

    return Goal(f"{name}: exchanges/s", f"≥ {least:g} × HAProxy", (name, "kproxy", "haproxy"), judge)


def latency_goal(part: int, key: str) -> Goal:
    """Added to what it is without a proxy, in ms: no more than HAProxy adds."""

    def judge(rows: Rows) -> Verdict:
        case = latency(part)
        ours, theirs = (rows.more(case, target, "direct", key) / 1e3 for target in ("kproxy", "haproxy"))
        return f"{ours:.2f} ms (HAProxy {theirs:.2f} ms)", ours <= theirs

    needs = (latency(part), "kproxy", "haproxy", "direct")
    return Goal(f"{latency(part)}: {key} added to direct", "≤ HAProxy", needs, judge)


GOALS = (
    speed_goal("produce 1 kB records, acks=1", PRODUCE, 1.0),
    cpu_goal("produce, per GB", PRODUCE, 1.3, "cpu_gb", "s"),
    speed_goal("consume", CONSUME, 1.15),
    cpu_goal("consume, per GB", CONSUME, 1.0, "cpu_gb", "s"),
    cpu_goal(ONE, ONE, 1.1),
    cpu_goal(FIFTY, FIFTY, 1.15),
    cpu_goal(MANY, MANY, 1.0),
    cpu_goal(f"{MANY}, Produce 12", f"{MANY}, Produce 12", 1.0),
    cpu_goal(TWO_HUNDRED, TWO_HUNDRED, 1.15),
    cpu_goal(SIXTEEN, SIXTEEN, 1.2),
    cpu_goal("100 kB, 8 in flight", "100 kB, 8 in flight", 0.65),
    cpu_goal("1 MB, 4 in flight", "1 MB, 4 in flight", 0.65),
    cpu_goal(CONNECT, CONNECT, 1.3),
    cpu_goal(STORM, STORM, 1.3),
    cpu_goal(f"TLS: {MANY}", f"TLS: {MANY}", 1.3),
    tls_goal(f"TLS: {SIXTEEN}", 0.95),
    latency_goal(25, "p50"),
    latency_goal(25, "p99"),
    limit_goal("memory, idle process", MEMORY, "kproxy", "mb", 40, "MB"),
    limit_goal(f"memory, each of {CONNECTIONS:,} idle connections", MEMORY, "kproxy", "kb_each", 6, "kB"),
    limit_goal("start to first answer", START, "kproxy", "seconds", 0.25, "s"),
    rewrite_goal("produce with Kafka's own client", PRODUCE),
    rewrite_goal("consume with Kafka's own client", CONSUME),
    rewrite_goal("produce with confluent-kafka (Produce 10, by name)", LIBRDKAFKA_PRODUCE),
    rewrite_goal("consume with confluent-kafka", LIBRDKAFKA_CONSUME),
    cpu_goal(f"renamed, {MANY}, Produce 12", f"{MANY}, Produce 12", 1.15, target="rename"),
    cpu_goal(f"renamed, {SIXTEEN}, Produce 12", f"{SIXTEEN}, Produce 12", 1.2, target="rename"),
    limit_goal(f"{METADATA_CASE}, rewritten: CPU for an answer", METADATA_CASE, "rename", "us", 0.15, "ms", 1e-3),
    limit_goal(f"{METADATA_LARGE}, rewritten: CPU for an answer", METADATA_LARGE, "rename", "us", 1.5, "ms", 1e-3),
    *(
        peer_goal(f"100 rules about other traffic, {name}: exchanges/s", name, "rules", "kproxy", "rate", 0.98)
        for name in (ONE, MANY)
    ),
    peer_goal(f"two workers, {EVALUATED.name}: exchanges/s", EVALUATED.name, TWO_WORKERS, ONE_WORKER, "rate", 1.7),
    *(audit_goal(case.name) for case in AUDIT_CASES),
    *(audit_requests_goal(case.name) for case in AUDIT_CASES[:5]),
    *(view_goal(case.name, OPEN, LEAST) for case in VIEW_CASES),
    *(view_goal(case.name, CLOSED, 0.98) for case in VIEW_CASES),
    rule_goal(QUOTA, 3),
    rule_goal(WAITS, 4),
    rule_goal(FIRES, 30),
    record_goal("spans", SPANS, DECODED, 0.7),
    record_goal("select by a JSON path, 1 kB", SELECTED, DECODED, 1.5),
    record_goal("select a tenth by a JSON path, 1 kB", SEARCHED, DECODED, 1.5),
    *(
        record_goal(f"filter and write, {size}", FILTERED.format(size), REWRITTEN.format(size), most)
        for size, most in (("100 B", 1.0), ("1 kB", 2.2))
    ),
)
