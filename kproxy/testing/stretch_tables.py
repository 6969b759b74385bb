"""Tables of the longest stretches, by group of kinds and by which frame is long, as Markdown.

`python -m kproxy.testing.stretches` prints one: each kind is measured with one API and 100,000 elements. `--sieve FILE`
searches all cases (stretch_sieve.py), tells what is too long as soon as it is found, and prints the table in the end;
`--table FILE` prints that of what was found so far.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from time import thread_time

from .stretch_sieve import GROUPS, OTHERS, Finding, group_of, in_order, known, search
from .stretches import BOTH, Case, cases

TRIES = 3
"""A stretch is as long as the shortest of so many attempts, if the first is not short: others use the machine."""
SHORT = 0.02


def table(count: int = 100_000) -> str:
    """The longest stretch of any case by group of kinds and by which frame is long, as a table of Markdown."""
    found: dict[tuple[str, str], tuple[float, float, Case]] = {}
    for case in cases():
        watches = [case.measure(count)]
        while watches[-1].longest > SHORT and len(watches) < TRIES:
            watches.append(case.measure(count))
        longest, total = min(one.longest for one in watches), min(one.total for one in watches)
        place = group_of(case.kind), case.way
        if place not in found or longest > found[place][0]:
            found[place] = longest, total, case
    lines = ["| kinds | long frame | longest stretch, ms | all of it, ms | with |", "|---|---|---|---|---|"]
    for (group, way), (longest, total, case) in sorted(found.items(), key=lambda one: one[0]):
        what = f"`{case.kind}`, {case.api} {case.version}"
        lines.append(f"| {group} | {way} | {longest * 1000:.0f} | {total * 1000:.0f} | {what} |")
    return "\n".join(lines)


def sifted(findings: Iterable[Finding]) -> str:
    """The longest stretch with all elements by group of kinds and by which frame is long, as a table of Markdown."""
    longest: dict[tuple[str, str], Finding] = {}
    counts: dict[tuple[str, str], int] = {}
    for one in findings:
        place = group_of(one.kind), one.way
        counts[place] = counts.get(place, 0) + 1
        if place not in longest or one.most > longest[place].most:
            longest[place] = one
    lines = ["| kinds | long frame | cases | longest stretch, ms | with |", "|---|---|---|---|---|"]
    for group in (*GROUPS, OTHERS):
        for way in ("request", "response", BOTH):
            found = longest.get((group, way))
            if found is not None:
                most = f"{found.most:.0f}" if found.many else f"under {found.most:.0f}"
                api = found.case.split(", ")[1]
                lines.append(f"| {group} | {way} | {counts[group, way]:,} | {most} | `{found.kind}`, {api} |")
    return "\n".join(lines)


def run(path: Path) -> None:
    """Search, tell what is too long as soon as it is found, and print the table."""
    wanted = in_order(cases(everything=True))
    begun = thread_time()
    for done, found in enumerate(search(path, wanted), 1):
        if found.long:
            sys.stdout.write(f"{found.many} ms: {found.case}, {found.rules} {found.error}\n{found.where}\n")
        if done % 1000 == 0:
            sys.stdout.write(f"{done} of {len(wanted)} measured, {thread_time() - begun:.0f} s\n")
        sys.stdout.flush()
    sys.stdout.write(sifted(known(path).values()) + "\n")


def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    match arguments:
        case ["--sieve", file]:
            run(Path(file))
        case ["--table", file]:
            sys.stdout.write(sifted(known(Path(file)).values()) + "\n")
        case []:
            sys.stdout.write(f"{table()}\n")
        case _:
            sys.exit("usage: python -m kproxy.testing.stretches [--sieve FILE | --table FILE]")
