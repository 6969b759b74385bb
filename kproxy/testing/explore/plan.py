"""Table of the faults that a real cluster shows (`faults.yaml`), and plans as rules, sentences and rule files.

Each planned fault is one rule that acts once. Its ordinal counts all matching requests (`count: all`), so the faults
of a plan do not shift each other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from kproxy.base.errors import InputError
from kproxy.base.terminal import in_line
from kproxy.protocol.table.schema import read_yaml
from kproxy.rules.document.read import read_document
from kproxy.rules.kinds.base.rule import LONGEST_NAME
from kproxy.rules.select.match import is_pattern
from kproxy.rules.values.source import Source, raise_mistakes
from kproxy.testing.rule_arguments import InjectedFaults, NamedFault

from .model import ExchangePlace, FaultClass, FaultPlan, KnownFault, PlaceMark, PlannedFault

TABLE = files("kproxy.testing.explore") / "faults.yaml"
DEFAULT_CLASSES: tuple[FaultClass, ...] = ("transient", "fatal")
MOMENTS = {"before": "before the work", "after": "after the work", "crash": "and the client dies"}
BREAKING = frozenset(("disconnect", "drop"))  # kinds of rules that break the connection


class FaultTable:
    """Table of faults by API. `weights`: danger of faults by API, multiplied with the weight of each fault."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        everywhere = document["connections"]
        self.weights: Mapping[str, float] = {
            api: entry["weight"] for api, entry in document.items() if api != "connections"
        }
        self.by_api: Mapping[str, tuple[KnownFault, ...]] = {
            api: tuple(faults_of(api, document[api], everywhere)) for api in self.weights
        }

    @property
    def all(self) -> Iterator[KnownFault]:
        for faults in self.by_api.values():
            yield from faults

    def at(
        self, place: ExchangePlace, classes: Collection[FaultClass] = DEFAULT_CLASSES, on_mock: bool = False
    ) -> Iterator[KnownFault]:
        """Yield the faults of these classes that can occur at a place; `on_mock` excludes those with `unlike_mock`."""
        for fault in self.by_api.get(place.api, ()):
            suits = fault.needs <= place.traits and fault.without.isdisjoint(place.traits)
            if fault.kind_of in classes and suits and not (on_mock and is_unlike_mock(fault, place)):
                yield fault

    def untried(self, place: ExchangePlace, classes: Collection[FaultClass]) -> Iterator[KnownFault]:
        """Yield the faults that `on_mock` excludes."""
        return (fault for fault in self.at(place, classes) if is_unlike_mock(fault, place))


@cache
def fault_table() -> FaultTable:
    return FaultTable(read_yaml(TABLE))


def faults_of(api: str, entry: Mapping[str, Any], everywhere: Mapping[str, Any]) -> Iterator[KnownFault]:
    for name in entry.get("connections", ()):
        unlike = entry.get("unlike_mock", {}).get(name, "")
        yield known_fault(api, name, {"unlike_mock": unlike, **everywhere[name]})
    for fault in entry.get("faults", ()):
        error = fault.get("error")
        if error is None:
            yield known_fault(api, fault["name"], fault)
            continue
        moment = fault["moment"]
        rule = {"kind": "error", "error": error, "at": "request" if moment == "before" else "response"}
        name = f"{error}, {MOMENTS[moment]}"
        yield known_fault(api, name, {**fault, "rule": rule, "text": name})


def known_fault(api: str, name: str, entry: Mapping[str, Any]) -> KnownFault:
    return KnownFault(
        f"{api}: {name}", api, entry["class"], entry["moment"], entry["weight"], entry["text"], dict(entry["rule"]),
        entry["source"], frozenset(entry.get("needs", ())), frozenset(entry.get("without", ())),
        entry.get("unlike_mock", ""), entry.get("goes_on", True),
    )  # fmt: skip


def is_unlike_mock(fault: KnownFault, place: ExchangePlace) -> bool:
    return fault.unlike_mock == "always" or fault.unlike_mock in place.traits


def breaks_connection(fault: KnownFault) -> bool:
    return fault.rule.get("kind") in BREAKING


SELECTORS = ("client_id", "client_software", "topic", "partition", "group", "transactional_id")  # least specific first
OF_PLACE = frozenset(("name", "match", "when", "not"))  # keys of a rule that select where it acts
# a real broker returns all records in one response, which leaves little for faults to act on
ONE_BATCH_PER_FETCH = {"name": "readers get one batch at a time", "kind": "empty_fetch", "batches": 1}
LONGEST_ENTITY = 80  # characters of a name that are shown; rules have the whole name


def plan_rules(plan: FaultPlan, one_batch_per_fetch: bool = False) -> list[dict[str, Any]]:
    """Return the rules of a plan with unique names. `one_batch_per_fetch`: readers get one batch at a time as well."""
    rules: list[dict[str, Any]] = []
    for number, step in enumerate(plan.steps):
        name = rule_name(step)
        if any(name == rule["name"] for rule in rules):
            name = f"{name[: LONGEST_NAME - 8]} ({number + 1})"
        rules.append({"name": name, **step.fault.rule, "match": selectors(step.place), "when": trigger(step)})
    return [*rules, ONE_BATCH_PER_FETCH] if one_batch_per_fetch else rules


def rule_name(step: PlannedFault) -> str:
    """Return the sentence of a planned fault as one printable line of bounded length."""
    text = step_text(step)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def selectors(place: ExchangePlace) -> dict[str, Any]:
    """Return the `match` of a place."""
    match: dict[str, Any] = {"api": place.api}
    for name in SELECTORS:
        value = getattr(place, name)
        if isinstance(value, str) and value:
            match[name] = exactly(value)
        elif isinstance(value, int):
            match[name] = value
    if place.mark.offset is not None:
        match["offset"] = place.mark.offset
    return match


def exactly(text: str) -> str:
    """Return a selector that matches this text only."""
    return f"/{re.escape(text)}/" if is_pattern(text) else text


def trigger(step: PlannedFault) -> dict[str, Any]:
    when: dict[str, Any] = {"nth": step.place.mark.nth, "count": "all"}
    if step.fault.moment == "crash":
        when["hold"] = True
    return when


def step_text(step: PlannedFault) -> str:
    """Return a sentence such as `Produce #1 (out[0]) of app-p: the answer is lost, after the work`."""
    return f"{place_text(step.place)}: {step.fault.text}"


def place_text(place: ExchangePlace) -> str:
    """Return a place such as `Fetch from 3 #2 (in[0]) of reader`, printable."""
    mark = place.mark
    where = ""
    if mark.offset is not None:
        where = f" from {mark.offset}" if place.api == "Fetch" else f" of {mark.offset}"
    number = f" #{mark.nth}" if mark.offset is None or mark.nth > 1 else ""
    about = entity_text(place)
    client = f" of {shown(place.client_id)}" if place.client_id else ""
    return f"{place.api}{where}{number}{about and f' ({about})'}{client}"


def entity_text(place: ExchangePlace) -> str:
    """Return the entity of a place, such as `orders[0]` or `billing, orders[0]`; empty if it has none."""
    partition = "" if place.partition is None else f"[{place.partition}]"
    topic = shown(place.topic) + partition if place.topic else partition and f"partition {place.partition}"
    others = [shown(name) for name in (place.group, place.transactional_id) if name]
    return ", ".join([*others, *([topic] if topic else [])])


def shown(name: str | None) -> str:
    text = in_line(name or "")
    return text if len(text) <= LONGEST_ENTITY else f"{text[: LONGEST_ENTITY - 1]}…"


def plan_text(plan: FaultPlan) -> str:
    return "; ".join(map(step_text, plan.steps)) or "no fault"


def rule_file(plan: FaultPlan, notes: Iterable[str] = (), one_batch_per_fetch: bool = False) -> str:
    """Return the rule file of a plan, with notes as comments. `one_batch_per_fetch`: as of `plan_rules`."""
    comments = "".join(f"# {in_line(note)}\n" for note in notes)
    rules = yaml.safe_dump({"rules": plan_rules(plan, one_batch_per_fetch)}, sort_keys=False, width=110)
    return comments + rules


def faults_of_files(files: Iterable[Path]) -> InjectedFaults:
    """Return the faults that explorations try among the rules of these files. Raises DocumentError."""
    rules = [rule.raw for file in files for rule in read_document(Source.open(file)).parsed_rules]
    known = ((str(rule.get("name")), known_by_rule(rule)) for rule in rules)
    return InjectedFaults(NamedFault(name, fault.kind_of) for name, fault in known if fault)


def known_by_rule(rule: Mapping[str, Any]) -> KnownFault | None:
    """Return the fault that a rule makes, or None. Both crash faults have the same rule; the name distinguishes
    them."""
    match = rule.get("match") or {}
    api = match.get("api")
    effect = {name: value for name, value in rule.items() if name not in OF_PLACE}
    held = bool((rule.get("when") or {}).get("hold"))
    faults = fault_table().by_api.get(api if isinstance(api, str) else "", ())
    alike = [one for one in faults if one.rule == effect and (one.moment == "crash") == held]
    return next((one for one in alike if one.text in str(rule.get("name"))), next(iter(alike), None))


@lru_cache(1000)
def saved_form(plan: FaultPlan) -> FaultPlan:
    """Return a plan as `plan_of_file` returns it from its rule file. Raises DocumentError and InputError."""
    return plan_of_source(Source("plan", rule_bytes(plan)))[0]


def rule_bytes(plan: FaultPlan, notes: Iterable[str] = (), one_batch_per_fetch: bool = False) -> bytes:
    return rule_file(plan, notes, one_batch_per_fetch).encode("utf-8", "backslashreplace")


def plan_of_file(file: Path) -> tuple[FaultPlan, bool]:
    """Return the plan of a rule file, and True if it gives readers one batch at a time. Raises DocumentError,
    InputError."""
    return plan_of_source(Source.open(file))


def plan_of_source(source: Source) -> tuple[FaultPlan, bool]:
    document = read_document(source)
    raise_mistakes([source])  # such as a missing file
    rules = [dict(rule.raw) for rule in document.parsed_rules]
    one_batch_per_fetch = ONE_BATCH_PER_FETCH in rules
    wanted = [rule for rule in rules if rule != ONE_BATCH_PER_FETCH]
    plan = FaultPlan(tuple(step for rule in wanted for step in step_of_rule(rule)))
    made = [{**rule, "name": ""} for rule in plan_rules(plan)]
    if not wanted or made != [{**rule, "name": ""} for rule in wanted]:
        raise InputError(f"{source.file} has other rules than an exploration saves; kproxy run --rules takes any")
    return plan, one_batch_per_fetch


def step_of_rule(rule: Mapping[str, Any]) -> Iterator[PlannedFault]:
    fault, match, when = known_by_rule(rule), rule.get("match"), rule.get("when")
    if fault is None or not isinstance(match, Mapping) or not isinstance(when, Mapping):
        return
    nth, offset = when.get("nth"), match.get("offset")
    if isinstance(nth, int) and (offset is None or isinstance(offset, int)):
        values = {name: plain_text(match[name]) for name in SELECTORS if name in match}
        mark = PlaceMark("ordinal" if offset is None else "offset", nth, offset)
        yield PlannedFault(ExchangePlace(fault.api, mark=mark, **values), fault)


def plain_text(value: Any) -> Any:
    """Return the text from which `exactly` made a selector."""
    is_regex = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == "/"
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if is_regex else value
