"""Selectors of connections, `match:` and `not:`, and tests of many patterns at once.

All lines must match; a list is "any of". Text is exact, a glob with `*`, or a `/regular expression/` in RE2 syntax that
matches the whole text. A selector of an unknown fact (no TLS, no SNI) does not match.

Globs with one star are found in tables by prefix, or by suffix if they start with the star. Other patterns are one RE2
set. So the cost of a text does not grow with the number of patterns.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr

from kproxy.rules.exchange import Facts
from kproxy.rules.values.address import Test, address_test, compiled
from kproxy.rules.values.model import Model, unknown

FRAME_SELECTORS = (
    "api", "version", "topic", "topic_id", "partition", "group", "transactional_id", "client_id", "principal",
    "client_software", "node", "acks", "error", "size",
    "offset", "records",
)  # fmt: skip
"""Known only once a frame has come: not for rules that bind when a connection opens."""


def text_test(pattern: str) -> Test:
    """Return a test for exact text, a glob or a `/regular expression/`. Raises ValueError for a bad expression."""
    if is_expression(pattern):
        return _expression(pattern[1:-1])
    parts = pattern.split("*")
    if len(parts) == 1:
        return pattern.__eq__
    if len(parts) == 2:
        return _ends(*parts)
    return _expression(".*".join(re.escape(part) for part in parts))


def readable(text: str) -> str:
    """Return text as brokers read it: invalid UTF-8 becomes replacement characters, as in Java."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _ends(begin: str, end: str) -> Test:
    """Return a test for a glob with one star, five times as fast as an expression."""
    least = len(begin) + len(end)

    def test(text: str) -> bool:
        return text.startswith(begin) and len(text) >= least and text.endswith(end)

    return test


def is_expression(pattern: str) -> bool:
    """Return True if a pattern is a `/regular expression/`."""
    return len(pattern) >= 2 and pattern.startswith("/") and pattern.endswith("/")


def is_pattern(pattern: str) -> bool:
    """Return True if a pattern may hold for other text than itself."""
    return "*" in pattern or is_expression(pattern)


def _expression(pattern: str) -> Test:
    expression = compiled(pattern)

    def test(text: str) -> bool:
        try:
            return expression.fullmatch(text) is not None
        except UnicodeEncodeError:  # replacement characters: each byte that is not UTF-8 counts as one "?"
            return expression.fullmatch(text.encode(errors="replace").decode()) is not None

    return test


def _pattern(text: str) -> str:
    if not text:
        raise ValueError("expected text, got empty text, which never matches")
    text_test(text)
    return text


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"expected a network such as 10.0.0.0/8, or an address: {error}") from None
    return text


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | int | float) else value


TextPattern = Annotated[str, AfterValidator(_pattern)]
Network = Annotated[str, AfterValidator(_network)]
Texts = Annotated[
    list[TextPattern],
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
Networks = Annotated[
    list[Network],
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]


class ConnectionMatch(Model):
    """Selectors of connections, by facts that are known when they open."""

    listener: Texts | None = Field(default=None, description="name of the listener that the client connected to")
    cluster: Texts | None = Field(default=None, description="name of the cluster behind that listener")
    client_address: Networks | None = Field(
        default=None, description="the client's IP address, or networks such as 10.0.0.0/8"
    )
    sni: Texts | None = Field(default=None, description="host name that the client asked for in its TLS handshake")
    certificate: Texts | None = Field(
        default=None,
        description="subject of the client's certificate such as CN=etl,O=Example, or its name by `principals`",
    )

    _tests: list[tuple[str, list[Callable[[Any], bool]]]] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any, /) -> None:
        for name in ConnectionMatch.model_fields:
            patterns = getattr(self, name)
            if patterns is not None:
                tests: list[Test]
                tests = [address_test(patterns)] if name == "client_address" else [text_test(one) for one in patterns]
                self._tests.append((name, tests))

    def holds(self, facts: Facts) -> bool:
        """Return True if every selector matches this connection."""
        for name, tests in self._tests:
            value = getattr(facts, name)
            if value is None or not any(test(value) for test in tests):
                return False
        return True

    def accepts(self, name: str, value: Any) -> bool:
        """Return True if one selector, which must be in use, matches this value; None: there is no such value."""
        return value is not None and any(test(value) for test in dict(self._tests)[name])

    def may_hold(self, listener: str, cluster: str) -> bool:
        """Return True if the selectors can match some connection on that listener."""
        known = {"listener": listener, "cluster": cluster}
        return all(any(test(known[name]) for test in tests) for name, tests in self._tests if name in known)

    def always_holds(self, listener: str, cluster: str) -> bool:
        """Return True if the selectors match every connection on that listener."""
        return all(name in ("listener", "cluster") for name, _ in self._tests) and self.may_hold(listener, cluster)

    @classmethod
    def unknown_key(cls, name: object) -> str:
        """Return the reason for selectors that other kinds have, and the nearest word for all else."""
        if name in FRAME_SELECTORS:
            return (
                f'"{name}" cannot be selected on here: this rule binds when a connection opens, '
                f"and then only {', '.join(cls.keys())} are known"
            )
        return unknown("selector", name, cls.keys())


LARGEST = 1_000
"""Instructions of a pattern that goes into a set, as RE2 counts them; a longer one is tried by itself."""
SET_SIZE = 20_000
"""Instructions of a set; there are as many sets as are needed."""
SET_MEMORY = 16 << 20
"""Bytes for RE2's automaton of a set. RE2 clears it when it is full."""
EVERYTHING = ".*"
"""First pattern of each set. If not even this one matches, RE2 ran out of memory."""

FEW = 4  # literals that are searched one after another; more are one RE2 automaton
MAX_AUTOMATA = 4  # LRU entries; each API and version of a connection searches for the same literals
MAX_LETTERS = 1 << 16  # bytes of all literals; their automaton takes 30 ms to make

Search = Callable[[bytes | bytearray], bool]
Ends = dict[int, dict[str, list[tuple[str, int]]]]
"""Length → what a glob has on one side of its star → what is on the other, and the pattern's number."""


class PatternSet:
    """Set of patterns with a number each; several may have the same."""

    __slots__ = ("alone", "begins", "ends", "sets")

    def __init__(self) -> None:
        self.begins: Ends = {}
        self.ends: Ends = {}
        self.sets: list[RegularSet] = []
        self.alone: list[tuple[Test, int]] = []

    def add(self, pattern: str, number: int) -> None:
        """Add a glob or a `/regular expression/` under a number. Raises ValueError for a bad expression."""
        begin, *rest = pattern.split("*")
        if not is_expression(pattern) and len(rest) == 1:
            table, key, other = (self.begins, begin, rest[0]) if begin else (self.ends, rest[0], begin)
            table.setdefault(len(key), {}).setdefault(key, []).append((other, number))
            return
        expression = pattern[1:-1] if is_expression(pattern) else ".*".join(map(re.escape, pattern.split("*")))
        size = compiled(expression).programsize if is_narrow(pattern) else LARGEST + 1
        if size > LARGEST:
            self.alone.append((text_test(pattern), number))
            return
        if not self.sets or self.sets[-1].size + size > SET_SIZE:
            self.sets.append(RegularSet())
        self.sets[-1].add(expression, text_test(pattern), number, size)

    def matching(self, text: str) -> Iterator[int]:
        """Yield the numbers of the patterns that hold for a text."""
        length = len(text)
        for size, table in self.begins.items():
            for end, number in table.get(text[:size], ()):
                if length >= size + len(end) and text.endswith(end):
                    yield number
        for size, table in self.ends.items():
            for _, number in table.get(text[length - size :], ()) if length >= size else ():
                yield number
        for regular_set in self.sets:
            yield from regular_set.matching(text)
        for test, number in self.alone:
            if test(text):
                yield number


def is_narrow(pattern: str) -> bool:
    """Return True if few of many such patterns are in play anywhere in a text."""
    if is_expression(pattern):
        return pattern[1:2].isalnum()
    begin, *rest = pattern.split("*")
    return bool(begin) or sum(map(bool, rest)) <= 1


class RegularSet:
    """Regular expressions that RE2 looks for together, compiled when the first text comes."""

    __slots__ = ("compiled", "expressions", "numbers", "size", "tests")

    def __init__(self) -> None:
        self.expressions: list[str] = []
        self.tests: list[Test] = []
        self.numbers: list[int] = []
        self.size = 0
        self.compiled: Any = None

    def add(self, expression: str, test: Test, number: int, size: int) -> None:
        """Add an expression under a number; `test` does the same by itself, `size` counts its instructions."""
        self.expressions.append(expression)
        self.tests.append(test)
        self.numbers.append(number)
        self.size += size
        self.compiled = None

    def matching(self, text: str) -> Iterator[int]:
        """Yield the numbers of the expressions that hold for the whole of a text."""
        if self.compiled is None:
            self.compiled = self.compile()
        try:
            text.encode()
        except UnicodeEncodeError:  # replacement characters: each byte that is not UTF-8 counts as one "?"
            text = text.encode(errors="replace").decode()
        hits = self.compiled.Match(text) if self.compiled else ()
        if not hits:
            yield from (number for test, number in zip(self.tests, self.numbers, strict=True) if test(text))
            return
        for place in hits:
            if place:
                yield self.numbers[place - 1]

    def compile(self) -> Any:
        """Return the set as RE2 has it; False: it cannot be made."""
        import re2  # 10 ms, and most rule sets have no pattern

        options = re2.Options()
        options.log_errors = False
        options.dot_nl = True
        options.max_mem = SET_MEMORY
        regular_set = re2.Set.FullMatchSet(options)
        for expression in (EVERYTHING, *self.expressions):
            regular_set.Add(expression)
        try:
            regular_set.Compile()
        except re2.error:  # no memory for it
            return False
        return regular_set


PLAIN = re.compile(r"(?:[a-zA-Z0-9_-]|\\\.)*")
"""Literal letters at the start of a regular expression."""
REPEATS = ("*", "?", "{")
"""Signs of an expression that may make the letter before them none."""
LEAST = 2
"""Bytes below which the test would hold for most frames."""


def needed_bytes(pattern: str) -> bytes | None:
    """Return the longest run of bytes in every text that `pattern` matches, or None.

    Exact text, a glob, or a regular expression that starts with letters and has no alternatives. Only ASCII letters
    count, since invalid UTF-8 reads as replacement characters.
    """
    letters = leading_letters(pattern[1:-1]) if is_expression(pattern) else max(pattern.split("*"), key=len)
    return letters.encode() if len(letters) >= LEAST and letters.isascii() else None


def leading_letters(expression: str) -> str:
    """Return the letters that each match of a regular expression begins with."""
    if "|" in expression:
        return ""
    begin = PLAIN.match(expression)
    head = "" if begin is None else begin[0]
    if expression[len(head) :].startswith(REPEATS):
        head = head[:-2] if head.endswith("\\.") else head[:-1]
    return head.replace("\\.", ".")


def search(literals: frozenset[bytes]) -> Search:
    """Return a test whether data contain one of these literals; it is always true beyond MAX_LETTERS."""
    if sum(map(len, literals)) > MAX_LETTERS:
        return lambda data: True
    if len(literals) == 1:
        (only,) = literals
        return lambda data: only in data
    if len(literals) <= FEW:
        few = tuple(literals)
        return lambda data: any(one in data for one in few)
    return automaton(literals)


@lru_cache(MAX_AUTOMATA)
def automaton(literals: frozenset[bytes]) -> Search:
    """Return the same test as one RE2 automaton. RE2 searches without it if it grows too large."""
    import re2  # 10 ms, and most rule sets do without

    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = max(len(literals) << 12, 1 << 23)
    found = re2.compile(b"|".join(re2.escape(one) for one in sorted(literals)), options=options)
    return lambda data: found.search(data) is not None
