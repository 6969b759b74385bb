"""python: a function of the user's own decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.decision import Close
from kproxy.rules.depth import Depth
from kproxy.rules.document.model import Wrong
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.hook import decisions_of, find_hook
from kproxy.rules.kinds.base.live import Decisions, Effect, EffectProblem, LiveRule
from kproxy.rules.kinds.base.rule import Direction, Family
from kproxy.wire.breath import breathe, each, keep
from kproxy.wire.codec.message import Message

SLOW = 0.010
"""Seconds; while a hook runs nothing else does, so that a longer one delays every connection. It is counted."""


class PythonRule(LiveRule):
    """Calls a function of your own with each exchange and message that match, and does what it returns.

    It gets `(exchange, message)` and returns None, a decision of `kproxy.rules.decision` or a list of them. It runs
    inside the proxy: what it does not return at once, everybody waits for. From files only.
    """

    group = "anything else"
    family: ClassVar[Family] = "code"
    example: ClassVar[str] = """\
- name: writes of more than ten topics wait a second
  kind: python
  match: {api: Produce}
  call: "kproxy.rules.example_hooks:many_topics_wait"
"""

    kind: Literal["python"] = Field(description="what the rule does")
    call: str = Field(
        description="module:function; the module is found where Python looks for modules, and in the folder that "
        "kproxy is started in"
    )
    at: Literal["request", "response", "both"] = Field(
        default="request", description="which messages it is called with; its second argument"
    )
    on_error: Literal["forward", "close"] = Field(
        default="forward",
        description="what becomes of the frame when the function raises or returns what is no decision: it goes on as "
        "it was, or its connection is closed. Counted and named in either case",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Refuse a function that is not there. Its module is imported for that."""
        call = raw.get("call")
        if isinstance(call, str):
            try:
                find_hook(call)
            except ValueError as error:
                yield ("call",), str(error)
        match = raw.get("match")
        if isinstance(match, dict) and match.get("error") is not None and raw.get("at") != "response":
            yield ("match", "error"), "this is known only when the response has come, write at: response"

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        """Return BODY for the messages that the function is called with."""
        return Depth.BODY if self.at in (direction, "both") else Depth.NOTHING

    def start(self) -> Effect:
        return PythonEffect(self)


class PythonEffect(Effect):
    """Effect that calls the function and counts what goes wrong in it."""

    def __init__(self, rule: PythonRule) -> None:
        self.rule, self.hook = rule, find_hook(rule.call)
        self.failed, self.slow = EffectProblem("hook_failed"), EffectProblem("hook_slow")

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.run(exchange, exchange.request, "request") if self.rule.at != "response" else ()

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        return self.run(exchange, exchange.response, "response") if self.rule.at != "request" else ()

    def problems(self) -> Sequence[EffectProblem]:
        return (self.failed, self.slow)

    def run(self, exchange: Exchange, message: Message, direction: Direction) -> Decisions:
        """Call the function and return its decisions. A function that fails has changed nothing."""
        before, began = keep(copied(message.body)), self.clock()
        try:
            return decisions_of(self.hook(exchange, message), message, direction)
        except Exception as error:  # noqa: BLE001  # a user's code may raise anything
            self.failed.count += 1
            self.failed.last = f"{self.rule.call} with {message.api.name} {message.version}: {said(error)}"
            keep(message.body.copy())
            message.body.clear()
            message.body.update(before)
            return (Close(),) if self.rule.on_error == "close" else ()
        finally:
            took = self.clock() - began
            if took > SLOW:
                self.slow.count += 1
                self.slow.last = f"{self.rule.call} with {message.api.name} {message.version}: {took * 1000:.0f} ms"


def said(error: Exception) -> str:
    """Return the error with the line of the user's code that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
    return f"{type(error).__name__}: {error}{where}"


def copied(value: Any) -> Any:
    """Return the containers of a body anew, with the same values in them."""
    if isinstance(value, dict):
        breathe()
        return {name: copied(inner) for name, inner in value.items()}
    return [copied(inner) for inner in each(value)] if isinstance(value, list) else value
