"""Regular expressions over topic names that the broker evaluates: KIP-848 subscriptions and streams topologies.

Strategy. The broker would match the pattern against its own names. So kproxy matches it, with RE2 as the broker does
(it has the Java port), against the names that the client would see, and sends a pattern whose alternatives are the
broker-side names of what matched. What the client wrote is remembered for each member: a later heartbeat, in which
null means "unchanged", gets a new pattern when the set of names has changed, and describe answers show the original.

A pattern that RE2 refuses, or that takes too long (`patterns.py`), is sent with `*` in front, which no RE2 accepts: the
client hears INVALID_REGULAR_EXPRESSION, and it is certain that a broker with other limits does not match broker-side
names with it.

A streams member sends its topology once, and may not change it (KIP-1071), so its patterns are matched at that moment
only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kproxy.protocol.breath import each
from kproxy.protocol.edit import Edits
from kproxy.protocol.primitives import MAX_STRING, Buffer
from kproxy.protocol.scan.walk import Hits, Walk, read_string, write_string
from kproxy.rules.names.composed import NameMap
from kproxy.session.rewrite.context import Context
from kproxy.session.rewrite.rewriter import Apply

from .patterns import NOTHING, Matcher, TooDear, compiled, pattern_of
from .remembered import (
    MAX_REGEX_ANSWERS,
    MAX_REGEX_BYTES,
    MAX_REGEXES,
    REGEX_ANSWERS,
    REGEX_TOPICS,
    REGEXES,
    recall,
    remember,
)
from .translator import NameTranslator

INVALID = b"*"
MAX_NAME = 249  # bytes in a topic name; what is longer cannot be one


def translated(regex: bytes, topics: list[bytes], names: NameMap, context: Context) -> bytes:
    """Return the pattern to send in place of `regex`: one that matches exactly the broker-side names of the topics that
    `regex` matches. The result is remembered."""
    kept = recall(context.cluster_memory, REGEX_ANSWERS)
    key = regex, names, topics_age(context, topics)
    sent: bytes | None = kept.get(key)
    if sent is None:
        sent = computed(regex, topics, names, context)
        remember(kept, key, sent, MAX_REGEX_ANSWERS)
    return sent


def computed(regex: bytes, topics: Iterable[bytes], names: NameMap, context: Context) -> bytes:
    """Work out the result of `translated`, without a look at what is remembered."""
    pattern = compiled(regex)
    if pattern is None:
        context.count("topic_regex_invalid")
        return (INVALID + regex)[:MAX_STRING]
    seen = ((name, names.to_client(name)) for name in each(topics) if len(name) <= MAX_NAME)
    matcher = Matcher(pattern, context.cluster_memory, names.owner, context.now)
    try:
        found = [name for name, shown in seen if shown is not None and matcher.matches(shown)]
    except TooDear:
        context.count("topic_regex_too_dear")
        return (INVALID + regex)[:MAX_STRING]
    matcher.end()
    sent = pattern_of(found)
    if len(sent) > MAX_STRING:
        context.count("topic_regex_too_long")
        return NOTHING
    return sent


def topics_age(context: Context, topics: list[bytes]) -> int:
    """Return a number that changes whenever the cluster's topics do; else heartbeats need not match again."""
    last, number = context.cluster_memory.get(REGEX_TOPICS, (None, 0))
    if topics is not last:
        number += topics != last
        context.cluster_memory[REGEX_TOPICS] = (topics, number)
    return int(number)


@dataclass(frozen=True, slots=True)
class HeartbeatRegex:
    """Rewrite of `subscribed_topic_regex` in ConsumerGroupHeartbeat requests, from version 1 on.

    A member is known by the broker's name of its group, so that whoever describes the group finds it, by whatever
    name.
    """

    names: NameMap
    groups: NameMap | None = None
    wanted: frozenset[str] = frozenset(("group_id", "member_id", "member_epoch", "subscribed_topic_regex"))

    def bind(self, walk: Walk) -> Apply:
        marks = [
            walk.find("value", path) for path in ("group_id", "member_id", "member_epoch", "subscribed_topic_regex")
        ]

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            spans = {mark: (start, end) for mark, start, end in hits}
            group, member = (read_string(buf, *spans[mark], True) or b"" for mark in marks[:2])
            group = group if self.groups is None else self.groups.to_broker(group)
            epoch = int.from_bytes(buf[slice(*spans[marks[2]])], "big", signed=True)
            regex = read_string(buf, *spans[marks[3]], True)
            sent = self.sent((group, member), epoch, regex, context)
            if sent is not None:
                edits.replace(*spans[marks[3]], write_string(sent, True))
                context.rewrote("topic_regexes")

        return apply

    def sent(self, member: tuple[bytes, bytes], epoch: int, regex: bytes | None, context: Context) -> bytes | None:
        """Return the pattern to put in, or None: the field stays (or the topics are not known yet)."""
        kept = recall(context.cluster_memory, (REGEXES, self.names.owner))
        if epoch < 0 or regex == b"":  # the member leaves (-2: a static one, to come back), or unsubscribes
            kept.pop(member, None)
            return NOTHING if regex else None
        original, last, age = kept.get(member, (None, None, 0))
        wanted = original if regex is None else regex
        topics = None if wanted is None else context.topics()
        if wanted is None or topics is None:
            return None
        now = topics_age(context, topics)
        if regex is None and age == now:
            return None
        sent = translated(wanted, topics, self.names, context)
        if len(wanted) + sum(map(len, member)) <= MAX_REGEX_BYTES:
            remember(kept, member, (wanted, hash(sent), now), MAX_REGEXES)
        return sent if regex is not None or hash(sent) != last else None


@dataclass(frozen=True, slots=True)
class DescribedRegex:
    """Rewrite of `subscribed_topic_regex` in ConsumerGroupDescribe responses: shows what the member wrote, if it was
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
            kept = recall(context.cluster_memory, (REGEXES, self.names.owner))
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

        def apply(buf: Buffer, hits: Hits, edits: Edits, context: Context) -> None:
            spans = [(start, end) for mark, start, end in hits if mark == number]
            topics = context.topics() if spans else None
            if topics is None:
                return
            for start, end in spans:
                regex = read_string(buf, start, end, True)
                if regex:
                    sent = translated(regex, topics, self.translator.names, context)
                    edits.replace(start, end, write_string(sent, True))
                    context.rewrote("topic_regexes")

        return apply
