"""Tables of the longest stretches, by group of kinds and by which frame is long, as Markdown.

`python -m tests.support.stretches --sieve FILE` searches all cases (stretch_sieve.py), tells what is too long as soon
as it is found, and prints the table in the end; `--sample FILE` goes through one API and form of each kind; `--table
FILE` prints what was found so far.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from time import thread_time

from tests.support.stretch_sieve import GROUPS, OTHERS, Finding, group_of, in_order, known, search
from tests.support.stretches import BOTH, cases


def table(findings: Iterable[Finding]) -> str:
    """Return a Markdown table of the longest stretch with all elements, by group of kinds and by which frame is
    long."""
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


def run(path: Path, everything: bool) -> None:
    """Search the cases, print each that is too long as soon as it is found, and the table at the end."""
    wanted = in_order(cases(everything))
    begun = thread_time()
    for done, found in enumerate(search(path, wanted), 1):
        if found.long:
            sys.stdout.write(f"{found.many} ms: {found.case}, {found.rules} {found.error}\n{found.where}\n")
        if done % 1000 == 0:
            sys.stdout.write(f"{done} of {len(wanted)} measured, {thread_time() - begun:.0f} s\n")
        sys.stdout.flush()
    sys.stdout.write(table(known(path).values()) + "\n")


def main(arguments: list[str]) -> None:
    """Search or print the table, as the command line says."""
    match arguments:
        case ["--sieve" | "--sample" as how, file]:
            run(Path(file), how == "--sieve")
        case ["--table", file]:
            sys.stdout.write(table(known(Path(file)).values()) + "\n")
        case _:
            sys.exit("usage: python -m tests.support.stretches --sieve FILE | --sample FILE | --table FILE")
