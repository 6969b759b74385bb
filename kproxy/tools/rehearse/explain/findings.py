"""Findings about selectors: why a rule is about a request, or is not, also where not all is known of the request.

Strategy. Each selector that a rule has is tested alone, by the tests that the engine uses: a model with only that one
is made, and asked. What is not known of a request leaves a selector open: it neither holds nor fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, TypeVar

from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds.base.rule import Rule
from kproxy.rules.select.frame_match import OF_ENTITY, OF_FRAME, FrameMatch, carries
from kproxy.rules.select.match import ConnectionMatch

SelectorState = Literal["holds", "fails", "open"]
OF_CONNECTION = (*ConnectionMatch.model_fields, "node")

M = TypeVar("M", bound=ConnectionMatch)


@dataclass(frozen=True)
class KnownRequest:
    """Known part of a request. `known`: its connection and its header, by selector; what is not in it is open.

    `entities`: what it is about; with `whole` that is all there is to know of them, else what an entity lacks is open.
    """

    key: int
    version: int
    known: Mapping[str, Any] = field(default_factory=dict)
    entities: tuple[Entity, ...] = (Entity(),)
    whole: bool = False

    @property
    def api(self) -> str:
        return f"{schema.load(self.key).name} {self.version}"


class SelectorFinding(NamedTuple):
    """Finding about one selector: whether it holds, and why in words."""

    selector: str
    word: SelectorState
    text: str


class SelectorFindings(NamedTuple):
    """Findings about all selectors of a rule together; `findings` are those of `match` and `not` that decide it."""

    word: SelectorState
    findings: tuple[SelectorFinding, ...]
    entities: tuple[Entity, ...]
    """Entities that the selectors hold for, without those that nobody can tell of."""


def explain_selectors(rule: Rule, subject: KnownRequest) -> SelectorFindings:
    """Return the state of a rule's selectors for this request, the findings that decide it, and the entities left."""
    match, not_ = rule.match, rule.not_
    findings = list(findings_of(match, subject)) if match is not None else []
    entities = selected(match, subject)
    if not entities and not any(one.word == "fails" for one in findings):
        names = " and ".join(one.selector for one in findings if one.selector in OF_ENTITY)
        findings.append(SelectorFinding(names, "fails", f"nothing that it asks about has this {names} together"))
    if not_ is not None:
        left, excluding = spared(not_, subject, entities)
        findings += excluding
        entities = left
    words = {one.word for one in findings}
    word: SelectorState = "fails" if "fails" in words else "open" if "open" in words else "holds"
    return SelectorFindings(word, tuple(one for one in findings if one.word == word), entities)


def spared(
    not_: ConnectionMatch, subject: KnownRequest, entities: tuple[Entity, ...]
) -> tuple[tuple[Entity, ...], list[SelectorFinding]]:
    """Return the entities that `not` leaves of these. The findings are there if it leaves nothing, or if that is
    open."""
    findings = list(findings_of(not_, subject))
    if any(one.word == "fails" for one in findings):
        return entities, []
    by_entity = [] if not isinstance(not_, FrameMatch) else list(not_.of_entities)
    hit = {one: [holds(not_, name, one, subject) for name in by_entity] for one in entities}  # type: ignore[arg-type]
    sure = tuple(one for one in entities if "fails" in hit[one])
    if sure:
        return sure, []
    open_ = [one for one in findings if one.word == "open"]
    if open_:
        return entities, [
            SelectorFinding(f"not {one.selector}", "open", one.text.replace("if", "unless", 1)) for one in open_
        ]
    return (), [SelectorFinding(f"not {one.selector}", "fails", one.text) for one in findings]


def selected(match: ConnectionMatch | None, subject: KnownRequest) -> tuple[Entity, ...]:
    """Return the entities that the selectors about entities hold for, those included that are not known enough."""
    if not isinstance(match, FrameMatch):
        return subject.entities
    names = match.of_entities
    return tuple(one for one in subject.entities if all(holds(match, name, one, subject) != "fails" for name in names))


def findings_of(match: ConnectionMatch, subject: KnownRequest) -> Iterator[SelectorFinding]:
    """Yield a finding for each selector that the match uses."""
    for name in type(match).model_fields:
        if getattr(match, name) is not None:
            yield finding(match, name, subject)


def finding(match: ConnectionMatch, name: str, subject: KnownRequest) -> SelectorFinding:
    """Return the finding about one selector, with all others left aside."""
    wants = wanted(match, name)
    if name in ("api", "version"):
        assert isinstance(match, FrameMatch)
        word: SelectorState = "holds" if alone(match, name).about_frame(subject.key, subject.version) else "fails"
        return SelectorFinding(name, word, f"it is {subject.api}, the rule wants {wants}")
    if name in OF_ENTITY:
        return of_entities(match, name, subject)
    if name == "acks" and subject.key != PRODUCE:
        return SelectorFinding(name, "fails", f"{subject.api} has no acks")
    if name not in subject.known:
        return SelectorFinding(name, "open", f"if its {spelled(name)} is {wants}")
    value = subject.known[name]
    if name == "error":
        assert isinstance(match, FrameMatch)
        word = "holds" if match.holds_error(value) else "fails"
        value = error_codes.numbers()[value].name if value in error_codes.numbers() else value
    elif name in OF_CONNECTION:
        word = "holds" if alone(match, name).holds(facts(name, value)) else "fails"
    else:
        assert isinstance(match, FrameMatch)
        assert name in OF_FRAME
        exchange: Any = SimpleNamespace(**{name: value, "request_size": value})
        word = "holds" if alone(match, name).holds_frame(exchange) else "fails"
    text = "there is none" if value is None else f"it is {value}"
    return SelectorFinding(name, word, f"{spelled(name)}: {text}, the rule wants {wants}")


def of_entities(match: ConnectionMatch, name: str, subject: KnownRequest) -> SelectorFinding:
    """Return the finding about a selector that looks at what a request asks about."""
    assert isinstance(match, FrameMatch)
    wants = wanted(match, name)
    if not carries(subject.key, subject.version, (name,)):
        return SelectorFinding(name, "fails", f"{subject.api} requests say no {spelled(name)}")
    words = {holds(match, name, one, subject) for one in subject.entities}
    if "holds" in words:
        return SelectorFinding(name, "holds", f"{spelled(name)} is {wants}")
    if "open" in words:
        return SelectorFinding(name, "open", f"if its {spelled(name)} is {wants}")
    have = dict.fromkeys(str(value) for one in subject.entities if (value := getattr(one, name)) is not None)
    text = f"it is {', '.join(have)}" if have else "it has none"
    return SelectorFinding(name, "fails", f"{spelled(name)}: {text}, the rule wants {wants}")


def holds(match: FrameMatch, name: str, entity: Entity, subject: KnownRequest) -> SelectorState:
    """Return the state of one selector for one entity: it holds, it does not, or a request would tell."""
    if getattr(entity, name) is None and not (subject.whole and (name != "topic" or entity.topic_id is None)):
        return "open"
    return "holds" if alone(match, name).holds_entity(entity) else "fails"


def alone(match: M, name: str) -> M:
    """Return a model that has only this selector of the match."""
    return type(match).model_construct(**{name: getattr(match, name)})


def facts(name: str, value: Any) -> Facts:
    """Return the facts of a connection of which one thing is known."""
    return Facts(**({"listener": "", "cluster": "", "client_address": ""} | {name: value}))


def wanted(match: ConnectionMatch, name: str) -> str:
    """Return the values that the rule selects, in words."""
    return " or ".join(str(one) for one in getattr(match, name))


def spelled(name: str) -> str:
    return name.replace("_", " ")
