"""Candidates: findings of checks before their level is decided.

A check lists the other possible causes of a candidate (its *doubts*). The rest of the record clears doubts or makes the
candidate void: the configs or the id of a topic may follow at the record's end. So the verdict decides the levels, and
the next verdict decides them again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from kproxy.protocol.table.api_keys import ALTER_REPLICA_LOG_DIRS, UPDATE_FEATURES, WRITE_TXN_MARKERS

from .cluster import KnownServers, KnownTopics
from .facts import PartitionPlace, Witness
from .finding import BatchInQuestion, Evidence, Finding, FindingLevel, doubt_text, unknown_text
from .options import VerifyTerms

MOST_ALIKE = 32  # kept candidates of one check at one place
MOST_PLACES = 2000
MOST_EVIDENCE = 8
MOST_KINDS = 64  # kinds of comparisons of one check; the first ones are kept
MOST_KEPT = 8  # comparisons of one kind; the last ones are kept
# Doubts about logs and brokers, which do not explain a difference between the client's and the broker's bytes.
NATURAL = frozenset(
    {"compaction", "anew", "retention", "truncation", "unclean", "restart", "race", "encoded"}
)  # fmt: skip

# Doubts about exchanges outside of the record, which a complete record excludes.
OF_ABSENCE = frozenset({"elsewhere", "unseen", "lowered", "aborter", "log-dir"})
# Requests that are the cause itself, if they are in the record.
CAUSING_APIS = {"aborter": WRITE_TXN_MARKERS, "log-dir": ALTER_REPLICA_LOG_DIRS, "lowered": UPDATE_FEATURES}
# Checks with findings that an exchange outside of their evidence may excuse, by the order of all exchanges.
OF_ORDER = frozenset({
    "lost-commit", "aborted-commit", "commit-beyond", "two-owners", "generation-goes-back", "torn-transaction",
    "hidden-transaction", "realtime-order",
})  # fmt: skip
SHORTEST_EXPIRY = 3600.0  # assumed minimum of producer.id.expiration.ms, in seconds; the default is a day


@dataclass(slots=True)
class Candidate:
    """Finding before its level is decided. `level`: its level without doubts. `void`: it turned out to be lawful.
    `any_age`: its lawful cause may be long before its exchanges. `logs`: topics in which an unclean leader election
    explains it, if not that of `place`."""

    check: str
    level: FindingLevel
    about: str
    says: str
    evidence: list[Evidence]
    doubts: tuple[str, ...] = ()
    place: PartitionPlace | None = None
    batch: BatchInQuestion | None = None
    hint: str = ""
    void: bool = False
    any_age: bool = False
    logs: tuple[str, ...] = ()

    @property
    def age(self) -> float:
        """Seconds between the beginning of the first exchange and the end of the last one."""
        times = [one.witness for one in self.evidence]
        return max(one.ended or one.began for one in times) - min(one.began for one in times) if times else 0.0


def candidate_of(
    check: str, about: str | PartitionPlace, says: str, *shown: tuple[Witness, str], level: FindingLevel = "proved",
    doubts: Iterable[str] = (), place: PartitionPlace | None = None, **more: Any,
) -> Candidate:  # fmt: skip
    """Return a candidate. `about`: its place, or a name of its subject. `shown`: exchanges with the text about each."""
    if isinstance(about, PartitionPlace):
        place = about
    evidence = [Evidence(witness, text) for witness, text in shown]
    return Candidate(check, level, str(about), says, evidence, tuple(doubts), place, **more)


@dataclass(slots=True)
class AlikeCandidates:
    """Candidates of one check at one place. `more`: number of those that were counted only."""

    kept: list[Candidate] = field(default_factory=list)
    more: int = 0


PlacedCandidates = dict[tuple[str, str], AlikeCandidates]  # by check and `about`


@dataclass(slots=True)
class Compared:
    """Comparisons of one check with one topic and the same doubts. `kept`: some of them."""

    count: int = 0
    kept: deque[Candidate] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))


class Candidates:
    """Candidates of all checks over one view. `dropped`: number of places beyond the limit."""

    def __init__(self, terms: VerifyTerms, topics: KnownTopics, servers: KnownServers) -> None:
        self.terms, self.topics, self.servers = terms, topics, servers
        self.by_place: PlacedCandidates = {}
        self.dropped = self.dropped_late = 0
        self.causes: set[int] = set()  # those of CAUSING_APIS that are in the record
        self.clocks: set[int] = set()  # of the recordings, as in Witness

    def add(self, candidate: Candidate) -> None:
        """Keep a candidate, or count it if there are many like it."""
        self.dropped += not self.keep(candidate, self.by_place)

    def keep(self, candidate: Candidate, by_place: PlacedCandidates, factor: int = 1) -> bool:
        """Add a candidate to its place; return False beyond the limit of places. `factor`: of the limits."""
        if not self.terms.wants(candidate.check):
            return True
        key = candidate.check, candidate.about
        alike = by_place.get(key)
        if alike is None:
            if len(by_place) >= factor * MOST_PLACES:
                return False
            alike = by_place[key] = AlikeCandidates()
        if len(alike.kept) < factor * MOST_ALIKE:
            alike.kept.append(candidate)
        else:
            alike.more += 1
        return True

    def findings(self, pending: Iterable[Candidate]) -> Iterator[Finding]:
        """Yield the current findings, by check, place and level. `pending`: candidates that later exchanges may still
        clear."""
        by_place = {key: AlikeCandidates(list(one.kept), one.more) for key, one in self.by_place.items()}
        self.dropped_late = sum(not self.keep(one, by_place, factor=2) for one in pending)
        for alike in by_place.values():
            by_level: dict[FindingLevel, list[tuple[Candidate, list[str]]]] = {}
            for candidate in alike.kept:
                doubts = self.doubts_left(candidate)
                if doubts is not None:
                    level = "suspect" if doubts and candidate.level == "proved" else candidate.level
                    by_level.setdefault(level, []).append((candidate, doubts))
            for level, of_level in by_level.items():
                yield merged(level, of_level, alike.more if len(by_level) == 1 else 0)

    def doubts_left(self, candidate: Candidate) -> list[str] | None:
        """Doubts that nothing has cleared; None if the candidate is void."""
        if candidate.void:
            return None
        topic = "" if candidate.place is None else candidate.place.topic
        witnesses = [one.witness for one in candidate.evidence]
        left = []
        for doubt in candidate.doubts:
            if doubt == "compaction":
                compacted = self.topics.is_compacted(topic, witnesses, ever=candidate.any_age)
                if compacted:
                    return None
                if compacted is None:
                    left.append(doubt)
                elif self.topics.may_be_another(topic, witnesses):
                    left.append("anew")  # the claim may be about another topic of this name
            elif not self.clears(doubt, candidate, topic, witnesses):
                left.append(doubt)
        if not self.servers.one_cluster and (candidate.doubts or len({one.connection for one in witnesses}) > 1):
            left.append("clusters")
        if self.terms.client_names and len({one.connection for one in witnesses}) > 1:
            left.append("names")
        if len({one.clock for one in witnesses}) > 1 or (candidate.check in OF_ORDER and len(self.clocks) > 1):
            left.append("skew")
        if self.terms.clock.back and are_close(witnesses, self.terms.clock.back):
            left.append("clock")
        return list(dict.fromkeys(left))

    def clears(self, doubt: str, candidate: Candidate, topic: str, witnesses: Sequence[Witness]) -> bool:
        """True if the record excludes a doubt about a candidate. `topic`: its topic."""
        if doubt == "anew":
            return not self.topics.may_be_another(topic, witnesses)
        if doubt == "unclean":
            number = None if candidate.place is None else candidate.place.number
            logs = candidate.logs or (topic,)
            return all(self.topics.is_clean(log, number if log == topic else None, witnesses) for log in logs)
        if doubt == "truncation":
            place = candidate.place
            return place is not None and self.topics.has_one_leader(topic, place.number, witnesses)
        if doubt == "retention":
            return self.terms.retention.get(topic, 0.0) > candidate.age + self.terms.clock.back
        absent = CAUSING_APIS.get(doubt) not in self.causes
        return doubt in OF_ABSENCE and absent and self.terms.proves_absence()


@dataclass(slots=True)
class ExpiringProducer:
    """Producer whose state a broker may drop. `old`: it sent a batch with an old timestamp. `candidates`: candidates
    about it that get the doubt "restart" then."""

    old: bool = False
    candidates: list[Candidate] = field(default_factory=list)

    def expire(self) -> None:
        self.old = True
        for one in self.candidates:
            one.doubts = tuple(dict.fromkeys((*one.doubts, "restart")))
        self.candidates.clear()

    def doubt(self, candidate: Candidate) -> None:
        """Add the doubt to a candidate, now or once the producer sends a batch with an old timestamp."""
        self.candidates.append(candidate)
        if self.old or len(self.candidates) > MOST_ALIKE:
            self.expire()


def is_expired(newest: int, witness: Witness) -> bool:
    """True if a broker may drop a producer's state after a batch with this highest timestamp, which its client chose.
    Brokers compare the timestamp of the last batch with their clock."""
    ended = witness.began if witness.ended is None else witness.ended
    return newest < 0 or ended - newest / 1000 > SHORTEST_EXPIRY


class Comparisons:
    """Comparisons that could have found a violation: a few of each check, topic and set of doubts."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.by_check: dict[str, dict[tuple[str, tuple[str, ...]], Compared]] = {}

    def add(
        self, check: str, witnesses: tuple[Witness, ...], place: PartitionPlace | None, doubts: tuple[str, ...],
        any_age: bool,
    ) -> None:  # fmt: skip
        """Count a comparison, and keep it if it is the first, second, fourth, eighth … one of its kind."""
        kinds = self.by_check.get(check)
        if kinds is None:
            kinds = self.by_check[check] = {}
        key = "" if place is None else place.topic, doubts
        kind = kinds.get(key)
        if kind is None:
            if len(kinds) >= MOST_KINDS:
                return
            kind = kinds[key] = Compared()
        kind.count += 1
        if not kind.count & (kind.count - 1):
            evidence = [Evidence(one, "") for one in witnesses]
            kind.kept.append(Candidate(check, "proved", "", "", evidence, doubts, place, any_age=any_age))

    def made(self, check: str) -> bool:
        return bool(self.by_check.get(check))

    def obstacle(self, check: str) -> str:
        """Reason why no comparison of a check could have proved a violation; empty if one could, or none was made."""
        reasons: Counter[str] = Counter()
        for kind in self.by_check.get(check, {}).values():
            for one in kind.kept:
                left = self.candidates.doubts_left(one)
                unknown = ["compacted"] if left is None else [doubt for doubt in left if unknown_text(doubt)]
                if not unknown:
                    return ""
                reasons[unknown[0]] += 1
        if not reasons:
            return ""
        ((most, _),) = reasons.most_common(1)
        return "the topics are compacted" if most == "compacted" else unknown_text(most)


def are_close(witnesses: Iterable[Witness], seconds: float) -> bool:
    """True if two exchanges have less than this time between them."""
    spans = sorted((one.began, one.began if one.ended is None else one.ended) for one in witnesses)
    return any(later - ended < seconds for (_, ended), (later, _) in pairwise(spans))


def merged(level: FindingLevel, alike: list[tuple[Candidate, list[str]]], more: int) -> Finding:
    first = alike[0][0]
    times = len(alike) + more
    seen: set[tuple[int, str]] = set()
    evidence: list[Evidence] = []
    for candidate, _ in alike:
        for one in candidate.evidence:
            if len(evidence) < MOST_EVIDENCE and (one.witness.number, one.says) not in seen:
                seen.add((one.witness.number, one.says))
                evidence.append(one)
    evidence.sort(key=lambda one: (one.witness.began, one.witness.number))
    doubts = dict.fromkeys(doubt for _, left in alike for doubt in left)
    sentences = [first.hint] if first.hint else []
    if doubts:
        sentences.append("It could also be: " + "; ".join(doubt_text(doubt) for doubt in doubts) + ".")
    return Finding(
        check=first.check,
        level=level,
        about=first.about,
        says=first.says if times == 1 else f"{first.says} (and {times - 1} more like it)",
        evidence=evidence,
        else_=" ".join(sentences),
        rules=rules_of(one.witness for one in evidence),
        times=times,
        batches=[one.batch for one, _ in alike if one.batch is not None],
        doubts=tuple(doubts),
        hint=first.hint,
    )


def rules_of(witnesses: Iterable[Witness]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule for witness in witnesses for rule in witness.rules))
