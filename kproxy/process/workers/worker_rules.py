"""Rules of a worker: what the supervisor hands it is made ready, and put into force when it says so.

Strategy. The supervisor says how all rules are to be, each time; a worker that has just begun is told the same way as
one that has been at work for days. Rules are told apart by numbers that the supervisor has given them: one that goes on
keeps its `Running`, and with it its counters. Models are made beside the loop, and only those that are new.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import msgspec
import trio

from kproxy.errors import InternalError
from kproxy.net.loop.turns import in_turns
from kproxy.net.rules.keeper import ApplyRuleSet, release_in_turns
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.live import LiveRule
from kproxy.rules.kinds.base.rule import Rule
from kproxy.rules.rule_set import RuleSet
from kproxy.rules.running import Running
from kproxy.rules.shared_numbers import NumberTable, SharedNumbers

from .channel import Channel
from .messages import Commit, CountRules, HandedRule, Prepare, ReleaseRule, RuleCount, RulesState


@dataclass(frozen=True, slots=True)
class Prepared:
    """State that could be put into force. `running`: its live rules at work by the number they were born with."""

    state: RulesState
    models: dict[bytes, Rule]
    running: dict[int, Running]
    rule_set: RuleSet


class WorkerRules:
    """Rules of one worker, of the number `index`. `swap` puts a rule set into force for all connections."""

    def __init__(self, table: NumberTable, index: int, swap: ApplyRuleSet) -> None:
        self.table, self.swap = table, swap
        self.own = f":{index}" if index else ""
        self.models: dict[bytes, Rule] = {}
        self.running: dict[int, Running] = {}
        self.in_force: tuple[Running, ...] = ()
        self.prepared: Prepared | None = None

    def begin(self, state: bytes) -> RuleSet:
        """Return the rules to begin with. Blocks. Raises InternalError for rules that cannot be made here."""
        prepared = self._read(state)
        self._take(prepared)
        return prepared.rule_set

    def listen(self, channel: Channel) -> None:
        """Do from now on what the supervisor says."""
        channel.on_question(Prepare, self.prepare)
        channel.on_question(Commit, self.commit)
        channel.on_question(CountRules, self.count)
        channel.on_question(ReleaseRule, self.release)

    async def prepare(self, question: Prepare) -> None:
        """Make the models of a state ready, beside the loop. Raises InternalError."""
        self.prepared = await trio.to_thread.run_sync(self._read, question.state)

    def _read(self, state: bytes) -> Prepared:
        read = msgspec.msgpack.decode(state, type=RulesState)
        return self._ready(read, models(read, self.models))

    async def commit(self, question: Commit) -> None:
        """Put a state into force. Raises InternalError when it is not what was prepared."""
        prepared, self.prepared = self.prepared, None
        if prepared is None or prepared.state.number != question.number:
            number = "none" if prepared is None else prepared.state.number
            raise InternalError(f"rules {question.number} are to be put into force, {number} are prepared")
        before = self.in_force
        self._take(prepared)
        await in_turns(self.swap(prepared.rule_set) or ())
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
    """Return the counters of a rule in this process."""
    done = running.matched, running.fired, running.applied
    return RuleCount(running.born, running.resets, *done, len(running.held), running.problems, running.problem)
