"""Suspicions: findings of checks before their level is decided.

A check names the other causes that a suspicion may have (its *doubts*). The rest of the record clears doubts or makes
the suspicion void: the configs or the id of a topic may follow at the record's end. So levels are decided with the
verdict, and decided again with the next one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .checks import doubt_text, unknown_text
from .cluster import KnownServers, KnownTopics
from .facts import PartitionPlace, Witness
from .finding import BatchInQuestion, Evidence, Finding, FindingLevel
from .options import VerifyTerms

MOST_ALIKE = 32
"""Suspicions of one check at one place that are kept; more are counted."""
MOST_PLACES = 2000
MOST_EVIDENCE = 8
MOST_KINDS = 64
"""Kinds of comparisons of one check; the first ones are kept."""
MOST_KEPT = 8
"""Comparisons of one kind; the last ones are kept."""
NATURAL = frozenset(
    {"compaction", "anew", "retention", "truncation", "unclean", "restart", "race", "encoded"}
)  # fmt: skip
"""Doubts about logs and their brokers. They cannot explain a difference between the client's and the broker's bytes."""

OF_ABSENCE = frozenset({"elsewhere", "unseen", "lowered", "aborter"})
"""Doubts about exchanges outside of the record. A complete record excludes them."""
SHORTEST_EXPIRY = 3600.0
"""Assumed minimum of producer.id.expiration.ms, in seconds; the default is a day."""


@dataclass(slots=True)
class Suspicion:
    """Suspicion of one check. `level`: the one that it has if no doubt is left. `void`: it has turned out to be lawful.
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
        """Return the seconds between the beginning of the first exchange and the end of the last one."""
        times = [one.witness for one in self.evidence]
        return max(one.ended or one.began for one in times) - min(one.began for one in times) if times else 0.0


@dataclass(slots=True)
class AlikeSuspicions:
    """Suspicions of one check at one place. `more`: how many are counted only."""

    kept: list[Suspicion] = field(default_factory=list)
    more: int = 0


@dataclass(slots=True)
class Compared:
    """Comparisons of one check with one topic and the same doubts. `kept`: some of them, as suspicions."""

    count: int = 0
    kept: deque[Suspicion] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))


class Suspicions:
    """Suspicions of all checks over one view of a record. `dropped`: places that are not told, since there are too
    many."""

    def __init__(self, terms: VerifyTerms, topics: KnownTopics, servers: KnownServers) -> None:
        self.terms, self.topics, self.servers = terms, topics, servers
        self.by_place: dict[tuple[str, str], AlikeSuspicions] = {}
        self.dropped = self.dropped_late = 0
        self.aborter = False
        """True if an operator ended a transaction in single partitions, with WriteTxnMarkers."""

    def add(self, suspicion: Suspicion) -> None:
        """Keep a suspicion, or count it if there are many like it."""
        if not self.terms.wants(suspicion.check):
            return
        key = suspicion.check, suspicion.about
        alike = self.by_place.get(key)
        if alike is None:
            if len(self.by_place) >= MOST_PLACES:
                self.dropped += 1
                return
            alike = self.by_place[key] = AlikeSuspicions()
        if len(alike.kept) < MOST_ALIKE:
            alike.kept.append(suspicion)
        else:
            alike.more += 1

    def findings(self, pending: Iterable[Suspicion]) -> Iterator[Finding]:
        """Yield what is found as of now: a finding for each check, place and level. `pending`: suspicions that checks
        have not given here, since what comes may still clear them."""
        groups: dict[tuple[str, str], list[Suspicion]] = {key: list(one.kept) for key, one in self.by_place.items()}
        self.dropped_late = 0
        more = {key: one.more for key, one in self.by_place.items()}
        for suspicion in pending:
            if not self.terms.wants(suspicion.check):
                continue
            group = groups.get((suspicion.check, suspicion.about))
            if group is None:
                if len(groups) >= 2 * MOST_PLACES:
                    self.dropped_late += 1
                    continue
                group = groups[suspicion.check, suspicion.about] = []
            if len(group) < 2 * MOST_ALIKE:
                group.append(suspicion)
            else:
                more[suspicion.check, suspicion.about] = more.get((suspicion.check, suspicion.about), 0) + 1
        for key, group in groups.items():
            yield from self._of_place(group, more.get(key, 0))

    def _of_place(self, group: list[Suspicion], more: int) -> Iterator[Finding]:
        by_level: dict[FindingLevel, list[tuple[Suspicion, list[str]]]] = {}
        for suspicion in group:
            doubts = self.doubts_left(suspicion)
            if doubts is None:
                continue
            level: FindingLevel = "suspect" if doubts and suspicion.level == "proved" else suspicion.level
            by_level.setdefault(level, []).append((suspicion, doubts))
        for level, of_level in by_level.items():
            yield merged(level, of_level, more if len(by_level) == 1 else 0)

    def doubts_left(self, suspicion: Suspicion) -> list[str] | None:
        """Return the doubts that nothing has cleared; None if the suspicion is void."""
        if suspicion.void:
            return None
        topic = "" if suspicion.place is None else suspicion.place.topic
        witnesses = [one.witness for one in suspicion.evidence]
        left = []
        for doubt in suspicion.doubts:
            if doubt == "compaction":
                compacted = self.topics.is_compacted(topic, witnesses, ever=suspicion.any_age)
                if compacted:
                    return None
                if compacted is None:
                    left.append(doubt)
                elif self.topics.may_be_another(topic, witnesses):
                    left.append("anew")  # the claim may be about another topic of this name
            elif not self.clears(doubt, suspicion, topic, witnesses):
                left.append(doubt)
        if not self.servers.one_cluster and (suspicion.doubts or len({one.connection for one in witnesses}) > 1):
            left.append("clusters")
        if len({one.clock for one in witnesses}) > 1:
            left.append("skew")
        if self.terms.clock.back and are_close(witnesses, self.terms.clock.back):
            left.append("clock")
        return list(dict.fromkeys(left))

    def clears(self, doubt: str, suspicion: Suspicion, topic: str, witnesses: Sequence[Witness]) -> bool:
        """Return True if the record excludes a doubt about a suspicion. `topic`: the one that it is about."""
        if doubt == "anew":
            return not self.topics.may_be_another(topic, witnesses)
        if doubt == "unclean":
            return all(self.topics.is_clean(log, witnesses) for log in suspicion.logs or (topic,))
        if doubt == "retention":
            return self.terms.retention.get(topic, 0.0) > suspicion.age + self.terms.clock.back
        return doubt in OF_ABSENCE and self.terms.proves_absence() and not (doubt == "aborter" and self.aborter)


@dataclass(slots=True)
class ExpiringProducer:
    """Producer that a broker may forget. `old`: it sent a batch with an old timestamp. `suspicions`: findings about it
    that get the doubt "restart" if it does so."""

    old: bool = False
    suspicions: list[Suspicion] = field(default_factory=list)

    def expire(self) -> None:
        """Add the doubt to all findings about this producer."""
        self.old = True
        for one in self.suspicions:
            one.doubts = tuple(dict.fromkeys((*one.doubts, "restart")))
        self.suspicions.clear()

    def doubt(self, suspicion: Suspicion) -> None:
        """Add the doubt to a finding, now or once the producer sends a batch with an old timestamp."""
        self.suspicions.append(suspicion)
        if self.old or len(self.suspicions) > MOST_ALIKE:
            self.expire()


def is_expired(newest: int, witness: Witness) -> bool:
    """Return True if a broker may forget a producer after a batch with this highest timestamp, which its client chose.
    Brokers compare the timestamp of the last batch with their clock."""
    ended = witness.began if witness.ended is None else witness.ended
    return newest < 0 or ended - newest / 1000 > SHORTEST_EXPIRY


class Comparisons:
    """Comparisons of all checks that could have found a violation: a few of each check, topic and set of doubts."""

    def __init__(self, suspicions: Suspicions) -> None:
        self.suspicions = suspicions
        self.by_check: dict[str, dict[tuple[str, tuple[str, ...]], Compared]] = {}

    def add(
        self, check: str, witnesses: tuple[Witness, ...], place: PartitionPlace | None, doubts: tuple[str, ...],
        any_age: bool,
    ) -> None:  # fmt: skip
        """Note a comparison, and keep it if it is the first, second, fourth, eighth … one of its kind."""
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
            kind.kept.append(Suspicion(check, "proved", "", "", evidence, doubts, place, any_age=any_age))

    def made(self, check: str) -> bool:
        return bool(self.by_check.get(check))

    def obstacle(self, check: str) -> str:
        """Return why no comparison of a check could have proved a violation; empty if one could, or none was made."""
        reasons: Counter[str] = Counter()
        for kind in self.by_check.get(check, {}).values():
            for one in kind.kept:
                left = self.suspicions.doubts_left(one)
                unknown = ["compacted"] if left is None else [doubt for doubt in left if unknown_text(doubt)]
                if not unknown:
                    return ""
                reasons[unknown[0]] += 1
        if not reasons:
            return ""
        ((most, _),) = reasons.most_common(1)
        return "the topics are compacted" if most == "compacted" else unknown_text(most)


def are_close(witnesses: Iterable[Witness], seconds: float) -> bool:
    """Return True if there are two exchanges that less than so many seconds lie between."""
    spans = sorted((one.began, one.began if one.ended is None else one.ended) for one in witnesses)
    return any(later - ended < seconds for (_, ended), (later, _) in pairwise(spans))


def merged(level: FindingLevel, alike: list[tuple[Suspicion, list[str]]], more: int) -> Finding:
    first = alike[0][0]
    times = len(alike) + more
    seen: set[tuple[int, str]] = set()
    evidence: list[Evidence] = []
    for suspicion, _ in alike:
        for one in suspicion.evidence:
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
