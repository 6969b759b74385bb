"""python: a function of the user's own decides."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field

from kproxy.base.cooperative import defer_free
from kproxy.protocol import encode
from kproxy.protocol.codec.message import Message, copied
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Answer, Close, Decision, Edit, Exchange, Fail, FrameDepth, LeaveOut, Repeat, Swap
from kproxy.rules.kinds.base.rule import Decisions, Direction, Effect, EffectProblem, Family, LiveRule
from kproxy.rules.select.selected import error_number
from kproxy.rules.values.model import Wrong
from kproxy.rules.values.source import nearest

UserHook = Callable[..., Any]

DECISIONS = get_args(Decision)
ONLY_FOR: dict[Direction, tuple[type, ...]] = {"request": (Answer,), "response": (Repeat, Swap, LeaveOut)}

_CALL = re.compile(
    r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", re.ASCII
)


def find_hook(call: str) -> UserHook:
    """Import the module and return the function that `module:function` names. Raises ValueError with the reason."""
    match = _CALL.fullmatch(call)
    if match is None:
        raise ValueError(f'"{call}" is not module:function, such as hooks:slow_writes')
    value = imported(match["module"])
    for name in match["function"].split("."):
        if not hasattr(value, name):
            functions = [known for known in dir(value) if callable(getattr(value, known, None))]
            close = nearest(name, functions)
            hint = f', did you mean "{close}"?' if close else ""
            raise ValueError(f'{match["module"]} has no "{name}"{hint}')
        value = getattr(value, name)
    return checked(call, value)


def imported(name: str) -> Any:
    """Return the module of this name from Python's import path. Raises ValueError with the reason if it cannot be
    imported."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ValueError(
                f'expected an installed module or one in PYTHONPATH, got "{name}"; the current folder is not searched'
            ) from None
        raise ValueError(f"{name} cannot be imported: {error}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # any error of the module's own code
        raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}") from None


def checked(call: str, value: Any) -> UserHook:
    """Return the function if it takes two arguments and returns at once. Raises ValueError."""
    if not callable(value):
        raise ValueError(f"expected a function, got {type(value).__name__} {call}")
    if inspect.iscoroutinefunction(value) or inspect.isgeneratorfunction(value):
        raise ValueError(f"expected a plain function, got an asynchronous function or generator {call}")
    try:
        inspect.signature(value).bind(None, None)
    except TypeError:
        raise ValueError(f"{call} has to take two arguments, (exchange, message)") from None
    except ValueError:  # a builtin without a signature
        pass
    return value  # type: ignore[no-any-return]  # callable, as was looked at


def decisions_of(result: Any, message: Message, direction: Direction) -> Sequence[Decision]:
    """Return the result of a hook as decisions that can be carried out. Raises TypeError, ValueError, EncodeError."""
    listed = [] if result is None else list(result) if isinstance(result, list | tuple) else [result]
    other: Direction = "response" if direction == "request" else "request"
    for decision in listed:
        if not isinstance(decision, DECISIONS):
            raise TypeError(f"expected a decision (kproxy.rules.exchange) or None, got {decision!r}")
        if isinstance(decision, ONLY_FOR[other]):
            raise TypeError(f"{type(decision).__name__} is for {other}s, this is a {direction}")
        check(decision, message)
    return listed


def check(decision: Decision, message: Message) -> None:
    """Check that bytes can be made of a decision. Raises TypeError, ValueError or EncodeError."""
    match decision:
        case Edit():
            encode(message)
        case Answer(body=body):
            encode(Message(message.api, message.version, {"correlation_id": 0}, body))
        case Fail(code=code):
            if not isinstance(code, int):  # hooks are a user's code, which no type checker may have seen
                raise TypeError(f"expected an error code (number), got {code!r}")
            error_number(code)


SLOW = 0.010
"""Seconds; while a hook runs nothing else does, so that a longer one delays every connection. It is counted."""


class PythonRule(LiveRule):
    """Calls your own function with each matching exchange and message, and applies the result.

    The function receives `(exchange, message)` and returns None, a decision of `kproxy.rules.exchange` or a list of
    them. It runs inside the proxy and blocks all connections of its process until it returns. kproxy accepts
    it from files only, and in tests from `inject`.
    """

    group = "custom changes"
    family: ClassVar[Family] = "code"
    example: ClassVar[str] = """\
- name: writes of more than ten topics wait a second
  kind: python
  match: {api: Produce}
  call: "kproxy.rules.example_hooks:many_topics_wait"
"""

    kind: Literal["python"] = Field(description="kind of the rule")
    call: str = Field(
        description="module:function; the module is installed or in PYTHONPATH (the current folder is not searched)"
    )
    at: Literal["request", "response", "both"] = Field(
        default="request", description="messages to call it with; its second argument"
    )
    on_error: Literal["forward", "close"] = Field(
        default="forward",
        description="action after an exception or an invalid decision of the function: pass the frame unchanged, or "
        "close its connection. Both are counted and logged",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        call = raw.get("call")
        if isinstance(call, str):
            try:
                find_hook(call)
            except ValueError as error:
                yield ("call",), str(error)
        match = raw.get("match")
        if isinstance(match, dict) and match.get("error") is not None and raw.get("at") != "response":
            yield ("match", "error"), "this is known only when the response has come, write at: response"

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        return FrameDepth.BODY if self.at in (direction, "both") else FrameDepth.NOTHING

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
        before, began = defer_free(copied(message.body)), self.clock()
        try:
            return decisions_of(self.hook(exchange, message), message, direction)
        except Exception as error:  # noqa: BLE001  # a user's code may raise anything
            self.failed.count += 1
            self.failed.last = f"{self.rule.call} with {message.api.name} {message.version}: {said(error)}"
            defer_free(message.body.copy())
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
