"""Live rules that can apply to one (api, version), and the decode depth that they need: compiled once a plan."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property, lru_cache
from itertools import chain

from kproxy.base.bounded_map import unheld
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import ENVELOPE, FETCH, SASL_HANDSHAKE, SHARE_ACKNOWLEDGE, SHARE_FETCH
from kproxy.rules.exchange import FrameDepth
from kproxy.rules.kinds.base.record_selector import RecordSelector
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.rule_set import ActiveRule
from kproxy.rules.select.frame_match import FrameMatch
from kproxy.session.compiled_rule import CompiledRule, RuleIndex, RuleMatcher
from kproxy.session.literal_search import LiteralSearch, NamePrefilter, name_prefilter

SESSIONS = frozenset((FETCH, SHARE_FETCH, SHARE_ACKNOWLEDGE))
"""APIs whose requests continue sessions, which are tracked request by request."""


MOST_CHOICES = 256
"""Sets of rules of one API and version that requests were found to be about; each is a small object."""


class RuleProgram:
    """Rules that can apply to one API and version, with their common requirements. `parts` are in file order. `request`
    is how deep a request must be seen before the first rule can decide."""

    def __init__(self, key: int, version: int, parts: Sequence[CompiledRule]) -> None:
        self.api, self.version = schema.load(key), version
        self.parts = tuple(parts)
        self.chosen = lru_cache(MOST_CHOICES)(unheld(self.choose))
        self.reads_entities = any(
            sees_body(part.running.rule)
            or part.by_response
            or (FrameDepth.BODY in (part.request, part.response) and part.running.rule.reads_entities)
            for part in parts
        )
        self.reads_schemas = any(part.running.rule.reads_schemas for part in parts)
        self.screens = any(part.screens for part in parts)
        self.enforces = any(not part.running.dry_run for part in parts)
        self.filters = any(part.wanted for part in parts)
        self.counts_all = any(part.running.counts_all for part in parts)
        self.of_answers = any(part.running.rule.of_answers for part in parts)
        self.names_client = self.api.header_version("request", version) > 0
        self.reads_offsets = any(selects_offsets(part.running.rule) for part in parts)
        self.reads_topics = any(part.running.rule.reads_topics for part in parts)
        self.request = max(part.request for part in parts)
        if self.reads_entities:
            self.request = FrameDepth.BODY
        self.response = max(part.response for part in parts)
        first = next(iter(self.api.fields("response")), None)
        self.throttle_first = first is not None and first.name == "throttle_time_ms" and version in first.versions

    @cached_property
    def decided_by_prefix(self) -> bool:
        """Return True if the selectors of all rules read only the bytes that a `FrameTemplate` compares."""
        return self.api.key not in SESSIONS and all(is_told_by_beginning(part) for part in self.parts)

    @cached_property
    def decided_by_header(self) -> bool:
        """Return True if the rules match a request whatever its body contains, unless it has no entities."""
        return not self.index.fields and self.decided_by_prefix

    def waiting(self, asked: Sequence[ActiveRule], terms: Container[ActiveRule]) -> tuple[ActiveRule, ...]:
        """Return the rules `asked` for a request, if they match each request with this beginning and each has a trigger
        or `terms`."""
        may_wait = self.decided_by_prefix and all(
            running.rule.when is not None or running in terms for running in asked
        )
        return tuple(asked) if may_wait else ()

    @cached_property
    def index(self) -> RuleIndex:
        return RuleIndex(self.parts)

    @cached_property
    def prefilter(self) -> NamePrefilter | None:
        return name_prefilter(self.api.key, self.version, self.index)

    @cached_property
    def answer_scan(self) -> LiteralSearch | None:
        """Return the test for responses that can mention names that rules with `letters` forbid; None: no such rule."""
        letters = frozenset(chain.from_iterable(part.letters or () for part in self.parts))
        return LiteralSearch(self.api.key, self.version, "response", letters) if letters else None

    def choose(self, numbers: frozenset[int]) -> RuleProgram | None:
        """Return the program with only the rules with these numbers; None: if all are given."""
        if len(numbers) == len(self.parts):
            return None  # not itself, which would be in a cache of its own
        return RuleProgram(self.api.key, self.version, [self.parts[number] for number in sorted(numbers)])

    @property
    def reads_bodies(self) -> bool:
        """Return True if a frame may have to be decoded."""
        return FrameDepth.BODY in (self.request, self.response)


def is_told_by_beginning(part: CompiledRule) -> bool:
    """Return True if the beginning of a request determines if the rule matches it."""
    rule, match = part.running.rule, part.running.rule.match
    if part.by_response or part.screens or part.wanted or part.matcher.unnamed or part.matcher.excluding is not None:
        return False
    if rule.selects_records:
        return False
    if rule.of_answers or type(rule).holds_for is not LiveRule.holds_for:
        return False
    return match is None or (type(match) is FrameMatch and match.size is None and match.of_entities <= {"topic"})


def sees_body(rule: LiveRule) -> bool:
    """Return True if the selectors read a request's entities."""
    return any(one is not None and one.sees_body for one in (rule.match, rule.not_))


def selects_offsets(rule: LiveRule) -> bool:
    """Return True if the selectors read requested or committed offsets."""
    return any(one is not None and one.offset is not None for one in (rule.match, rule.not_))


def compile_rules(key: int, version: int, live: Sequence[ActiveRule]) -> RuleProgram | None:
    """Return the rules that can apply to this API and version; None: none.

    A version that the table lacks has no body that could be read, so only rules that look at headers are about it.
    """
    if key not in schema.paths() or (key == SASL_HANDSHAKE and version == 0):
        return None
    known = version in schema.load(key).versions
    parts = []
    for running in live:
        rule = running.rule
        if not rule.about(key, version):
            continue
        request, response = rule.depth("request", key, version), rule.depth("response", key, version)
        if request == response == FrameDepth.NOTHING:
            continue
        late = rule.judged_late(key)
        if late:
            if response == FrameDepth.NOTHING:  # a rule that acts on requests, but can be judged only by the response
                continue
            response = FrameDepth.BODY
        if known or not (FrameDepth.BODY in (request, response) or sees_body(rule)):
            records = RecordSelector.of(rule, key, version) if rule.selects_records else None
            shows = known and not rule.selects_records and rule.shows(key, version)
            letters = rule.required_literals(key, version) if known else None
            matcher = RuleMatcher(rule, key, version)
            parts.append(
                CompiledRule(
                    running, matcher, request, response, late, shows, letters, rule.wanted, rule.acts_late, records
                )
            )
    return RuleProgram(key, version, parts) if parts else None


def unread(key: int, version: int, live: Sequence[ActiveRule]) -> str:
    """Return the name of the rule that forbids some contents of such requests, if kproxy cannot decode them; empty:
    none. That is so of an API or a version that the table lacks; the newest version's questions count as this one's. An
    Envelope holds a request of any API."""
    known = key in schema.paths()
    if known and version in schema.load(key).versions and key != ENVELOPE:
        return ""
    last = schema.load(key).versions.last if known else version
    for running in live:
        rule = running.rule
        if not rule.fails_closed or running.dry_run:
            continue
        unseen = key == ENVELOPE or (not known and (rule.match is None or rule.match.about_frame(key, version)))
        if unseen and rule.stops_unread:
            return running.name
        depths = rule.depth("request", key, last), rule.depth("response", key, last)
        if known and rule.about(key, last) and FrameDepth.BODY in depths:
            return running.name
    return ""
