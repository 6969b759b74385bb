"""Targets, which are the requests that rules are evaluated for, and findings about each selector of a rule.

A target is a frame, or a request made from an API and options. Each selector is tested with the test that the engine
uses (`accepts`). If the target lacks the needed field, the result is open: neither true nor false.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple
from uuid import UUID

from kproxy.protocol import Message, decode_request, encode
from kproxy.protocol.elements import element_at
from kproxy.protocol.records import Record, encode_batch
from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.protocol.table.shapes import Level, shape
from kproxy.rules.content.edits import RecordBudget
from kproxy.rules.entity import KEY_TYPES, Entity, entities
from kproxy.rules.exchange import ConnectionView, Exchange, Facts
from kproxy.rules.filter.evaluate import RecordCondition
from kproxy.rules.kinds.base.record_selector import any_record, is_strict
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.select.frame_match import OF_ENTITY, WITH_RECORDS, FrameMatch, carries
from kproxy.rules.select.match import ConnectionMatch

SelectorState = Literal["holds", "fails", "open"]
OF_CONNECTION = (*ConnectionMatch.model_fields, "node")


RecordTest = Callable[..., bool]


@dataclass(frozen=True)
class KnownRequest:
    """Known part of a request. `known`: its connection and its header, by selector; missing selectors are open.

    `entities`: the entities of the request. With `whole` they are complete; otherwise missing attributes of an entity
    are open. `records`: the test whether a record of a partition matches the first condition (None: any does), and
    does not match the second one; None: the records are not known. With `strict`, records that cannot be read match.
    """

    key: int
    version: int
    known: Mapping[str, Any] = field(default_factory=dict)
    entities: tuple[Entity, ...] = (Entity(),)
    whole: bool = False
    records: RecordTest | None = None

    @property
    def api(self) -> str:
        return f"{schema.load(self.key).name} {self.version}"


class SelectorFinding(NamedTuple):
    """Finding about one selector: whether it holds, and why in words."""

    selector: str
    word: SelectorState
    text: str


class SelectorFindings(NamedTuple):
    """Findings about all selectors of a rule together; `findings` are the decisive ones of `match` and `not`."""

    word: SelectorState
    findings: tuple[SelectorFinding, ...]
    entities: tuple[Entity, ...]
    """Entities that the selectors hold for, without the open ones."""


def explain_selectors(rule: Rule, subject: KnownRequest) -> SelectorFindings:
    """Return the state of a rule's selectors for this request, the findings that decide it, and the entities left."""
    match, not_ = rule.match, rule.not_
    if subject.records is not None and isinstance(rule, LiveRule) and is_strict(rule):
        subject = replace(subject, records=partial(subject.records, strict=True))
    findings = list(findings_of(match, subject)) if match is not None else []
    entities = selected(match, subject)
    if not entities and not any(one.word == "fails" for one in findings):
        names = " and ".join(one.selector for one in findings if one.selector in OF_ENTITY)
        findings.append(SelectorFinding(names, "fails", f"nothing that it asks about has this {names} together"))
    if not_ is not None:
        left, excluding = spared(match, not_, subject, entities)
        findings += excluding
        entities = left
    words = {one.word for one in findings}
    word: SelectorState = "fails" if "fails" in words else "open" if "open" in words else "holds"
    return SelectorFindings(word, tuple(one for one in findings if one.word == word), entities)


def spared(
    match: ConnectionMatch | None, not_: ConnectionMatch, subject: KnownRequest, entities: tuple[Entity, ...]
) -> tuple[tuple[Entity, ...], list[SelectorFinding]]:
    """Return the entities that `not` leaves, and findings if none is left or some may be excluded."""
    findings = list(findings_of(not_, subject))
    if any(one.word == "fails" for one in findings):
        return entities, []
    by_entity = not_.of_entities if isinstance(not_, FrameMatch) else ()
    sure = tuple(
        one
        for one in entities
        if any(holds(not_, name, one, subject) == "fails" for name in by_entity)
        or spares_record(match, not_, one, subject)
    )
    if sure:
        return sure, []
    open_ = [one for one in findings if one.word == "open"]
    if open_:
        texts = [one.text.replace("if", "unless", 1) for one in open_]
        return entities, [
            SelectorFinding(f"not {one.selector}", "open", text) for one, text in zip(open_, texts, strict=True)
        ]
    return (), [SelectorFinding(f"not {one.selector}", "fails", one.text) for one in findings]


def selected(match: ConnectionMatch | None, subject: KnownRequest) -> tuple[Entity, ...]:
    """Return the entities that match the selectors about entities, including those that lack the needed facts."""
    if not isinstance(match, FrameMatch):
        return subject.entities
    names = match.of_entities
    return tuple(
        one
        for one in subject.entities
        if all(holds(match, name, one, subject) != "fails" for name in names) and not lacks_record(match, one, subject)
    )


def lacks_record(match: ConnectionMatch, entity: Entity, subject: KnownRequest) -> bool:
    """Return True if the match has a record condition, and no record of this partition matches it."""
    condition = match.records if isinstance(match, FrameMatch) else None
    return condition is not None and subject.records is not None and not subject.records(condition, None, entity)


def spares_record(match: ConnectionMatch | None, not_: ConnectionMatch, entity: Entity, subject: KnownRequest) -> bool:
    """Return True if `not` has a record condition, and leaves a record of this partition that `match` selects."""
    no = not_.records if isinstance(not_, FrameMatch) else None
    yes = match.records if isinstance(match, FrameMatch) else None
    return no is not None and subject.records is not None and subject.records(yes, no, entity)


def findings_of(match: ConnectionMatch, subject: KnownRequest) -> Iterator[SelectorFinding]:
    for name in type(match).model_fields:
        if getattr(match, name) is not None:
            yield finding(match, name, subject)


def finding(match: ConnectionMatch, name: str, subject: KnownRequest) -> SelectorFinding:
    """Return the finding about one selector, regardless of all others."""
    if name == "records" and isinstance(match, FrameMatch):
        return of_records(match, subject)
    wants = wanted(match, name)
    if name in ("api", "version"):
        word = state(match, name, subject.key if name == "api" else subject.version)
        return SelectorFinding(name, word, f"it is {subject.api}, the rule wants {wants}")
    if name in OF_ENTITY:
        return of_entities(match, name, subject)
    if name == "acks" and subject.key != PRODUCE:
        return SelectorFinding(name, "fails", f"{subject.api} has no acks")
    if name not in subject.known:
        return SelectorFinding(name, "open", f"if its {spelled(name)} is {wants}")
    value = subject.known[name]
    word = state(match, name, value)
    if name == "error" and value in error_codes.numbers():
        value = error_codes.numbers()[value].name
    text = "there is none" if value is None else f"it is {value}"
    return SelectorFinding(name, word, f"{spelled(name)}: {text}, the rule wants {wants}")


def of_records(match: FrameMatch, subject: KnownRequest) -> SelectorFinding:
    if subject.key not in WITH_RECORDS:
        return SelectorFinding("records", "fails", f"{subject.api} carries no records")
    assert match.records is not None
    text = f"of its records matches {match.records} ({match.records.cost})"
    if subject.records is None:
        return SelectorFinding("records", "open", f"if one {text}")
    if any(not lacks_record(match, one, subject) for one in subject.entities):
        return SelectorFinding("records", "holds", f"one {text}")
    return SelectorFinding("records", "fails", f"none {text}")


def of_entities(match: ConnectionMatch, name: str, subject: KnownRequest) -> SelectorFinding:
    wants = wanted(match, name)
    if not carries(subject.key, subject.version, frozenset((name,))):
        return SelectorFinding(name, "fails", f"{subject.api} requests say no {spelled(name)}")
    words = {holds(match, name, one, subject) for one in subject.entities}
    if "holds" in words:
        return SelectorFinding(name, "holds", f"{spelled(name)} is {wants}")
    if "open" in words:
        return SelectorFinding(name, "open", f"if its {spelled(name)} is {wants}")
    have = dict.fromkeys(str(value) for one in subject.entities if (value := getattr(one, name)) is not None)
    text = f"it is {', '.join(have)}" if have else "it has none"
    return SelectorFinding(name, "fails", f"{spelled(name)}: {text}, the rule wants {wants}")


def holds(match: ConnectionMatch, name: str, entity: Entity, subject: KnownRequest) -> SelectorState:
    """Return the state of one selector for one entity; open if only the complete request would show it."""
    value = getattr(entity, name)
    if value is None and not (subject.whole and (name != "topic" or entity.topic_id is None)):
        return "open"
    return state(match, name, value)


def state(match: ConnectionMatch, name: str, value: Any) -> SelectorState:
    return "holds" if match.accepts(name, value) else "fails"


def wanted(match: ConnectionMatch, name: str) -> str:
    """Return the values that the rule selects, in words."""
    return " or ".join(str(one) for one in getattr(match, name))


def spelled(name: str) -> str:
    return name.replace("_", " ")


class NoCluster:
    """Cluster with unknown nodes and topic ids."""

    nodes: tuple[int, ...] = ()

    def topic_of(self, topic_id: UUID) -> str | None:
        return None


@dataclass(frozen=True)
class Said:
    """Identity of a client, as options on the command line give it."""

    principal: str | None
    software: str | None
    is_anyone: bool = False


class WatchedBody(dict[str, Any]):
    """Struct of a body that no client has sent, which notes the made-up fields that are read from it."""

    def __init__(self, struct: Mapping[str, Any], given: Collection[str], reads: set[str]) -> None:
        super().__init__({name: watched(value, given, reads) for name, value in struct.items()})
        self.made_up = {name for name, value in struct.items() if name not in given and not has_structs(value)}
        self.reads = reads

    def __getitem__(self, name: str) -> Any:
        if name in self.made_up:
            self.reads.add(name)
        return super().__getitem__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.made_up.discard(name)
        super().__setitem__(name, value)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 -- `__getitem__` notes it


def watched(value: Any, given: Collection[str], reads: set[str]) -> Any:
    """Return a value whose structs record in `reads` the fields that are read; `given` are the fields that are
    known."""
    if isinstance(value, dict):
        return WatchedBody(value, given, reads)
    return [watched(one, given, reads) for one in value] if isinstance(value, list) else value


def has_structs(value: Any) -> bool:
    """Return True for a struct or an array of structs: reads count for the fields in them, not for these."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict) for one in value))


@dataclass(frozen=True)
class Target:
    """Request for the evaluation of rules. `frame`: its bytes without the length, None when it is made up from `given`;
    `fields` are then the fields of its body that were given. `known`: the values that selectors may ask for, by name.
    `record`: the batch of a record that was given, in the request or the response. `unix_time`: for the age of records.
    """

    message: Message
    given: Mapping[str, Any]
    frame: bytes | None = None
    known: Mapping[str, Any] = field(default_factory=dict)
    fields: frozenset[str] = frozenset()
    unix_time: float = 0.0
    record: bytes | None = None

    def copy(self, reads: set[str]) -> Message:
        """Return a copy of the request, for an effect that may change it. `reads` gets the names of the made-up fields
        that the effect reads."""
        message = decode_request(encode(self.message))
        if self.frame is not None:
            return message
        return Message(message.api, message.version, message.header, WatchedBody(message.body, self.fields, reads))

    @property
    def key(self) -> int:
        return self.message.api.key

    @property
    def version(self) -> int:
        return self.message.version

    @property
    def entities(self) -> tuple[Entity, ...]:
        """Return the entities of the request. Topics that have an id have no name here: the id decides, even if a name
        is also given, and the name of an id is not known."""
        found = entities(self.message)
        return tuple(one if one.topic_id is None else replace(one, topic=None) for one in found)

    @property
    def subject(self) -> KnownRequest:
        """Return the known part of the request, for rules' selectors."""
        about = {name: value for name, value in self.given.items() if name in OF_ENTITY}
        whole = self.frame is not None
        seen = self.entities if whole else (Entity(**about),)
        return KnownRequest(self.key, self.version, self.known, seen, whole, self.records_match())

    def records_match(self) -> RecordTest | None:
        """Return the test of the records of a partition; None: the records are not known."""
        if self.record is None and (self.key != PRODUCE or self.frame is None):
            return None

        def matches(
            yes: RecordCondition | None, no: RecordCondition | None, entity: Entity, *, strict: bool = False
        ) -> bool:
            data = self.record
            if data is None:
                data = element_at(self.message, entity.where)["records"] if entity.partition is not None else None
            time, produces = self.unix_time * 1000, self.key == PRODUCE
            return data is not None and any_record(
                data, yes, time, RecordBudget(), no=no, strict=strict, controls=produces
            )

        return matches

    @property
    def facts(self) -> Facts:
        """Return the facts of the connection; a fact that is not known is empty."""
        empty = {"listener": "", "cluster": "", "client_address": ""}
        return Facts(**(empty | {name: self.known[name] for name in OF_CONNECTION if name in self.known}))

    def exchange(self, reads: set[str]) -> Exchange:
        """Return the exchange for rules' effects. `reads` gets the names of made-up fields that they read."""
        message = self.copy(reads)
        said = Said(self.known.get("principal"), self.known.get("client_software"))
        view = ConnectionView(self.facts, 1, NoCluster(), said)
        size = self.known.get("size") or len(self.frame or encode(self.message))
        exchange = Exchange(view, self.message.api, self.version, 1, self.known.get("client_id"), size, 0.0)
        exchange.read_request = lambda: message
        exchange.find = lambda: self.entities
        if self.key == PRODUCE:
            exchange.acks = self.message.body["acks"]
        return exchange


def of_frame(message: Message, frame: bytes, given: Mapping[str, Any]) -> Target:
    """Return the target of a frame, which contains the complete request; `given` describes its connection."""
    known = dict(given) | {"client_id": message.header.get("client_id"), "size": len(frame)}
    if message.api.key == PRODUCE:
        known["acks"] = message.body["acks"]
    return Target(message, given, frame, known)


def of_api(
    key: int, version: int, given: Mapping[str, Any], record: Record | None = None, unix_time: float = 0.0
) -> Target:
    """Return a made-up request about one entity with the parts in `given`; other fields have defaults. `record`: in its
    only batch, or in the response."""
    struct = layout.body(key, version, "request")
    body = struct.defaults()
    form = shape(key, version)
    roles = {name: value for name, value in given.items() if name in OF_ENTITY}
    fields: set[str] = {name for level in form.request for role, name in level.keys if role in roles}
    for role, name in form.top:
        known = {name: roles[role]} if role in roles else coordinator(role, name, body, roles)
        body |= known
        fields |= known.keys()
    if form.request and any(role in roles for level in form.request for role, _ in level.keys):
        body[form.request[0].array] = [element(form.request, roles)]
    data = None if record is None else encode_batch([record])
    if data is not None and key == PRODUCE:
        array = form.request[0].array
        body[array] = body[array] or [element(form.request, roles)]
        body[array][0][form.request[1].array][0]["records"] = data
        fields |= {"records", "index"}
    if key == PRODUCE:
        body["acks"] = given.get("acks", -1)
        fields |= {"acks"} & given.keys()
    header = {"request_api_key": key, "request_api_version": version, "correlation_id": 1,
              "client_id": given.get("client_id")}  # fmt: skip
    message = Message(schema.load(key), version, header, body)
    return Target(message, given, None, given, frozenset(fields), unix_time, data)


def coordinator(role: str, name: str, body: Mapping[str, Any], roles: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a coordinator key, which names a group or a transactional id by its type; otherwise an empty
    result."""
    if role == "coordinator_key":
        for number, of in KEY_TYPES.items():
            if of in roles:
                return {name: roles[of], **({"key_type": number} if "key_type" in body else {})}
    return {}


def element(levels: tuple[Level, ...], roles: Mapping[str, Any]) -> Any:
    """Return one element of the first level's array, with one element of each deeper level in it."""
    level, deeper = levels[0], levels[1:]
    if level.struct is None:
        return next((roles[role] for role, _ in level.keys if role in roles), 0)
    made = level.struct.defaults()
    made |= {name: roles[role] for role, name in level.keys if role in roles}
    if deeper:
        made[deeper[0].array] = [element(deeper, roles)]
    return made
