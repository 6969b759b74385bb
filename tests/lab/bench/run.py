"""Direct, HAProxy and kproxy side by side on one broker, in one run; prints ratios.

    python -m tests.lab.bench.run [PHASE …] [--quick | --smoke] [--write | --check]

Phases: kafka latency rules start audit view tls workers frames; all when none is named.

All phases take half an hour, --quick under three minutes; --smoke only shows that `frames` and `start` run.
--write puts the report in the section of this processor type in RESULTS.md, and its ratios in results.json. The machine
must be idle. --check ends with 1 if a ratio is more than a tenth below the kept one of this type.
Needs Debian's haproxy and gcc. The phases `kafka` and `latency` need Java and Maven.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import resource
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from kproxy.base.errors import InternalError
from kproxy.testing.kafka import KAFKA_VERSION
from tests.lab.bench import (
    audit_phase,
    frames_phase,
    kafka_phase,
    kept,
    latency_phase,
    report,
    rules_phase,
    start_phase,
    tls_phase,
    view_phase,
    workers_phase,
)
from tests.lab.bench.machine import description, processor
from tests.lab.bench.peers import peers
from tests.lab.bench.rows import Rows
from tests.lab.bench.targets import HERE, TARGETS, targets_before, tool

RESULTS = HERE / "RESULTS.md"
PHASES = (
    "kafka",
    "latency",
    "rules",
    "start",
    "audit",
    "view",
    "tls",
    "workers",
    "frames",
)  # the last leaves thousands of closed connections for a minute


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    rounds: int
    seconds: float
    records: int


FULL, QUICK, SMOKE = Size(5, 1.0, 600_000), Size(1, 0.4, 300_000), Size(1, 0.05, 20_000)

HEAD = """\
# Direct, HAProxy and kproxy side by side

Each processor type has a section, since ratios of two types differ by more than changes of the code do. A run of the
bench replaces the section of its own type and keeps the others.
"""
METHOD = """\
`make bench` prints a section; `python -m tests.lab.bench.run --write` puts it here.

Targets take turns within each case, in another order each round. A ratio compares two targets in one round. The table
has the median of all rounds, of ratios and of absolute figures. Proxy CPU is the scheduler's count for all threads of
the proxy (`/proc/PID/task/*/schedstat`), from the start of the client until its end. Proxies, clients and broker share
the cores.

- Kafka: one broker, its data in memory if there is a tmpfs.
  `ProducerPerformance`: records of 1,000 bytes, acks=1, linger.ms=5, batch.size=65536, MiB/s after a sixth of all.
  `ConsumerPerformance`: MiB/s while it fetches. acks=all is measured once.
  The broker has a listener for each relay that rewrites no addresses, advertised at the relay's port.
  Each run looks up the client's sockets: all connections went to the proxy's own ports, and all records came.
- confluent-kafka: the same amounts, records by name (Produce 10); MiB/s include the start of the client.
- Frames: a C program sends one frame over and over, and a stand-in answers.
- TLS 1.3 on both sides. HAProxy before each target begins TLS, and one after all targets ends it.
- Latency: Produce requests of 200 bytes on 20 connections at fixed times, without waiting for responses. Runs take
  twice the time of frames. A latency counts from the due time of its request.
- Rules: CPU of one exchange in the session alone, without sockets (Produce 9, 200 bytes, one partition).
  All sets take turns in each round. The difference from no rules is the cost of rules.
- Records: work on an uncompressed batch of 1,000 records, by spans and on decoded records in the same round.
- Audit: as the frames, against kproxy without an audit in the same round.
- View: as the frames, against kproxy with an idle admin server. The page is a process that reads all rows. An
  unmeasured second before each run uses up the savings of the view's budget, 40 ms after a quiet time.
- Workers: as the frames, one process and two workers, with ten rules that evaluate each request whole. kproxy takes
  ten times the CPU of the load and the broker. On a machine with two cores, all of them share these.
- Start: from the start of the proxy's process until the stand-in for the broker has answered an ApiVersions request.
- Memory: resident, of a process after one request, and with connections that are silent after one request.
"""


def measure(phases: list[str], size: Size, extra: list[str], only: str, kept_in: Path | None) -> Rows:
    """Run these phases; after each, all figures until then are written to the file `kept_in`."""
    rows = Rows()
    for phase in phases:
        with tempfile.TemporaryDirectory(prefix="kproxy-bench-") as name:
            folder = Path(name)
            if phase == "frames":
                cases = [case for case in frames_phase.CASES if only in case.name]
                frames_phase.measure(folder, rows, cases, rounds=size.rounds, seconds=size.seconds, extra=extra)
            elif phase == "audit":
                audit_phase.measure(folder, rows, rounds=size.rounds, seconds=size.seconds, only=only)
            elif phase == "view":
                view_phase.measure(folder, rows, rounds=size.rounds, seconds=size.seconds, only=only)
            elif phase == "tls":
                tls_phase.measure(folder, rows, rounds=size.rounds, seconds=size.seconds, only=only)
            elif phase == "workers":
                workers_phase.measure(folder, rows, rounds=size.rounds, seconds=size.seconds)
            elif phase == "latency":
                latency_phase.measure(folder, rows, rounds=size.rounds, seconds=size.seconds)
            elif phase == "rules":
                rules_phase.measure(rows, rounds=size.rounds, times=size.records // 100)
            elif phase == "start":
                start_phase.measure(folder, rows, rounds=size.rounds, extra=extra)
            else:
                kafka_phase.measure(folder, rows, rounds=size.rounds, records=size.records, extra=extra)
        if kept_in:
            kept_in.write_text(json.dumps(rows.cases, indent=1))
    return rows


def section(rows: Rows, size: Size, extra: list[str], again: list[str], note: str) -> str:
    """Return this processor's section. `again`: phases of this run, if the others are of an earlier one; `note`: a
    sentence for its beginning."""
    today = dt.datetime.now(dt.UTC).date()
    amount = f"{size.records:,} records and {size.seconds:g} s of frames a run, rounds: {size.rounds}"
    head = [f"{today}, {description()}, Python {sys.version.split()[0]}, Kafka {KAFKA_VERSION}; {amount}.", ""]
    if others := rows.others():
        worst = f"{others[len(others) * 9 // 10]:.2f} and more in the busiest tenth"
        head += [f"Other processes had {median(others):.2f} cores in the median run, {worst}.", ""]
    if peers_too := [f"`{name}`: {TARGETS[name].text}" for name in extra]:
        head += [f"{'; '.join(peers_too)}.", ""]
    if note:
        head += [note, ""]
    if again:
        head += [f"Phases of this run: {', '.join(again)}. All other figures are those of an earlier run.", ""]
    return "\n".join([*head, *report.tables(rows, extra)])


def method() -> str:
    """Return how everything is measured, and the targets."""
    return "\n".join([METHOD, *report.targets()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="*", metavar="PHASE", help=", ".join(PHASES))
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_const", dest="size", const=QUICK, default=FULL)
    sizes.add_argument("--smoke", action="store_const", dest="size", const=SMOKE)
    parser.add_argument("--rounds", type=int, help="of everything")
    parser.add_argument("--seconds", type=float, help="of one run of frames")
    parser.add_argument("--records", type=int, help="of one run against Kafka")
    parser.add_argument("--only", default="", help="frames, audit, view, tls: cases whose names have this in them")
    parser.add_argument("--alone", action="store_true", help="measure kproxy's net without its session, too")
    parser.add_argument("--peers", action="store_true", help="other proxies of Kafka's protocol, too (see peers.py)")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="FILE",
        help="the kproxy of an earlier checkout takes part: frames, audit, start, kafka",
    )
    parser.add_argument("--json", type=Path, help="write all figures of all rounds to this file")
    parser.add_argument("--earlier", type=Path, help="take the phases that are not run from this file of --json")
    parser.add_argument("--note", default="", help="a sentence for the top of the report")
    parser.add_argument("--write", action="store_true", help="write the report to RESULTS.md")
    parser.add_argument("--check", action="store_true", help="compare the ratios with those that were kept")
    options = parser.parse_args()
    if wrong := set(options.phases) - set(PHASES):
        parser.error(f"unknown phase {min(wrong)!r}, allowed: {', '.join(PHASES)}")
    if options.size is SMOKE and options.write:
        parser.error("--smoke measures nothing that is worth keeping")
    default = ["rules", "start", "audit", "frames"] if options.size is SMOKE else list(PHASES)
    given = {key: value for key in ("rounds", "seconds", "records") if (value := getattr(options, key)) is not None}
    size = Size(**{**vars(options.size), **given})
    extra = ["alone"] if options.alone else []
    if options.peers:
        found = {target.name: target for target in peers()}
        TARGETS.update(found)
        extra += found
    if options.before:
        if not options.before.is_file():
            parser.error(f"--before: no file {options.before}")
        TARGETS.update(targets_before(options.before.absolute()))
    if {"kafka", "latency", "start", "tls", "frames"} & set(options.phases or default):
        tool("haproxy", "haproxy")
    if {"latency", "start", "frames", "audit", "view", "tls", "workers"} & set(options.phases or default):
        tool("gcc", "gcc")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a thousand connections and some
    try:
        rows = measure(options.phases or default, size, extra, options.only, options.json)
    except InternalError as error:  # Java or Maven is missing, Kafka does not start
        sys.exit(str(error))
    if options.earlier:
        rows.cases = json.loads(options.earlier.read_text()) | rows.cases
    text = section(rows, size, extra, options.phases if options.earlier else [], options.note)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(rows.cases, indent=1))
    if options.write:
        RESULTS.write_text(kept.replaced(RESULTS.read_text(), processor(), text, HEAD, method()))
        kept.write(rows)
    if options.check:
        check(rows)


def check(rows: Rows) -> None:
    """Exit with 1 if a ratio is much worse than the kept one, or if none is kept for this processor type."""
    try:
        lines = kept.compare(rows)
    except LookupError as error:
        sys.exit(str(error))
    if lines:
        sys.exit("\n".join(["these have become worse by more than a tenth:", *lines]))


if __name__ == "__main__":
    main()
