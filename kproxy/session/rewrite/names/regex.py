"""Regular expressions over names that the broker evaluates: matched by kproxy, in bounded time.

Strategy. The broker would match a pattern against its own names. So kproxy matches it against the client-side names,
with RE2 as the broker does (it has the Java port), and sends a pattern with the broker-side names of the matched topics
as alternatives. The client's pattern is stored for each member. A later heartbeat with null ("unchanged") gets a new
pattern if the set of names has changed. Describe responses contain the original pattern.

A streams member sends its topology once and may not change it (KIP-1071), so its patterns are matched at that moment
only. For ListTransactions with a pattern (KIP-1152), kproxy requests all ids, and removes from the response the ids
that the pattern does not match.

Time. RE2 takes time linear in pattern and text, but counted repetitions make a pattern of 32 bytes one of thousands of
instructions, and each topic would then take milliseconds. Each text has a fixed time limit, far above the need of
ordinary patterns. Time beyond it is charged to the tenant's current allowance. A pattern that RE2 refuses, or that
exceeds the allowance, is sent with `*` in front, which no RE2 accepts. The client receives INVALID_REGULAR_EXPRESSION,
and a broker with other limits cannot match broker-side names with it.

Length. Alternatives are plain as long as they fit into a Kafka string. Above that, names with a common beginning share
it in nested groups, which takes thousands of numbered names to a few kilobytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from time import thread_time
from typing import Any, Final

import re2

from kproxy.base.cooperative import FEW, yield_now, yield_point, yielding, yielding_sort
from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import MAX_STRING, Buffer
from kproxy.protocol.scan.walk import Hit, Hits, Walk, read_string, write_string
from kproxy.rules.names.composed import NameMap
from kproxy.session.rewrite.context import (
    MAX_REGEX_BYTES,
    REGEX_ANSWERS,
    REGEX_TOPICS,
    REGEXES,
    Context,
    NeedsLookup,
    session_lru,
)
from kproxy.session.rewrite.rewriter import Apply

from .translator import NameTranslator

NOTHING = b"^$"
"""Matches no topic, because no topic has an empty name, and is legal."""


def quoted(name: bytes) -> bytes:
    """Return the name as part of a pattern. `.` is the only special character in topic names."""
    return name.replace(b".", rb"\.")


def pattern_of(names: Iterable[bytes]) -> bytes:
    """Return the pattern, the same for the same set of names. It may still be longer than a string can be."""
    names = list(yielding_sort(set(names)))
    if not names:
        return NOTHING
    plain = b"^(?:" + b"|".join([quoted(name) for name in yielding(names)]) + b")$"
    return plain if len(plain) <= MAX_STRING else b"^(?:" + b"|".join(branches(names, 0, len(names), 0)) + b")$"


def branches(names: list[bytes], first: int, end: int, at: int) -> list[bytes]:
    """Return the alternatives for the bytes after the first `at`, which they share, of names[first:end], which are in
    order. A name has at most 249 bytes, and a level of recursion takes one."""
    found = []
    if len(names[first]) == at:
        found.append(b"")
        first += 1
    while first < end:
        yield_point()
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
"""Seconds of CPU for each text; ordinary patterns take 3 µs."""
ALLOWANCE: Final = 0.03
"""Seconds of CPU that the patterns of one tenant may take beyond that in one second."""
LEAST: Final = 0.005
"""Seconds of CPU that a pattern may take in any case."""
LEAST_STEPS: Final = MOST_STEPS // 3
"""Steps for all texts of a pattern that take no longer than that. A pattern that cannot need more is accepted even if
it exceeds the time limit: the machine was busy with other work."""
SPENT: Final = "topic_regex_spent"


class RegexTooExpensive(Exception):
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
    """Pattern of one message, matched against texts with breaks for other work.

    Raises RegexTooExpensive if it takes too long. `memory` is the cluster's, `owner` the tenant with the allowance,
    `now` the time of the message.
    """

    def __init__(self, pattern: Any, memory: MutableMapping[Any, Any], owner: object, now: float) -> None:
        self.pattern, self.memory, self.key = pattern, memory, (SPENT, owner)
        self.size = pattern.programsize
        self.second = int(now)
        self.texts, self.used = 0, 0.0  # and seconds of CPU for those up to the last yield
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
        """Return True if the entire text matches. Raises RegexTooExpensive."""
        self.texts += 1
        steps = len(text) * self.size
        self.steps += steps
        if steps > MOST_STEPS:
            self.end()
            raise RegexTooExpensive
        if not text.isascii():
            text = text.decode("utf-8", "replace").encode()
        found = self.pattern.fullmatch(text) is not None  # of bytes: text would take twice as long
        if self.steps > LEAST_STEPS and self.beyond > self.left:
            self.end()
            raise RegexTooExpensive
        if not self.texts % FEW:
            self.pause()
        return found

    def pause(self) -> None:
        """Let other connections run, and charge the time up to here."""
        self.used += thread_time() - self.began
        yield_now()
        self.charge(max(self.used - EACH * self.texts, 0.0))

    def end(self) -> None:
        """Charge the time beyond the limit of each text to the allowance."""
        self.charge(max(self.beyond, 0.0))


INVALID = b"*"
MAX_NAME = 249  # bytes in a topic name; a longer text cannot be one


def translated(regex: bytes, topics: list[bytes], names: NameMap, context: Context) -> bytes:
    """Return the pattern to send in place of `regex`: one that matches exactly the broker-side names of the topics that
    `regex` matches. The result is remembered."""
    kept = session_lru(context.cluster_memory, REGEX_ANSWERS)
    key = regex, names, topics_age(context, topics)
    sent: bytes | None = kept.get(key)
    if sent is None:
        sent = computed(regex, topics, names, context)
        kept[key] = sent
    return sent


def computed(regex: bytes, topics: Iterable[bytes], names: NameMap, context: Context) -> bytes:
    """Compute the result of `translated`, without the cache."""
    pattern = compiled(regex)
    if pattern is None:
        context.count("topic_regex_invalid")
        return (INVALID + regex)[:MAX_STRING]
    seen = ((name, names.to_client(name)) for name in yielding(topics) if len(name) <= MAX_NAME)
    matcher = Matcher(pattern, context.cluster_memory, names.owner, context.now)
    try:
        found = [name for name, shown in seen if shown is not None and matcher.matches(shown)]
    except RegexTooExpensive:
        context.count("topic_regex_too_dear")
        return (INVALID + regex)[:MAX_STRING]
    matcher.end()
    sent = pattern_of(found)
    if len(sent) > MAX_STRING:
        context.count("topic_regex_too_long")
        return NOTHING
    return sent


def topics_age(context: Context, topics: list[bytes]) -> int:
    """Return a number that changes with the cluster's topics, so that heartbeats match again only after a change."""
    last, number = context.cluster_memory.get(REGEX_TOPICS, (None, 0))
    if topics is not last:
        number += topics != last
        context.cluster_memory[REGEX_TOPICS] = (topics, number)
    return int(number)


@dataclass(frozen=True, slots=True)
class HeartbeatRegex:
    """Rewrite of `subscribed_topic_regex` in ConsumerGroupHeartbeat requests, from version 1 on.

    The key of a member contains the broker's name of its group, so that a description of the group under any name finds
    it.
    """

    names: NameMap
    groups: NameMap | None = None
    wanted: frozenset[str] = frozenset(("group_id", "member_id", "member_epoch", "subscribed_topic_regex"))

    def bind(self, walk: Walk) -> Apply:
        marks = [
            walk.find("value", path) for path in ("group_id", "member_id", "member_epoch", "subscribed_topic_regex")
        ]

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> NeedsLookup | None:
            spans = {mark: (start, end) for mark, start, end in hits}
            group, member = (read_string(buf, *spans[mark], True) or b"" for mark in marks[:2])
            group = group if self.groups is None else self.groups.to_broker(group)
            epoch = int.from_bytes(buf[slice(*spans[marks[2]])], "big", signed=True)
            regex = read_string(buf, *spans[marks[3]], True)
            sent = self.sent((group, member), epoch, regex, context)
            if isinstance(sent, NeedsLookup):
                return sent
            if sent is not None:
                edits.replace(*spans[marks[3]], write_string(sent, True))
                context.rewrote("topic_regexes")
            return None

        return apply

    def sent(
        self, member: tuple[bytes, bytes], epoch: int, regex: bytes | None, context: Context
    ) -> bytes | NeedsLookup | None:  # fmt: skip
        """Return the pattern to send instead. None: the field stays."""
        kept = session_lru(context.cluster_memory, (REGEXES, self.names.owner))
        if epoch < 0 or regex == b"":  # the member leaves (-2: a static one, to come back), or unsubscribes
            kept.pop(member, None)
            return NOTHING if regex else None
        original, last, age = kept.get(member, (None, None, 0))
        wanted = original if regex is None else regex
        if wanted is None:
            return None
        topics = context.known_topics
        if topics is None:
            return NeedsLookup(all_topics=True)
        now = topics_age(context, topics)
        if regex is None and age == now:
            return None
        sent = translated(wanted, topics, self.names, context)
        if len(wanted) + sum(map(len, member)) <= MAX_REGEX_BYTES:
            kept[member] = (wanted, hash(sent), now)
        return sent if regex is not None or hash(sent) != last else None


@dataclass(frozen=True, slots=True)
class DescribedRegex:
    """Rewrite of `subscribed_topic_regex` in ConsumerGroupDescribe responses: shows the member's own pattern, if it was
    sent through kproxy."""

    names: NameMap
    wanted: frozenset[str] = frozenset(
        ("groups[].group_id", "groups[].members[].member_id", "groups[].members[].subscribed_topic_regex")
    )

    def bind(self, walk: Walk) -> Apply:
        group_mark, member_mark, regex_mark = (
            walk.find("value", path)
            for path in (
                "groups[].group_id", "groups[].members[].member_id", "groups[].members[].subscribed_topic_regex"
            )
        )  # fmt: skip

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            kept = session_lru(context.cluster_memory, (REGEXES, self.names.owner))
            group, member = b"", b""
            for mark, start, end in hits:
                if mark == group_mark:
                    group = read_string(buf, start, end, True) or b""
                elif mark == member_mark:
                    member = read_string(buf, start, end, True) or b""
                elif mark == regex_mark:
                    original, sent, _ = kept.get((group, member), (None, 0, 0))
                    if original is not None and hash(read_string(buf, start, end, True)) == sent:
                        edits.replace(start, end, write_string(original, True))
                        context.rewrote("topic_regexes")

        return apply


@dataclass(frozen=True, slots=True)
class TopologyRegexes:
    """Rewrite of `source_topic_regex` in StreamsGroupHeartbeat requests. Other fields count its elements, so all
    stay."""

    translator: NameTranslator
    path: str

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset((self.path,))

    def bind(self, walk: Walk) -> Apply:
        number = walk.find("value", self.path)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> NeedsLookup | None:
            spans = [(start, end) for mark, start, end in hits if mark == number]
            topics = context.known_topics if spans else []
            if topics is None:
                return NeedsLookup(all_topics=True)
            for start, end in spans:
                regex = read_string(buf, start, end, True)
                if regex:
                    sent = translated(regex, topics, self.translator.names, context)
                    edits.replace(start, end, write_string(sent, True))
                    context.rewrote("topic_regexes")
            return None

        return apply


PATTERN = "transactional_id_pattern"
INVALID_REGULAR_EXPRESSION = b"\x00\x80"
DEAR = "transactional_id_regex_too_dear"
CODE = "error_code"
ARRAY, ID = "transaction_states[]", "transaction_states[].transactional_id"


@dataclass(frozen=True, slots=True)
class PatternAside:
    """Rewrite that takes the pattern out of the request and notes it. A bad one stays, as one that no broker
    accepts."""

    wanted: frozenset[str] = frozenset((PATTERN,))

    def bind(self, walk: Walk) -> Apply:
        number = walk.find("value", PATTERN)

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            start, end = next((start, end) for mark, start, end in hits if mark == number)
            regex = read_string(buf, start, end, True)
            if not regex:  # the broker also treats an empty pattern as none
                return
            if compiled(regex) is None:
                context.count("transactional_id_regex_invalid")
                edits.replace(start, end, write_string((INVALID + regex)[:MAX_STRING], True))
                return
            note = context.note = context.note or {}
            note[PATTERN] = regex
            edits.replace(start, end, write_string(None, True))
            context.rewrote("transactional_id_regexes")

        return apply


@dataclass(frozen=True, slots=True)
class MatchingOnly:
    """Rewrite that leaves out of the response the ids that the noted pattern does not match; hidden ids are left to
    others."""

    translator: NameTranslator
    wanted: frozenset[str] = frozenset((CODE, ARRAY, ID))

    def bind(self, walk: Walk) -> Apply:
        code_mark, name_mark, count_mark, element_mark = (
            walk.find(what, path)
            for what, path in (("value", CODE), ("value", ID), ("count", ARRAY), ("element", ARRAY))
        )

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            regex = (context.note or {}).get(PATTERN)
            if regex is None:
                return
            shown = [self.shown(buf, start, end) for mark, start, end in hits if mark == name_mark]
            keep = iter(self.kept(compiled(regex), shown, context))
            dear = len(shown) > 0 and DEAR in (context.note or {})
            count: Hit = (0, 0, 0)
            for hit in hits:
                mark, start, end = hit
                if mark == code_mark and dear:
                    edits.replace(start, end, INVALID_REGULAR_EXPRESSION)
                elif mark == count_mark:
                    count = hit
                elif mark == element_mark and not next(keep):
                    edits.remove(start, end, count)

        return apply

    def shown(self, buf: Buffer, start: int, end: int) -> bytes | None:
        """Return the client's name for an id; None: others remove it."""
        return self.translator.names.to_client(read_string(buf, start, end, True) or b"")

    def kept(self, pattern: Any, shown: list[bytes | None], context: Context) -> list[bool]:
        """Return for each id if it stays: those that match and hidden ones; if matching takes too long, which is noted,
        only hidden ones."""
        matcher = Matcher(pattern, context.cluster_memory, self.translator.names.owner, context.now)
        try:
            found = [one is None or matcher.matches(one) for one in shown]
        except RegexTooExpensive:
            context.count("transactional_id_regex_too_dear")
            note = context.note = context.note or {}
            note[DEAR] = True
            return [one is None for one in shown]
        matcher.end()
        return found
