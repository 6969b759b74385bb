"""Regular expressions over topic names: those of clients, matched in bounded time, and one that matches given names.

Strategy. RE2 takes time linear in pattern and text, but counted repetitions make a pattern of 32 bytes one of thousands
of instructions, and each topic would then take milliseconds. A pattern may take so much for each text, which is far
more than patterns need that people write, and beyond that what a tenant's allowance of the moment has left. One that
takes more is too dear; clients hear of it what they hear of one that is wrong.

A pattern that matches given names and nothing else is made of plain alternatives, as long as they fit into a Kafka
string. Above that, names that begin alike share their beginning (nested groups), which takes thousands of numbered
names to a few kilobytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, MutableMapping
from functools import lru_cache
from operator import itemgetter
from time import thread_time
from typing import Any, Final

import re2

from kproxy.protocol.breath import FEW, breathe, each, ordered, rest
from kproxy.protocol.primitives import MAX_STRING

NOTHING = b"^$"
"""Matches no topic, because no topic has an empty name, and is legal."""


def quoted(name: bytes) -> bytes:
    """Return the name as part of a pattern. Of the characters in topic names only `.` is special there."""
    return name.replace(b".", rb"\.")


def pattern_of(names: Iterable[bytes]) -> bytes:
    """Return the pattern, the same for the same set of names. It may still be longer than a string can be."""
    names = list(ordered(set(names)))
    if not names:
        return NOTHING
    plain = b"^(?:" + b"|".join([quoted(name) for name in each(names)]) + b")$"
    return plain if len(plain) <= MAX_STRING else b"^(?:" + b"|".join(branches(names, 0, len(names), 0)) + b")$"


def branches(names: list[bytes], first: int, end: int, at: int) -> list[bytes]:
    """Return the alternatives for the bytes behind the first `at`, which they share, of names[first:end], which are in
    order. A name has at most 249 bytes, and a level of recursion takes one."""
    found = []
    if len(names[first]) == at:
        found.append(b"")
        first += 1
    while first < end:
        breathe()
        name = names[first]
        stop = bisect_right(names, name[at], first, end, key=itemgetter(at))
        stem = name[at : shared(name, names[stop - 1], at)]
        rest = branches(names, first, stop, at + len(stem))
        tail = b"" if rest == [b""] else b"(?:" + b"|".join(rest) + b")"
        found.append(quoted(stem) + tail)
        first = stop
    return found


def shared(one: bytes, other: bytes, at: int) -> int:
    """Return how many bytes two names share that share the first `at`."""
    end = min(len(one), len(other))
    while at < end and one[at] == other[at]:
        at += 1
    return at


COMPILED = 64
"""Patterns kept compiled."""
MAX_PATTERN_MEMORY = 512 << 10
"""Bytes that a pattern may take once compiled: some 20,000 instructions; the longest string is 5,000 by itself."""
MOST_STEPS = 10_000_000
"""Instructions times bytes of one text, if RE2 has to try them all: 15 ms."""
EACH: Final = 10e-6
"""Seconds of CPU for each text; patterns that people write take 3 µs."""
ALLOWANCE: Final = 0.03
"""Seconds of CPU that the patterns of one tenant may take beyond that in one second."""
LEAST: Final = 0.005
"""Seconds of CPU that a pattern may take in any case."""
LEAST_STEPS: Final = MOST_STEPS // 3
"""Steps for all texts of a pattern that take no longer than that. One that cannot need more is not too dear, whatever
the clock says: the machine had others to serve."""
SPENT: Final = "topic_regex_spent"


class TooDear(Exception):
    """Error of a pattern that has taken more time than it may."""


@lru_cache(COMPILED)
def compiled(regex: bytes) -> Any:
    """Return the compiled pattern, or None if RE2 refuses it."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_MEMORY
    try:
        return re2.compile(regex.decode("utf-8"), options)
    except (re2.error, UnicodeDecodeError):
        return None


class Matcher:
    """Pattern of one message, matched against texts with breaks for other work. Raises TooDear if it takes too long.

    `memory` is the cluster's, `owner` whose allowance it is, `now` the time of the message.
    """

    def __init__(self, pattern: Any, memory: MutableMapping[Any, Any], owner: object, now: float) -> None:
        self.pattern, self.memory, self.key = pattern, memory, (SPENT, owner)
        self.size = pattern.programsize
        self.second = int(now)
        self.texts, self.used = 0, 0.0  # and seconds of CPU for those up to the last breath
        self.steps = 0  # that the texts may have needed at worst
        self.charged = 0.0  # seconds of the allowance that this pattern has taken
        self.charge(0.0)

    def charge(self, more: float) -> None:
        """Note that this pattern has used `more` seconds of the allowance, and work out how much of it is left."""
        second, spent = self.memory.get(self.key, (self.second, 0.0))
        if second < self.second:
            spent = 0.0
        others = max(spent - self.charged, 0.0)
        self.left = max(ALLOWANCE - others, LEAST)
        if more != self.charged:
            self.charged = more
            self.memory[self.key] = max(second, self.second), others + more
        self.began = thread_time()

    @property
    def beyond(self) -> float:
        """Return the seconds of CPU used beyond those that each text may take."""
        return self.used + thread_time() - self.began - EACH * self.texts

    def matches(self, text: bytes) -> bool:
        """Return True if the whole text matches. Raises TooDear."""
        self.texts += 1
        steps = len(text) * self.size
        self.steps += steps
        if steps > MOST_STEPS:
            self.end()
            raise TooDear
        if not text.isascii():
            text = text.decode("utf-8", "replace").encode()
        found = self.pattern.fullmatch(text) is not None  # of bytes: text would take twice as long
        if self.steps > LEAST_STEPS and self.beyond > self.left:
            self.end()
            raise TooDear
        if not self.texts % FEW:
            self.pause()
        return found

    def pause(self) -> None:
        """Let other connections run, and charge the time up to here."""
        self.used += thread_time() - self.began
        rest()
        self.charge(max(self.used - EACH * self.texts, 0.0))

    def end(self) -> None:
        """Charge to the allowance the time that was spent beyond what each text may take."""
        self.charge(max(self.beyond, 0.0))
