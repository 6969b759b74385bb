"""intercept: frames held for inspection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, GetPydanticSchema
from pydantic_core import core_schema

from kproxy.base.errors import FilterError
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange, FrameDepth, HeldError, Hold
from kproxy.rules.filter.exchange_fields import BY_NAME, RESULT
from kproxy.rules.filter.parse import All, And, FieldTest, FilterNode, Not, Or, parse
from kproxy.rules.kinds.base.access import can_say
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect, SelectingRule
from kproxy.rules.select.selected import chosen, error_number, spans
from kproxy.rules.values.model import Wrong, found
from kproxy.rules.values.quantities import Seconds

SHORTEST, LONGEST = 0.1, 600
"""Seconds. `delay` is for shorter times, and clients time out before longer ones."""


ACTIONS = ("pass", "close")
_SCHEMA: Any = {
    "anyOf": [
        {"enum": list(ACTIONS)},
        {"type": "object", "properties": {"error": {"type": ["string", "integer"]}}, "required": ["error"],
         "additionalProperties": False},
    ]
}  # fmt: skip


def parse_timeout_action(value: Any) -> Literal["pass", "close"] | HeldError:
    """Parse `pass`, `close` or `{error: NAME}`; an error becomes its code. Raises ValueError."""
    if isinstance(value, dict) and set(value) == {"error"}:
        code = error_number(value["error"])
        if not code:
            raise ValueError("expected an error code, got 0 (NONE)")
        return HeldError(code)
    if isinstance(value, str) and value in ACTIONS:
        return value  # type: ignore[return-value]  # one of the two
    raise ValueError(f"expected pass, close or {{error: REQUEST_TIMED_OUT}}, got {found(value)}")


TimeoutAction = Annotated[
    Literal["pass", "close"] | HeldError,
    GetPydanticSchema(
        lambda source, handler: core_schema.no_info_plain_validator_function(
            parse_timeout_action, serialization=core_schema.to_string_ser_schema()
        ),
        lambda schema, handler: _SCHEMA,
    ),
]


class InterceptRule(SelectingRule):
    """Holds frames until a user resumes, edits, answers or drops them: in the live view, or at `/api/held`.

    Later frames of the same connection and direction wait; other connections do not. After `hold_for`, `on_timeout`
    applies. Held frames are discarded when their client disconnects, and resumed when the rule is removed or disabled.
    Java clients give up a request after 30 s (`request.timeout.ms`), librdkafka after 60 s. A member leaves its group
    after `session.timeout.ms` (45 s) without a heartbeat.
    """

    group = "frames"
    whole: ClassVar[bool] = True
    example: ClassVar[str] = """\
- name: hold orders
  kind: intercept
  match: {api: Produce, topic: orders}
  filter: "~val timeout"
  hold_for: 20s
"""

    kind: Literal["intercept"] = Field(description="kind of the rule")
    filter: str | None = Field(
        default=None,
        description="filter of exchanges, in addition to `match` (see `kproxy help filters`)",
    )
    at: Literal["request", "response", "both"] = Field(default="request", description="message to hold")
    hold_for: Annotated[Seconds, Field(ge=SHORTEST, le=LONGEST)] = Field(
        default=20.0, description="time until `on_timeout`"
    )
    on_timeout: TimeoutAction = Field(
        default="pass",
        description="action after `hold_for`: pass the frame, close its connection, or answer {error: "
        "REQUEST_TIMED_OUT}; if the response has no place for an error, close the connection",
    )
    max_frames: int = Field(
        default=20, ge=1, le=1000, description="maximum held frames of the rule per process; further frames pass"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        text = raw.get("filter")
        if isinstance(text, str):
            try:
                parse(text)
            except FilterError as error:
                yield ("filter",), str(error)

    @property
    def wanted(self) -> str:
        return self.filter or ""

    @property
    def acts_late(self) -> bool:
        return self.at == "response"

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        """Return BODY of held frames, which are shown and edited, and of requests that a filter or a response error
        concerns."""
        needed = direction == "request" and (bool(self.filter) or isinstance(self.on_timeout, int))
        return FrameDepth.BODY if needed or self.at in (direction, "both") else FrameDepth.NOTHING

    def warnings(self) -> Iterable[str]:
        acks = self.match.acks if self.match is not None else None
        if acks is not None and 0 in acks and self.at != "request":
            yield "a Produce request with acks=0 has no response, this rule never holds one"
        if self.at == "request":
            for name in dict.fromkeys(claims(parse(self.wanted))):
                if BY_NAME[name].group == RESULT and name not in ("size", "request_bytes"):
                    yield f"{name} is not known when the request comes, write at: response"
        if isinstance(self.on_timeout, int):
            raw = {} if self.match is None else self.match.model_dump(include={"api", "version"}, mode="json")
            for choice in chosen({"match": raw}) if raw.get("api") else ():
                lacking = [version for version in choice.versions if not can_say(choice.api.key, version, None)]
                if lacking:
                    yield f"{choice.api.name} {spans(lacking)} has no place for an error, its connection is closed"

    def start(self) -> Effect:
        return InterceptEffect(self)


class InterceptEffect(Effect):
    """Effect that holds whatever it is asked about."""

    def __init__(self, rule: InterceptRule) -> None:
        self.rule, self.hold = rule, (Hold(rule.hold_for, rule.on_timeout, rule.max_frames),)

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return () if self.rule.at == "response" else self.hold

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return () if self.rule.at == "request" else self.hold


def claims(node: FilterNode) -> Iterator[str]:
    """Yield the names of the fields that a filter asks about."""
    match node:
        case FieldTest(field=name):
            yield name
        case Not(inner=inner):
            yield from claims(inner)
        case And(parts=parts) | Or(parts=parts):
            for part in parts:
                yield from claims(part)
        case All():
            pass
