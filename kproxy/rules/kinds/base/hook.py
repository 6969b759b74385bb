"""Functions of a user's own: found by `module:function`, called, and held to what they promise.

Modules are found as Python finds them (PYTHONPATH, what is installed), and in the folder that kproxy was started in.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, get_args

from kproxy.rules.decision import Answer, Decision, Edit, Fail, LeaveOut, Repeat, Swap
from kproxy.rules.document.hints import nearest
from kproxy.rules.select.selected import error_number
from kproxy.wire import encode
from kproxy.wire.codec.message import Message

from .rule import Direction

UserHook = Callable[..., Any]

DECISIONS = get_args(Decision)
ONLY_FOR: dict[Direction, tuple[type, ...]] = {"request": (Answer,), "response": (Repeat, Swap, LeaveOut)}

_CALL = re.compile(
    r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", re.ASCII
)


def find_hook(call: str) -> UserHook:
    """Return the function that `module:function` names; its module is imported. Raises ValueError, which says why
    not."""
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
    """Return the module of this name, imported if need be. Raises ValueError with the reason if it cannot be."""
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ValueError(
                f'there is no module "{name}", neither in {here} nor where Python looks (PYTHONPATH)'
            ) from None
        raise ValueError(f"{name} cannot be imported: {error}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a module does when it is imported
        raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}") from None
    finally:
        if added and here in sys.path:
            sys.path.remove(here)


def checked(call: str, value: Any) -> UserHook:
    """Return the function if it takes two arguments and returns at once. Raises ValueError."""
    if not callable(value):
        raise ValueError(f"{call} is no function, but {type(value).__name__}")
    if inspect.iscoroutinefunction(value) or inspect.isgeneratorfunction(value):
        raise ValueError(f"{call} is asynchronous or a generator; a plain function is wanted, which decides at once")
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
            raise TypeError(f"it returned {decision!r}, which is no decision (kproxy.rules.decision), nor None")
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
                raise TypeError(f"the code of an error is a number, found {code!r}")
            error_number(code)
