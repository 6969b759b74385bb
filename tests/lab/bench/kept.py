"""Results that are kept by processor type: sections of RESULTS.md, and the ratios of a run for later comparison.

A ratio compares kproxy with another target of the same run; higher is better. Ratios of two processor types differ by
more than a tenth, so a run replaces and is compared with the results of its own type only. Latencies are left out:
differences of some tens of microseconds depend on the machine more than on a change.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from tests.lab.bench.audit_phase import PLAIN, SUMMARY
from tests.lab.bench.latency_phase import PARTS, case_name
from tests.lab.bench.machine import processor
from tests.lab.bench.rows import Rows
from tests.lab.bench.view_phase import OPEN
from tests.lab.bench.view_phase import PLAIN as NOBODY
from tests.lab.bench.workers_phase import ONE_WORKER, TWO_WORKERS

FILE = Path(__file__).parent / "results.json"
METHOD = "Method"  # heading of the last section
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
    """Replace the ratios of this processor type."""
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    kept[processor()] = {"python": sys.version, "ratios": ratios(rows)}
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def sections(report: str) -> dict[str, str]:
    """Return the sections of a report by their headings, in order; each is from its heading to the next."""
    parts = re.split(r"^## (.+)$", report, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def replaced(report: str, name: str, section: str, head: str, method: str) -> str:
    """Return a report with this section in place of the earlier one of its name. All other sections are kept, in
    alphabetical order; head and method are new."""
    kept = {**sections(report), name: f"\n\n{section.strip()}\n\n"}
    kept.pop(METHOD, None)
    ordered = "".join(f"## {each}{kept[each]}" for each in sorted(kept))
    return f"{head.strip()}\n\n{ordered}## {METHOD}\n\n{method.strip()}\n"


def compare(rows: Rows) -> list[str]:
    """Return a line for each ratio that is worse than the kept one of this processor type. Raises LookupError if
    none are kept."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    kept = found.get(processor())
    if kept is None:
        known = ", ".join(sorted(found)) or "none"
        raise LookupError(f"expected kept ratios of {processor()}, got those of {known} (at {FILE})")
    lines = worse(kept["ratios"], ratios(rows))
    if lines and kept["python"] != sys.version:  # builds differ by more than a tenth
        lines.append(f"they were kept with Python {kept['python']}, this is {sys.version}")
    return lines
