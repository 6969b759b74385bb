"""Measure and simulate a very large cluster, and write the tables of docs/scale.md: `make scale`.

    python -m tests.lab.scale.run [--page]

What is measured on this machine goes into results.json with its date; what is simulated has a seed and is the same on
every machine. The page is made of both, and of rows of the bench. `--page`: nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from tests.lab.bench.frames_phase import METADATA_LARGE
from tests.lab.bench.kept import sections
from tests.lab.scale.metadata import PER_TOPIC, WAYS, answer_of, measure
from tests.lab.scale.storm import rollout, spreading, storm
from tests.support.exchange_factory import conversation, event_lines

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RESULTS, PAGE, BENCH = HERE / "results.json", ROOT / "docs" / "scale.md", HERE.parent / "bench" / "RESULTS.md"
BROKERS, PARTITIONS = 1_000, 200_000
LOAD = 0.5
"""Part of a core that is planned for: the other half is for storms, and for a pod that is missing."""
CLIENTS, PODS = 50_000, 10
START = 45.0
"""Seconds until the next pod of a rollout: a drain of 30 at most, the pause of 5, and the start."""
DAY = 86_400
EVERYBODYS = "a broker that all clients use"


@cache
def bench_row(name: str) -> list[str]:
    """Return the first row of the bench's report with this name. Raises StopIteration where there is none."""
    rows = (line for line in BENCH.read_text().splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in next(rows).strip("|").split("|")]


def number(cell: str) -> float:
    """Return the first number in a cell, without thousands separators. Raises ValueError."""
    found = re.search(r"[0-9.,]+", cell)
    if found is None:
        raise ValueError(f"no number in {cell!r}")
    return float(found[0].replace(",", ""))


def bench_date() -> str:
    """Return the date and the processor type of the first section; all figures here come from it."""
    name, text = next(iter(sections(BENCH.read_text()).items()))
    found = re.match(r"\s*([\d-]+),", text)
    assert found is not None, "a section begins with its date"
    return f"{found[1]}, {name}"


def figures() -> dict[str, float]:
    """Return what the sizing is made of, from the bench: CPU µs, CPU seconds for a GB, MB and kB."""
    report = BENCH.read_text()
    memory = re.search(
        r"^\| kproxy \| [\d.]+ \| [\d.]+ \| ([\d.]+) \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|$", report, re.MULTILINE
    )
    assert memory is not None, "the report has this table"
    return {
        "exchange": number(bench_row("200 B, 1 in flight on 50 connections")[2]),
        "connect": number(bench_row("connect, ApiVersions, close")[2]),
        "gigabyte": number(bench_row("kproxy")[2]),
        "idle": float(memory[1]),
        "connection": float(memory[2]),
    }


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table of Markdown."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def sizing() -> str:
    """Return the table of what one core carries."""
    found, day = figures(), bench_date()
    line = len(event_lines(conversation()[1:2]))
    exchanges = LOAD * 1e6 / found["exchange"]
    half = f"{LOAD:.0%} of a core"
    return table(
        ["load", "of one pod", "based on", "date"],
        [
            ["small exchanges a second, each alone", f"{exchanges:,.0f}",
             f"{found['exchange']} µs of CPU, {half} (bench)", day],
            ["MB a second, produced", f"{LOAD * 1000 / found['gigabyte']:,.0f}",
             f"{found['gigabyte']} s for a GB, {half} (bench)", day],
            ["connections made in a second", f"{LOAD * 1e6 / found['connect']:,.0f}",
             f"{found['connect']} µs, {half} (bench)", day],
            ["memory of 10,000 connections", f"{found['idle'] + found['connection'] * 10:,.0f} MB",
             f"{found['idle']} MB and {found['connection']} kB each (bench)", day],
            ["audit of each of 1,000 small requests a second", f"{line * 1000 * DAY / 1e9:,.1f} GB a day",
             f"a line of {line} bytes, not compressed (made by the encoder)", "each run"],
        ],
    )  # fmt: skip


def metadata_table(kept: dict[str, Any]) -> str:
    """Return the table of the Metadata answer, as it was measured."""
    rows = [
        [
            f"{one['topics']:,}",
            one["way"],
            *(f"{one[name] / 1e6:.1f}" for name in ("came", "held", "left")),
            f"{one['total_ms']:.0f}",
            f"{one['longest_ms']:.1f}",
            f"{one['again_ms']:.0f}",
        ]
        for one in kept["metadata"]
    ]
    return table(
        [
            "topics",
            "brokers appear as",
            "MB from the broker",
            "MB held",
            "MB to the client",
            "CPU ms",
            "longest ms",
            "CPU ms for the next client",
        ],
        rows,
    )


def storms_table() -> str:
    """Return the table of reconnections, simulated."""
    cost = figures()["connect"] / 1e6
    topics = number(bench_row(METADATA_LARGE)[3]) / 1e6
    rows = []
    for what, clients, pods in (("one pod of ten", CLIENTS // PODS, PODS - 1), (EVERYBODYS, CLIENTS, PODS)):
        for asks, each in (("", cost), (", each asks for 1,000 topics, renamed", cost + topics)):
            found = storm(clients, pods, each)
            rows.append([what + asks, clients, found.seconds, found.busiest])
    heads = [
        "failure",
        "clients that reconnect",
        "seconds until all are connected",
        "connections in a pod's busiest second",
    ]
    return table(heads, rows)


def ages_table() -> str:
    """Return the table of how connections spread again with ages, simulated."""
    rows = []
    for age, jitter in ((0.0, 0.0), (3600.0, 0.0), (3600.0, 0.1)):
        found = spreading(4_000, 4, age or 3600.0, jitter, 20.0) if age else None
        name = f"{age:.0f} s, jitter {jitter}" if age else "none"
        rows.append([name, *((found.share_after_one, found.share_after_two, found.busiest) if found else (0, 0, 0))])
    return table(
        [
            "`max_connection_age`",
            "share of the restarted pod after one age",
            "after two",
            "reconnections a second, at most",
        ],
        rows,
    )


def rollout_table() -> str:
    """Return the table of a rollout of 100 pods, simulated."""
    rows = []
    for name, stay in (("SNI or ports by id: any pod", False), ("ports of a pod: the same pod", True)):
        found = rollout(5_000, 100, START, stay=stay)
        rows.append([name, found.mean, found.most, found.minutes])
    return table(["clients reconnect to", "reconnections of a client, on average", "at most", "minutes"], rows)


def page(kept: dict[str, Any]) -> str:
    """Return the text of the page with all tables made anew."""
    text = PAGE.read_text()
    measured = f"Measured {kept['date']}.\n\n{metadata_table(kept)}"
    made = {"sizing": sizing(), "metadata": measured, "storms": storms_table(), "ages": ages_table(),
            "rollout": rollout_table()}  # fmt: skip
    for name, lines in made.items():
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda found, lines=lines: f"{found[1]}{lines}\n{found[2]}",
            text,
            flags=re.DOTALL,
        )
    return text


def main() -> None:
    """Measure, unless only the page is asked for, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--page", action="store_true", help="make the page of what was measured before")
    if not parser.parse_args().page:
        costs = []
        for per_topic in PER_TOPIC:
            frame = answer_of(BROKERS, PARTITIONS, per_topic)
            costs += [asdict(measure(way, frame)) | {"topics": PARTITIONS // per_topic} for way in WAYS]
        RESULTS.write_text(json.dumps({"date": f"{datetime.now(UTC):%Y-%m-%d}", "metadata": costs}, indent=1) + "\n")
    PAGE.write_text(page(json.loads(RESULTS.read_text())))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
