"""Rules of a worker: what the supervisor hands it is made ready, and put into force when it says so.

Strategy. The supervisor says how all rules are to be, each time; a worker that has just begun is told the same way as
one that has been at work for days. Rules are told apart by numbers that the supervisor has given them: one that goes on
keeps its `Running`, and with it its counters. Models are made beside the loop, and only those that are new.

A config comes the same way, with the rules that hold beside it. What is asked for later stands: an answer of before
that comes late is an answer to nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
import trio

from kproxy.base.errors import InternalError, UnusableSetting
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.rule_set import RuleSet, Running
from kproxy.rules.shared_numbers import NumberTable, SharedNumbers
from kproxy.runtime.io.turns import in_turns
from kproxy.runtime.rules.keeper import ApplyRuleSet, release_in_turns

from .channel import Channel
from .messages import (
    Commit,
    CountRules,
    Forget,
    HandedRule,
    NetworkTerms,
    Obstacle,
    Prepare,
    ReleaseRule,
    RuleCount,
    RulesState,
)


class ChangingConfig(Protocol):
    """Process of a worker, whose config changes. `make_ready` raises UnusableSetting; `take_over` cannot fail."""

    async def make_ready(self, config: bytes) -> Any: ...
    def take_over(self, change: Any, rules: RuleSet, terms: NetworkTerms) -> object: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """State that could be put into force. `running`: its live rules at work by the number they were born with.
    `change`: to the config that comes with it, if one does."""

    state: RulesState
    models: dict[bytes, Rule]
    running: dict[int, Running]
    rule_set: RuleSet
    change: Any = None


class WorkerRules:
    """Rules of one worker, of the number `index`. `swap` puts a rule set into force for all connections. `process` is
    whose config may come with them."""

    def __init__(
        self, table: NumberTable, index: int, swap: ApplyRuleSet, process: ChangingConfig | None = None
    ) -> None:
        self.table, self.swap, self.process = table, swap, process
        self.own = f":{index}" if index else ""
        self.models: dict[bytes, Rule] = {}
        self.running: dict[int, Running] = {}
        self.in_force: tuple[Running, ...] = ()
        self.asked = 0  # number of the state that was asked for last
        self.prepared: Prepared | None = None

    def begin(self, state: bytes) -> RuleSet:
        """Return the rules to begin with. Blocks. Raises InternalError for rules that cannot be made here."""
        prepared = self._read(state)
        self._take(prepared)
        return prepared.rule_set

    def listen(self, channel: Channel) -> None:
        channel.on_question(Prepare, self.prepare)
        channel.on_notice(Forget, self.forget)
        channel.on_question(Commit, self.commit)
        channel.on_question(CountRules, self.count)
        channel.on_question(ReleaseRule, self.release)

    async def prepare(self, question: Prepare) -> Obstacle | None:
        """Make the models of a state ready, beside the loop, and a config. Raises InternalError."""
        self.asked, self.prepared = question.number, None
        prepared = await trio.to_thread.run_sync(self._read, question.state)
        if question.config:
            if self.process is None:
                raise InternalError("the config does not change here")
            try:
                prepared = replace(prepared, change=await self.process.make_ready(question.config))
            except UnusableSetting as error:
                return Obstacle(list(error.where), str(error))
        if self.asked != question.number:
            raise InternalError(f"state {question.number} is not wanted any more")
        self.prepared = prepared
        return None

    def forget(self, notice: Forget) -> None:
        """Drop what was made ready for a state that does not come into force."""
        if self.asked == notice.number:
            self.asked, self.prepared = 0, None

    def _read(self, state: bytes) -> Prepared:
        read = msgspec.msgpack.decode(state, type=RulesState)
        return self._ready(read, models(read, self.models))

    def commit(self, question: Commit) -> Awaitable[None]:
        """Put a state into force: its config at once, its rules before the answer. Raises InternalError when it is not
        what was prepared."""
        prepared, self.prepared = self.prepared, None
        if prepared is None or prepared.state.number != question.number:
            number = "none" if prepared is None else prepared.state.number
            raise InternalError(f"rules {question.number} are to be put into force, {number} are prepared")
        if (prepared.change is None) != (question.network is None):
            raise InternalError(f"state {question.number} is to come with another config than was prepared")
        before = self.in_force
        self._take(prepared)
        if self.process is not None and question.network is not None:
            self.process.take_over(prepared.change, prepared.rule_set, question.network)
        return self._swap(prepared.rule_set, before)

    async def _swap(self, rules: RuleSet, before: tuple[Running, ...]) -> None:
        """Put rules into force for all connections, and let go what those of before hold that leave."""
        await in_turns(self.swap(rules) or ())
        staying = set(map(id, self.in_force))
        for running in before:
            if id(running) not in staying:
                await in_turns(running.releasing("rule_gone"))

    def count(self, question: CountRules) -> list[RuleCount]:
        """Return the counters of the rules that have any: of thousands of rules most have none."""
        return [counted(one) for one in self.running.values() if one.matched or one.held]

    async def release(self, question: ReleaseRule) -> int:
        """Let go the requests that the rule holds here; return how many."""
        running = self.running.get(question.born)
        return 0 if running is None else await release_in_turns(running)

    def _ready(self, state: RulesState, rule_models: dict[bytes, Rule]) -> Prepared:
        running, active, positions = {}, [], []
        for handed in state.rules:
            rule = rule_models[handed.content]
            if handed.born:
                assert isinstance(rule, LiveRule), "others are not born"
                known = self.running.get(handed.born)
                if known is None:
                    known = Running(rule, handed.origin, state.seed, handed.began, self._common(handed))
                    known.born, known.lives, known.resets = handed.born, handed.lives, handed.resets
                running[handed.born], rule = known, known.rule
            if handed.active:
                active.append(rule)
                positions.append(handed.position)
        rule_set = RuleSet(
            active, positions, [running[handed.born] for handed in state.rules if handed.active and handed.born]
        )
        return Prepared(state, rule_models, running, rule_set)

    def _take(self, prepared: Prepared) -> None:
        """Put the state into force: the part that cannot fail."""
        for one in prepared.state.rules:
            running = prepared.running.get(one.born)
            if running is None:
                continue
            running.enabled = one.active
            if running.resets != one.resets:
                running.reset()
                running.resets = one.resets
            if running.lives != one.lives:
                running.restart(one.began, self._common(one))
                running.lives = one.lives
        self.models, self.running = prepared.models, prepared.running
        self.in_force = prepared.rule_set.live

    def _common(self, one: HandedRule) -> SharedNumbers:
        return SharedNumbers(self.table, owner(one.born, one.lives), self.own)


def owner(born: int, lives: int) -> bytes:
    """Return the key of this life of a rule in the shared table."""
    return blake2b(f"{born} {lives}".encode(), digest_size=8).digest()


def models(state: RulesState, known: dict[bytes, Rule]) -> dict[bytes, Rule]:
    """Return the models of all rules, by their content. Raises InternalError where one cannot be made."""
    by_content = {}
    for handed in state.rules:
        rule = known.get(handed.content)
        if rule is None:
            try:
                rule = KINDS[handed.raw["kind"]].model_validate(handed.raw)
            except Exception as error:
                raise InternalError(
                    f'{handed.position}: the rule "{handed.raw.get("name")}" cannot be made: {error}'
                ) from error
            _ = rule.content  # found out here, beside the loop
        by_content[handed.content] = rule
    return by_content


def counted(running: Running) -> RuleCount:
    done = running.matched, running.fired, running.applied
    problems = len(running.held), running.problems, running.problem
    return RuleCount(running.born, running.resets, *done, *problems, running.throttles, running.throttle_seconds)
