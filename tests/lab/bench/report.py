"""The figures of a run as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.lab.bench.audit_phase import CASES as AUDIT_CASES
from tests.lab.bench.audit_phase import NAMES as AUDIT_NAMES
from tests.lab.bench.audit_phase import PLAIN
from tests.lab.bench.frames_phase import CASES
from tests.lab.bench.goals import GOALS
from tests.lab.bench.kafka_phase import CONSUME, LIBRDKAFKA_CONSUME, LIBRDKAFKA_PRODUCE, NAMES, PRODUCE, PRODUCE_ALL
from tests.lab.bench.latency_phase import NAMES as LATENCY_NAMES
from tests.lab.bench.latency_phase import PARTS
from tests.lab.bench.latency_phase import case_name as latency
from tests.lab.bench.rows import Rows
from tests.lab.bench.rules_phase import CASE as RULES
from tests.lab.bench.rules_phase import DECODED, FILTERED, HEADED, NONE, RECORDS_CASE, REHEADED, REWRITTEN, SIZES, SPANS
from tests.lab.bench.start_phase import AT_ONCE, CONNECTIONS, MEMORY, START, STORM
from tests.lab.bench.targets import BEFORE, TARGETS, with_before
from tests.lab.bench.tls_phase import CASES as TLS_CASES
from tests.lab.bench.view_phase import CASES as VIEW_CASES
from tests.lab.bench.view_phase import NAMES as VIEW_NAMES
from tests.lab.bench.view_phase import OPEN, looking, reading
from tests.lab.bench.view_phase import PLAIN as NOBODY
from tests.lab.bench.workers_phase import EVALUATED, ONE_WORKER, TWO_WORKERS

AUDITED, VIEWED = AUDIT_NAMES[1:], VIEW_NAMES[1:]


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Nothing when there are no lines."""
    body = [f"| {' | '.join(cells)} |" for cells in lines]
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *body, ""] if body else []


def summary(rows: Rows) -> list[str]:
    """One line for each goal whose case was measured."""
    lines = []
    for goal in GOALS:
        if rows.has(*goal.needs):
            measured, enough = goal.judge(rows)
            lines.append((goal.case, goal.reach, measured, "yes" if enough else "**no**"))
    return table(("case", "goal", "measured", "reached?"), lines)


def kafka(rows: Rows, extra: Sequence[str]) -> list[str]:
    """Kafka's own tools; for each case MB/s (of direct), and CPU seconds per GB."""
    cases = [case for case in (PRODUCE, CONSUME, PRODUCE_ALL) if rows.has(case, "direct")]
    lines = []
    for name in (*with_before(NAMES), *extra):
        cells = [name]
        for case in cases:
            cells += [speed(rows, case, name, "direct"), figure(rows, case, name, "cpu_gb", 2)]
        lines.append(cells)
    head = [word for case in cases for word in (f"{case}: MiB/s (of direct)", "CPU s/GB")]
    return table(("", *head), lines if cases else ())


def librdkafka(rows: Rows) -> list[str]:
    cases = [case for case in (LIBRDKAFKA_PRODUCE, LIBRDKAFKA_CONSUME) if rows.has(case, "off", "rename")]
    lines = []
    for name in ("off", "rename"):
        cells = [(speed(rows, case, name, "off"), figure(rows, case, name, "cpu_gb", 2)) for case in cases]
        lines.append([name, *(cell for pair in cells for cell in pair)])
    head = [word for case in cases for word in (f"{case}: MiB/s (of off)", "CPU s/GB")]
    return table(("", *head), lines if cases else ())


def rules(rows: Rows) -> list[str]:
    """CPU per exchange in the session, and what of it the rules cost."""
    if not rows.has(RULES, NONE):
        return []
    without = rows.median(RULES, NONE, "us")
    lines = []
    for name in rows.cases[RULES]:
        each = rows.median(RULES, name, "us")
        lines.append((name, f"{each:.1f}", "" if name == NONE else f"{each - without:.1f}"))
    return table(("rules", "µs an exchange", "µs of that for the rules"), lines)


def records(rows: Rows) -> list[str]:
    """CPU per record of an uncompressed batch, and its share of the same work on decoded records."""
    pairs = [
        (SPANS, DECODED),
        *((FILTERED.format(name), REWRITTEN.format(name)) for name in SIZES),
        *((HEADED.format(name), REHEADED.format(name)) for name in SIZES),
    ]
    lines = [
        (name, f"{rows.median(RECORDS_CASE, name, 'us'):.2f}", f"{rows.ratio(RECORDS_CASE, name, by, 'us'):.2f}")
        for name, by in pairs
        if rows.has(RECORDS_CASE, name, by)
    ]
    return table(("records", "µs a record", "of decoded records"), lines)


def exchanges(rows: Rows, extra: Sequence[str]) -> list[str]:
    """CPU per exchange with the broker stand-in, ratios by HAProxy, and exchanges per second."""
    proxies = ["haproxy", "kproxy", "rename", "rules", "workers", *extra]
    head = ["case", *(f"{name} µs" for name in proxies), *(f"{name} / haproxy" for name in proxies[1:])]
    lines = []
    for case in CASES:
        if rows.has(case.name, "haproxy"):
            cells = [case.name, *(figure(rows, case.name, name, "us", 1) for name in proxies)]
            cells += [ratio(rows, case.name, name, "haproxy", "us") for name in proxies[1:]]
            lines.append(
                [*cells, *(figure(rows, case.name, name, "rate", 0) for name in ("direct", "haproxy", "kproxy"))]
            )
    return table([*head, "direct /s", "haproxy /s", "kproxy /s"], lines)


def audits(rows: Rows) -> list[str]:
    """Exchanges per second and CPU of each, with an audit against without."""
    head = ["case", "without /s"]
    head += [word for name in AUDITED for word in (f"{name}: rate", f"{name}: CPU", f"{name}: µs more")]
    lines = []
    for case in AUDIT_CASES:
        if rows.has(case.name, PLAIN, *AUDITED):
            cells = [case.name.removeprefix("audit: "), figure(rows, case.name, PLAIN, "rate", 0)]
            for name in AUDITED:
                more = rows.median(case.name, name, "us") - rows.median(case.name, PLAIN, "us")
                cells += [*(ratio(rows, case.name, name, PLAIN, key) for key in ("rate", "us")), f"{more:.1f}"]
            lines.append(cells)
    return table(head, lines)


def views(rows: Rows) -> list[str]:
    """Exchanges per second and CPU of each while a page is open, and after one was; and of a second, how many
    milliseconds of CPU looking takes in the proxy, and in the page."""
    head = ["case", "without /s"]
    shown = [name for name in VIEWED if any(rows.has(case.name, name) for case in VIEW_CASES)]
    head += [word for name in shown for word in (f"{name}: rate", f"{name}: CPU")]
    head += ["view: ms of a second", "page: ms of a second"]
    lines = []
    for case in VIEW_CASES:
        if shown and rows.has(case.name, NOBODY, *shown):
            cells = [case.name.removeprefix("view: "), figure(rows, case.name, NOBODY, "rate", 0)]
            cells += [ratio(rows, case.name, name, NOBODY, key) for name in shown for key in ("rate", "us")]
            cells += [f"{looking(rows, case.name, OPEN):.0f}", f"{reading(rows, case.name):.0f}"]
            lines.append(cells)
    return table(head, lines)


def borders(rows: Rows) -> list[str]:
    """TLS on both sides."""
    lines = [
        [case.name.removeprefix("TLS: "), *(figure(rows, case.name, name, "us", 1) for name in ("haproxy", "kproxy")),
         ratio(rows, case.name, "kproxy", "haproxy", "us"), ratio(rows, case.name, "kproxy", "haproxy", "rate")]
        for case in TLS_CASES if rows.has(case.name, "kproxy", "haproxy")
    ]  # fmt: skip
    return table(("case", "haproxy µs", "kproxy µs", "CPU: kproxy / haproxy", "rate: kproxy / haproxy"), lines)


def workers(rows: Rows) -> list[str]:
    """Exchanges per second of one process and of two workers."""
    case, names = EVALUATED.name, (ONE_WORKER, TWO_WORKERS)
    lines = []
    for name in names if rows.has(case, *names) else ():
        cells = [figure(rows, case, name, key, digits) for key, digits in (("rate", 0), ("us", 1))]
        lines.append([name, *cells, ratio(rows, case, name, ONE_WORKER, "rate")])
    return table((case, "exchanges/s", "kproxy's CPU for each, µs", "of one process"), lines)


def latencies(rows: Rows) -> list[str]:
    """Milliseconds, and what is added to direct."""
    lines = []
    for part in PARTS:
        case = latency(part)
        for name in LATENCY_NAMES if rows.has(case, *LATENCY_NAMES) else ():
            cells = [f"{part} %", name, figure(rows, case, name, "rate", 0)]
            for key in ("p50", "p99", "p999"):
                more = "" if name == "direct" else f" (+{rows.more(case, name, 'direct', key) / 1e3:.2f})"
                cells.append(f"{rows.median(case, name, key) / 1e3:.2f}{more}")
            lines.append(cells)
    return table(("of direct's maximum", "", "requests/s", "p50 ms", "p99 ms", "p99.9 ms"), lines)


def changes(rows: Rows) -> list[str]:
    """What an earlier kproxy took part in: this one's figures by its in the same rounds."""
    lines = []
    for case, by_target in rows.cases.items():
        for name in by_target:
            before = BEFORE if name == "kproxy" else f"{BEFORE}-{name}"
            if before in by_target:
                cells = [case, name]
                for key in ("mbs", "rate", "us", "cpu_gb", "seconds", "mb", "kb_each"):
                    known = all(key in by_target[each][0] for each in (name, before))
                    known &= key != "seconds" or "rate" not in by_target[name][0]  # those of a run of frames are given
                    cells.append(ratio(rows, case, name, before, key) if known else "")
                lines.append(cells)
    figures = ("MB/s", "exchanges/s", "µs", "CPU s/GB", "s", "MB", "kB each")
    return table(("case", "target", *(f"{word}, now / before" for word in figures)), lines)


def starts(rows: Rows) -> list[str]:
    names = list(rows.cases.get(START, {}))
    figures = (
        ("s to first answer", START, "seconds"),
        ("CPU s until then", START, "cpu"),
        ("MB idle", MEMORY, "mb"),
        (f"s for {AT_ONCE:,} connections at once", STORM, "seconds"),
        ("µs of CPU for each of them", STORM, "us"),
        (f"kB for each of {CONNECTIONS:,} idle connections", MEMORY, "kb_each"),
    )
    return table(
        ("", *(text for text, _, _ in figures)),
        ([name, *(figure(rows, case, name, key, 2) for _, case, key in figures)] for name in names),
    )


def tables(rows: Rows, extra: Sequence[str]) -> list[str]:
    """All of it, under headings; what was not measured is left out."""
    sections = (
        ("Summary", summary(rows)),
        ("Kafka's own performance tools", kafka(rows, extra)),
        ("confluent-kafka", librdkafka(rows)),
        ("Frames against a broker stand-in, proxy CPU", exchanges(rows, extra)),
        ("TLS on both sides, proxy CPU", borders(rows)),
        ("Two workers, where kproxy is the limit", workers(rows)),
        ("Latency on a real Kafka, open loop", latencies(rows)),
        ("Rules, CPU in the session", rules(rows)),
        ("Rules, CPU for the records of a batch", records(rows)),
        ("Audit, compared with no audit", audits(rows)),
        ("View, compared with no open page", views(rows)),
        ("Start and memory", starts(rows)),
        ("Against an earlier kproxy", changes(rows)),
    )
    return [line for title, lines in sections if lines for line in (f"### {title}", "", *lines)]


def targets() -> list[str]:
    """Return a line for each target that takes part in every run."""
    plain = ("haproxy", "kproxy", "off", "rename", "rules", "workers", ONE_WORKER, TWO_WORKERS, "admin")
    names = with_before((*plain, *VIEWED, *AUDITED))
    return [f"- `{name}`: {TARGETS[name].text}" for name in names]


# ---- cells


def figure(rows: Rows, case: str, target: str, key: str, digits: int) -> str:
    known = rows.has(case, target) and key in rows.cases[case][target][0]
    return f"{rows.median(case, target, key):,.{digits}f}" if known else ""


def ratio(rows: Rows, case: str, target: str, by: str, key: str) -> str:
    return f"{rows.ratio(case, target, by, key):.2f}" if rows.has(case, target, by) else ""


def speed(rows: Rows, case: str, target: str, by: str) -> str:
    if not rows.has(case, target):
        return ""
    return f"{figure(rows, case, target, 'mbs', 0)} ({ratio(rows, case, target, by, 'mbs')})"
