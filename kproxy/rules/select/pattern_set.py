"""Many patterns at once: what a text costs does not grow with the number of globs and regular expressions.

Strategy. A glob with one star, as most have, is found by what it begins with, in a table for each length of that; those
that begin with the star by their ends. Patterns of which a text keeps few in play as it is gone through, because they
begin with letters or look for one word only, are one RE2 set. Others (`*a*b*`) would make a set's automaton grow with
each new text, ten times as slow as trying them one by one, which is what is done with them.

A frame is tested for many patterns before its names are read: names stand in frames as they are, in UTF-8, also in the
bytes of groups and in texts of errors. So whatever a pattern holds for has the pattern's letters in it, and a frame
without these letters names no such thing (`needed_bytes`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from .match import Test, compiled, is_expression, text_test

LARGEST = 1_000
"""Instructions of a pattern that goes into a set, as RE2 counts them; a longer one is tried by itself."""
SET_SIZE = 20_000
"""Instructions of a set; there are as many sets as are needed."""
SET_MEMORY = 16 << 20
"""Bytes that RE2 may take for the automaton of a set. It makes what texts need, and starts anew when it is full."""
EVERYTHING = ".*"
"""Stands first in each set. A text for which not even this is found has not been matched: RE2 ran out of memory."""

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
        except UnicodeEncodeError:  # from bytes that are not UTF-8, each of which counts as one "?"
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
"""Letters at the beginning of a regular expression that stand for themselves."""
REPEATS = ("*", "?", "{")
"""Signs of an expression that may make the letter before them none."""
LEAST = 2
"""Bytes below which the test would hold for most frames."""


def needed_bytes(pattern: str) -> bytes | None:
    """Return the longest run of bytes known to be in every text that `pattern` holds for; None: there is none to speak
    of. Exact text, a glob, or a regular expression that begins with letters and has no alternatives.

    Letters that are not ASCII do not count, since bytes that are no UTF-8 read as one of them.
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
