"""Store of all rules of the process by origin, and the rule set in force.

Each operation builds the new documents, checks them together, and then commits them. An error anywhere leaves the
store unchanged. An unchanged rule keeps its trigger, effect and counters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple

from kproxy.base.errors import NoSuchRule, RuleInUse
from kproxy.rules.document.check import ListenerTraits, ParsedRule, check_names
from kproxy.rules.document.read import Document, Moment, check_documents, moment, read_document
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.rule_set import ActiveRule, RuleSet
from kproxy.rules.values.source import Source, nearest, raise_mistakes

RuleOrigin = Literal["file", "api", "test"]
ORIGINS: tuple[RuleOrigin, ...] = ("file", "api", "test")
"""In the order of their rules."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """Document in force. `began`: when it (or one with the same scenario in its place) was loaded.

    Documents over the API are stored rule by rule, a scenario as one, so that each can be replaced in its place.
    """

    origin: RuleOrigin
    document: Document
    began: float

    def moment(self, now: float) -> Moment | None:
        """Return the point that its scenario is at; None when it has none, or when it is over."""
        scenario = self.document.scenario
        return None if scenario is None else moment(scenario, max(0.0, now - self.began))

    def next_change(self, now: float) -> float:
        """Return the time when the stage in force ends; infinity: never."""
        at = self.moment(now)
        return math.inf if at is None else self.began + at.ends


@dataclass(frozen=True, slots=True)
class StoredRule:
    """Rule in the store. `since`: when it came, or last changed. `until`: when it goes by itself. `running`: of a live
    rule, once it has been in force. `active`: whether it is in force now."""

    name: str
    rule: Rule
    parsed: ParsedRule
    stored_document: StoredDocument
    content: str
    since: float
    until: float | None
    running: ActiveRule | None = None
    active: bool = False

    @property
    def origin(self) -> RuleOrigin:
        return self.stored_document.origin

    @property
    def is_fault(self) -> bool:
        """Return True if `kproxy faults disable` turns it off."""
        return isinstance(self.rule, LiveRule) and self.rule.is_fault

    @property
    def may_be_meant_for_good(self) -> bool:
        """Return True for a rule of a file that is always in force: no trigger, no time to live, no scenario."""
        rule, stage = self.rule, self.parsed.stage
        ever = stage is None and self.until is None and isinstance(rule, LiveRule) and rule.when is None
        return self.origin == "file" and ever and self.is_fault

    def begins(self, now: float) -> float | None:
        """Return the time since which it would be in force now, were it enabled: a rule of a stage since the stage
        began; None: its stage is not the one in force."""
        if self.parsed.stage is None:
            return self.since
        at = self.stored_document.moment(now)
        return self.stored_document.began + at.began if at is not None and at.stage == self.parsed.stage else None


@dataclass(frozen=True, slots=True)
class StoreChange:
    """Result of an operation: rules that are new, and live rules that are not in force any more (what they hold must be
    let go)."""

    new: tuple[StoredRule, ...] = ()
    left: tuple[ActiveRule, ...] = ()


def carry_over(documents: Iterable[StoredDocument], before: dict[str, StoredRule], now: float) -> Iterator[StoredRule]:
    """Yield all rules of valid documents, in order. One that was there before, unchanged and from the same place, goes
    on."""
    for stored in documents:
        for parsed in stored.document.parsed_rules:
            assert parsed.rule is not None, "it has an error"
            assert parsed.name is not None, "it has an error"
            content = parsed.rule.content
            until = None if parsed.ttl is None else stored.began + parsed.ttl
            old = before.get(parsed.name)
            if old is not None and old.content == content and _same_place(old, stored, parsed):
                rule = old.rule if old.running is not None else parsed.rule  # the model that is at work
                yield StoredRule(parsed.name, rule, parsed, stored, content, old.since, until, old.running, old.active)
            else:
                yield StoredRule(parsed.name, parsed.rule, parsed, stored, content, now, until)


def _same_place(old: StoredRule, stored: StoredDocument, parsed: ParsedRule) -> bool:
    return (
        old.origin == stored.origin
        and old.parsed.source.file == parsed.source.file
        and old.parsed.stage == parsed.stage
        and (parsed.stage is None or old.stored_document.began == stored.began)
    )


MOST_COMPARED = 100
"""Names of rules among which the nearest to an unknown one is looked for."""


@dataclass(frozen=True, slots=True)
class Saved:
    """State of a store, as `restore` takes it."""

    documents: tuple[StoredDocument, ...]
    stored_rules: dict[str, StoredRule]
    off: frozenset[str]
    faults_disabled: bool
    listeners: Mapping[str, ListenerTraits] | None


class Begin(NamedTuple):
    """Change of an active rule with the next rule set: whether it is in force, and the time of its restart if it
    restarts."""

    running: ActiveRule
    active: bool
    again: float | None

    def take_effect(self) -> None:
        if self.again is not None:
            self.running.restart(self.again)
        self.running.enabled = self.active


class RuleStore:
    """Store of rules. `rule_set`: rules in force. `faults_disabled`: no fault is in force. `off`: disabled rules.
    `seed`: seed of all rules without their own. `listeners`: listeners that rules are checked against."""

    def __init__(self, seed: int = 0, listeners: Mapping[str, ListenerTraits] | None = None) -> None:
        self.seed, self.listeners = seed, listeners
        self.documents: tuple[StoredDocument, ...] = ()
        self.stored_rules: dict[str, StoredRule] = {}
        self.off: frozenset[str] = frozenset()
        self.faults_disabled = False
        self.rule_set = RuleSet()
        self.born = 0  # live rules that have been put to work so far
        self.later: list[Begin] | None = None  # what `adopt` does to rules at work; None: it is done at once
        self.original: tuple[object, ...] = ()  # the store's state when this trial began

    def __getitem__(self, name: str) -> StoredRule:
        """Return the rule of this name. Raises NoSuchRule."""
        try:
            return self.stored_rules[name]
        except KeyError:
            close = nearest(name, islice(self.stored_rules, MOST_COMPARED))
            hint = f', did you mean "{close}"?' if close else ""
            raise NoSuchRule(f'unknown rule "{name}"{hint}') from None

    def is_enabled(self, name: str) -> bool:
        """Return True if the rule is not disabled. Its stage or `disable_faults` may still turn it off."""
        return name not in self.off

    # ---- operations: each raises DocumentError with every mistake, and has changed nothing then

    def replace_files(self, files: Iterable[Source | Document], now: float) -> StoreChange:
        """Replace the rules of files, in this order. An unchanged scenario continues. Parsing is slow, so callers on
        the event loop parse with `read_document` in a thread."""
        documents = [read_document(one) if isinstance(one, Source) else one for one in files]
        new = [self._stored("file", document, now) for document in documents]
        return self._adopt([*new, *self._of("api"), *self._of("test")], now)

    def use(
        self, listeners: Mapping[str, ListenerTraits], files: Iterable[Source | Document], now: float
    ) -> StoreChange:
        """Replace the files' rules, as `replace_files` does, and the listeners that all rules are checked against."""
        self.listeners = listeners
        return self.replace_files(files, now)

    def replace_api(self, source: Source, now: float, *, ttl: float | None = None) -> StoreChange:
        """Replace the API's rules by the rules of this document. Rules of files and tests stay."""
        return self._adopt([*self._of("file"), *self._split(source, "api", now, ttl), *self._of("test")], now, on=True)

    def put(
        self, source: Source | Document, origin: RuleOrigin, now: float, *, ttl: float | None = None, again: bool = True
    ) -> StoreChange:
        """Add the rules of a document, or replace rules of the same names and origin in place.

        A source comes from a client, so its rules cannot run code. A caller that may load code reads it with
        `read_document`. ttl: seconds, for rules without their own. again: replacing is allowed. Raises RuleInUse if
        replacing is not allowed, or if the name belongs to another origin or a scenario.
        """
        new = self._split(source, origin, now, ttl)
        for stored in new:
            self._check_taken(stored, again)
        places = {_name(stored): stored for stored in new if stored.document.scenario is None}
        documents = [places.pop(_name(old), old) for old in self._of(origin)]
        documents += [stored for stored in new if stored.document.scenario is not None or _name(stored) in places]
        return self._adopt([*self._in_order(origin, documents)], now, on=True)

    def remove(self, name: str, now: float) -> StoreChange:
        """Remove a rule. Raises NoSuchRule, or RuleInUse for a rule of a file or scenario."""
        stored_rule = self[name]
        self._check_changeable(stored_rule)
        return self._adopt([one for one in self.documents if one is not stored_rule.stored_document], now)

    def remove_documents(self, ids: AbstractSet[int], now: float) -> StoreChange:
        """Remove all rules of stored documents by their `id()`. Documents that are gone already are ignored."""
        return self._adopt([one for one in self.documents if id(one) not in ids], now)

    def clear(self, origin: Literal["api", "test"], now: float) -> StoreChange:
        return self._adopt([one for one in self.documents if one.origin != origin], now)

    def enable(self, name: str, now: float) -> StoreChange:
        """Undo `disable` for a rule. Raises NoSuchRule."""
        return self._adopt(self.documents, now, off=self.off - {self[name].name})

    def disable(self, name: str, now: float) -> StoreChange:
        """Turn a rule off: it stays, with its counters, and is in force no more; not after a reload either, until it is
        enabled or gone. Raises NoSuchRule."""
        return self._adopt(self.documents, now, off=self.off | {self[name].name})

    def disable_faults(self, disabled: bool, now: float) -> StoreChange:
        """Disable all faults, or enable them again. The state survives later loads."""
        return self._take_over(self.documents, self.off, disabled, now)

    def reset(self, name: str | None, now: float) -> int:
        """Reset the counters of this live rule, or of all, and restart their triggers. Return the number of rules.
        Raises NoSuchRule."""
        rules = list(self.stored_rules.values()) if name is None else [self[name]]
        running = [rule.running for rule in rules if rule.running is not None]
        for rule in running:
            rule.reset()
            rule.restart(now)
        return len(running)

    # ---- operations in another thread

    def trial(self) -> RuleStore:
        """Return a copy for one operation. The store and its active rules stay unchanged."""
        trial = copy(self)
        trial.later, trial.original = [], self._state()
        return trial

    def adopt(self, trial: RuleStore) -> bool:
        """Commit a trial. Return False, without a change, if the store changed since the trial began."""
        if any(one is not other for one, other in zip(self._state(), trial.original, strict=True)):
            return False
        self.documents, self.stored_rules, self.off, self.faults_disabled = (
            trial.documents,
            trial.stored_rules,
            trial.off,
            trial.faults_disabled,
        )
        self.rule_set, self.born, self.listeners = trial.rule_set, trial.born, trial.listeners
        for begin in trial.later or ():
            begin.take_effect()
        return True

    def _state(self) -> tuple[object, ...]:
        return self.documents, self.stored_rules, self.off, self.faults_disabled, self.rule_set

    # ---- operations that others must agree to

    def saved(self) -> Saved:
        """Return the state that `restore` goes back to."""
        return Saved(self.documents, self.stored_rules, self.off, self.faults_disabled, self.listeners)

    def restore(self, saved: Saved, now: float) -> None:
        """Undo all changes since `saved`. Expired rules and stages stay expired."""
        self.stored_rules, self.listeners = saved.stored_rules, saved.listeners
        self._take_over(saved.documents, saved.off, saved.faults_disabled, now)

    # ---- time

    def due(self, now: float) -> float | None:
        """Return when `expire` has something to do next; None: never."""
        ends = [rule.until for rule in self.stored_rules.values() if rule.until is not None]
        ends += [stored.next_change(now) for stored in self.documents]
        return min((end for end in ends if end < math.inf), default=None)

    def expire(self, now: float) -> StoreChange:
        """Remove expired rules and start due stages.

        This is not checked: without a rule, only a rename can become unreachable, and an expired rule must end.
        """
        rules = self.stored_rules.values()
        gone = {id(rule.stored_document) for rule in rules if rule.until is not None and rule.until <= now}
        return self._take_over(
            [one for one in self.documents if id(one) not in gone], self.off, self.faults_disabled, now
        )

    # ---- inside

    def _of(self, origin: RuleOrigin) -> list[StoredDocument]:
        return [stored for stored in self.documents if stored.origin == origin]

    def _in_order(self, origin: RuleOrigin, documents: Sequence[StoredDocument]) -> list[StoredDocument]:
        return [stored for each in ORIGINS for stored in (documents if each == origin else self._of(each))]

    def _split(
        self, given: Source | Document, origin: RuleOrigin, now: float, ttl: float | None = None
    ) -> list[StoredDocument]:
        document = given if isinstance(given, Document) else read_document(given, from_api=True)
        source = document.source
        check_names(document.parsed_rules)
        raise_mistakes([source])
        parsed = [replace(one, ttl=ttl if one.ttl is None else one.ttl) for one in document.parsed_rules]
        parts = [Document(source, [one]) for one in parsed if one.stage is None]
        if document.scenario is not None:
            parts.append(Document(source, [one for one in parsed if one.stage is not None], document.scenario))
        return [self._stored(origin, part, now) for part in parts]

    def _stored(self, origin: RuleOrigin, document: Document, now: float) -> StoredDocument:
        """Return the document as stored. A document with an unchanged scenario keeps its position."""
        if origin == "file" and document.scenario is not None:
            for old in self._of(origin):
                same = old.document.source.file == document.source.file
                if same and old.document.scenario == document.scenario:
                    return StoredDocument(origin, document, old.began)
        return StoredDocument(origin, document, now)

    def _check_taken(self, new: StoredDocument, again: bool) -> None:
        for parsed in new.document.parsed_rules:
            old = self.stored_rules.get(parsed.name or "")
            if old is None:
                continue
            self._check_changeable(old)
            if not again or old.origin != new.origin or parsed.stage is not None:
                raise RuleInUse(f'the name "{old.name}" is taken, by a rule of origin {old.origin}')

    def _check_changeable(self, stored_rule: StoredRule) -> None:
        if stored_rule.origin == "file":
            raise RuleInUse(
                f'the rule "{stored_rule.name}" is in a file, at {stored_rule.parsed.position}: '
                "change the file, or disable the rule"
            )
        if stored_rule.parsed.stage is not None:
            raise RuleInUse(f'the rule "{stored_rule.name}" belongs to a scenario, replace or remove that as a whole')

    def _adopt(
        self, documents: Sequence[StoredDocument], now: float, *, off: frozenset[str] | None = None, on: bool = False
    ) -> StoreChange:
        """Check, then commit. `on`: enable new rules even if a rule of this name is disabled."""
        off = self.off if off is None else off
        old = {id(stored) for stored in self.documents}
        if on:
            off = off - {one.name or "" for new in documents if id(new) not in old for one in new.document.parsed_rules}
        try:
            check_documents([one.document for one in documents], self.listeners, lambda one: one.name not in off)
            raise_mistakes(dict.fromkeys(one.document.source for one in documents))
        finally:
            for stored in self.documents:
                stored.document.source.forget()
        return self._take_over(documents, off, self.faults_disabled, now)

    def _take_over(
        self, documents: Sequence[StoredDocument], off: frozenset[str], faults_disabled: bool, now: float
    ) -> StoreChange:
        before = self.stored_rules
        stored_rules = {
            one.name: self._put_to_work(one, off, faults_disabled, now) for one in carry_over(documents, before, now)
        }
        self.documents, self.stored_rules, self.faults_disabled = tuple(documents), stored_rules, faults_disabled
        self.off = off.intersection(stored_rules)
        active = [one for one in stored_rules.values() if one.active]
        running = [one.running for one in active if one.running is not None]
        self.rule_set = RuleSet([one.rule for one in active], [one.parsed.position for one in active], running)
        staying = {id(one) for one in running}
        left = [one.running for one in before.values() if one.active and one.running is not None]
        new = tuple(
            one for name, one in stored_rules.items() if name not in before or before[name].content != one.content
        )
        return StoreChange(new, tuple(one for one in left if id(one) not in staying))

    def _put_to_work(
        self, stored_rule: StoredRule, off: frozenset[str], faults_disabled: bool, now: float
    ) -> StoredRule:
        begins, again = stored_rule.begins(now), False
        active = begins is not None and stored_rule.name not in off and not (faults_disabled and stored_rule.is_fault)
        running = stored_rule.running
        if active and isinstance(stored_rule.rule, LiveRule):
            assert begins is not None
            if running is None:
                running = ActiveRule(stored_rule.rule, stored_rule.origin, self.seed, begins)
                self.born = running.born = self.born + 1
            else:
                # a rule of a stage restarts with each round of its scenario
                again = stored_rule.parsed.stage is not None and running.trigger.began < begins
        if running is not None:
            begin = Begin(running, active, begins if again else None)
            if self.later is None:
                begin.take_effect()
            else:
                self.later.append(begin)
        same = running is stored_rule.running and active == stored_rule.active
        return stored_rule if same else replace(stored_rule, running=running, active=active)


def _name(stored: StoredDocument) -> str | None:
    return stored.document.parsed_rules[0].name if stored.document.scenario is None else None
