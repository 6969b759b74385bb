"""Ratios of a run that are kept beside the report, and the comparison of a later run with them.

A ratio says how good kproxy is against another target of the same run: the higher the better, and a figure of another
machine can be compared with it where absolute ones cannot. Latencies are left out: differences of some tens of
microseconds say more about the machine than about a change.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .audit_phase import PLAIN, SUMMARY
from .latency_phase import PARTS, case_name
from .rows import Rows
from .view_phase import OPEN
from .view_phase import PLAIN as NOBODY
from .workers_phase import ONE_WORKER, TWO_WORKERS

FILE = Path(__file__).parent / "results.json"
WORSE = 0.1
"""The part by which a ratio may fall before the check fails; runs on one machine differ by half of that."""
PAIRS = (("kproxy", "haproxy"), ("rename", "off"), ("rename", "haproxy"), ("rules", "kproxy"), ("workers", "kproxy"),
         (TWO_WORKERS, ONE_WORKER),
         (SUMMARY, PLAIN), (OPEN, NOBODY))  # fmt: skip
HIGHER, LOWER = ("mbs", "rate"), ("us", "cpu_gb", "kb_each")


def ratios(rows: Rows) -> dict[str, float]:
    """What was measured of each pair of targets, by "case: figure, target against other"."""
    found = {}
    for case in rows.cases:
        if case in map(case_name, PARTS):
            continue
        for target, other in PAIRS:
            if target == other or not rows.has(case, target, other):
                continue
            for key in (*HIGHER, *LOWER):
                if all(key in rows.cases[case][name][0] for name in (target, other)):
                    pair = (target, other) if key in HIGHER else (other, target)
                    found[f"{case}: {key}, {target} against {other}"] = round(rows.ratio(case, *pair, key), 3)
    return found


def worse(kept: dict[str, float], now: dict[str, float]) -> list[str]:
    """A line for each ratio that has fallen too far; what only one of the two has is not compared."""
    return [
        f"{name}: {now[name]:.2f}, was {was:.2f}"
        for name, was in kept.items()
        if name in now and now[name] < was * (1 - WORSE)
    ]


def write(rows: Rows) -> None:
    kept = {"python": sys.version, "ratios": ratios(rows)}
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def compare(rows: Rows) -> list[str]:
    """What is to be said of these rows beside the kept ones: nothing where all is as good. Raises FileNotFoundError
    when none were ever kept."""
    kept = json.loads(FILE.read_text())
    lines = worse(kept["ratios"], ratios(rows))
    if lines and kept["python"] != sys.version:  # builds differ by more than a tenth
        lines.append(f"they were kept with Python {kept['python']}, this is {sys.version}")
    return lines
