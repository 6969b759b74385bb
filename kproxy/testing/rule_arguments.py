"""Documents from the arguments of Python calls (rules and selectors), and the faults injected from outside the test.

The documents have the meaning and the error texts of rule files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kproxy.base.errors import DocumentError
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.rules.values.model import validate
from kproxy.rules.values.source import Source, json_source, raise_mistakes

_PLACE = re.compile(r":(\d+):\d+: (.*)", re.DOTALL)


class Misuse(ValueError):
    """An error in the arguments of a test's call; the message names the argument, the error, and the allowed values."""


def plain(value: Any) -> Any:
    """Return the value as a document can have it; `not_` and the like, which Python needs, lose their underscore.
    Raises Misuse for a type that no rule has."""
    if isinstance(value, Mapping):
        return {str(name).removesuffix("_"): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [plain(inner) for inner in value]
    if isinstance(value, UUID):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise Misuse(f"{value!r} is a {type(value).__name__}, which no rule has: text, numbers, lists, mappings")


def rule_source(rule: Mapping[str, Any]) -> Source:
    """Return a document of this one rule, with one argument a line from line 3 on."""
    return json_source(f"<test: {rule['name']}>", f'{{"rules": [\n{lines(rule)}]}}'.encode())


def lines(arguments: Mapping[str, Any]) -> str:
    """Return JSON with a line for each argument and each of its fields, the first one on the second line."""
    return "{\n" + "\n".join(text for _, text in laid_out(arguments)) + "\n}"


def laid_out(arguments: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Return the lines of the arguments, each as a pair of its subject (`when`, `when.nth`) and its text."""
    found: list[tuple[str, str]] = []
    for name, value in arguments.items():
        if found:
            found[-1] = found[-1][0], f"{found[-1][1]},"
        key = f"{json.dumps(name)}: "
        if isinstance(value, Mapping) and value:
            found.append((f"{before}{name}", f"{key}{{"))
            found += laid_out(value, f"{before}{name}.")
            found[-1] = found[-1][0], f"{found[-1][1]}}}"
        else:
            found.append((f"{before}{name}", key + json.dumps(value)))
    return found


def in_words(call: str, source: Source, arguments: Mapping[str, Any], error: DocumentError, first_line: int) -> Misuse:
    """Return the errors by argument, instead of by line of the generated document."""
    names, told = [name for name, _ in laid_out(arguments)], []
    for mistake in error.mistakes:
        found = _PLACE.fullmatch(mistake.removeprefix(source.file))
        line = int(found[1]) - first_line if found else -1
        about = f"{names[line]}: " if 0 <= line < len(names) else ""
        told.append(about + (found[2] if found else mistake))
    return Misuse("\n".join(f"{call}: {each}" for each in told))


def match_of(selectors: Mapping[str, Any]) -> FrameMatch:
    """Return the selectors of a `match:` as a model. Raises Misuse."""
    __tracebackhide__ = True
    given = plain({name: value for name, value in selectors.items() if value is not None})
    source = json_source("<test>", lines(given).encode())
    found = validate(FrameMatch, given, source)
    try:
        raise_mistakes([source])
    except DocumentError as error:
        raise in_words("exchanges", source, given, error, 2) from None
    assert found is not None, "there would be a mistake"
    return found


class NamedFault(NamedTuple):
    """Fault by its sentence and by its class: transient, fatal, crash or lies."""

    text: str
    kind_of: str


class InjectedFaults:
    """Faults injected into a run, for assertions that hold only with or only without them. False if empty."""

    def __init__(self, faults: Iterable[NamedFault] = ()) -> None:
        self.all = tuple(faults)

    @property
    def transient(self) -> bool:
        """True if a fault of class transient was injected: a correct client recovers from it."""
        return self._any("transient")

    @property
    def fatal(self) -> bool:
        """True if a fault of class fatal was injected: a correct client may fail after it."""
        return self._any("fatal")

    @property
    def crash(self) -> bool:
        """True if the client is killed and restarted."""
        return self._any("crash")

    @property
    def lies(self) -> bool:
        """True if a response was injected that a correct cluster never sends."""
        return self._any("lies")

    def _any(self, kind_of: str) -> bool:
        return any(fault.kind_of == kind_of for fault in self.all)

    def __iter__(self) -> Iterator[NamedFault]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __repr__(self) -> str:
        return f"<faults: {'; '.join(fault.text for fault in self.all) or 'none'}>"
