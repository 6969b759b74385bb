"""Rules of a worker: it prepares the supervisor's state and commits it on request.

The supervisor sends the complete state of all rules each time, so a new worker receives the same calls as an old one.
The supervisor numbers the rules: a rule with the same number keeps its `ActiveRule`, and with it its counters. Models
are made in a thread, and only those of new rules. A config comes with its rules. The latest call wins: a late result
of an earlier one is discarded.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import astuple, dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from kproxy.base.errors import InternalError
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule, Rule
from kproxy.rules.rule_set import ActiveRule, RuleSet
from kproxy.rules.shared_numbers import SharedNumbers
from kproxy.runtime.io.channel import remote
from kproxy.runtime.io.scheduler import in_turns
from kproxy.runtime.rule_keeper import ApplyRuleSet, resume_in_turns

from .messages import HandedRule, NetworkSettings, RuleCount, RulesState

if TYPE_CHECKING:
    from kproxy.app.worker import Worker

    from .shared_table import SharedTable

PREPARE_PATIENCE = 30.0
"""Timeout in seconds of a call for the models of new rules: ten thousand take some three."""
COMMIT_PATIENCE = 10.0
"""Timeout in seconds of a commit: it takes one step for each connection."""
COUNT_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """State that is prepared. `running`: its live rules at work by their birth number. `change`: to the config of the
    same question, if included."""

    state: RulesState
    models: dict[bytes, Rule]
    running: dict[int, ActiveRule]
    rule_set: RuleSet
    change: Any = None


class WorkerRules:
    """Rules of one worker, of the number `index`. `swap` puts a rule set into force for all connections. `process` has
    the config that may change with the rules."""

    def __init__(self, table: SharedTable, index: int, swap: ApplyRuleSet, process: Worker | None = None) -> None:
        self.table, self.swap, self.process = table, swap, process
        self.own = f":{index}" if index else ""
        self.models: dict[bytes, Rule] = {}
        self.running: dict[int, ActiveRule] = {}
        self.in_force: tuple[ActiveRule, ...] = ()
        self.asked = 0  # number of the last requested state
        self.prepared: Prepared | None = None

    def begin(self, state: bytes) -> RuleSet:
        """Return the rules at the start. Blocks. Raises InternalError for rules that cannot be made here."""
        prepared = self._read(state)
        self._take(prepared)
        return prepared.rule_set

    @remote(PREPARE_PATIENCE)
    async def prepare(self, number: int, state: bytes, config: bytes) -> None:
        """Prepare the models of a state (a packed `RulesState`) in a thread and, unless it is empty, a packed config.
        `number`: of the state; each has its own, including those that are never committed. Raises InternalError, and
        UnusableSetting for a setting that this process cannot use."""
        self.asked, self.prepared = number, None
        prepared = await trio.to_thread.run_sync(self._read, state)
        if config:
            if self.process is None:
                raise InternalError("the config does not change here")
            prepared = replace(prepared, change=await self.process.prepare_config(config))
        if self.asked != number:
            raise InternalError(f"state {number} is not wanted any more")
        self.prepared = prepared

    @remote()
    def forget(self, number: int) -> None:
        """Drop the prepared parts of a state that is discarded."""
        if self.asked == number:
            self.asked, self.prepared = 0, None

    def _read(self, state: bytes) -> Prepared:
        read = msgspec.msgpack.decode(state, type=RulesState)
        return self._ready(read, models(read, self.models))

    @remote(COMMIT_PATIENCE)
    def commit(self, number: int, network: NetworkSettings | None) -> Awaitable[None]:
        """Commit a state: its config at once, its rules before the result. `network`: the terms of its config, if
        included. Raises InternalError if it is not the prepared one."""
        prepared, self.prepared = self.prepared, None
        if prepared is None or prepared.state.number != number:
            ready = "none" if prepared is None else prepared.state.number
            raise InternalError(f"rules {number} are to be put into force, {ready} are prepared")
        if (prepared.change is None) != (network is None):
            raise InternalError(f"state {number} is to come with another config than was prepared")
        before = self.in_force
        self._take(prepared)
        if self.process is not None and network is not None:
            self.process.commit_config(prepared.change, prepared.rule_set, network)
        return self._swap(prepared.rule_set, before)

    async def _swap(self, rules: RuleSet, before: tuple[ActiveRule, ...]) -> None:
        """Put rules into force for all connections, and resume requests held by removed rules."""
        await in_turns(self.swap(rules) or ())
        staying = set(map(id, self.in_force))
        for running in before:
            if id(running) not in staying:
                await in_turns(running.resuming("rule_gone"))

    @remote(COUNT_PATIENCE)
    async def count(self) -> list[RuleCount]:
        """Return the counters of the rules with nonzero ones: of thousands of rules most have none."""
        return [counted(one) for one in self.running.values() if one.matched or one.held]

    @remote(COUNT_PATIENCE)
    async def resume(self, born: int) -> int:
        """Resume the requests that the rule holds here; return their number."""
        running = self.running.get(born)
        return 0 if running is None else await resume_in_turns(running)

    def _ready(self, state: RulesState, rule_models: dict[bytes, Rule]) -> Prepared:
        running, active, positions = {}, [], []
        for handed in state.rules:
            rule = rule_models[handed.content]
            if handed.born:
                assert isinstance(rule, LiveRule), "others are not born"
                known = self.running.get(handed.born)
                if known is None:
                    known = ActiveRule(rule, handed.origin, state.seed, handed.began, self._common(handed))
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
        """Commit the state: the part that cannot fail."""
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
        return SharedNumbers(self.table.cells, owner(one.born, one.lives), self.own)


def owner(born: int, lives: int) -> bytes:
    """Return the key of this life of a rule in the shared table."""
    return blake2b(f"{born} {lives}".encode(), digest_size=8).digest()


def models(state: RulesState, known: dict[bytes, Rule]) -> dict[bytes, Rule]:
    """Return the models of all rules, by their content. Raises InternalError if one cannot be made."""
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
            _ = rule.content  # computed here, outside the loop
        by_content[handed.content] = rule
    return by_content


def counted(running: ActiveRule) -> RuleCount:
    done = running.matched, running.fired, running.applied
    problems = len(running.held), running.problems, running.problem
    records = astuple(running.records)
    return RuleCount(
        running.born, running.resets, *done, *problems, running.throttles, running.throttle_seconds, records
    )
