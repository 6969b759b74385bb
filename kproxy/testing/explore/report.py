"""Reports of explorations as lines, JSON, JUnit properties and an HTML page, with the known behaviour of clients.

The page has no scripts. Clients, brokers and tests choose its texts, so `element` escapes them. A cell shows its run by
the address alone (`:target`).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from kproxy.base.errors import plural
from kproxy.base.terminal import in_line, printable
from kproxy.protocol.table.schema import read_yaml

from .model import ExchangePlace, FaultPlan, RunOutcome
from .plan import place_text, plan_rules, plan_text, rule_file, selectors
from .result import Exploration, FaultFinding, JudgedRun, merged_outcome

TABLE = files("kproxy.testing.explore") / "known_clients.yaml"


@dataclass(frozen=True, slots=True)
class KnownBehaviour:
    """Known behaviour of a client library: an entry of `known_clients.yaml`, which describes the fields."""

    name: str
    client: str
    since: str
    symptom: str
    reference: str
    outcome: RunOutcome
    faults: tuple[str, ...]
    error: str = "*"
    where: str = "*"
    software: str = ""
    fixed: str = ""

    def matches(self, finding: FaultFinding) -> bool:
        signature, faults = finding.signature, finding.smallest.faults
        return (
            signature.outcome == self.outcome
            and bool(faults)
            and all(any(fnmatchcase(name, one) for one in self.faults) for name in faults)
            and fnmatchcase(f"{signature.type}: {signature.message}", self.error)
            and fnmatchcase(signature.where or finding.example.run.problem, self.where)
            and self.has_version(finding.example.run.software)
        )

    def has_version(self, software: Iterable[str]) -> bool:
        """Return True if a client has an affected version, or if this library sends no version."""
        found = [match[1] for one in software if self.software and (match := re.search(self.software, one))]
        since, fixed = numbers(self.since), numbers(self.fixed)
        return not self.software or any(
            since <= numbers(one) and not (fixed and fixed <= numbers(one)) for one in found
        )

    @property
    def versions(self) -> str:
        return f"{self.since} and newer" + (f", before {self.fixed}" if self.fixed else "")

    def lines(self) -> Iterator[str]:
        yield f"known behaviour of {self.client} {self.versions}: {self.symptom} ({self.reference})"
        marker = "" if self.error == "*" else f", or @pytest.mark.kproxy_explore(ignore=[{json.dumps(self.error)}])"
        yield f"to ignore it: the options baseline and update{marker}"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)


@cache
def known_behaviours() -> tuple[KnownBehaviour, ...]:
    return tuple(
        KnownBehaviour(name, **{**entry, "faults": tuple(entry["faults"])}) for name, entry in read_yaml(TABLE).items()
    )


def known_behaviour(finding: FaultFinding) -> KnownBehaviour | None:
    """Return the first entry that a finding matches, if any."""
    return next((one for one in known_behaviours() if one.matches(finding)), None)


LOUD: frozenset[RunOutcome] = frozenset(("failed", "raised", "hang", "died", "broken"))
WORDS: dict[RunOutcome, str] = {"loud": "failed loudly"}
MOST_NAMES = 4


def report_lines(result: Exploration) -> Iterator[str]:
    yield f"{in_line(result.test)} {heading(result)}"
    for line in (*learned_lines(result), *explored_lines(result)):
        yield f"  {in_line(line)}"
    for finding in result.findings:
        for number, line in enumerate(finding_lines(finding, result)):
            yield f"  {'  ' if number else ''}{in_line(line)}"
    for note in result.notes:
        yield f"  note: {in_line(note)}"


def heading(result: Exploration) -> str:
    if result.flaky:
        return "FLAKY"
    if result.skipped:
        return "SKIPPED"
    if result.problem and not result.runs:
        return "NOT EXPLORED"
    return "EXPLORED"


def learned_lines(result: Exploration) -> Iterator[str]:
    learned = result.learned
    if learned.places:
        varying = f"; counts vary of {listed(learned.varying)}" if learned.varying else ""
        kinds, places = plural(learned.kinds, "kind"), plural(len(learned.places), "stable place")
        yield f"learned      {kinds} of exchanges, {places}, in {plural(len(result.learning), 'run')}{varying}"
    if result.skipped:
        yield f"skipped      {result.skipped}"
    if result.problem:
        yield f"problem      {result.problem}"


def explored_lines(result: Exploration) -> Iterator[str]:
    if not result.runs:
        return
    ends = ", ".join(
        f"{count:,} {WORDS.get(outcome, outcome).upper() if outcome in LOUD else WORDS.get(outcome, outcome)}"
        for outcome, count in result.outcomes.items()
    )
    left = f"left: {plural(result.left, 'plan')}" if result.left else "nothing is left"
    runs = f"{plural(len(result.runs), 'run')} in {result.exploring:.0f} s, {result.jobs} side by side"
    yield f"explored     {runs}: {ends}, {left}"
    missed = sorted(result.all_faults - result.covered)
    covered = len(result.all_faults) - len(missed)
    yield f"covered      {covered} of {plural(len(result.all_faults), 'fault')}" + (
        f"; not {listed(missed)}" if missed else ""
    )
    if result.unlike_mock:
        yield f"not tried    on the mock cluster, which does not do as brokers do: {listed(result.unlike_mock)}"
    if result.refused:
        yield f"not tried    {plural(result.refused, 'plan')} without room"
    for one in result.broken[:3]:
        problems = [problem for counters in one.run.counters for problem in counters.problems]
        yield f"BROKEN       {one.run.problem or '; '.join(problems) or 'its process has told nothing'}"


def finding_lines(finding: FaultFinding, result: Exploration) -> Iterator[str]:
    word = finding.signature.outcome.upper()
    marks = ["known"] if finding.known else []
    if finding.of == 1:
        marks.insert(0, "not confirmed")
    elif not finding.certain:
        marks.insert(0, "intermittent")
    where = f"{plural(finding.met, 'run')}, first in run {finding.first}"
    yield f"{word}  {finding.example.what} ({'; '.join([where, *marks])})"
    if finding.is_of_test:
        failed, of = finding.controls
        yield f"not the faults: it fails in {failed} of {plural(of, 'run')} without any"
        return
    yield plan_text(finding.smallest)
    yield "; ".join(certainty(finding))
    if behaviour := known_behaviour(finding):
        yield from behaviour.lines()
    for plan, fails, of in finding.minimal:
        yield f"the same with {plan_text(plan)}: fails in {fails} of {plural(of, 'run')}"
    if finding.replays == 0:
        yield "not saved: it did not fail again from its rule file"
    if finding.file:
        yield f"saved {finding.file}; from now on:"
        yield from (f"  {line}" for line in result.replay_lines(finding))


def certainty(finding: FaultFinding) -> Iterator[str]:
    if finding.replays is not None:
        runs = f"in {plural(finding.tried, 'run')} ({finding.seconds:.0f} s)"
        ended = "" if finding.complete else ", time was up"
        if finding.shrunk_from:
            yield f"shrunk from {finding.shrunk_from} {runs}{ended}"
        elif finding.complete:
            yield f"nothing can be taken from it, {runs}"
        else:
            yield f"not shrunk{', ' + runs if finding.tried else ''}: time was up"
        yield rate(finding, finding.replays, finding.replays_of)
    else:
        yield rate(finding, finding.fails, finding.of)
    violations = finding.example.run.violations
    if violations:
        yield "verify: " + "; ".join(f"{one.check} {one.text}".strip() for one in violations[:3])


def rate(finding: FaultFinding, fails: int, of: int) -> str:
    """Return a failure rate such as `fails in 3 of 10 runs, 0 of 5 without faults`."""
    failed, controls = finding.controls
    without = f", {failed} of {controls} without faults" if controls else ""
    return f"fails in {fails} of {plural(of, 'run')}{without}"


def listed(names: Iterator[str] | tuple[str, ...] | list[str]) -> str:
    """Return names separated by commas, and the number of those beyond MOST_NAMES."""
    known = list(names)
    text = ", ".join(known[:MOST_NAMES])
    return text if len(known) <= MOST_NAMES else f"{text} and {plural(len(known) - MOST_NAMES, 'other')}"


SCHEMA = "kproxy.explore/1"


def exploration_report(results: Iterable[Exploration]) -> dict[str, Any]:
    return {"schema": SCHEMA, "tests": [exploration_document(result) for result in results]}


def json_report(results: Iterable[Exploration]) -> str:
    return json.dumps(exploration_report(results), indent=1)


def fields_of(value: object, names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names.split()}


def exploration_document(result: Exploration) -> dict[str, Any]:
    learned = result.learned
    return {
        **fields_of(
            result,
            "test problem flaky skipped interrupted classes jobs limit outcomes one_batch_per_fetch left refused",
        ),
        **fields_of(result, "unlike_mock notes"),
        "exit_code": result.exit_code(),
        "seconds": round(result.seconds, 3),
        "exploring_seconds": round(result.exploring, 3),
        "learned": {"runs": len(result.learning), "kinds": learned.kinds, "varying": learned.varying},
        "places": [place_document(place) for place in learned.places],
        "runs": [run_document(one) for one in result.runs],
        "findings": [finding_document(one) for one in result.findings],
        "coverage": {"faults": sorted(result.all_faults), "applied": sorted(result.covered & result.all_faults)},
    }


def coverage_properties(result: Exploration) -> list[tuple[str, object]]:
    """Return coverage, runs and findings of an exploration as properties of its test case."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in result.outcomes.items())
    properties = {
        "places": len(result.learned.places),
        "runs": len(result.runs),
        "outcomes": outcomes,
        "faults": len(result.all_faults),
        "faults_applied": len(result.covered & result.all_faults),
        "faults_not_applied": "; ".join(sorted(result.all_faults - result.covered)),
        "plans_left": result.left,
        "findings": len(result.findings),
        "new_findings": len(result.new_findings),
        "client_behaviour": "; ".join(one.name for one in map(known_behaviour, result.findings) if one),
        "rule_files": "; ".join(one.file for one in result.findings if one.file),
        "problem": result.problem,
    }
    return [(f"kproxy_explore.{name}", value) for name, value in properties.items() if value != ""]


def place_document(place: ExchangePlace) -> dict[str, Any]:
    return {
        "text": place_text(place),
        "match": selectors(place),
        "nth": place.mark.nth,
        "mark": place.mark.kind,
        "traits": sorted(place.traits),
    }


def plan_document(plan: FaultPlan) -> dict[str, Any]:
    return {
        "text": plan_text(plan),
        "faults": [step.fault.name for step in plan.steps],
        "places": [place_text(step.place) for step in plan.steps],
        "rules": plan_rules(plan),
    }


def run_document(one: JudgedRun) -> dict[str, Any]:
    run = one.run
    return {
        "plan": plan_document(run.plan),
        "outcome": one.outcome,
        "seconds": round(run.seconds, 3),
        **fields_of(run, "errors digest problem"),
        "counters": [asdict(each) for each in run.counters],
        "raised": run.raised and fields_of(run.raised, "type message where"),
        "violations": [asdict(each) for each in run.violations],
        "signature": None if one.signature is None else one.signature.short,
    }


def finding_document(finding: FaultFinding) -> dict[str, Any]:
    failed, controls = finding.controls
    behaviour = known_behaviour(finding)
    return {
        **fields_of(finding, "first met fails of certain known file"),
        "signature": {"short": finding.signature.short, **asdict(finding.signature)},
        "controls": {"failed": failed, "of": controls},
        "example": plan_document(finding.example.run.plan),
        "smallest": plan_document(finding.smallest),
        "minimal": [{**plan_document(plan), "failed": fails, "of": of} for plan, fails, of in finding.minimal],
        "replays": None if finding.replays is None else {"failed": finding.replays, "of": finding.replays_of},
        "shrinking": {"tried": finding.tried, "seconds": round(finding.seconds, 3), "complete": finding.complete},
        "software": finding.example.run.software,
        "client_behaviour": None if behaviour is None else {**asdict(behaviour), "text": list(behaviour.lines())},
    }


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
CELL_WORDS: dict[RunOutcome, str] = {"loud": "loud", "not exercised": "not exercised", "raised": "failed"}
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
    rules = rule_file(finding.smallest, one_batch_per_fetch=result.one_batch_per_fetch)
    text = element("pre", "\n".join(lines[1:]))
    return element("details", element("summary", lines[0]), text, element("pre", rules))


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
    word = CELL_WORDS.get(outcome, outcome)
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
