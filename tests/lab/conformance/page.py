"""The pages of the conformance report: RESULTS.md between its marks, and docs/conformance-matrix.html.

Strategy: both are made from what is kept, and nothing else. All that clients, brokers and libraries said is escaped;
the page of HTML has no script and fetches nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from kproxy.base.terminal import printable
from kproxy.testing.kafka import KAFKA_VERSION
from tests.lab.conformance import kept
from tests.lab.conformance.cell import Run
from tests.lab.conformance.faults import NO_FAULT, Fault, faults
from tests.lab.conformance.judge import OUTCOMES
from tests.lab.conformance.story import CLIENT, MARK, Row
from tests.lab.pages import plain, write_between

PAGE = Path(__file__).with_name("RESULTS.md")
MATRIX = Path(__file__).parents[3] / "docs" / "conformance-matrix.html"
BEGIN = "<!-- what make conformance found -->\n"
Runs = Mapping[tuple[str, str], Run]
HARM = ("died", "hung", "lied", "lost", "doubled")
"""Outcomes that the page tells one by one: more than an error was the matter."""
FOLDERS = re.compile(r"(?<![\w.…:/-])/(?:[^\s/\"'():,;]+/)+")
"""Folders of an absolute path, such as stacks have: where the machine of a run keeps its files is no news to others."""

STYLE = """
:root { color-scheme: light dark; font: 14px/1.45 system-ui, sans-serif; }
body { margin: 1.5rem; max-width: 100rem; }
table { border-collapse: collapse; }
th, td { border: 1px solid #8886; padding: .15rem .45rem; text-align: left; white-space: nowrap; }
thead th { position: sticky; top: 0; background: Canvas; }
td a { color: inherit; text-decoration: none; display: block; }
.recovered { background: #2a92; } .raised { background: #28c3; } .doubled { background: #fa04; }
.lost, .lied, .hung, .died { background: #e334; } .none, .broken { background: #8883; }
pre { background: #8881; padding: .6rem; overflow-x: auto; }
section { border-top: 1px solid #8886; margin-top: 1rem; }
h3:target { outline: 2px solid #28c; }
mark { background: #fa06; color: inherit; }
"""


def write() -> None:
    """Write both pages anew."""
    runs = {pair: without_folders(run) for pair, run in kept.kept().items()}
    known = faults()
    write_between(PAGE, BEGIN, markdown(runs, known))
    MATRIX.write_text(html(runs, known))


def without_folders(run: Run) -> Run:
    """Return a run in whose texts absolute paths have lost their folders: `…/threading.py` for a library's file."""
    return replace(
        run,
        text=short(run.text),
        words=short(run.words),
        notes=[short(note) for note in run.notes],
        story=[[short(column) for column in row] for row in run.story],
        proved=run.proved and [short(line) for line in run.proved],
    )


def short(text: str) -> str:
    """Return a text whose absolute paths have lost their folders."""
    return FOLDERS.sub("…/", text)


def shown_clients(runs: Runs) -> list[str]:
    """Return the clients that were run, in the order of the matrix."""
    return [client for client in kept.NAMES if any(one == client for one, _ in runs)]


def versions(runs: Runs, client: str) -> str:
    """Return a client's versions, as its runs told them."""
    return ", ".join(
        sorted({run.version for (one, _), run in runs.items() if one == client and run.version != "unknown"})
    )


# ---- RESULTS.md


def markdown(runs: Runs, known: Mapping[str, Fault]) -> str:
    """Return the part of the page that is made: what was run, the matrix, and what was more than an error."""
    clients = shown_clients(runs)
    most, when = len(kept.NAMES) * (len(known) + 1), " and ".join(days(runs)) or "no day"
    lines = ["| outcome | means |", "|---|---|", *(f"| {word} | {text} |" for word, text in OUTCOMES.items()), ""]
    lines += [f"{len(runs)} runs of {most}, on {when}, with Kafka {KAFKA_VERSION} and three brokers.", ""]
    lines += [f"- {client} {plain(versions(runs, client))}: {tally(runs, client)}" for client in clients]
    left = [client for client in kept.NAMES if client not in clients]
    lines += [f"- not run: {', '.join(left)}"] if left else []
    if clients:
        lines += ["", "| fault | " + " | ".join(clients) + " |", "|---" * (len(clients) + 1) + "|"]
        lines += [f"| `{name}` | {' | '.join(cell(runs.get((client, name))) for client in clients)} |"
                  for name in (NO_FAULT, *known)]  # fmt: skip
    lines += ["", *harm(runs, clients, known)]
    return "\n".join(lines).rstrip() + "\n"


def days(runs: Runs) -> list[str]:
    """Return the days of the runs."""
    return sorted({run.day for run in runs.values()})


def tally(runs: Runs, client: str) -> str:
    """Return how often a client came to each outcome, in words."""
    count = Counter(run.outcome for (one, fault), run in runs.items() if one == client and fault != NO_FAULT)
    return ", ".join(f"{count[outcome]} {outcome}" for outcome in OUTCOMES if count[outcome]) or "nothing with a fault"


def cell(run: Run | None) -> str:
    """Return a cell of the table: the outcome, or nothing for a run that was not made."""
    link = "../../../docs/conformance-matrix.html"
    return "" if run is None else f"[{run.outcome}]({link}#{anchor(run.client, run.fault)})"


def harm(runs: Runs, clients: Sequence[str], known: Mapping[str, Fault]) -> Iterator[str]:
    """Yield a line for each run in which more than an error was the matter, by client."""
    for client in clients:
        told = [runs[client, name] for name in known if (client, name) in runs and runs[client, name].outcome in HARM]
        if told:
            yield f"### {client} {plain(versions(runs, client))}"
            yield ""
            yield from (f"- `{run.fault}`: {run.outcome}: {plain(run.text)}" for run in told)
            yield ""


# ---- docs/conformance-matrix.html


def html(runs: Runs, known: Mapping[str, Fault]) -> str:
    """Return the page with the matrix: each cell leads to its run below, with its story, under the rule of its
    fault; one command, for all, tells how a run is repeated."""
    clients = shown_clients(runs)
    body = [
        "<h1>Clients and faults</h1>",
        f"<p>{len(runs)} runs, {escape(' and '.join(days(runs)))}. <a href='#words'>What the words mean</a></p>",
        "<p>Each cell leads to its run: the exchanges around the first that the fault <mark>acted on</mark>.</p>",
        "<p>A run's heading stands for it in the command that makes it again:</p>",
        f"<pre>{escape(repeat('CLIENT/FAULT'))}</pre>",
        "<table><thead><tr><th>fault</th>",
        *(f"<th>{escape(client)}<br><small>{escape(versions(runs, client))}</small></th>" for client in clients),
        "</tr></thead><tbody>",
        *(html_row(name, runs, clients) for name in (NO_FAULT, *known)),
        "</tbody></table>",
        '<h2 id="words">Words</h2><dl>',
        *(f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in OUTCOMES.items()),
        "</dl>",
        *(html_fault(name, known.get(name), [runs[client, name] for client in clients if (client, name) in runs])
          for name in (NO_FAULT, *known)),
    ]  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>kproxy: clients and faults</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def html_row(name: str, runs: Runs, clients: Sequence[str]) -> str:
    """Return a line of the matrix."""
    cells = "".join(html_cell(runs.get((client, name))) for client in clients)
    return f"<tr><th>{escape(name)}</th>{cells}</tr>"


def html_cell(run: Run | None) -> str:
    """Return a cell of the matrix, which leads to its run; a run that was not made has none."""
    if run is None:
        return '<td class="none">not run</td>'
    kind = run.outcome.replace(" ", "-") if run.outcome in OUTCOMES else "none"
    link = f'<a href="#{anchor(run.client, run.fault)}">{escape(run.outcome)}</a>'
    return f'<td class="{"none" if run.outcome == "not exercised" else kind}">{link}</td>'


def html_fault(name: str, fault: Fault | None, runs: Sequence[Run]) -> str:
    """Return the section of a fault: what it is, its rule, and its runs; empty if there are none."""
    if not runs:
        return ""
    parts = [f"<section><h2>{escape(name)}</h2>"]
    if fault is not None:
        parts.append(f"<p>{escape(fault.said)}</p><pre>{escape(fault.document())}</pre>")
    return "\n".join([*parts, *map(html_run, runs), "</section>"])


def html_run(run: Run) -> str:
    """Return what came of a run, and its story, under the heading that repeats it."""
    acted = "once" if run.fired == 1 else f"{run.fired:g} times"
    parts = [
        f'<h3 id="{anchor(run.client, run.fault)}">{escape(run.client)}/{escape(run.fault)}</h3>',
        f"<p><b>{escape(run.outcome)}</b>: {escape(run.text)}; the rule acted {acted}</p>",
    ]
    if run.notes:
        parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in run.notes) + "</ul>")
    if run.outcome != "recovered":  # then all that was sent was acknowledged, stored and read
        counted = ", ".join(f"{count} {name}" for name, count in run.counts.items())
        parts.append(f"<p>{escape(counted)}; {escape(run.ended)}</p>")
    parts.append(f"<pre>{html_story(run.story)}</pre>")
    if run.words and run.outcome in {"hung", "died"}:
        parts.append(f"<p>The program wrote at last:</p><pre>{escape(printable(run.words))}</pre>")
    if run.proved is not None:
        said = "\n".join(run.proved) or "nothing is proved"
        parts.append(f"<p>kproxy verify:</p><pre>{escape(said)}</pre>")
    return "\n".join(parts)


def html_story(rows: Sequence[Row]) -> str:
    """Return the rows of a story as lines, as wide as they need; those with the fault are marked, and the clients are
    left out if it is the same everywhere."""
    exchanges = [row for row in rows if len(row) > 1]
    left_out = {MARK, CLIENT} if len({row[CLIENT] for row in exchanges}) == 1 else {MARK}
    lines = aligned([[column for number, column in enumerate(row) if number not in left_out] for row in exchanges])
    marked = [f"<mark>{escape(line)}</mark>" if row[MARK] else escape(line)
              for row, line in zip(exchanges, lines, strict=True)]  # fmt: skip
    return "\n".join([*marked, *(escape(row[0]) for row in rows if len(row) == 1)])


def aligned(rows: Sequence[Row]) -> list[str]:
    """Return rows as lines with columns below each other; times, the first and the last but one, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = {0, len(widths) - 2}
    return [
        " ".join(
            column.rjust(width) if number in right else column.ljust(width)
            for number, (column, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def repeat(name: str) -> str:
    """Return the command that makes the run with this heading again."""
    return f'make conformance CONFORMANCE="-k {name} --again"'


def anchor(client: str, fault: str) -> str:
    """Return the name of a run's section, in letters that need no escape."""
    return "".join(letter if letter.isalnum() else "-" for letter in f"{client}--{fault}")
