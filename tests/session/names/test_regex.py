"""Patterns that the broker evaluates match what the client would see, under the broker's names."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count
from time import process_time
from typing import Any

import pytest
import re2

from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.rules.names.layer import GROUP, TOPIC, PrefixLayer
from kproxy.session.rewrite.context import MAX_ENTRIES, REGEXES, Context, NeedsLookup
from kproxy.session.rewrite.names import regex as patterns
from kproxy.session.rewrite.names.regex import MAX_NAME, HeartbeatRegex, Matcher, compiled
from tests.support.pace import within

Through = Callable[..., Any]
TOPICS = [b"prod.orders", b"orders", b"prod.clicks-1", b"prod.clicks-2.x", b"other", b"clicks-9"]


def beat(through: Through, regex: str | None, epoch: int = 1, member: str = "m", group: str = "g") -> str | None:
    values = {"group_id": group, "member_id": member, "member_epoch": epoch, "subscribed_topic_regex": regex}
    sent: str | None = through(68, 1, "request", **values)["subscribed_topic_regex"]
    return sent


def described(through: Through, regex: str | None, member: str = "m", group: str = "g") -> str | None:
    one = {"member_id": member, "subscribed_topic_regex": regex}
    body = through(69, 1, "response", groups=[{"group_id": group, "members": [one]}])
    shown: str | None = body["groups"][0]["members"][0]["subscribed_topic_regex"]
    return shown


@pytest.mark.parametrize(
    ("regex", "sent"),
    [
        ("orders", r"^(?:prod\.orders)$"),
        ("clicks-.*", r"^(?:prod\.clicks-1|prod\.clicks-2\.x)$"),
        (".*", r"^(?:other|prod\.clicks-1|prod\.clicks-2\.x|prod\.orders)$"),
        ("order", "^$"),
        ("prod.*", "^$"),
        (r"(?i)OTHER|ord\w+", r"^(?:other|prod\.orders)$"),
    ],
)
def test_pattern_becomes_the_names_it_matches(through: Through, context: Context, regex: str, sent: str) -> None:
    """It has to match a whole name, as in the broker; hidden topics are no match, nor are broker-side names."""
    context.known_topics = TOPICS
    assert beat(through, regex, epoch=0) == sent
    assert re2.compile(sent)


def test_heartbeat_without_known_topics_needs_lookup(through: Through, context: Context) -> None:
    """Without the cluster's topics the rewrite changes nothing and stores nothing."""
    assert beat(through, "orders", epoch=0) == "orders"
    assert HeartbeatRegex(NameMap([], TOPIC)).sent((b"g", b"m"), 0, b"o", context) == NeedsLookup(all_topics=True)
    assert not context.cluster_memory[REGEXES, b""]
    assert not context.counters.rewritten


def test_pattern_is_given_back(through: Through, context: Context) -> None:
    """Describe shows what the member wrote; a pattern that came another way is shown as it is."""
    context.known_topics = TOPICS
    sent = beat(through, "clicks-[0-9]", epoch=0)
    assert described(through, sent) == "clicks-[0-9]"
    assert described(through, sent, member="n") == sent
    assert described(through, "something else") == "something else"
    assert described(through, None) is None


def test_unchanged_pattern_is_filled_in_when_topics_change(through: Through, context: Context) -> None:
    """Null means unchanged to the broker; once a topic comes or goes, the member's heartbeat carries the new names."""
    context.known_topics = TOPICS
    beat(through, "clicks-.*", epoch=0)
    assert beat(through, None) is None
    context.known_topics = [*TOPICS, b"unrelated"]
    assert beat(through, None) is None
    context.known_topics = [*TOPICS, b"prod.clicks-new"]
    sent = r"^(?:prod\.clicks-1|prod\.clicks-2\.x|prod\.clicks-new)$"
    assert beat(through, None) == sent
    assert beat(through, None) is None
    assert beat(through, None, member="somebody else") is None
    assert described(through, sent) == "clicks-.*"


@pytest.mark.parametrize(("regex", "epoch"), [(None, -1), (None, -2), ("", 5), ("orders", -1)])
def test_member_that_leaves_is_forgotten(through: Through, context: Context, regex: str | None, epoch: int) -> None:
    """So is one that subscribes by names again, which it says with an empty pattern."""
    context.known_topics = TOPICS
    beat(through, "clicks-.*", epoch=0)
    assert beat(through, regex, epoch=epoch) == ("^$" if regex else regex)  # a pattern with a farewell reaches nothing
    assert not context.cluster_memory[REGEXES, b""]


@pytest.mark.parametrize("regex", ["(", "*", "[a", "a{2000}", "\\", "x" * 10 + "(?=y)"])
def test_bad_pattern_reaches_the_broker_as_a_bad_pattern(through: Through, context: Context, regex: str) -> None:
    """The broker answers INVALID_REGULAR_EXPRESSION; whatever its limits, what it gets is no pattern."""
    context.known_topics = TOPICS
    sent = beat(through, regex, epoch=0)
    assert sent == "*" + regex
    options = re2.Options()
    options.log_errors = False
    with pytest.raises(re2.error):
        re2.compile(sent, options)
    assert context.counters.events == {"topic_regex_invalid": 1}
    assert described(through, sent) == regex


def test_pattern_cannot_hang(through: Through, context: Context) -> None:
    """RE2 has no backtracking: the classic killer is linear."""
    context.known_topics = [b"a" * 240 + b"!"] * 50
    assert beat(through, "(a+)+b", epoch=0) == "^$"


def test_memory_is_bounded(through: Through, context: Context) -> None:
    """10,000 members are remembered per cluster, and none of huge size."""
    context.known_topics = []
    beat(through, "x" * 30_000, epoch=0, member="big")
    assert not context.cluster_memory[REGEXES, b""]
    for number in range(MAX_ENTRIES[REGEXES] + 5):
        context.cluster_memory[REGEXES, b""][(b"g", b"%d" % number)] = (b"o", 0, 0)
    beat(through, "o", epoch=0, member="last")
    kept = context.cluster_memory[REGEXES, b""]
    assert len(kept) == MAX_ENTRIES[REGEXES]
    assert next(reversed(kept)) == (b"g", b"last")


def test_streams_topology(through: Through, context: Context) -> None:
    """Each pattern of a topology becomes its own alternatives; their number stays, since other fields count them."""
    context.known_topics = TOPICS
    subtopology = {
        "subtopology_id": "0",
        "source_topics": ["orders"],
        "source_topic_regex": ["orders", "nothing", "clicks-.*"],
        "state_changelog_topics": [{"name": "clicks-changelog"}],
    }
    values = {"group_id": "g", "member_id": "m", "topology": {"epoch": 0, "subtopologies": [subtopology]}}
    found = through(88, 0, "request", **values)["topology"]["subtopologies"][0]
    assert found["source_topic_regex"] == [r"^(?:prod\.orders)$", "^$", r"^(?:prod\.clicks-1|prod\.clicks-2\.x)$"]
    assert found["source_topics"] == ["prod.orders"]
    assert found["state_changelog_topics"][0]["name"] == "prod.clicks-changelog"
    assert through(88, 0, "request", group_id="g", member_id="m")["topology"] is None


class TestInRenamedGroups:
    """A member is found by the broker's name of its group, whichever way its group is named."""

    @pytest.fixture
    def names(self, names: NameMaps) -> NameMaps:
        return NameMaps(names.topics, NameMap.of({"g": "prod.g"}, space=GROUP))

    def test_what_it_wrote_is_given_back(self, through: Through, context: Context) -> None:
        """The request says `g`, the answer `prod.g`; another group that the brokers call `g` is not meant."""
        context.known_topics = TOPICS
        sent = beat(through, "clicks-[0-9]", epoch=0)
        assert list(context.cluster_memory[REGEXES, b""]) == [(b"prod.g", b"m")]
        one = {"member_id": "m", "subscribed_topic_regex": sent}
        groups = [{"group_id": name, "members": [one]} for name in ("prod.g", "other")]
        found = through(69, 1, "response", groups=groups)["groups"]
        assert [(group["group_id"], group["members"][0]["subscribed_topic_regex"]) for group in found] == [
            ("g", "clicks-[0-9]"), ("other", sent)
        ]  # fmt: skip

    def test_it_is_filled_in_again(self, through: Through, context: Context) -> None:
        """When topics change."""
        context.known_topics = TOPICS
        beat(through, "clicks-.*", epoch=0)
        context.known_topics = [*TOPICS, b"prod.clicks-new"]
        assert "new" in (beat(through, None) or "")


def test_patterns_of_tenants_find_their_own(context: Context, through: Through) -> None:
    """Two connections of one cluster, with other rules, share the memory without meeting in it."""
    context.known_topics = [b"a.x", b"b.x"]
    for letter in ("a", "b"):
        topics, groups = (NameMap([PrefixLayer(space, letter.encode() + b".")], space) for space in (TOPIC, GROUP))
        part = HeartbeatRegex(topics, groups)
        assert part.sent((groups.to_broker(b"g"), b"m"), 0, b".*", context) == rf"^(?:{letter}\.x)$".encode()
    for letter in (b"a", b"b"):
        assert list(context.cluster_memory[REGEXES, letter + b"."]) == [(letter + b".g", b"m")]


DEAR = ["(((.{0,9}){0,9}){0,4})b", "((([^x]{0,9}){0,9}){0,4})b", "(((a?.?){0,99}){0,5})b"]


LONG_TOPICS = [(b"prod.clicks-" + b"a" * 200 + b"%d" % number)[:MAX_NAME] for number in range(3000)]


class FakeClock:
    """CPU clock in place of `thread_time`. Each text takes `seconds`. `texts`: how many were matched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, self.texts, self.seconds = 0.0, 0, seconds
        matches = Matcher.matches

        def counted(matcher: Matcher, text: bytes) -> bool:
            self.now += self.seconds
            self.texts += 1
            return matches(matcher, text)

        monkeypatch.setattr(patterns, "thread_time", lambda: self.now)
        monkeypatch.setattr(Matcher, "matches", counted)


@pytest.mark.parametrize("regex", DEAR)
def test_regex_that_takes_too_long_is_refused(
    context: Context, through: Through, monkeypatch: pytest.MonkeyPatch, regex: str
) -> None:
    """Each topic takes two milliseconds. kproxy stops after a few, and remembers that."""
    context.known_topics = LONG_TOPICS
    clock = FakeClock(monkeypatch, 0.002)
    for _ in range(2):
        assert beat(through, regex, epoch=0) == "*" + regex
        assert clock.texts * 0.002 <= 0.1
    assert context.counters.events["topic_regex_too_dear"] == 1


def test_regexes_of_one_second_share_an_allowance(
    context: Context, through: Through, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.known_topics = LONG_TOPICS
    clock = FakeClock(monkeypatch, 0.001)
    for number in range(50):
        beat(through, f"(((.{{0,9}}){{0,9}}){{0,4}})b{number}", epoch=0)
    assert clock.texts * 0.001 <= patterns.ALLOWANCE + 50 * (patterns.LEAST + 0.02)
    assert context.counters.events["topic_regex_too_dear"] == 50
    context.now += 1
    clock.seconds = 3e-6
    assert beat(through, "clicks-a+1", epoch=0) == rf"^(?:prod\.clicks-{'a' * 200}1)$"


@pytest.mark.measured
@pytest.mark.parametrize("regex", DEAR)
def test_regex_that_takes_too_long_takes_bounded_time(context: Context, through: Through, regex: str) -> None:
    context.known_topics = LONG_TOPICS
    for number in range(10):
        began = process_time()
        assert beat(through, f"{regex}{number}", epoch=0) == f"*{regex}{number}"
        assert within(process_time() - began, 0.3 if number == 0 else 0.1)


@pytest.mark.parametrize("name", [b"a-b", "aéb".encode(), b"a\xffb", b"a\xc3b"])
def test_a_name_is_matched_by_its_letters(name: bytes) -> None:
    """Also one that is no UTF-8, which no broker has: what is no letter counts as one."""
    assert Matcher(compiled(b"a.b"), {}, "tenant", 0.0).matches(name)
    assert not Matcher(compiled(b"a..b"), {}, "tenant", 0.0).matches(name)


SHORT = ("clicks-.*", "(?i)CLICKS-[0-9]{6}[.]events-v[0-9]+", "^clicks-(0+1|0+2|0+3).*$", "(.*-)?0+12[^-]*-v.")


MANY_TOPICS = [b"prod.clicks-%06d.events-v2" % number for number in range(5000)]
USUAL = [*SHORT, "|".join(f"clicks-{number:06d}.*" for number in range(1000))]
"""Case folded, with alternatives and with repetitions."""


@pytest.mark.parametrize("regex", USUAL)
def test_usual_regex_over_many_topics_is_accepted(
    context: Context, through: Through, monkeypatch: pytest.MonkeyPatch, regex: str
) -> None:
    """Such patterns take 3 µs for each topic."""
    FakeClock(monkeypatch, 3e-6)
    context.known_topics = MANY_TOPICS
    assert not (beat(through, regex, epoch=0) or "*").startswith("*")


@pytest.mark.measured
@pytest.mark.parametrize("regex", USUAL)
def test_usual_regex_takes_little_time(
    context: Context, through: Through, regex: str, request: pytest.FixtureRequest
) -> None:
    """The heap of a test run is large: a garbage collection takes more CPU time than a pattern may."""
    gc.disable()
    request.addfinalizer(gc.enable)
    context.known_topics = MANY_TOPICS
    for attempt in range(3):  # a machine that does other work is slow for a moment
        context.now += 1
        if not (beat(through, f"{regex}|x{attempt}", epoch=0) or "*").startswith("*"):
            return
    pytest.fail(regex)


@pytest.mark.parametrize("regex", SHORT[:1])
def test_a_machine_that_stands_still_makes_no_pattern_dear(
    context: Context, through: Through, monkeypatch: pytest.MonkeyPatch, regex: str
) -> None:
    """The host of a virtual machine may take its CPU away, which looks as if the pattern had used it; one whose steps
    are few cannot have."""
    context.known_topics = [b"prod.clicks-%06d.events-v2" % number for number in range(5000)]
    times = count(0.0, 0.05)
    monkeypatch.setattr(patterns, "thread_time", lambda: next(times))
    assert not (beat(through, regex, epoch=0) or "*").startswith("*")
    assert beat(through, DEAR[0], epoch=0) == "*" + DEAR[0]
