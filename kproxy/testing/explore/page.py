"""Report of explorations as an HTML page without scripts. Clients, brokers and tests choose its texts, so `element`
escapes them. A cell shows its run by the address alone (`:target`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from html import escape

from kproxy.base.terminal import printable

from .model import ExchangePlace, RunOutcome
from .plan import place_text, plan_text, rule_file
from .report import finding_lines, heading, report_lines
from .result import Exploration, merged_outcome

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; font: 14px/1.45 system-ui, sans-serif; }
body { max-width: 90rem; margin: 1rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
.table { overflow-x: auto; margin: .5rem 0 1.5rem; }
table { border-collapse: collapse; }
th, td { border: 1px solid #8884; padding: .2rem .45rem; text-align: left; font-weight: normal; min-width: 4rem; }
thead th { vertical-align: bottom; min-width: 6rem; max-width: 11rem; } tr th:first-child { min-width: 9rem; }
td { text-align: center; } td a { color: inherit; text-decoration: none; display: block; }
.passed { background: #2a92; } .slow { background: #aa33; } .loud { background: #38c3; }
.failed, .raised, .hang, .died { background: #d338; font-weight: bold; } .broken { background: #83c5; }
.exercised { background: #8882; } .untried { color: #8888; }
.run { display: none; border: 2px solid #888; padding: 0 1rem; } .run:target { display: block; }
pre { white-space: pre-wrap; }
"""
WORDS: dict[RunOutcome, str] = {"loud": "loud", "not exercised": "not exercised", "raised": "failed"}
MOST_DETAILS = 1_000  # runs of one exploration with details; failed ones come first


class HtmlText(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str) -> HtmlText:
    """Return an element; children that are not HtmlText are escaped."""
    inner = "".join(child if isinstance(child, HtmlText) else escape(printable(child)) for child in children)
    written = "".join(f' {key.rstrip("_")}="{escape(printable(value))}"' for key, value in attributes.items())
    return HtmlText(f"<{name}{written}>{inner}</{name}>")


def html_report(results: Iterable[Exploration]) -> str:
    sections = [exploration_section(result, f"t{number}") for number, result in enumerate(results)]
    head = HtmlText(
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        f"<title>kproxy explore</title><style>{STYLE}</style>"
    )
    body = element("body", element("h1", "kproxy explore"), *sections)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n{body}</html>\n'


def exploration_section(result: Exploration, prefix: str) -> HtmlText:
    """Return the section of one exploration. `prefix`: of its addresses."""
    text = "\n".join(report_lines(result))
    parts = [element("h2", f"{result.test} {heading(result)}"), element("pre", text)]
    parts += [finding_block(result, number) for number in range(len(result.findings))]
    parts += matrices(result, prefix)
    parts += deeper_runs(result, prefix)
    parts += run_blocks(result, prefix)
    return element("section", *parts)


def finding_block(result: Exploration, number: int) -> HtmlText:
    finding = result.findings[number]
    lines = list(finding_lines(finding, result))
    return element("details", element("summary", lines[0]), element("pre", "\n".join(lines[1:])),
                   element("pre", rule_file(finding.smallest, drip=result.drip)))  # fmt: skip


def cells_of(result: Exploration) -> dict[tuple[ExchangePlace, str], list[int]]:
    cells = defaultdict[tuple[ExchangePlace, str], list[int]](list)
    for number, one in enumerate(result.runs):
        if len(one.run.plan.steps) == 1:
            step = one.run.plan.steps[0]
            cells[step.place, step.fault.name].append(number)
    return cells


def matrices(result: Exploration, prefix: str) -> Iterator[HtmlText]:
    cells = cells_of(result)
    places: defaultdict[str, dict[ExchangePlace, None]] = defaultdict(dict)
    for place in (*result.learned.places, *(place for place, _ in cells)):
        places[place.api][place] = None
    for api, rows in places.items():
        names = {name for name in result.all_faults if name.startswith(f"{api}: ")}
        faults = sorted(names | {name for place, name in cells if place.api == api})
        if not faults:
            continue
        head = element("tr", element("th", "place"), *(element("th", name.partition(": ")[2]) for name in faults))
        body = [
            element("tr", element("th", place_text(place)),
                    *(cell(result, cells.get((place, name), []), prefix) for name in faults))
            for place in rows
        ]  # fmt: skip
        yield element("h3", api)
        yield table(element("thead", head), element("tbody", *body))


def table(*parts: HtmlText) -> HtmlText:
    return element("div", element("table", *parts), class_="table")


def cell(result: Exploration, runs: list[int], prefix: str) -> HtmlText:
    outcome = merged_outcome(result.runs[number].outcome for number in runs)
    if outcome is None:
        return element("td", "·", class_="untried", title="not tried")
    number = next((one for one in runs if result.runs[one].outcome == outcome), runs[0])
    word = WORDS.get(outcome, outcome)
    link = element("a", word, href=f"#{prefix}-{number}")
    return element("td", link, class_=outcome.split()[-1])


def deeper_runs(result: Exploration, prefix: str) -> Iterator[HtmlText]:
    """Yield a table of the runs with several faults that did not pass."""
    rows = [
        element("tr", element("th", plan_text(one.run.plan)), cell(result, [number], prefix))
        for number, one in enumerate(result.runs)
        if len(one.run.plan.steps) > 1 and one.outcome not in ("passed", "slow", "not exercised")
    ]
    if rows:
        yield element("h3", "several faults")
        yield table(element("tbody", *rows))


def run_blocks(result: Exploration, prefix: str) -> Iterator[HtmlText]:
    """Yield the details of each run; of too many, failed runs first."""
    order = sorted(range(len(result.runs)), key=lambda number: result.runs[number].signature is None)
    for number in sorted(order[:MOST_DETAILS]):
        one = result.runs[number]
        run = one.run
        counters = [f"matched {each.matched}, fired {each.fired}, applied {each.applied}" for each in run.counters]
        raised = run.raised
        parts = {
            "plan": plan_text(run.plan),
            "rules": "\n".join(counters),
            "raised": "" if raised is None else f"{raised.where}\n{raised.type}: {raised.message}".strip(),
            "verify": "\n".join(f"{each.check} {each.text}" for each in run.violations),
            "problem": run.problem,
            "exchanges": "\n".join(run.story),
            "stacks": run.stacks,
            "output": run.output,
        }
        blocks = [HtmlText(element("h4", name) + element("pre", text)) for name, text in parts.items() if text]
        title = element("h3", f"run {number + 1}: {one.outcome}, {run.seconds:.2f} s")
        yield element("div", title, *blocks, id=f"{prefix}-{number}", class_="run")
