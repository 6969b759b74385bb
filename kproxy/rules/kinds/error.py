"""error: an error code in the broker's place, or after its work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.base.cooperative import yielding
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.protocol.table.shapes import Shape, shape
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Edit, Exchange, Fail, FrameDepth
from kproxy.rules.kinds.base.access import ErrorPlace, can_say, fail_outermost, has_text, only_at_top
from kproxy.rules.kinds.base.record_selector import FIRST_WITH_RECORD_ERRORS, RecordSelector
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect, LiveRule
from kproxy.rules.select.selected import Error, SelectedVersions, acks_number, chosen, error_number, spans
from kproxy.rules.values.model import Wrong

AFTER_THE_WORK = (7, 20)
"""REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND: brokers return them after they stored the records."""


class ErrorRule(LiveRule):
    """Answers with an error code, in the broker's place or after its work.

    With `records` under `match`, Produce from version 8 on names the records that match, at most 1,000 of a partition.
    If a request is about several things, only the matching ones fail, and the broker answers for the others. An error
    at the top level fails the whole request.
    """

    group = "errors and delays"
    example: ClassVar[str] = """\
- name: the third write is stored but reported as failed
  kind: error
  match: {api: Produce, topic: orders, partition: 0}
  when: {nth: 3}
  error: NOT_LEADER_OR_FOLLOWER
  at: response
"""

    kind: Literal["error"] = Field(description="kind of the rule")
    error: Error = Field(description="error name or number, as in `kproxy protocol`")
    at: Literal["request", "response"] | None = Field(
        default=None,
        description="request: the broker does not receive it; response: the broker has handled it (default: response "
        "for REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND and rules that select on `error`; otherwise request)",
    )
    message: str | None = Field(default=None, description="error text, in versions with a field for it")
    level: ErrorPlace | None = Field(
        default=None,
        description="top: of the response; entity: of each matching entity (default: as brokers report it)",
    )

    on_unreadable: Literal["pass", "reject"] = Field(
        default="pass",
        description="result for a record that `records` cannot read; pass: it does not match, reject: it matches",
    )
    on_registry_down: Literal["retry", "pass", "reject"] = Field(
        default="retry",
        description="result for records with a schema that the registry has not returned. retry: Produce fails with "
        "NOT_ENOUGH_REPLICAS, and records are fetched again. pass: they do not match. reject: they match",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        code = code_of(raw.get("error"))
        if code == 0:
            yield (
                ("error",),
                "expected an error code, got 0 (NONE); to let a request succeed that failed, change it with `set`",
            )
        elif code is not None:
            for choice in chosen(raw):
                yield from cannot_say(choice, raw.get("level"))
        yield from cannot_be(raw, code)
        match = raw.get("match")
        for option in ("on_unreadable", "on_registry_down"):
            if option in raw and not (isinstance(match, dict) and "records" in match):
                yield (option,), f"expected {option} with records under match, got it without records"

    @property
    def after(self) -> bool:
        """Return True if the broker does its work before the error."""
        return self.is_after()

    def is_after(self, key: int | None = None) -> bool:
        """Return True if the error comes after the work of requests of this API, or of any API."""
        if self.at is not None:
            return self.at == "response"
        late = self.selects_errors if key is None else self.judged_late(key)
        return self.error in AFTER_THE_WORK or late

    @property
    def reads_topics(self) -> bool:
        return self.selects_topics

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        acts = (direction == "response") == self.is_after(key)
        return FrameDepth.BODY if acts and can_say(key, version, self.level) else FrameDepth.NOTHING

    def warnings(self) -> Iterable[str]:
        match = self.match
        if match is not None and match.acks is not None and 0 in match.acks:
            words = "is not seen by this rule" if self.after else "is answered by closing the connection, as brokers do"
            yield f"a Produce request with acks 0 has no response, it {words}"
        raw = {} if match is None else {"match": match.model_dump(include={"api", "version"}, mode="json")}
        for choice in chosen(raw):
            lacking = [version for version in choice.versions if not can_say(choice.api.key, version, self.level)]
            if lacking:
                yield f"{choice.api.name} {spans(lacking)} has no place for this error and passes"
            texts = any(has_text(choice.api.key, version) for version in choice.versions)
            if self.message is not None and choice.by_name and not texts:
                yield f"no selected version of {choice.api.name} has a field for a message"

    def start(self) -> Effect:
        return ErrorEffect(self)


class ErrorEffect(Effect):
    """Effect that puts the rule's code at its place in each API."""

    steady = always_acts = True

    def __init__(self, rule: ErrorRule) -> None:
        self.rule = rule
        self.of_entities = (Fail(rule.error, rule.message, whole=False),)
        self.of_request = (Fail(rule.error, rule.message, whole=True),)
        self.steady = not rule.selects_records
        self.reason = rule.message or f'record matches rule "{rule.name}"'

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        form = shape(exchange.api.key, exchange.version)
        if self.of_whole_request(form):
            return self.of_request
        records = None
        if self.rule.selects_records and exchange.api.key == PRODUCE and exchange.version >= FIRST_WITH_RECORD_ERRORS:
            records = RecordSelector.of(self.rule, PRODUCE, exchange.version)
        return self.of_entities if records is None else list(self.of_records(records, exchange, entities, now))

    def of_records(
        self, selector: RecordSelector, exchange: Exchange, entities: Sequence[Entity], now: float
    ) -> Iterator[Fail]:
        """Yield the error of each partition, with the records that match."""
        for entity in yielding(entities):
            indexes = selector.indexes(exchange, entity, now)
            self.records.rejected += len(indexes)
            named = tuple((index, self.reason) for index in yielding(indexes))
            yield Fail(self.rule.error, self.rule.message, (entity,), records=named)

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        rule, form = self.rule, shape(exchange.api.key, exchange.version)
        if rule.level == "top" and form.code is None:
            groups = {entity.group for entity in entities}
            return (Edit(),) if fail_outermost(form, exchange.response.body, groups, rule.error, rule.message) else ()
        return self.of_request if self.of_whole_request(form) else self.of_entities

    def of_whole_request(self, form: Shape) -> bool:
        """Return True if the error applies to the request, not to its entities."""
        return self.rule.level == "top" or only_at_top(form)


def code_of(value: Any) -> int | None:
    """Return the error as written; None if it is wrong, which its own type reports."""
    try:
        return error_number(value)
    except ValueError:
        return None


def cannot_say(choice: SelectedVersions, level: Any) -> Iterator[Wrong]:
    """Yield an error for an API that is selected by name and has no field for the error."""
    if level not in (None, "top", "entity") or not choice.by_name or not choice.versions:
        return
    if any(can_say(choice.api.key, version, level) for version in choice.versions):
        return
    where = {"top": " at its top", "entity": " for each of what it is about"}.get(level, "")
    able = [version for version in choice.api.versions if can_say(choice.api.key, version, level)]
    other = any(can_say(choice.api.key, version, None) for version in choice.versions)
    hint = f"; versions {spans(able)} have" if able else "; without `level` it can be said" if other else ""
    yield choice.where, f"a response of {choice.api.name} {spans(choice.versions)} has no error code{where}{hint}"


def cannot_be(raw: dict[Any, Any], code: int | None) -> Iterator[Wrong]:
    """Yield an error for selectors and times that exclude each other."""
    match, not_, at = (raw.get(name) for name in ("match", "not", "at"))
    for side, selectors in (("match", match), ("not", not_)):
        if isinstance(selectors, dict) and selectors.get("error") is not None and at == "request":
            yield ("at",), f'"{side}: {{error: …}}" looks at the broker\'s response, that is too late for "at: request"'
    acks = match.get("acks") if isinstance(match, dict) else None
    try:
        numbers = {acks_number(one) for one in (acks if isinstance(acks, list) else [acks])}
    except ValueError:
        return
    if numbers == {0} and (at == "response" or (at is None and code in AFTER_THE_WORK)):
        yield (
            ("match", "acks"),
            "a Produce request with acks 0 has no response; at: request closes its connection, as brokers do",
        )
